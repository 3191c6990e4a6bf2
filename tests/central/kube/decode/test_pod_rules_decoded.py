"""Node selectors, affinity, preferences and ranks of pods, read from raw objects."""

import pytest

from central.model.facts import Toleration
from central.model.json_types import Json
from central.model.pod_rules import Requirement
from tests.central.kube.raw_objects import pod, reader


def test_preferences_are_not_unsupported() -> None:
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


def test_node_selector_affinity_and_tolerations() -> None:
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


def test_what_the_condition_of_a_pending_pod_says() -> None:
    """It is no part of the fact's identity: the scheduler writes it."""
    false = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    plain = pod("p")
    for condition, nominated, expected in (
        (false, "n1", ("Unschedulable", "n1")),
        ({**false, "status": "True"}, "", ("", "")),
        ({**false, "type": "Ready"}, "", ("", "")),
    ):
        raw = {**plain, "status": {"conditions": [condition], "nominatedNodeName": nominated}}
        seen = reader().pod(raw)
        assert seen.told == expected
        assert seen == reader().pod({**plain, "status": {}})
