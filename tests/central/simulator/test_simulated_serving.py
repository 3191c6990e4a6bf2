"""Serving frameworks in scenarios, by the objects that their controllers write: Grove of August 2026 with its Volcano
backend (operator/internal/scheduler/volcano), and the DisaggregatedSets of LeaderWorkerSet 0.10."""

from typing import Any

from protos.names import RACK
from tests.central.simulator.manifests import Simulate, node, pod

Json = dict[str, Any]


def nodes(count: int) -> list[Json]:
    """Two of each rack."""
    return [node(f"n{index}", rack=f"r{index // 2}") for index in range(count)]


def where(found: Json) -> dict[str, int]:
    """The node of each pod, by number."""
    return {placed["pod"]: int(placed["node"][1:]) for placed in found["placements"]}


# --- Grove -------------------------------------------------------------------


def podgang(name: str, cliques: dict[str, int]) -> list[Json]:
    """The PodGroup of a PodGang, and the pods of its PodCliques. cliques: pods by PodClique, all of them needed."""
    policies = [
        {
            "name": clique,
            "labelSelector": {"matchLabels": {"grove.io/podclique": clique}},
            "matchLabelKeys": ["grove.io/podclique"],
            "subGroupSize": size,
            "minSubGroups": 1,
        }
        for clique, size in cliques.items()
    ]
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "grove-operator"},
            "ownerReferences": [
                {
                    "apiVersion": "scheduler.grove.io/v1alpha1",
                    "kind": "PodGang",
                    "name": name,
                    "uid": name,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "minMember": sum(cliques.values()),
            "queue": "default",
            "subGroupPolicy": policies,
        },
    }
    return [group, *(made for item in cliques.items() for made in clique_pods(name, *item))]


def clique_pods(gang: str, clique: str, size: int) -> list[Json]:
    labels = {"grove.io/podclique": clique, "grove.io/podgang": gang}
    found = [pod(f"{clique}-{i}", 8, labels=labels, scheduler="volcano") for i in range(size)]
    for each in found:
        for key in ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name"):
            each["metadata"]["annotations"][key] = gang
        owner = {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "name": clique}
        each["metadata"]["ownerReferences"] = [{**owner, "uid": clique, "controller": True}]
    return found


def test_prefill_and_decode_of_grove_start_together(simulate: Simulate) -> None:
    gang = podgang("serve-0", {"serve-0-prefill": 1, "serve-0-decode": 2})
    assert len(where(simulate(*nodes(3), *gang))) == 3
    found = simulate(*nodes(2), *gang)
    assert where(found) == {}
    assert [each["name"] for each in found["waiting"]] == ["serve-0"]


def test_scaled_replicas_of_grove_start_one_by_one(simulate: Simulate) -> None:
    """Replicas above the minimum of a PodCliqueScalingGroup are PodGangs of their own."""
    found = simulate(
        *nodes(4),
        *podgang("serve-0", {"serve-0-prefill": 1, "serve-0-decode": 1}),
        *podgang("serve-0-decode-0", {"serve-0-decode-1": 1}),
        *podgang("serve-0-decode-1", {"serve-0-decode-2": 2}),
    )
    assert sorted(where(found)) == ["serve-0-decode-0", "serve-0-decode-1-0", "serve-0-prefill-0"]


# --- DisaggregatedSets -------------------------------------------------------

KEY, SET = "leaderworkerset.sigs.k8s.io", "disaggregatedset.x-k8s.io"


def role(name: str, number: int, replicas: int, *, placed: bool = False) -> list[Json]:
    """The LeaderWorkerSet of a role in a slice, with its pods: two for each replica. placed: policy ExclusiveSlice."""
    own = f"serve-{number}-7c9f-{name}"
    labels = {
        f"{SET}/name": "serve",
        f"{SET}/slice": str(number),
        f"{SET}/role": name,
        f"{SET}/revision": "7c9f",
    }
    found: list[Json] = [
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": own, "labels": labels},
            "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": 2}},
        }
    ]
    for replica in range(replicas):
        for index in range(2):
            leader = f"{own}-{replica}"
            of = {
                f"{KEY}/name": own,
                f"{KEY}/group-index": str(replica),
                f"{KEY}/worker-index": str(index),
            }
            made = pod(f"{leader}-{index}" if index else leader, 4, labels={**labels, **of})
            owner = {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "uid": leader,
                "controller": True,
            }
            owner["name"] = leader if index else own
            made["metadata"]["ownerReferences"] = [owner]
            if placed:
                made["spec"]["affinity"] = exclusive_slice(number)
            found.append(made)
    return found


def exclusive_slice(number: int) -> Json:
    """As SetPlacementAffinities of its pkg/utils/disaggregatedset writes it."""

    def term(*expressions: tuple[str, str, str]) -> list[Json]:
        found = [
            {"key": key, "operator": operator, **({"values": [value]} if value else {})}
            for key, operator, value in expressions
        ]
        return [{"labelSelector": {"matchExpressions": found}, "topologyKey": RACK}]

    own = (f"{SET}/name", "In", "serve")
    exists = [(f"{SET}/slice", "Exists", "")] if not number else []
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    together = term(own, (f"{SET}/slice", "In", str(number)))
    apart = term(own, *exists, (f"{SET}/slice", "NotIn", str(number)))
    return {"podAffinity": {required: together}, "podAntiAffinity": {required: apart}}


def test_each_replica_of_a_role_is_a_gang(simulate: Simulate) -> None:
    """Prefill and decode of a DisaggregatedSet are LeaderWorkerSets, so a replica starts whole, and no role waits."""
    found = simulate(*nodes(2), *role("prefill", 0, 1), *role("decode", 0, 2))
    assert len(where(found)) == 4
    [waiting] = found["waiting"]
    assert waiting["name"].startswith("leaderworkerset/serve-0-7c9f-")


def test_slices_of_a_disaggregated_set_are_in_racks_of_their_own(simulate: Simulate) -> None:
    roles = [
        each
        for number in range(2)
        for name in ("prefill", "decode")
        for each in role(name, number, 1, placed=True)
    ]
    found = where(simulate(*nodes(4), *roles))
    assert len(found) == 8
    racks = [
        {at // 2 for name, at in found.items() if name.startswith(f"serve-{n}")} for n in range(2)
    ]
    assert sorted(map(len, racks)) == [1, 1]
    assert racks[0] != racks[1]
