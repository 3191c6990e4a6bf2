"""PodGroups and Queues, rich and valid. See examples.py."""

from collections.abc import Callable

from central.model.json_types import Json
from protos import names
from tests.central.poison import generator
from tests.central.poison.generator import meta

Example = Callable[[], Json]


def _group_by_annotations() -> Json:
    raw = generator.rich_group()
    raw["metadata"]["annotations"] = {
        names.SUBGROUP_TOPOLOGY: f"a={names.RACK}",
        names.PLACEMENT: "pack",
        names.TOPOLOGY_PREFERRED: names.RACK,
        names.PREEMPTABLE: "true",
        names.GANG_OF: "deployment/web",
    }
    raw["metadata"]["labels"] = {names.PREEMPTABLE: "true"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r"}
    raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    raw["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    raw["spec"]["subGroupPolicy"][0]["networkTopology"] = {"highestTierName": names.RACK}
    return raw


def _native_group() -> Json:
    notes = {
        names.QUEUE_NAME: "q",
        names.TOPOLOGY_REQUIRED: names.RACK,
        names.TOPOLOGY_PREFERRED: names.RACK,
        names.PLACEMENT: "pack",
        names.PREEMPTABLE: "true",
    }
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": names.RACK}]},
        "priorityClassName": "p",
        "priority": 5,
        "disruptionMode": "PodGroup",
        "resourceClaims": [],
        "parentCompositePodGroupName": "c",
        "preemptionPolicy": "Never",
    }
    kinds = ("PodGroupScheduled", "PodGroupInitiallyScheduled")
    conditions = [{"type": each, "status": "True", "message": "m"} for each in kinds]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}
    return {
        "metadata": meta(
            annotations=notes, ownerReferences=[owner], labels={names.PREEMPTABLE: "true"}
        ),
        "spec": spec,
        "status": {"conditions": conditions},
    }


def _composite_group() -> Json:
    raw = _native_group()
    raw["spec"] |= {
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "disruptionMode": {"single": {}},
    }
    raw["status"]["conditions"][0]["type"] = "CompositePodGroupInitiallyScheduled"
    return raw


def _basic_composite_group() -> Json:
    return {"metadata": meta(), "spec": {"schedulingPolicy": {"basic": {}}}}


def _basic_native_group() -> Json:
    spec: Json = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    return {"metadata": meta(), "spec": spec}


def _queue_with_policy() -> Json:
    raw = generator.queue()
    amounts = {"cpu": "5", names.GPU: "0.5"}
    expressions = [{"key": "k", "operator": "In", "values": ["a"]}]
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": expressions}
    raw["spec"] |= {
        "access": {
            "namespaces": ["evil"],
            "namespaceSelector": selector,
            "users": ["u"],
            "groups": ["g"],
        },
        "borrowingLimit": amounts,
        "lendingLimit": amounts,
        "maxRunningGangs": 5,
        "perNamespace": {"maxRunningGangs": 2, "resources": amounts},
        "perUser": {"maxRunningGangs": 2, "resources": amounts},
        "minRuntime": "5m",
        "quantum": "10m",
        "idleTimeout": "1h",
        "reservations": False,
        "shareBy": "namespace",
        "strictPriority": 1,
        "state": "Open",
        "affinity": {},
        "extendClusters": [],
        "guarantee": {"resource": {"cpu": "1", names.GPU: "1"}},
    }
    return raw


def _queue_by_annotation() -> Json:
    raw = generator.queue()
    raw["metadata"]["annotations"] = {
        names.QUEUE_POLICY: '{"maxRunningGangs": 3, "perUser": {"resources": {"cpu": "4"}}}'
    }
    raw["status"] = {"state": "Closed", "closedBy": "x"}
    return raw


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "podgroups.scheduling.volcano.sh": (generator.rich_group, _group_by_annotations),
    "compositepodgroups.scheduling.k8s.io": (_composite_group, _basic_composite_group),
    "podgroups.scheduling.k8s.io": (_native_group, _basic_native_group),
    "queues.scheduling.volcano.sh": (generator.queue, _queue_with_policy, _queue_by_annotation),
}
