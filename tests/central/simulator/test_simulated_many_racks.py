"""A gang finds the one rack that takes it, however many others have as much that is free."""

from typing import Any

import pytest

from protos.names import RACK
from tests.central.simulator.manifests import Simulate, group, node, pod, where

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
MANY = 40


def rack(name: str, *free: int) -> list[Json]:
    """Nodes of eight GPUs, of which so many are free."""
    made = []
    for index, gpus in enumerate(free):
        each = node(f"{name}-{index}", rack=name)
        each["metadata"]["labels"][HOST] = f"{name}-{index}"
        made.append(each)
        if gpus < 8:
            made.append(pod(f"on-{name}-{index}", 8 - gpus, on=f"{name}-{index}"))
    return made


def test_pods_of_three_kinds(simulate: Simulate) -> None:
    """In each rack the sums suffice, and each kind by itself; only in one they fit together."""
    racks = [each for index in range(MANY) for each in rack(f"r{index:02}", 8, 2)]
    gang = [pod(f"g-{gpus}", gpus, gang="g") for gpus in (6, 4, 0)]
    gang[-1]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    found = where(simulate(*racks, *rack("s", 8, 4), group("g", 3, required=RACK), *gang))
    assert {name.rpartition("-")[0] for name in found.values()} == {"s"}
    assert len(found) == 3


@pytest.mark.parametrize("role", ["", "worker"])
def test_pods_that_are_spread(simulate: Simulate, role: str) -> None:
    """One on each node, which capacities do not tell. With roles that like each other as well."""
    gang = [pod(f"g-{index}", 1, gang="g", labels={"app": "g"}) for index in range(4)]
    for each in gang:
        each["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": HOST,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "g"}},
            }
        ]
        if role:
            each["metadata"]["annotations"]["volcano.sh/task-spec"] = role
    podgroup = group("g", 4, required=RACK)
    if role:
        podgroup["metadata"]["annotations"]["volcano.sh/task-topology-affinity"] = "worker,worker"
    racks = [each for index in range(MANY) for each in rack(f"r{index:02}", 8)]
    found = where(simulate(*racks, *rack("s", 8, 8, 8, 8), podgroup, *gang))
    assert sorted(found.values()) == ["s-0", "s-1", "s-2", "s-3"]


def test_the_few_nodes_that_only_some_of_the_pods_need(simulate: Simulate) -> None:
    """Hundreds take the others, and first of all come those that take the most pods."""
    nodes = []
    for index in range(150):
        loaded = pod(f"on-{index}", 6, on=f"n{index:03}")
        loaded["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "60"
        nodes += [node(f"n{index:03}"), loaded]
    for index in range(5):
        nodes += [node(f"x{index}"), pod(f"on-x{index}", 7, on=f"x{index}")]
    gang = [pod(f"{role}-{index}", 1, gang="g") for role in "ab" for index in range(5)]
    for each, cpu in zip(gang, ["2"] * 5 + ["60"] * 5, strict=True):
        each["spec"]["containers"][0]["resources"]["limits"]["cpu"] = cpu
    found = where(simulate(*nodes, group("g", 10), *gang))
    assert sorted(found[f"b-{index}"] for index in range(5)) == [f"x{index}" for index in range(5)]
    assert len(found) == 10


def test_subgroups_of_three_kinds_each_in_one_rack(simulate: Simulate) -> None:
    racks = [each for index in range(MANY) for each in rack(f"r{index:02}", 8, 2)]
    racks += [each for name in ("s", "t") for each in rack(name, 8, 4)]
    podgroup = group("g", 6)
    podgroup["spec"]["subGroupPolicy"] = [
        {
            "name": "part",
            "subGroupSize": 3,
            "minSubGroups": 2,
            "matchLabelKeys": ["part"],
            "labelSelector": {"matchLabels": {"app": "g"}},
            "networkTopology": {"mode": "hard", "highestTierName": RACK},
        }
    ]
    gang = []
    for part in "ab":
        for gpus in (6, 4, 0):
            member = pod(f"g-{part}-{gpus}", gpus, gang="g", labels={"app": "g", "part": part})
            member["spec"]["containers"][0]["resources"]["limits"].setdefault("cpu", "1")
            gang.append(member)
    found = where(simulate(*racks, podgroup, *gang))
    assert len(found) == 6
    assert {node.rpartition("-")[0] for node in found.values()} == {"s", "t"}
