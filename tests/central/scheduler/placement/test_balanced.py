"""Equal parts: against every division of the pods on small clusters, and as annotations of a gang."""

import random
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import Bundle, PlacementRequest, SubgroupRequest, fit
from central.scheduler.placement.balanced import parts, unevenness
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BALANCE, BLOCK, NODE, RACK, ZONE
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS, seeds


def best_division(held: list[int], count: int) -> tuple[int, ...]:
    """The parts, the largest first: the fewest, of these the most even ones. By trying all."""
    for size in range(1, len(held) + 1):
        found = [
            tuple(sorted(numbers, reverse=True))
            for chosen in combinations(held, size)
            for numbers in product(*(range(1, most + 1) for most in chosen))
            if sum(numbers) == count
        ]
        if found:
            return min(found)
    raise AssertionError("they fit nowhere")


def test_parts_are_the_fewest_and_the_most_even() -> None:
    uneven = 0
    for seed in seeds(400):
        dice = random.Random(seed)
        held = [dice.randint(1, 6) for _ in range(dice.randint(1, 5))]
        count = dice.randint(1, sum(held))
        chosen, numbers = parts(np.array(held), (np.arange(len(held)),), count)
        expected = best_division(held, count)
        assert len(set(chosen.tolist())) == len(chosen)
        assert all(0 < n <= held[i] for i, n in zip(chosen, numbers, strict=True))
        assert tuple(sorted(numbers.tolist(), reverse=True)) == expected, f"seed {seed}"
        assert unevenness(np.array([0, *held]), count) == expected[0] - expected[-1]
        uneven += expected[0] - expected[-1] > 1
    assert not ALL_SEEDS or uneven > 20


def test_the_tightest_that_do_for_equal_parts_are_taken() -> None:
    chosen, numbers = parts(np.array([9, 5, 6, 4, 5]), (np.array([0, 2, 0, 0, 1]),), 9)
    assert list(zip(chosen.tolist(), numbers.tolist(), strict=True)) == [(0, 9)]
    chosen, numbers = parts(np.array([8, 5, 6, 4, 5]), (np.array([0, 2, 0, 0, 1]),), 9)
    assert list(zip(chosen.tolist(), numbers.tolist(), strict=True)) == [(4, 5), (3, 4)]


def cluster(dice: random.Random) -> tuple[Snapshot, dict[str, int]]:
    """Two blocks of up to three racks of up to two nodes, and what is free by node."""
    snapshot, free = Snapshot((BLOCK, RACK)), dict[str, int]()
    for block in range(2):
        for rack in range(dice.randint(1, 3)):
            for place in range(dice.randint(1, 2)):
                name = f"{block}{rack}{place}"
                free[name] = dice.randint(0, 4)
                node = factories.node(name, block=f"b{block}", rack=f"r{block}{rack}", gpus=4)
                row = snapshot.put_node(node)
                if free[name] < 4:
                    snapshot.take(row, factories.spec(4 - free[name]), 1, 0)
    return snapshot, free


def summed(amounts: dict[str, int], length: int) -> dict[str, int]:
    found = Counter[str]()
    for name, amount in amounts.items():
        found[name[:length]] += amount
    return {name: amount for name, amount in found.items() if amount}


def divided(amounts: dict[str, int]) -> tuple[int, ...]:
    return tuple(sorted(amounts.values(), reverse=True))


def test_a_gang_is_divided_evenly_at_each_level() -> None:
    """In the narrowest domain that fits it, which allows the most even parts."""
    widths = Counter[int]()
    for seed in seeds(400):
        dice = random.Random(seed)
        snapshot, free = cluster(dice)
        total = sum(free.values())
        count = dice.randint(1, max(total, 1))
        request = PlacementRequest(((factories.spec(1), count),), balanced=True)
        if total < count:
            with pytest.raises(DoesNotFit):
                fit(Draft(snapshot), request)
            continue
        taken = Counter[str]()
        for seat in fit(Draft(snapshot), request):
            taken[snapshot.columns.names[seat.row]] += seat.pods
        assert all(taken[name] <= free[name] for name in taken)
        width = next(w for w in (3, 2, 1, 0) if max(summed(free, w).values(), default=0) >= count)
        widths[width] += 1
        assert len(summed(taken, width)) == 1
        if width < 3:
            able = [d for d, held in summed(free, width).items() if held >= count]
            inside = [
                {name: n for name, n in summed(free, width + 1).items() if name.startswith(d)}
                for d in able
            ]
            choices = [best_division(list(held.values()), count) for held in inside]
            fewest = min(len(choice) for choice in choices)
            expected = min((c[0] - c[-1], c) for c in choices if len(c) == fewest)[0]
            mine = divided(summed(taken, width + 1))
            assert len(mine) == fewest, f"seed {seed}"
            assert mine[0] - mine[-1] == expected, f"seed {seed}"
        for inner in range(width + 1, 3):  # and each part again
            for domain, part in summed(taken, inner).items():
                held = [n for name, n in summed(free, inner + 1).items() if name.startswith(domain)]
                used = {n: c for n, c in summed(taken, inner + 1).items() if n.startswith(domain)}
                assert divided(used) == best_division(held, part), f"seed {seed}"
    assert not ALL_SEEDS or min(widths[width] for width in (0, 1, 2, 3)) > 5


def test_the_widest_level_of_several_domains_is_divided_whatever_is_preferred() -> None:
    """No block holds the pods, so each has five, although two racks would do."""
    snapshot = Snapshot((BLOCK, RACK))
    for name, gpus in {"000": 4, "010": 4, "100": 6, "110": 2}.items():
        node = factories.node(name, block=f"b{name[0]}", rack=f"r{name[:2]}", gpus=gpus)
        snapshot.put_node(node)
    request = PlacementRequest(((factories.spec(1), 10),), preferred=RACK, balanced=True)
    seats = {snapshot.columns.names[s.row]: s.pods for s in fit(Draft(snapshot), request)}
    assert divided(summed(seats, 1)) == (5, 5)
    assert seats["100"] == 5


def test_subgroups_are_divided_evenly() -> None:
    """Four rings of two pods: two for each rack, although one holds three."""
    snapshot = Snapshot((BLOCK, RACK))
    for name in ("000", "001", "002", "010", "011"):
        node = factories.node(name, block="b0", rack=f"r{name[:2]}", gpus=4)
        snapshot.put_node(node)
    spec = factories.spec(2)
    part = SubgroupRequest(((spec, 2),), NODE, copies=4, bundles=(Bundle(0, BLOCK),))
    for balanced, expected in ((False, (6, 2)), (True, (4, 4))):
        draft = Draft(snapshot)
        request = PlacementRequest(((spec, 8),), subgroups=(part,), balanced=balanced)
        taken = Counter[str]()
        for seat in fit(draft, request):
            taken[snapshot.columns.names[seat.row]] += seat.pods
        draft.undo()
        assert divided(summed(taken, 2)) == expected


def test_among_equal_racks_those_in_use_go_first() -> None:
    """Each holds two pods by its CPU; the first rack is the only one whose GPUs are all free."""
    snapshot = Snapshot((BLOCK, RACK))
    for rack in range(3):
        name = f"0{rack}0"
        node = factories.node(name, block="b0", rack=f"r0{rack}", gpus=8, cpu=2000)
        row = snapshot.put_node(node)
        if rack:
            snapshot.take(row, factories.spec(4, 1), 1, 0)
    spec = factories.spec(1, 800)
    seats = fit(Draft(snapshot), PlacementRequest(((spec, 4),), balanced=True))
    assert sorted(snapshot.columns.names[seat.row] for seat in seats) == ["010", "020"]


def test_nodes_without_a_rack_are_one_part() -> None:
    snapshot = Snapshot((BLOCK, RACK))
    for name, rack in (("a", "ra"), ("b", ""), ("c", "")):
        snapshot.put_node(factories.node(name, block="b0", rack=rack, gpus=4))
    request = PlacementRequest(((factories.spec(1), 10),), balanced=True)
    seats = {snapshot.columns.names[s.row]: s.pods for s in fit(Draft(snapshot), request)}
    assert seats == {"a": 4, "b": 3, "c": 3}


# --- from annotations to bindings ---------------------------------------------------------


def homes(policy: str, *pods: Fact) -> Counter[str]:
    """The pods by rack: racks r0 and r1 have 10 GPUs, r2 has 6."""
    scheduler = new_scheduler((BLOCK, RACK))
    nodes = [
        factories.node(f"{rack}{place}", block="b", rack=f"r{rack}", gpus=2)
        for rack, size in enumerate((5, 5, 3))
        for place in range(size)
    ]
    gang = factories.gang("g", len(pods), placement=policy)
    decisions = schedule_once(scheduler, [*nodes, gang, *pods], 0.0)
    check_invariants(scheduler)
    return Counter(f"r{each.node[0]}" for each in decisions if isinstance(each, Bind))


def test_the_annotation_divides_a_gang() -> None:
    workers = [factories.pod(f"g-{rank}", 1, "g") for rank in range(16)]
    assert sorted(homes("", *workers).values()) == [6, 10]
    assert homes(BALANCE, *workers) == {"r0": 8, "r1": 8}


def test_workers_are_divided_beside_a_launcher() -> None:
    launcher = factories.pod("g-16", 0, "g")
    workers = [factories.pod(f"g-{rank}", 1, "g") for rank in range(16)]
    found = homes(BALANCE, *workers, launcher)
    assert set(found) == {"r0", "r1"}
    assert sorted(found.values()) == [8, 9]


def test_levels_that_no_node_knows_leave_unlike_pods_in_few_blocks() -> None:
    """A leader beside seven workers: two of three blocks take all, and there are no zones. Parts are equal where the
    gang takes several domains, not at the widest level that has a name."""
    snapshot = Snapshot((ZONE, BLOCK, RACK))
    for rack, block, nodes in (("r1", "b1", 3), ("r2", "b2", 3), ("r3", "b2", 2), ("r4", "b3", 4)):
        for number in range(nodes):
            snapshot.put_node(factories.node(f"{rack}-{number}", rack=rack, block=block))
    groups = ((factories.spec(8, 1000), 7), (factories.spec(8, 2000), 1))
    taken = fit(Draft(snapshot), PlacementRequest(groups, balanced=True))
    blocks = snapshot.columns.domains.of[1]
    assert len({int(blocks[each.row]) for each in taken}) == 2


def test_a_larger_pod_finds_no_node_that_its_gang_has_filled() -> None:
    """Workers are divided first; where the rest of a node is too small for the leader, the gang stays packed."""
    for seed in seeds(60):
        dice = random.Random(seed)
        snapshot = Snapshot((BLOCK, RACK))
        free = [dice.choice((3, 3, 4, 8)) for _ in range(dice.randint(2, 5))]
        for number, gpus in enumerate(free):
            rack = f"r{number % 3}"
            snapshot.put_node(factories.node(f"n{number}", rack=rack, block="b", gpus=gpus))
        leader = dice.randint(2, 6)
        groups = ((factories.spec(1), dice.randint(2, 7)), (factories.spec(leader), 1))
        try:
            taken = fit(Draft(snapshot), PlacementRequest(groups, balanced=True))
        except DoesNotFit:
            continue
        for each in taken:
            gpus = 1 if each.spec == groups[0][0] else leader
            free[int(snapshot.columns.names[each.row][1:])] -= gpus * each.pods
        assert min(free) >= 0, f"seed {seed}"
