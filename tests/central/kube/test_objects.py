"""Raw JSON as an API server sends it, and as a careless user writes it."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.core.facts import (
    HyperNodeSeen,
    Member,
    NodeSeen,
    PodSpec,
    Roles,
    SubGroups,
    Taint,
    Toleration,
)
from central.core.filters.rules import Expression, Requirement
from central.kube.errors import Malformed
from central.kube.objects import Reader
from protos import names

LEVELS = (names.ZONE, names.BLOCK, names.RACK)
Json = dict[str, Any]


def reader() -> Reader:
    return Reader(("lockstep", "volcano"), LEVELS)


def pod(name: str = "w-3", *containers: Json, **spec: Any) -> Json:
    meta = {"name": name, "namespace": "ns", "uid": f"u-{name}"} | spec.pop("metadata", {})
    return {
        "metadata": meta,
        "spec": {
            "schedulerName": "lockstep",
            "containers": list(containers) or [container("main", gpu=2)],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def container(name: str = "main", gpu: int = 0, **more: Any) -> Json:
    requests = {"cpu": "1", "memory": "1Gi"} | ({names.GPU: str(gpu)} if gpu else {})
    return {"name": name, "resources": {"requests": requests}, **more}


def requests(raw: Json) -> dict[str, int]:
    return dict(reader().pod(raw).spec.requests)


def test_wishes_for_rdma_limits() -> None:
    asking = container("main", gpu=1)
    asking["resources"]["requests"][names.RDMA] = "1"

    def read(*containers: Json, **told: object) -> PodSpec:
        annotations = {f"lockstep.dev/rdma-hca-{key}": value for key, value in told.items()}
        return reader().pod(pod("p", *containers, metadata={"annotations": annotations})).spec

    plain = read(asking)
    assert (plain.rdma_containers, plain.rdma_limits) == ((("main", 1),), ())
    assert read(asking, handles="64", objects="max").rdma_limits == (
        ("hca_handle", 64),
        ("hca_object", -1),
    )
    assert read(asking, objects="0").rdma_limits == (("hca_object", 0),)
    for told in ("010", "-1", "", "0x10", "1.5", "2147483647", "99999999999", "MAX", 7.5):
        assert read(asking, handles=told).unsupported == (
            f'annotation lockstep.dev/rdma-hca-handles: "{told}" is neither a whole number nor max'
        )
    assert read(handles="4").unsupported == (
        "annotation lockstep.dev/rdma-hca-handles: no container asks for lockstep.dev/rdma"
    )


def test_shares_of_gpus_and_caps_of_their_memory() -> None:
    asking = container("main")
    asking["resources"]["requests"][names.GPU_SHARE] = "30"

    def read(*containers: Json, **told: object) -> PodSpec:
        keys = {"cap": names.GPU_MEMORY, "level": names.GPU_MEMORY_LEVEL}
        annotations = {keys[key]: value for key, value in told.items()}
        return reader().pod(pod("p", *containers, metadata={"annotations": annotations})).spec

    plain = read(asking)
    assert (plain.share_containers, plain.memory_cap) == ((("main", 30),), 0)
    capped = read(asking, cap="24Gi", level="watch")
    assert (capped.memory_cap, capped.memory_level) == (24 * 2**30, "watch")
    assert read(asking, cap="24Gi").memory_level == "none"
    for cap in ("0", "-1Gi", "much", ""):
        assert read(asking, cap=cap).unsupported.startswith(f"annotation {names.GPU_MEMORY}: ")
    assert "is not one of none, watch, mps" in read(asking, cap="1Gi", level="sure").unsupported
    assert "there is no lockstep.dev/gpu-memory" in read(asking, level="watch").unsupported
    assert "no container asks for lockstep.dev/gpu-share" in read(cap="1Gi").unsupported
    asking["resources"]["requests"][names.GPU_SHARE] = "101"
    assert "is more than the 100 hundredths of one GPU" in read(asking).unsupported
    asking["resources"]["requests"] |= {names.GPU_SHARE: "10", names.GPU: "1"}
    assert "whole GPUs or a share, not both" in read(asking).unsupported


def test_how_long_a_pod_says_that_it_runs() -> None:
    raw = pod(metadata={"annotations": {names.RUNS_FOR: "1h30m"}}, preemptionPolicy="Never")
    raw["status"]["startTime"] = "1970-01-01T00:01:00Z"
    seen = reader().pod(raw)
    assert (seen.runs_for_s, seen.started, seen.preempts) == (5400.0, 60.0, False)
    plain = reader().pod(pod())
    assert (plain.runs_for_s, plain.started, plain.preempts) == (None, None, True)
    saved = {names.CHECKPOINT: "1970-01-01T00:02:00Z"}
    assert reader().pod(pod(metadata={"annotations": saved})).checkpoint == 120.0
    assert reader().pod(pod(metadata={"annotations": {names.CHECKPOINT: "?"}})).checkpoint is None
    odd = pod(metadata={"annotations": {names.RUNS_FOR: "soon"}})
    assert reader().pod(odd).spec.unsupported == (
        "annotation lockstep.dev/runs-for: 'soon' is not a duration like 90s or 1h30m"
    )
    odd["spec"]["schedulerName"] = "other"
    assert not reader().pod(odd).spec.unsupported


def test_a_pod_as_the_api_server_sends_it() -> None:
    raw = pod(
        "train-3",
        container("main", gpu=4),
        metadata={
            "creationTimestamp": "2026-11-20T10:00:00Z",
            "annotations": {"scheduling.k8s.io/group-name": "train"},
        },
        priority=7,
        nodeName="n1",
    )
    raw["status"]["phase"] = "Running"
    seen = reader().pod(raw)
    assert (seen.uid, seen.namespace, seen.name) == ("u-train-3", "ns", "train-3")
    assert (seen.gang, seen.gang_min, seen.node, seen.phase) == ("train", None, "n1", "Running")
    assert (seen.priority, seen.order, seen.ours) == (7, (3, "train-3"), True)
    assert seen.created == 1795168800.0
    assert dict(seen.spec.requests) == {
        "cpu": 1000,
        "memory": 2**30,
        names.GPU: 4,
        "pods": 1,
    }
    assert seen.spec.gpu_containers == (("main", 4),)
    assert seen.spec.unsupported == ""
    assert not seen.gated
    assert not seen.deleting


def test_equal_pods_share_one_spec() -> None:
    read = reader()
    first, second = read.pod(pod("w-0")), read.pod(pod("w-1"))
    assert first.spec is second.spec
    assert read.pod(pod("w-2", container("main", gpu=1))).spec is not first.spec


def test_requests_are_what_runs_together() -> None:
    assert requests(pod("p", container("a", gpu=2), container("b", gpu=1)))[names.GPU] == 3


def test_an_init_container_counts_beside_the_sidecars_before_it() -> None:
    raw = pod(
        "p",
        container("main"),
        initContainers=[
            container("log", restartPolicy="Always"),  # 1 cpu, all the time
            {"name": "fetch", "resources": {"requests": {"cpu": "4"}}},  # 4 + 1
            container("late", restartPolicy="Always"),
        ],
        overhead={"cpu": "250m"},
    )
    assert requests(raw)["cpu"] == 5250
    assert requests(raw)["memory"] == 3 * 2**30


def test_sidecars_come_first_among_the_gpu_containers() -> None:
    raw = pod(
        "p",
        container("main", gpu=2),
        container("cpu-only"),
        initContainers=[
            container("watch", gpu=1, restartPolicy="Always"),
            container("check", gpu=2),
        ],
    )
    seen = reader().pod(raw)
    assert seen.spec.gpu_containers == (("watch", 1), ("main", 2))
    assert seen.spec.request(names.GPU) == 3


def test_a_limit_stands_in_for_a_request() -> None:
    raw = pod("p", {"name": "m", "resources": {"limits": {names.GPU: "8"}}})
    assert requests(raw) == {names.GPU: 8, "pods": 1}


def test_a_pod_without_resources_still_is_one_pod() -> None:
    assert requests(pod("p", {"name": "m"})) == {"pods": 1}


@pytest.mark.parametrize(
    ("metadata", "gang", "least"),
    [
        ({"annotations": {"scheduling.volcano.sh/group-name": "g"}}, "g", None),
        ({"labels": {names.GANG_LABEL: "g"}, "annotations": {names.GANG_MIN: "4"}}, "g", 4),
        ({"labels": {names.GANG_LABEL: "g"}}, "g", None),
        ({"labels": None, "annotations": None}, "", None),
    ],
)
def test_how_a_pod_joins_its_gang(metadata: Json, gang: str, least: int | None) -> None:
    seen = reader().pod(pod(metadata=metadata))
    assert (seen.gang, seen.gang_min, seen.spec.unsupported) == (gang, least, "")


@pytest.mark.parametrize("least", ["0", "x", "-1", "1.5", "", "99999999999"])
def test_a_strange_minimum_keeps_the_pod_waiting(least: str) -> None:
    meta = {"labels": {names.GANG_LABEL: "g"}, "annotations": {names.GANG_MIN: least}}
    assert reader().pod(pod(metadata=meta)).spec.unsupported == (
        f'annotation lockstep.dev/gang-min: "{least}" is not a positive whole number'
    )


def test_pods_of_other_schedulers_are_seen_for_what_they_use() -> None:
    raw = pod(metadata={"labels": {names.GANG_LABEL: "g"}}, schedulerName="default-scheduler")
    raw["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    seen = reader().pod(raw)
    assert (seen.ours, seen.gang, seen.spec.unsupported) == (False, "", "")
    assert seen.spec.gpu_containers == (("main", 2),)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "spec.affinity.podAffinity",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
                }
            },
            "spec.affinity.podAntiAffinity",
        ),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "spec.topologySpreadConstraints"),
        ({"resourceClaims": [{"name": "c"}]}, "spec.resourceClaims"),
        (
            {"containers": [{"name": "m", "resources": {"requests": {"cpu": "abc"}}}]},
            'spec.containers[0].resources.requests.cpu: "abc" is not a quantity',
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "a", "operator": "Near"}]}
                            ]
                        }
                    }
                }
            },
            'spec.affinity.nodeAffinity: "Near" is not an operator',
        ),
        ({"containers": 7}, "spec: a field is not of the kind it should be"),
        ({"containers": [{}], "tolerations": "all"}, "spec: a field is not"),
    ],
)
def test_what_is_not_honoured_is_named(spec: Json, field: str) -> None:
    assert reader().pod(pod(**spec)).spec.unsupported.startswith(field)


def test_wishes_that_are_only_wishes_are_no_obstacle() -> None:
    spec: Json = {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
                ]
            }
        },
        "topologySpreadConstraints": [
            {"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "zone"}
        ],
        "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}],
    }
    assert reader().pod(pod(**spec)).spec.unsupported == ""


def test_where_a_pod_may_go() -> None:
    terms = [
        {"matchExpressions": [{"key": "gen", "operator": "In", "values": ["h100", "h200"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    spec = (
        reader()
        .pod(
            pod(
                nodeSelector={"b": "2", "a": "1"},
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": terms
                        }
                    }
                },
                tolerations=[
                    {"key": "gpu", "operator": "Exists"},
                    {"key": "team", "value": "ml", "effect": "NoSchedule"},
                    {"key": "n", "operator": "Gt", "value": "3"},
                ],
            )
        )
        .spec
    )
    assert spec.node_selector == (("a", "1"), ("b", "2"))
    assert spec.node_terms == (
        (Requirement("gen", "In", ("h100", "h200")),),
        (Requirement("metadata.name", "In", ("n1",), field=True),),
    )
    assert spec.tolerations == (
        Toleration("gpu", "Exists", "", ""),
        Toleration("team", "Equal", "ml", "NoSchedule"),
    )


@pytest.mark.parametrize(
    ("metadata", "name", "rank"),
    [
        ({"annotations": {"batch.kubernetes.io/job-completion-index": "5"}}, "job-x8k2z", 5),
        ({"labels": {"batch.kubernetes.io/job-completion-index": "6"}}, "job-x8k2z", 6),
        ({"annotations": {"volcano.sh/task-index": "2"}}, "j-worker-9", 2),
        ({"labels": {"apps.kubernetes.io/pod-index": "12"}}, "set-1", 12),
        ({}, "w-10", 10),
        ({}, "leader", 0),
    ],
)
def test_rank(metadata: Json, name: str, rank: int) -> None:
    assert reader().pod(pod(name, metadata=metadata)).order == (rank, name)


def test_gated_and_deleting() -> None:
    assert reader().pod(pod(schedulingGates=[{"name": "g"}])).gated
    assert reader().pod(pod(metadata={"deletionTimestamp": "2026-11-20T10:00:00Z"})).deleting


@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": None}, {"metadata": 7}])
def test_nameless_objects_are_malformed_and_nothing_else(raw: Json) -> None:
    read = reader()
    for convert in (read.pod, read.node, read.gang):
        with pytest.raises(Malformed):
            convert(raw)


def test_a_node() -> None:
    seen = reader().node(
        {
            "metadata": {"name": "n1", "labels": {names.RACK: "r1"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "63500m", "memory": "512Gi", names.GPU: "8", "pods": "110"},
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
            },
        }
    )
    assert seen.allocatable == {
        "cpu": 63500,
        "memory": 512 * 2**30,
        names.GPU: 8,
        "pods": 110,
    }
    assert (seen.ready, seen.unschedulable) == (True, True)
    assert seen.taints == (Taint("gpu", "", "NoSchedule"),)
    assert not reader().node({"metadata": {"name": "n2"}}).ready


def gang(spec: Json, annotations: Json | None = None, status: Json | None = None) -> Json:
    meta = {"name": "g", "namespace": "ns", "uid": "u", "annotations": annotations}
    return {"metadata": meta, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("wish", "required", "tier"),
    [
        (None, "", None),
        ({"mode": "hard", "highestTierAllowed": 1}, "", 1),
        ({"highestTierAllowed": 2}, "", 2),
        ({"mode": "soft", "highestTierAllowed": 3}, "", None),
        ({"mode": "hard", "highestTierAllowed": 0}, "", 0),
        ({"mode": "hard"}, "", None),
        ({"mode": "hard", "highestTierName": names.BLOCK}, names.BLOCK, None),
    ],
)
def test_network_topology(wish: Json | None, required: str, tier: int | None) -> None:
    seen = reader().gang(gang({"minMember": 2, "networkTopology": wish}))
    assert (seen.topology_required, seen.required_tier) == (required, tier)
    assert (seen.error, seen.min_member, seen.queue) == ("", 2, "default")


def test_soft_network_topology_is_a_preference() -> None:
    soft = reader().gang(gang({"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}))
    assert (soft.required_tier, soft.preferred_tier, soft.error) == (None, 1, "")
    wish = {"mode": "soft", "highestTierName": names.RACK}
    named = reader().gang(gang({"networkTopology": wish}))
    assert (named.topology_required, named.topology_preferred) == ("", names.RACK)


def test_subgroups() -> None:
    wish = [
        {
            "name": "tp",
            "subGroupSize": 4,
            "minSubGroups": 2,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "networkTopology": {"highestTierAllowed": 1},
        },
        {"name": "ps", "networkTopology": {"highestTierName": "node"}},
    ]
    seen = reader().gang(gang({"minMember": 8, "subGroupPolicy": wish}))
    assert seen.error == ""
    assert seen.subgroups == (
        SubGroups(
            "tp",
            4,
            2,
            (Expression("volcano.sh/task-spec", "In", ("worker",)),),
            ("volcano.sh/partition-id",),
            tier=1,
        ),
        SubGroups("ps", required="node"),
    )


def test_roles() -> None:
    near, apart = {names.TASK_NEAR: "worker, ps;chief"}, {names.TASK_APART: "ps"}
    roles = reader().gang(gang({}, near | apart)).roles
    assert roles == Roles((("chief", "chief"), ("ps", "worker")), (("ps", "ps"),))
    assert reader().gang(gang({})).roles is None
    broken = reader().gang(gang({}, {names.TASK_NEAR: "ps,,worker"})).error
    assert broken.startswith(
        f'annotation {names.TASK_NEAR}: "ps,,worker" has a task without a name'
    )
    both = reader().gang(gang({"subGroupPolicy": [{"name": "a"}]}, near)).error
    assert both == f"annotation {names.TASK_NEAR}: not together with spec.subGroupPolicy yet"


def hypernode(spec: Json) -> HyperNodeSeen:
    return reader().hypernode({"metadata": {"name": "s"}, "spec": spec})


def test_hypernodes() -> None:
    members = [
        {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "n.*"}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"row": "7"}}}},
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "s0"}}},
    ]
    assert hypernode({"tier": 2, "members": members}) == HyperNodeSeen(
        "s",
        2,
        (
            Member("Node", exact="n1"),
            Member("Node", pattern="n.*"),
            Member("Node", labels=(("row", "7"),)),
            Member("HyperNode", exact="s0"),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"tier": "1"}, "spec.tier: '1' is not a whole number"),
        ({"tier": 1, "members": [{"type": "Rack"}]}, 'spec.members[0].type: "Rack"'),
        ({"tier": 1, "members": [{"type": "Node", "selector": {}}]}, "spec.members[0].selector"),
        ({"tier": 1, "members": 5}, "a field is not of the kind"),
        (
            {
                "tier": 1,
                "members": [
                    {"type": "HyperNode", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}}
                ],
            },
            "spec.members[0].selector.labelMatch",
        ),
    ],
)
def test_broken_hypernodes_say_what_is_wrong(spec: Json, error: str) -> None:
    assert hypernode(spec).error.startswith(error)


def test_annotations_of_closeness_may_stand_together() -> None:
    wishes = {names.TOPOLOGY_REQUIRED: names.RACK, names.TOPOLOGY_PREFERRED: "island"}
    seen = reader().gang(gang({"minMember": 2}, wishes))
    assert (seen.topology_required, seen.topology_preferred) == (names.RACK, "island")
    alone = reader().pod(pod(metadata={"annotations": wishes}))
    assert (alone.topology_required, alone.topology_preferred) == (names.RACK, "island")
    unknown = {names.TOPOLOGY_REQUIRED: "rack"}
    assert (
        reader()
        .gang(gang({}, unknown))
        .error.startswith('annotation lockstep.dev/topology-required: "rack" is not one of')
    )
    assert (
        "topology-required" in reader().pod(pod(metadata={"annotations": unknown})).spec.unsupported
    )


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"minMember": -1}, "spec.minMember: -1"),
        ({"minMember": "three"}, "spec.minMember: 'three'"),
        ({"networkTopology": {"mode": "firm"}}, 'spec.networkTopology.mode: "firm"'),
        ({"networkTopology": {"highestTierAllowed": "x"}}, "spec.networkTopology.highestTier"),
        (
            {"networkTopology": {"highestTierName": "pod"}},
            'spec.networkTopology.highestTierName: "',
        ),
        ({"networkTopology": 5}, "a field is not of the kind"),
        ({"minTaskMember": {"ps": "1"}}, "spec.minTaskMember.ps: '1' is not a whole number"),
        ({"subGroupPolicy": [{}]}, "spec.subGroupPolicy[0].name"),
        ({"subGroupPolicy": [{"name": "a"}, {"name": "a"}]}, "spec.subGroupPolicy[1].name"),
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 0}]}, "spec.subGroupPolicy[0].subGr"),
        ({"subGroupPolicy": [{"name": "a", "minSubGroups": "1"}]}, "spec.subGroupPolicy[0].minS"),
        ({"subGroupPolicy": [{"name": "a", "matchLabelKeys": [1]}]}, "spec.subGroupPolicy[0].mat"),
        (
            {"subGroupPolicy": [{"name": "a", "networkTopology": {"mode": "firm"}}]},
            'spec.subGroupPolicy[0].networkTopology.mode: "firm"',
        ),
        (
            {"subGroupPolicy": [{"name": "a", "labelSelector": {"matchExpressions": [{}]}}]},
            "spec.subGroupPolicy[0].labelSelector",
        ),
    ],
)
def test_a_gang_that_cant_be_used_says_why(spec: Json, error: str) -> None:
    assert reader().gang(gang(spec)).error.startswith(error)


def test_what_the_gangs_status_says_now() -> None:
    status = {"phase": "Pending", "conditions": [{"type": "Unschedulable", "message": "no room"}]}
    seen = reader().gang(gang({"minMember": 0, "queue": "q"}, status=status))
    assert (seen.phase, seen.reason, seen.queue, seen.min_member) == ("Pending", "no room", "q", 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "1", "Always"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "resources",
                    "requests",
                    "limits",
                    "cpu",
                    "metadata",
                    "spec",
                    "key",
                    "operator",
                    "values",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
FIELDS = [
    [
        "containers",
        "initContainers",
        "nodeSelector",
        "affinity",
        "tolerations",
        "overhead",
        "schedulingGates",
    ],
    ["networkTopology", "minMember", "queue", "taints"],
]


@given(
    st.dictionaries(st.sampled_from(FIELDS[0] + FIELDS[1]), JSON, max_size=4),
    st.dictionaries(st.sampled_from(["labels", "annotations", "creationTimestamp"]), JSON),
)
def test_nothing_strange_raises_anything_but_malformed(spec: Json, meta: Json) -> None:
    raw: Json = {"metadata": {"name": "p", "namespace": "n", "uid": "u", **meta}}
    raw["spec"] = {"schedulerName": "lockstep", **spec}
    raw["status"] = spec
    raw = json.loads(json.dumps(raw))
    read = reader()
    for convert in (read.pod, read.node, read.gang):
        with contextlib.suppress(Malformed):
            seen = convert(raw)
            assert isinstance(seen, NodeSeen) or hash(seen)


def test_minimum_resources_under_their_own_names_or_as_quotas_call_them() -> None:
    asked = {"cpu": "3500m", "requests.cpu": "4", "limits.cpu": "9", "count/pods": "4", "pods": 4}
    raw = {"metadata": {"namespace": "ns", "name": "g"}, "spec": {"minResources": asked}}
    found = Reader(("lockstep",), ()).gang(raw)
    assert found.min_resources == (("cpu", 4000), ("pods", 4))
    asked["requests.memory"] = "lots"
    wrong = Reader(("lockstep",), ()).gang(raw)
    assert wrong.error == 'spec.minResources.memory: "lots" is not a quantity'


def test_preferences() -> None:
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 7,
                    "preference": {
                        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]
                    },
                }
            ]
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 3,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {"app": "web"}},
                        "topologyKey": "zone",
                    },
                }
            ]
        },
    }
    even = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    spread = [{**even, "labelSelector": {"matchLabels": {"app": "web"}}}]
    rules = reader().pod(pod(affinity=affinity, topologySpreadConstraints=spread)).spec.rules
    assert rules is not None
    assert rules.nodes == ((7, (Requirement("disk", "In", ("fast",)),)),)
    assert [(near.key, near.weight) for near in rules.nearer] == [("zone", -3)]
    assert [(even.key, even.skew) for even in rules.even] == [("zone", 1)]
    assert (rules.near, rules.apart, rules.spread) == (None, (), ())
    broken = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": "7", "preference": affinity["nodeAffinity"]}
            ]
        }
    }
    assert reader().pod(pod(affinity=broken)).spec.rules is None


def test_placement() -> None:
    spread = {names.PLACEMENT: "spread"}
    assert reader().gang(gang({}, spread)).placement == "spread"
    assert reader().pod(pod(metadata={"annotations": spread})).placement == "spread"
    error = f'annotation {names.PLACEMENT}: "wide" is neither pack nor spread'
    assert reader().gang(gang({}, {names.PLACEMENT: "wide"})).error == error
    wrong = pod(metadata={"annotations": {names.PLACEMENT: "wide"}})
    assert reader().pod(wrong).spec.unsupported == error
    both = reader().gang(gang({"subGroupPolicy": [{"name": "a"}]}, spread)).error
    assert both.endswith("not together with spec.subGroupPolicy yet")
