"""What others must leave free for a reserved gang, row by row, against the rule as it is written."""

import random
from collections import Counter
from math import inf
from typing import Any

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.scheduler.apply import apply
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import start_leaving
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import MovedPods, Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace, place_name
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

NODES, GPUS, NOW = 5, 8, 100.0


def cluster(dice: random.Random) -> Scheduler:
    """Nodes with pods whose ends are known or not, some of which are leaving."""
    made, left = new_scheduler(factories.LEVELS), [GPUS] * NODES
    facts: list[Fact] = [
        factories.node(f"n{n}", rack=f"r{n // 2}", block="b" * (n < 4)) for n in range(NODES)
    ]
    for number in range(12):
        node, gpus = dice.randrange(NODES), dice.choice((1, 2, 3))
        if left[node] >= gpus:
            left[node] -= gpus
            lasts = dice.choice((None, 20.0, 50.0, 80.0))
            of: dict[str, Any] = {
                "node": f"n{node}",
                "phase": dice.choice(("Running", "Running", "Succeeded")),
            }
            facts.append(factories.pod(f"p{number}", gpus, started=90.0, runs_for_s=lasts, **of))
    made.state.now = NOW
    for fact in facts:
        apply(made, fact)
    start_leaving([pod for pod in made.state.pods.values() if pod.alive and dice.random() < 0.3])
    return made


def reservation(
    made: Scheduler, rows: list[int], need: list[int], start: float, masks: list[int] | None = None
) -> Reservation:
    columns = made.state.snapshot.columns
    amounts = np.zeros((len(rows), columns.width), dtype=np.int64)
    amounts[:, 0] = need
    taken = TakenCapacity(
        np.array(rows, dtype=np.int64), amounts, masks or [0] * len(rows), frozenset()
    )
    place = ReservedPlace.on(made.state.snapshot, taken)
    request = PlacementRequest(((factories.spec(1), sum(need)),))
    return Reservation(Gang(("ns", "g", True)), request, place, start, "p", planned_at=NOW)


@pytest.mark.parametrize("kind", ["known", "unknown", "evictions"])
def test_the_need_less_what_returns_in_time(kind: str) -> None:
    seen = Counter[bool]()
    for seed in seeds(60):
        dice = random.Random(seed)
        made = cluster(dice)
        rows = sorted(dice.sample(range(NODES), dice.randrange(1, 4)))
        need = [dice.randrange(1, GPUS + 1) for _ in rows]
        start = inf if kind == "unknown" else dice.choice((99.0, 110.0, 140.0, 170.0))
        held = reservation(made, rows, need, start)
        held.by_eviction, most_idle = kind == "evictions", dice.choice((0, 1, 6, 100))
        returned = [
            sum(
                pod.spec.request("nvidia.com/gpu")
                for pod in made.state.pods.values()
                if pod.alive
                and pod.node == f"n{row}"
                and (pod.leaving if held.by_eviction else pod.ends(NOW) <= start)
            )
            for row in rows
        ]
        free = [int(made.state.snapshot.columns.free[row, 0]) for row in rows]
        missing = [max(n - back, 0) for n, back in zip(need, returned, strict=True)]
        expected = [
            min(n, f) for n, f in zip(missing if kind == "known" else need, free, strict=True)
        ]
        if kind == "unknown":  # whole rows, those with most first, and one at least
            allowed = most_idle
            for place, index in enumerate(sorted(range(len(rows)), key=lambda i: -expected[i])):
                allowed -= expected[index]
                if not most_idle or (allowed < 0 and place):
                    expected[index] = 0
        found = held.refresh(made.state, NOW, most_idle)
        assert held.withheld[:, 0].tolist() == expected, f"seed {seed}"
        assert held.idle == (sum(expected) if kind == "unknown" else 0)
        lacks = any(n > f for n, f in zip(missing, free, strict=True))
        late = start < NOW and kind == "known"
        assert found == (not late and not (lacks and kind != "unknown"))
        seen[found] += 1
        made.state.snapshot.columns.version[rows[0]] += 1
        assert not held.refresh(made.state, NOW, most_idle), "a node of the place has changed"
    assert not ALL_SEEDS or seen[True] > 5
    assert not ALL_SEEDS or (seen[False] > 5) == (kind != "unknown")


def test_gpus_of_the_place_are_kept_whole_and_others_stay() -> None:
    """What is free of a shared GPU of the place goes to nobody else, so that it is whole once its last pod is gone.
    Rows that are lent, and GPUs that are in use, are left as they are."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node(f"n{n}", shares=True) for n in range(3)]
    facts += [factories.report(f"n{n}", factories.topology(shares=True)) for n in range(3)]
    for fact in facts:
        apply(made, fact)
    snapshot, gpus = made.state.snapshot, made.state.snapshot.columns.gpus
    for row in range(3):
        gpu_shares.change(gpus, row, 1 << 2, -30)
        gpu_shares.change(gpus, row, 1 << 5, -60)
        snapshot.columns.recount(row)
    snapshot.take(0, factories.spec(1), 1, 0b1)
    masks, shares = list(gpus.free_mask), [dict(each) for each in gpus.free_shares]
    free, count = snapshot.columns.free.copy(), gpus.count.copy()
    held = reservation(made, [0, 1, 2], [3, 4, 2], inf, [0b1111, 0b1111, 0b1111])
    held.refresh(made.state, NOW, 7)
    assert held.withheld[:, 0].tolist() == [3, 4, 0]
    taken = held.withhold(snapshot)
    assert [mask & 0b1111 for mask in gpus.free_mask[:3]] == [0, 0, masks[2] & 0b1111]
    assert [mask >> 4 for mask in gpus.free_mask[:3]] == [mask >> 4 for mask in masks[:3]]
    assert [each[2] for each in gpus.free_shares[:3]] == [0, 0, 70]
    assert [each[5] for each in gpus.free_shares[:3]] == [40] * 3
    reserved = snapshot.reserved_gpus[held.gang.key]
    assert (reserved.name, reserved.rows.tolist()) == ("ns/g", [0, 1, 2])
    assert snapshot.gpus_with_reserved().tolist() == count.tolist()
    assert taken.any_capacity
    held.give_back(snapshot, taken)
    assert (gpus.free_mask, [dict(each) for each in gpus.free_shares]) == (masks, shares)
    assert (snapshot.columns.free == free).all()
    assert gpus.count.tolist() == count.tolist()
    assert not snapshot.reserved_gpus


def test_the_place_has_the_name_of_the_narrowest_domain_around_it() -> None:
    snapshot = cluster(random.Random(0)).state.snapshot
    names = {
        (3,): "node n3",
        (0, 1): "rack r0",
        (0, 1, 2): "block b",
        (1, 3): "block b",
        (3, 4): "2 nodes",
        (0, 1, 2, 3, 4): "5 nodes",
    }
    for rows, name in names.items():
        assert place_name(snapshot, np.array(rows, dtype=np.int64)) == name


def test_gpus_lack_where_they_are_in_use() -> None:
    made = new_scheduler(factories.LEVELS)
    for node in range(3):
        apply(made, factories.node(f"n{node}"))
    held = reservation(made, [0, 1, 2], [8, 4, 6], inf)
    assert held.place.gpus_lacking(made.state.snapshot) == 0
    for row, gpus in ((0, 3), (1, 4), (2, 8), (2, 1)):
        made.state.snapshot.take(row, factories.spec(gpus))
    assert held.place.gpus_lacking(made.state.snapshot) == 3 + 0 + 6


def test_a_place_is_kept_for_pods_that_are_moved_until_they_are_made_again_or_it_is_too_late() -> (
    None
):
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node("n")]
    facts += [factories.pod(name, 1, node="n", phase="Running") for name in "ab"]
    for fact in facts:
        apply(made, fact)
    moved = MovedPods(frozenset({"uid-a", "uid-gone"}), 50.0)
    pod = made.state.pods["uid-a"]
    assert not moved.awaited(made.state, 10.0), "it stays"
    start_leaving([pod])
    assert moved.awaited(made.state, 49.9)
    assert not moved.awaited(made.state, 50.0)
    ended = MovedPods(frozenset({"uid-b"}), 50.0)
    assert not ended.awaited(made.state, 10.0)
    apply(made, factories.pod("b", 1, node="n", phase="Succeeded"))
    assert ended.awaited(made.state, 10.0)
