"""Reservations of one pass share the running pods; each sees what it would have read itself."""

import random
from math import inf
from typing import Any

import numpy as np
import pytest

from central.model.arrays import Bools, Floats, Ints
from central.model.decisions import Evict
from central.model.facts import Fact, PodGone, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.reservation.release_forecast import PlacedPods, ReleasablePods
from central.scheduler.reservation.running_pods import KEPT, RunningPods
from central.scheduler.state.cluster_state import ClusterState
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

NODES = 8
KEPT_C, KEPT_D = (QueueSeen(name, reclaimable=False) for name in "cd")


def crowded(dice: random.Random) -> ClusterState:
    facts: list[Fact] = []
    for number in range(40):
        running: dict[str, Any] = {
            "node": f"n{dice.randrange(NODES)}",
            "phase": "Running",
            "runs_for_s": dice.choice((None, 60.0, 600.0)),
            "started": 1.0,
            "cpu": dice.choice((100, 200)),
        }
        if dice.random() < 0.3:
            facts.append(factories.part(f"p{number}", 30, **running))
        else:
            facts.append(factories.pod(f"p{number}", dice.choice((0, 1)), **running))
    world = World(*(factories.node(f"n{number}") for number in range(NODES)))
    world.step(1.0, *facts)
    return world.cluster.state


@pytest.mark.parametrize("seed", range(5))
def test_the_pods_of_some_rows_are_those_that_are_read_alone(seed: int) -> None:
    dice = random.Random(seed)
    state = crowded(dice)
    names, running = state.snapshot.columns.names, RunningPods(state, 10.0)
    for _ in range(3 * KEPT):
        useful = np.array([bool(n) and dice.random() < 0.8 for n in names], dtype=np.bool_)
        for _ in range(3):
            excluded = np.array(dice.sample(range(NODES), 3), dtype=np.int64)
            left = [row for row in np.flatnonzero(useful).tolist() if row not in excluded]
            expected = [pod for row in left for pod in state.nodes[names[row]].pods.values()]
            placed, ends = running.on(useful, excluded)
            assert placed.pods == expected
            assert ends.tolist() == [pod.ends(10.0) for pod in expected]
            shared, alone = ReleasablePods(state, placed), ReleasablePods(state, expected)
            for name in ("rows", "amounts", "masks", "whole_gpus"):
                assert getattr(shared, name).tolist() == getattr(alone, name).tolist(), name
            assert {id(spec) for spec in placed.classes} == {id(pod.spec) for pod in expected}
            shared.masks[:] = 0  # its own
            for until in (60.0, 61.0, inf):
                rows = [row for row, end in zip(placed.rows, ends, strict=True) if end <= until]
                chosen = np.flatnonzero(ends <= until)
                freed = running.freed(useful, excluded, until)
                assert freed.rows.tolist() == rows
                assert freed.amounts.tolist() == alone.amounts[chosen].tolist()
                for column in (0, 1):
                    sums = freed.by_row(column, len(names)).tolist()
                    assert sums == [
                        freed.amounts[freed.rows == r, column].sum() for r in range(len(names))
                    ]


def test_pods_of_other_schedulers_count_where_their_end_is_known() -> None:
    world = World(factories.node("n0"))
    theirs = [factories.pod(name, 1, node="n0", phase="Running", ours=False) for name in "ab"]
    ends = factories.pod(
        "c", 1, node="n0", phase="Running", ours=False, runs_for_s=60.0, started=1.0
    )
    world.step(1.0, *theirs, ends)
    useful = np.array([bool(n) for n in world.cluster.state.snapshot.columns.names], dtype=np.bool_)
    placed, found = RunningPods(world.cluster.state, 2.0).on(useful, np.zeros(0, dtype=np.int64))
    assert ([pod.seen.name for pod in placed.pods], found.tolist()) == (["c"], [61.0])
    assert found[0] < inf


def test_of_no_pods() -> None:
    state = World(factories.node("n0")).cluster.state
    releasable = ReleasablePods(state, PlacedPods.of(state, []).only(np.zeros(0, dtype=np.int64)))
    assert (len(releasable.pods), len(releasable.amounts)) == (0, 0)


def test_a_reservation_counts_on_the_end_of_what_the_same_pass_bound() -> None:
    """Another one was planned before it was bound."""
    world = World(*(factories.node(f"n{number}", rack=f"r{number}") for number in range(3)))
    facts: list[Fact] = [QueueSeen("a", weight=100), QueueSeen("b"), QueueSeen("c"), KEPT_D]
    for number, (gpus, lasts) in enumerate(((8, 600.0), (8, 700.0), (4, None))):
        of: dict[str, Any] = {"node": f"n{number}", "phase": "Running", "runs_for_s": lasts}
        facts.append(
            factories.pod(f"r{number}", gpus, queue="d", preemptable=False, started=1.0, **of)
        )
    facts += job("first", 1, 8, created=1.0, queue="a", rack="r0")
    facts += job("bound", 1, 4, 60.0, created=2.0, queue="b")
    facts += job("last", 1, 4, created=3.0, queue="c", rack="r2")
    assert world.step(1.0, *facts) == ["bound-0"]
    held = {
        key[1]: (each.place.name, each.start) for key, each in world.cluster.reservations.items()
    }
    assert held == {"first": ("node n0", 601.0), "last": ("node n2", 61.0)}


def test_a_reservation_counts_on_pods_that_the_same_pass_evicts() -> None:
    """Another one was planned before they were to leave. They are of one gang: one leaves the place that the claimant
    gets, the other one a node that is free for all then."""
    world = World(*(factories.node(f"n{number}", rack=f"r{number // 2}") for number in range(4)))
    facts: list[Fact] = [QueueSeen("a", weight=100), QueueSeen("b", weight=50), KEPT_C]
    for number, lasts in enumerate((600.0, 700.0)):
        of: dict[str, Any] = {"node": f"n{number}", "phase": "Running", "runs_for_s": lasts}
        facts.append(
            factories.pod(f"r{number}", 8, queue="c", preemptable=False, started=1.0, **of)
        )
    world.step(1.0, *facts, *job("victim", 2, 8, queue="b"))
    claims = job("first", 1, 8, created=1.0, queue="a", rack="r0")
    claims += job("urgent", 1, 8, created=2.0, queue="b", priority=5)
    claims += job("last", 1, 8, created=3.0, queue="c", rack="r1")
    world.step(2.0, *claims)
    assert world.evicted == ["victim-0", "victim-1"]
    held = {
        key[1]: (each.place.name, each.start) for key, each in world.cluster.reservations.items()
    }
    expected = {"first": ("node n0", 601.0), "urgent": ("node n2", 2.0), "last": ("node n3", 2.0)}
    assert held == expected


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each time that a reservation reads the running pods, it reads what is so at that time."""
    numbers: list[int] = []
    real = RunningPods.on

    def on(self: RunningPods, useful: Bools, excluded: Ints) -> tuple[PlacedPods, Floats]:
        placed, ends = real(self, useful, excluded)
        now_placed, now_ends = real(RunningPods(self._state, self.now), useful, excluded)
        assert (placed.pods, ends.tolist()) == (now_placed.pods, now_ends.tolist())
        numbers.append(len(placed.pods))
        return placed, ends

    monkeypatch.setattr(RunningPods, "on", on)
    return numbers


def test_a_reservation_counts_on_no_pod_whose_eviction_the_same_pass_gave_up(
    reads: list[int],
) -> None:
    """Another one was planned before. The claim on two pods awaited a dry run when its gang lost a member."""
    nodes = [factories.node(f"n{number}", rack=f"r{min(number, 2)}") for number in range(4)]
    world = World(*nodes, factories.budget("v", 2))
    facts: list[Fact] = [QueueSeen("a", weight=100), QueueSeen("b", weight=50)]
    facts += [KEPT_C, KEPT_D]
    for number, lasts in enumerate((600.0, 700.0)):
        of: dict[str, Any] = {"node": f"n{number}", "phase": "Running", "runs_for_s": lasts}
        facts.append(
            factories.pod(f"r{number}", 8, queue="cd"[number], preemptable=False, started=1.0, **of)
        )
    world.step(1.0, *facts, *job("victim", 2, 8, queue="b", labels=(("app", "v"),)))
    made = world.cluster
    urgent = job("urgent", 2, 8, created=2.0, queue="b", priority=5)
    asked = schedule_once(made, urgent, 2.0)
    assert [(each.name, each.trial) for each in asked if isinstance(each, Evict)] == [
        ("victim-0", True),
        ("victim-1", True),
    ]
    claims = [PodGone("uid-urgent-1"), *job("first", 1, 8, created=1.0, queue="a", rack="r0")]
    for name, queue, rack in (("next", "d", "r1"), ("last", "c", "r2")):
        claims += job(name, 1, 8, created=3.0, queue=queue, rack=rack)
    schedule_once(made, claims, 3.0)
    starts = {key[1]: (each.place.name, each.start) for key, each in made.reservations.items()}
    assert starts.pop("last")[1] == inf
    assert starts == {"first": ("node n0", 601.0), "next": ("node n1", 701.0)}
    assert len(reads) >= 3


def test_arrays_of_placed_pods_are_not_changed_by_who_reads_them() -> None:
    """Nobody frees a GPU by a share of it, so its mask is cleared; another one may read the array."""
    state = crowded(random.Random(0))
    shared = [pod for pod in state.pods.values() if pod.spec.share_containers]
    placed = PlacedPods.of(state, shared)._replace(gpus=np.ones(len(shared), dtype=np.int64))
    assert not ReleasablePods(state, placed).masks.any()
    assert placed.gpus.tolist() == [1] * len(shared)
