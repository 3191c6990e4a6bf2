"""Which node or rack is the best for all pods of a gang."""

import random

import pytest

from central.model.facts import PodSpec
from central.model.pod_rules import Requirement, Rules
from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import NODE, RACK
from protos.topology import indices_of
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds


def cluster(free: dict[str, int], racks: dict[str, str] | None = None) -> Snapshot:
    """Nodes of 8 GPUs, so many of which are free."""
    snapshot = Snapshot((RACK,))
    for name, gpus in free.items():
        row = snapshot.put_node(factories.node(name, rack=(racks or {}).get(name, "r")))
        if gpus < 8:
            snapshot.take(row, factories.spec(8 - gpus), 1, 0)
    return snapshot


def names(snapshot: Snapshot, request: PlacementRequest) -> set[str]:
    return {snapshot.columns.names[taken.row] for taken in fit(Draft(snapshot), request)}


def part(share: int) -> PodSpec:
    return factories.part("p", share).spec


def test_unlike_pods_take_the_fullest_node_that_takes_them_together() -> None:
    """Not one that has room for each class by itself only."""
    placed = tempting = 0
    for seed in seeds(150):
        dice = random.Random(seed)
        free = {f"n{number}": dice.randint(0, 8) for number in range(dice.randint(2, 7))}
        sizes = dice.sample((0, 1, 2, 3, 5), 2)
        groups = tuple((factories.spec(gpus), dice.randint(1, 2)) for gpus in sizes)
        parts = [gpus * count for gpus, (_, count) in zip(sizes, groups, strict=True)]
        fits = [name for name, gpus in free.items() if gpus >= sum(parts)]
        if not fits:
            continue
        expected = min(fits, key=lambda name: (free[name], name))
        assert names(cluster(free), PlacementRequest(groups)) == {expected}, f"seed {seed}"
        placed += 1
        tempting += any(max(parts) <= gpus < sum(parts) for gpus in free.values())
    assert not ALL_SEEDS or placed > 60
    assert not ALL_SEEDS or tempting > 20


@pytest.mark.parametrize("groups", [(1,), (1, 2)], ids=["equal pods", "unlike pods"])
def test_the_rest_of_a_gang_on_one_node_joins_it_or_waits(groups: tuple[int, ...]) -> None:
    pods = tuple((factories.spec(gpus), 1) for gpus in groups)

    def rest(*there: str) -> set[str]:
        snapshot = cluster({"a": 8, "b": 4, "c": 3})
        rows = tuple(snapshot.columns.row[name] for name in there)
        return names(snapshot, PlacementRequest(pods, NODE, existing_rows=rows))

    assert rest("b") == rest("b", "b") == {"b"}
    with pytest.raises(DoesNotFit):
        rest("b", "c")


def test_the_rack_with_the_fewest_nodes_for_the_pods_with_the_most_gpus() -> None:
    """Any node is enough for the pod without GPUs, whichever rack it is in."""
    wide = {f"a{number}": 2 for number in range(4)}
    close = {"b0": 4, "b1": 4} | {f"b{number}": 0 for number in range(2, 6)}
    racks = {name: name[0] for name in (*wide, *close)}
    for groups in (
        ((factories.spec(2), 4), (factories.spec(0), 1)),
        ((factories.spec(0), 1), (factories.spec(2), 4)),
    ):
        snapshot = cluster(wide | close, racks)
        used = names(snapshot, PlacementRequest(groups))
        assert {name[0] for name in used} == {"b"}


def test_parts_beside_a_pod_without_gpus_stay_in_one_island() -> None:
    """GPU 2 has the least left, but its island cannot take both parts."""
    snapshot = Snapshot((RACK,))
    row = snapshot.put_node(factories.node("n", gpus=4, shares=True))
    shape = factories.topology(4, ((0, 1), (2, 3))).shape()
    snapshot.put_gpus(row, shape, 0, (0b1111, 0, 0, 0), {0: 30, 1: 30, 2: 20})
    request = PlacementRequest(((factories.spec(0), 1), (part(20), 2)))
    taken = [each.gpus for each in fit(Draft(snapshot), request) if each.gpus]
    assert sorted(gpu for gpus in taken for gpu in indices_of(gpus)) == [0, 1]


def test_the_rest_of_a_gang_in_one_rack_waits_if_the_others_are_in_two() -> None:
    def rest(*there: str) -> set[str]:
        snapshot = cluster({"a": 8, "b": 8, "c": 8}, {"a": "r1", "b": "r2", "c": ""})
        rows = tuple(snapshot.columns.row[name] for name in there)
        return names(
            snapshot, PlacementRequest(((factories.spec(1), 1),), RACK, existing_rows=rows)
        )

    assert rest("b") == {"b"}
    for there in (("a", "b"), ("b", "c")):
        with pytest.raises(DoesNotFit):
            rest(*there)


def test_a_part_beside_a_pod_without_gpus_opens_no_gpu_where_one_is_open() -> None:
    """The node with the open GPU has room for more pods, which speaks against it afterwards."""
    for groups in (
        ((part(50), 1), (factories.spec(0), 1)),
        ((factories.spec(0), 1), (part(50), 1)),
    ):
        snapshot = Snapshot((RACK,))
        shape = factories.topology(2, ((0, 1),)).shape()
        for name, free, left, others in (("closed", 0b11, {}, 5), ("open", 0b10, {0: 50}, 0)):
            row = snapshot.put_node(factories.node(name, gpus=2, shares=True))
            snapshot.put_gpus(row, shape, free, (0b11, 0, 0, 0), left)
            if others:
                snapshot.take(row, factories.spec(0), others)
        assert names(snapshot, PlacementRequest(groups)) == {"open"}


LIKES = Rules(nodes=((5, (Requirement("disk", "In", ("fast",)),)),))


def racks_with_disks(racks: dict[str, str]) -> Snapshot:
    """By rack one letter for each node of 8 GPUs: f has a fast disk, s a slow one; in capitals it is full."""
    snapshot = Snapshot((RACK,))
    for rack, nodes in racks.items():
        for number, kind in enumerate(nodes):
            labels = {"disk": "fast"} if kind in "fF" else {}
            row = snapshot.put_node(factories.node(f"{rack}{number}", rack=rack, labels=labels))
            if kind in "FS":
                snapshot.take(row, factories.spec(8), 1, 0)
    return snapshot


@pytest.mark.parametrize("cpus", [(100,), (100, 200)], ids=["equal pods", "unlike pods"])
def test_the_rack_whose_usable_nodes_the_pods_prefer(cpus: tuple[int, ...]) -> None:
    """By their mean, not by their number; full nodes do not count. It decides before how much is left."""
    pods = tuple((factories.spec(8, cpu, rules=LIKES), 2 // len(cpus)) for cpu in cpus)

    def rack(racks: dict[str, str]) -> set[str]:
        return {name[0] for name in names(racks_with_disks(racks), PlacementRequest(pods, RACK))}

    assert rack({"a": "ss", "b": "ff"}) == {"b"}
    assert rack({"a": "ss", "b": "fff"}) == {"b"}
    assert rack({"a": "ffssss", "b": "ff"}) == {"b"}
    assert rack({"a": "FFFss", "b": "sf"}) == {"b"}
    assert rack({"a": "sf", "b": "SSSff"}) == {"b"}


def test_few_racks_go_before_preferred_ones() -> None:
    """Those that need the fewest nodes, whatever the pods prefer."""
    snapshot = racks_with_disks({"a": "ffff", "b": "ss"})
    for row in range(4):
        snapshot.take(row, factories.spec(4), 1, 0)
    pods = ((factories.spec(4, rules=LIKES), 4),)
    assert {name[0] for name in names(snapshot, PlacementRequest(pods, RACK))} == {"b"}


def test_one_node_for_pods_that_spread_is_the_emptiest() -> None:
    """By GPUs, then by how many of them fit, then by name; without GPUs by how many fit."""

    def node_for(gpus: int, *nodes: tuple[str, int, int]) -> set[str]:
        snapshot = Snapshot((RACK,))
        for name, free, cpu in nodes:
            snapshot.put_node(factories.node(name, gpus=free, cpu=cpu))
        request = PlacementRequest(((factories.spec(gpus, 1000), 1),), spread=True)
        return names(snapshot, request)

    assert node_for(1, ("a", 2, 64_000), ("b", 4, 8_000), ("c", 3, 64_000)) == {"b"}
    assert node_for(1, ("a", 4, 2_000), ("b", 4, 3_000), ("c", 4, 1_000)) == {"b"}
    assert node_for(1, ("b", 4, 8_000), ("a", 4, 8_000)) == {"a"}
    assert node_for(0, ("a", 8, 2_000), ("b", 0, 3_000), ("c", 4, 1_000)) == {"b"}


def test_pods_without_gpus_take_the_node_with_the_fewest_gpus_then_the_fullest() -> None:
    """In use or not. Among equally full nodes the one in the fullest rack, then the first by name."""

    def node_for(*nodes: tuple[str, str, int, int], gpus: int = 0) -> set[str]:
        """Name, rack, CPU, and how much of it is in use. gpus: of the first one."""
        snapshot = Snapshot((RACK,))
        for name, rack, cpu, used in nodes:
            row = snapshot.put_node(factories.node(name, rack=rack, gpus=gpus, cpu=cpu))
            gpus = 0
            if used:
                snapshot.take(row, factories.spec(0, used), 1, 0)
        return names(snapshot, PlacementRequest(((factories.spec(0, 1000), 1),)))

    small, large = ("a", "r", 8_000, 0), ("b", "r", 64_000, 0)
    assert node_for(small, large) == {"a"}
    assert node_for(small, large, gpus=1) == {"b"}
    assert node_for(("b", "r", 8_000, 0), ("a", "r", 8_000, 0)) == {"a"}
    assert node_for(("a", "r", 8_000, 0), ("b", "r", 8_000, 4_000)) == {"b"}
    around = [("c", "q", 8_000, 0), ("a", "q", 8_000, 4_000), ("b", "r", 8_000, 4_000)]
    assert node_for(*around) == {"b"}
    assert node_for(*around, ("d", "r", 16_000, 0)) == {"a"}
    assert node_for(*around, ("d", "", 8_000, 4_000)) == {"d"}  # no rack is broken
