"""PodGroups of scheduling.k8s.io, and the pods in them."""

import pytest

from central.kube.decode.native_podgroup_decoder import composite_gone, native_podgroup_gone
from central.model.device_claims import PodDeviceClaim
from central.model.facts import GangGone, GangSeen
from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import pod, reader

GANG: Json = {"schedulingPolicy": {"gang": {"minCount": 4}}}


def seen(
    spec: Json, version: str = "v1alpha2", status: Json | None = None, **meta: object
) -> GangSeen:
    found = {"name": "g", "namespace": "ns", "uid": "u", **meta}
    return reader().native_gang(version, {"metadata": found, "spec": spec, "status": status})


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_a_gang(version: str) -> None:
    owner = {"controller": True, "kind": "Job", "name": "train", "uid": "j"}
    found = seen(GANG, version, ownerReferences=[owner])
    assert found == GangSeen(
        "ns", "podgroup/g", 4, uid="u", queue="", owner="job/train", native_version=version
    )
    assert native_podgroup_gone({"metadata": {"namespace": "ns", "name": "g"}}) == GangGone(
        "ns", "podgroup/g"
    )


def test_a_composite_podgroup_counts_groups() -> None:
    """As Kubernetes 1.37 has it, with the status that kube-scheduler would write."""
    spec: Json = {
        "parentCompositePodGroupName": "root",
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "schedulingConstraints": {"topology": [{"key": names.RACK}]},
        "disruptionMode": {"all": {}},
        "priorityClassName": "high",
        "priority": 5,
        "preemptionPolicy": "Never",
    }
    condition = {"type": "CompositePodGroupInitiallyScheduled", "status": "True"}
    meta = {"name": "c", "namespace": "ns", "uid": "u"}
    raw = {"metadata": meta, "spec": spec, "status": {"conditions": [condition]}}
    assert reader().composite_gang("v1alpha3", raw) == GangSeen(
        "ns",
        "compositepodgroup/c",
        2,
        uid="u",
        queue="",
        priority=5,
        priority_class="high",
        topology_required=names.RACK,
        phase="Running",
        evicted_whole=True,
        native_version="v1alpha3",
        parent="compositepodgroup/root",
        preempts=False,
    )
    assert composite_gone(raw) == GangGone("ns", "compositepodgroup/c")
    basic = {"metadata": meta, "spec": {"schedulingPolicy": {"basic": {}}}}
    assert reader().composite_gang("v1alpha3", basic).min_member == 0


def test_pods_of_the_basic_policy_start_one_by_one() -> None:
    assert seen({"schedulingPolicy": {"basic": {}}}).min_member == 1


def test_the_queue_and_preferences_are_annotations() -> None:
    annotations = {
        names.QUEUE_NAME: "research",
        names.TOPOLOGY_PREFERRED: names.RACK,
        names.PLACEMENT: "spread",
        names.PREEMPTABLE: "false",
    }
    found = seen(GANG, annotations=annotations)
    assert (found.queue, found.topology_preferred, found.placement, found.preemptable) == (
        "research",
        names.RACK,
        "spread",
        False,
    )


def test_the_claims_that_its_pods_share() -> None:
    claims = [
        {"name": "a", "resourceClaimTemplateName": "t"},
        {"name": "b", "resourceClaimName": "c"},
    ]
    found = seen({**GANG, "resourceClaims": claims})
    assert found.device_claims == (PodDeviceClaim("a", "", "t"), PodDeviceClaim("b", "c"))
    assert not found.error
    many = [{"name": f"n{i}", "resourceClaimName": "c"} for i in range(65)]
    assert "resourceClaims: 65 entries" in seen({**GANG, "resourceClaims": many}).error


@pytest.mark.parametrize(
    ("key", "level"), [(names.RACK, names.RACK), ("kubernetes.io/hostname", names.NODE)]
)
def test_a_topology_constraint(key: str, level: str) -> None:
    found = seen({**GANG, "schedulingConstraints": {"topology": [{"key": key}]}})
    assert (found.topology_required, found.error) == (level, "")


def test_the_constraint_goes_before_the_annotation() -> None:
    constraint = {"topology": [{"key": "kubernetes.io/hostname"}]}
    annotations = {names.TOPOLOGY_REQUIRED: names.RACK}
    found = seen({**GANG, "schedulingConstraints": constraint}, annotations=annotations)
    assert (found.topology_required, found.error) == (names.NODE, "")
    assert seen(GANG, annotations=annotations).topology_required == names.RACK


@pytest.mark.parametrize(
    ("mode", "whole"),
    [
        (None, False),
        ("Pod", False),
        ("PodGroup", True),
        ({"single": {}}, False),
        ({"all": {}}, True),
    ],
)
def test_the_disruption_mode(mode: object, whole: bool) -> None:
    found = seen({**GANG, "disruptionMode": mode})
    assert (found.evicted_whole, found.error) == (whole, "")


def test_priorities() -> None:
    found = seen({**GANG, "priority": -5, "priorityClassName": "low"})
    assert (found.priority, found.priority_class) == (-5, "low")


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1alpha2", "PodGroupScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")],
)
def test_the_phase_is_what_its_condition_says(version: str, kind: str) -> None:
    def phase(kind: str, status: str) -> tuple[str, str]:
        condition = {"type": kind, "status": status, "message": "why"}
        found = seen(GANG, version, {"conditions": [{"type": "Other"}, condition]})
        return found.phase, found.reason

    assert phase(kind, "True") == ("Running", "why")
    assert phase(kind, "False") == ("Pending", "why")
    assert phase("DisruptionTarget", "True") == ("", "")


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({}, "spec.schedulingPolicy: exactly one of basic and gang is required"),
        (
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 2}}},
            "spec.schedulingPolicy: exactly one of basic and gang is required",
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "spec.schedulingPolicy.gang.minCount: 0 is not a whole number from 1",
        ),
        ({"schedulingPolicy": {"gang": {"minCount": 2**40}}}, "minCount: "),
        ({"schedulingPolicy": "gang"}, "spec.schedulingPolicy: 'gang' is not an object"),
        (
            {**GANG, "schedulingConstraints": {"topology": [{"key": "example.com/hall"}]}},
            'spec.schedulingConstraints.topology[0].key: "example.com/hall" is not a label of the network tree',
        ),
        (
            {**GANG, "schedulingConstraints": {"topology": [{"key": names.RACK}] * 2}},
            "spec.schedulingConstraints.topology: 2 constraints; one is accepted",
        ),
        ({**GANG, "disruptionMode": "Never"}, "spec.disruptionMode: 'Never' is neither"),
        (
            {**GANG, "disruptionMode": {"single": {}, "all": {}}},
            "spec.disruptionMode: {2 fields} is neither",
        ),
        ({**GANG, "parentCompositePodGroupName": 5}, "parentCompositePodGroupName: "),
        ({**GANG, "preemptionPolicy": "Always"}, 'spec.preemptionPolicy: "Always" is n'),
        (
            {**GANG, "resourceClaims": [{"name": "net"}]},
            "spec.resourceClaims[net]: needs either resourceClaimName or resourceClaimTemplateName",
        ),
        ({**GANG, "priority": "high"}, "spec.priority: 'high' is not a whole number"),
        (["x"], "spec: its value has the wrong type"),
    ],
)
def test_errors_name_the_field(spec: Json, error: str) -> None:
    found = seen(spec)
    assert error in found.error
    assert (found.name, found.native_version) == ("podgroup/g", "v1alpha2")


def test_a_pod_in_a_group() -> None:
    found = reader().pod(pod(schedulingGroup={"podGroupName": "g"}))
    assert (found.gang, found.gang_min, found.spec.unsupported) == ("podgroup/g", None, "")
    assert found.gang_key == ("ns", "podgroup/g", True)


def test_a_pod_of_another_scheduler_is_left_to_it() -> None:
    found = reader().pod(
        pod(schedulingGroup={"podGroupName": "g"}, schedulerName="default-scheduler")
    )
    assert (found.gang, found.gang_key) == ("", None)


@pytest.mark.parametrize(
    ("metadata", "by"),
    [
        (
            {"annotations": {"scheduling.k8s.io/group-name": "v"}},
            "annotation scheduling.k8s.io/group-name",
        ),
        (
            {"annotations": {"scheduling.volcano.sh/group-name": "v"}},
            "annotation scheduling.volcano.sh/group-name",
        ),
        ({"labels": {names.GANG_LABEL: "v"}}, f"label {names.GANG_LABEL}"),
    ],
)
def test_a_pod_in_two_gangs_is_refused(metadata: Json, by: str) -> None:
    found = reader().pod(pod(schedulingGroup={"podGroupName": "g"}, metadata=metadata))
    assert found.spec.unsupported == (
        f"spec.schedulingGroup: the pod is in a gang by {by}, too; a pod belongs to one gang"
    )
    assert found.gang == ""


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": True}
JOBSET_LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "s",
    "jobset.sigs.k8s.io/replicatedjob-name": "w",
}


@pytest.mark.parametrize(
    ("metadata", "gang", "least"),
    [
        ({}, "podgroup/g", None),
        ({"labels": {names.GANG_LABEL: "v"}}, "v", None),
        ({"annotations": {"scheduling.k8s.io/group-name": "v"}}, "v", None),
        ({"annotations": {names.GANG_MIN: "2"}}, "", 2),
        ({"labels": JOBSET_LABELS}, "jobset/s", None),
    ],
    ids=["nothing else", "label", "annotation", "minimum", "JobSet"],
)
def test_the_group_that_the_job_controller_makes_is_the_last_choice(
    metadata: Json, gang: str, least: int | None
) -> None:
    """Kubernetes 1.37 makes one for every Job; pods of two Jobs with one label must still start together."""
    raw = pod(
        schedulingGroup={"podGroupName": "g"}, metadata={**metadata, "ownerReferences": [JOB]}
    )
    found = reader().pod(raw)
    assert (found.gang, found.gang_min, found.spec.unsupported) == (gang, least, "")


@pytest.mark.parametrize(
    "owner",
    [
        {**JOB, "apiVersion": "batch.volcano.sh/v1alpha1"},
        {**JOB, "controller": False},
        {**JOB, "kind": "Other"},
    ],
    ids=["Volcano's Job", "not the controller", "another kind"],
)
def test_the_group_of_other_controllers_pods_is_their_own_choice(owner: Json) -> None:
    metadata = {"labels": {names.GANG_LABEL: "v"}, "ownerReferences": [owner]}
    found = reader().pod(pod(schedulingGroup={"podGroupName": "g"}, metadata=metadata))
    assert "a pod belongs to one gang" in found.spec.unsupported


@pytest.mark.parametrize("group", [{"podGroupName": ""}, {"podGroupName": 7}, {"other": "x"}, "g"])
def test_a_group_without_a_name_is_refused(group: object) -> None:
    unsupported = reader().pod(pod(schedulingGroup=group)).spec.unsupported
    assert "podGroupName" in unsupported or unsupported.startswith("spec.schedulingGroup")
