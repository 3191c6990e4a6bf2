"""A preferred level beside a required one: against trying every set of domains, and as a story."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import UpdateGangStatus
from central.model.facts import PodGone
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds


def scheduler(dice: random.Random) -> Snapshot:
    """Up to 3 blocks of up to 3 racks of up to 3 nodes of 1 to 4 GPUs."""
    snapshot = Snapshot((BLOCK, RACK))
    for block in range(dice.randint(1, 3)):
        for rack in range(dice.randint(1, 3)):
            for place in range(dice.randint(1, 3)):
                name = f"{block}{rack}{place}"
                gpus = dice.randint(1, 4)
                node = factories.node(name, block=f"b{block}", rack=f"r{block}{rack}", gpus=gpus)
                snapshot.put_node(node)
    return snapshot


def spans(snapshot: Snapshot, rows: set[int], level: str) -> int:
    if level == "node":
        return len(rows)
    return len({int(snapshot.columns.domains.of[(BLOCK, RACK).index(level), row]) for row in rows})


def fewest(snapshot: Snapshot, count: int, level: str, required: str) -> int:
    """Of domains of the level that have room for so many GPUs together, inside one domain of the
    required level; 0: there are none."""
    every = sorted(snapshot.columns.row.values())
    groups: dict[int, list[int]] = {}
    for row in every:
        at = (
            row
            if level == "node"
            else int(snapshot.columns.domains.of[1 if level == RACK else 0, row])
        )
        groups.setdefault(at, []).append(row)
    for size in range(1, len(groups) + 1):
        for chosen in combinations(groups, size):
            rows = [row for domain in chosen for row in groups[domain]]
            if required and spans(snapshot, set(rows), required) > 1:
                continue
            if sum(int(snapshot.columns.gpus.count[row]) for row in rows) >= count:
                return size
    return 0


def closest(snapshot: Snapshot, count: int) -> str:
    """The narrowest level with a domain that has so many GPUs; empty: none."""
    levels = {"node": lambda row: row, RACK: domain_of(snapshot, 1), BLOCK: domain_of(snapshot, 0)}
    for level, domain in levels.items():
        free = Counter[int]()
        for row in snapshot.columns.row.values():
            free[domain(row)] += int(snapshot.columns.gpus.count[row])
        if max(free.values()) >= count:
            return level
    return ""


def domain_of(snapshot: Snapshot, level: int) -> Callable[[int], int]:
    return lambda row: int(snapshot.columns.domains.of[level, row])


def test_the_fewest_of_the_preferred_level_inside_the_required_one() -> None:
    seen = Counter[tuple[str, str]]()
    for seed in seeds(600):
        dice = random.Random(seed)
        snapshot = scheduler(dice)
        count, preferred = dice.randint(1, 16), dice.choice((RACK, "node"))
        required = dice.choice(("", BLOCK))
        inside = closest(snapshot, count)
        least = 1 if inside == "node" else fewest(snapshot, count, preferred, inside or required)
        draft = Draft(snapshot)
        want = PlacementRequest(((factories.spec(1), count),), required, preferred=preferred)
        if not least:
            with pytest.raises(DoesNotFit):
                fit(draft, want)
            continue
        rows = {seat.row for seat in fit(draft, want)}
        assert spans(snapshot, rows, preferred) == least, f"seed {seed}"
        assert not required or spans(snapshot, rows, required) == 1
        if spans(snapshot, rows, BLOCK) > 1:  # no block takes it
            assert not inside
            seen["wide", preferred] += 1
        elif spans(snapshot, rows, RACK) > 1:
            seen["block", preferred] += 1
        draft.undo()
    assert not ALL_SEEDS or len(seen) == 4
    assert not ALL_SEEDS or min(seen.values()) > 10


def racks_of(pods: int, **preferred: object) -> int:
    """How many racks so many pods of one GPU get: block a has three of 2 GPUs, b, c and d have one of 3."""
    nodes = [factories.node(f"a{i}", block="a", rack=f"a{i}", gpus=2) for i in range(3)]
    nodes += [factories.node(f"{b}0", block=b, rack=f"{b}0", gpus=3) for b in "bcd"]
    made = new_scheduler((BLOCK, RACK))
    members = [factories.pod(f"g-{i}", 1, "g") for i in range(pods)]
    schedule_once(made, [*nodes, factories.gang("g", pods, **preferred), *members], 0.0)
    return len({pod.node for pod in made.state.pods.values()})


def test_the_closest_domain_comes_before_the_preferred_level() -> None:
    """Three racks of one block, although two racks of two blocks would do."""
    assert racks_of(6) == 3
    assert racks_of(6, topology_preferred=RACK) == 3


def test_the_preferred_level_comes_before_wider_ones() -> None:
    """No block takes all: four racks of two blocks, or three racks of three."""
    assert racks_of(8) == 4
    assert racks_of(8, topology_preferred=RACK) == 3


def test_a_replacement_joins_the_racks_that_the_gang_is_in() -> None:
    nodes = [factories.node(f"{r}{i}", block="b", rack=r, gpus=2) for r in "xyz" for i in range(2)]
    made = new_scheduler((BLOCK, RACK))
    pods = [factories.pod(f"g-{i}", 1, "g") for i in range(6)]
    schedule_once(made, [*nodes, factories.gang("g", 6), *pods], 0.0)
    racks = {pod.node[0] for pod in made.state.pods.values()}
    lost = made.state.pods["uid-g-5"].node
    assert len(racks) == 2
    blocker = factories.pod("other", 2, node=lost)
    schedule_once(made, [PodGone("uid-g-5"), blocker], 1.0)
    schedule_once(made, [factories.pod("g-5", 1, "g")], 2.0)
    new = made.state.pods["uid-g-5"].node
    assert not new or new[0] in racks
    assert new


def test_a_tier_that_is_soft_is_preferred() -> None:
    """Tier 1 is the rack."""
    assert racks_of(8, preferred_tier=1) == 3


def test_a_preferred_level_that_does_not_exist_is_named() -> None:
    made = new_scheduler((BLOCK, RACK))
    wish = factories.gang("g", 1, topology_preferred="example.com/row")
    decisions = schedule_once(made, [factories.node("a"), wish, factories.pod("g-0", 1, "g")], 0.0)
    told = next(d.reason for d in decisions if isinstance(d, UpdateGangStatus))
    assert told.startswith("can never start: topology level example.com/row is not one of")
