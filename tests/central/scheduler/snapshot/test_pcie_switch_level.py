"""A PCIe switch as the level that a gang requires: against trying every GPU for every pod on random nodes."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict, UpdateGangStatus
from central.model.facts import Fact, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.placement.levels import narrower
from central.scheduler.placement.request import SubgroupRequest
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, NUMA, PCIE_SWITCH, RACK
from protos.topology import indices_of, mask_of
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

Switches = tuple[tuple[int, ...], ...]
PAIRS: Switches = ((0, 1), (2, 3), (4, 5), (6, 7))


def drawn(dice: random.Random) -> Switches:
    """Eight GPUs on switches of any sizes, in any order; some may be below no known one."""
    gpus = dice.sample(range(8), 8)[: dice.choice((0, 5, 8, 8, 8))]
    cuts = sorted(dice.sample(range(1, 8), 2))
    cut = [gpus[: cuts[0]], gpus[cuts[0] : cuts[1]], gpus[cuts[1] :]]
    return tuple(tuple(sorted(each)) for each in cut if each)


def cluster(dice: random.Random, layouts: list[Switches]) -> Snapshot:
    snapshot = Snapshot((RACK,))
    for place, switches in enumerate(layouts):
        row = snapshot.put_node(factories.node(f"n{place}", rack="r"))
        free = dice.getrandbits(8) | dice.getrandbits(8)
        snapshot.take(row, factories.spec(8 - free.bit_count()), 1, 0)
        snapshot.put_gpus(row, factories.topology(8, switches=switches).shape(), free)
    return snapshot


def possible(free: int, switches: Switches, pods: list[int]) -> bool:
    """Whether the pods can have GPUs of one switch, each GPU by one of them."""

    def place(left: set[int], rest: list[int]) -> bool:
        if not rest:
            return True
        return any(
            place(left - set(gpus), rest[1:]) for gpus in combinations(sorted(left), rest[0])
        )

    return any(place({gpu for gpu in switch if free >> gpu & 1}, pods) for switch in switches)


def test_all_gpus_under_one_switch_or_none() -> None:
    answers = Counter[bool]()
    for seed in seeds(600):
        dice = random.Random(seed)
        layouts = [drawn(dice) for _ in range(3)]
        snapshot = cluster(dice, layouts)
        kinds = [(gpus, dice.randint(1, 2)) for gpus in dice.sample((1, 2, 3), dice.randint(1, 2))]
        pods = [gpus for gpus, count in kinds for _ in range(count)]
        frees = list(snapshot.columns.gpus.free_mask)[: len(layouts)]
        can = any(
            possible(free, switches, pods) for free, switches in zip(frees, layouts, strict=True)
        )
        answers[can] += 1
        groups = tuple((factories.spec(gpus), count) for gpus, count in kinds)
        request = PlacementRequest(groups, PCIE_SWITCH)
        if not can:
            with pytest.raises(DoesNotFit, match="under one PCIe switch"):
                fit(Draft(snapshot), request)
            continue
        found = fit(Draft(snapshot), request)
        (row,) = {each.row for each in found}
        used = [gpu for each in found for gpu in indices_of(each.gpus)]
        assert len(used) == len(set(used)) == sum(pods)
        assert all(frees[row] >> gpu & 1 for gpu in used)
        assert any(set(used) <= set(switch) for switch in layouts[row]), (seed, used)
    assert not ALL_SEEDS or min(answers.values()) > 100


def test_each_pod_under_a_switch_of_its_own_choice() -> None:
    """Equal subgroups of one pod, over several nodes: as many start as the switches have capacity for."""
    answers = Counter[bool]()
    for seed in seeds(300):
        dice = random.Random(1000 + seed)
        layouts = [drawn(dice) for _ in range(2)]
        snapshot = cluster(dice, layouts)
        gpus, count = dice.choice((2, 3)), dice.randint(1, 4)
        frees = list(snapshot.columns.gpus.free_mask)[: len(layouts)]
        capacity = sum(
            (mask_of(switch) & free).bit_count() // gpus
            for switches, free in zip(layouts, frees, strict=True)
            for switch in switches
        )
        answers[capacity >= count] += 1
        each = SubgroupRequest(((factories.spec(gpus), 1),), PCIE_SWITCH, copies=count)
        request = PlacementRequest(((factories.spec(gpus), count),), subgroups=(each,))
        if capacity < count:
            with pytest.raises(DoesNotFit, match="each under one PCIe switch"):
                fit(Draft(snapshot), request)
            continue
        for one in fit(Draft(snapshot), request):
            inside = [
                mask_of(switch) for switch in layouts[one.row] if not one.gpus & ~mask_of(switch)
            ]
            assert inside or one.pods > 1, "one subgroup is one assignment"
    assert not ALL_SEEDS or min(answers.values()) > 50


def told(*facts: Fact) -> str:
    decisions = schedule_once(new_scheduler(factories.LEVELS), list(facts), 0.0)
    return next(d.reason for d in decisions if isinstance(d, UpdateGangStatus))


def known(name: str, switches: Switches = PAIRS) -> list[Fact]:
    made = factories.topology(8, switches=switches)
    return [factories.node(name), factories.report(name, made)]


def asks(gpus: int, level: str = PCIE_SWITCH) -> list[Fact]:
    return [factories.gang("g", 1, topology_required=level), factories.pod("g-0", gpus, "g")]


def test_it_is_never_only_if_that_is_certain() -> None:
    never = "can never start: no node has 4 GPUs under one PCIe switch, the most is 2"
    assert told(*known("a"), *known("b"), *asks(4)).endswith(never)
    cpus = factories.node("cpus", gpus=0)
    assert told(*known("a"), cpus, *asks(4)).endswith(never), "no agent runs there"
    for other in (
        known("b", ()),  # an older agent
        known("b", ((0, 1), (2, 3))),  # of four GPUs nobody knows
        [factories.node("b")],  # no agent yet
    ):
        text = told(*known("a"), *other, *asks(4))
        assert "never" not in text
        assert "1 node: PCIe switches unknown" in text
    wide = told(*known("a"), *known("b", (tuple(range(8)),)), *asks(4))
    assert "never" not in wide, "it fits there"


def test_a_node_that_can_run_no_such_pod_for_another_reason_is_no_proof() -> None:
    small: list[Fact] = [factories.node("b", cpu=1000), *known("b", (tuple(range(8)),))[1:]]
    gang = asks(4)[0]
    text = told(*known("a"), *small, gang, factories.pod("g-0", 4, "g", cpu=2000))
    assert "no node has 4 GPUs" not in text


def test_the_same_is_said_of_numa_nodes_but_not_of_islands() -> None:
    """A GPU that is off its fabric comes back by itself."""
    made = factories.topology(8, ((0, 1), (2, 3)))
    sockets = replace(made, gpus=tuple(replace(gpu, numa=gpu.index // 4) for gpu in made.gpus))
    node: list[Fact] = [factories.node("a"), factories.report("a", sockets)]
    never = "can never start: no node has 6 GPUs in one NUMA node, the most is 4"
    assert told(*node, *asks(6, NUMA)).endswith(never)
    assert "never" not in told(*node, factories.node("b"), *asks(6, NUMA)), "no agent yet"
    assert "never" not in told(*node, *asks(4, ISLAND))


def test_room_is_made_under_one_switch() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*known("a"), *(factories.pod(f"s{i}", 1) for i in range(8))], 0.0)
    wish = factories.gang("g", 2, topology_required=PCIE_SWITCH, priority=5)
    decisions = schedule_once(
        scheduler, [wish, *(factories.pod(f"g-{i}", 1, "g") for i in range(2))], 1.0
    )
    gone = [scheduler.state.pods[d.pod].gpus for d in decisions if isinstance(d, Evict)]
    assert sum(gone) in {mask_of(pair) for pair in PAIRS}


def test_nobody_is_evicted_where_the_switches_are_unknown() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    pods = [factories.pod(f"s{i}", 1) for i in range(8)]
    schedule_once(scheduler, [*known("a", ()), *pods], 0.0)
    wish = factories.gang("g", 1, topology_required=PCIE_SWITCH, priority=5)
    decisions = schedule_once(scheduler, [wish, factories.pod("g-0", 1, "g")], 1.0)
    assert not any(isinstance(d, Evict) for d in decisions)


def test_groups_each_under_a_switch() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    pods = [factories.pod(f"g-{i}", 1, "g", labels=(("part", str(i % 4)),)) for i in range(8)]
    parts = (SubGroups("part", 2, keys=("part",), required=PCIE_SWITCH),)
    wish = factories.gang("g", 8, subgroups=parts)
    schedule_once(scheduler, [*known("a"), wish, *pods], 0.0)
    used = [0, 0, 0, 0]
    for pod in scheduler.state.pods.values():
        used[int(dict(pod.seen.labels)["part"])] |= pod.gpus
    assert sorted(used) == [mask_of(pair) for pair in PAIRS]


def test_the_narrower_of_two_levels() -> None:
    snapshot = Snapshot((RACK,))
    for wider in ("", RACK, NODE, NUMA):
        assert narrower(snapshot, wider, PCIE_SWITCH) == PCIE_SWITCH
        assert narrower(snapshot, PCIE_SWITCH, wider) == PCIE_SWITCH
