"""What the bounds rule out, the search does not find; and they rule out what they can."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement
from math import inf
from typing import Any

import numpy as np
import pytest

from central.model.arrays import Bools, Ints
from central.model.facts import Fact, PodSpec, Taint
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.better_place import least_lacking, may_be_better
from central.scheduler.reservation.planned_reservation import plan_reservation
from central.scheduler.reservation.release_forecast import Freed
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.state.cluster_state import ClusterState
from protos.names import GPU, NODE, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.effort import ALL_SEEDS, seeds

NODES = 6
NONE: Ints = np.zeros(0, dtype=np.int64)


def crowded(dice: random.Random) -> World:
    """Racks of two nodes, most GPUs in use, some for a known time."""
    world = World(
        *(factories.node(f"n{n}", gpus=4, rack=f"r{n // 2}", shares=True) for n in range(NODES)),
        *(factories.report(f"n{n}", factories.topology(4, shares=True)) for n in range(NODES)),
    )
    world.step(1.0, *(pod for n in range(NODES) for pod in running(dice, f"n{n}", 4)))
    return world


def running(dice: random.Random, node: str, gpus: int) -> Iterator[Fact]:
    known = dice.random() < 0.6
    while gpus > 0:
        of: dict[str, Any] = {
            "node": node,
            "phase": "Running",
            "started": 1.0,
            "runs_for_s": dice.choice((60.0, 90.0, 120.0)) if known else None,
            "ours": dice.random() < 0.9,
        }
        name, size = f"{node}-{gpus}", dice.choice((1, 1, 2))
        if dice.random() < 0.1:
            yield factories.part(name, dice.choice((50, 100)), **of)
        elif dice.random() < 0.9:
            yield factories.pod(name, min(size, gpus), **of)
        gpus -= size


def gang_of(dice: random.Random) -> list[Fact]:
    size, gpus = dice.randint(1, 4), dice.choice((1, 2, 3, 4))
    required = dice.choice(("", "", RACK, NODE))
    facts = job("head", size, gpus, created=1.0, topology_required=required)
    if dice.random() < 0.3:  # unlike pods
        facts[-1] = factories.pod(f"head-{size - 1}", dice.choice((0, 1, 2)), "head", created=1.0)
    return facts


def looks(seed: int) -> Iterator[tuple[ClusterState, Reservation, RunningPods, Ints]]:
    """A gang with a reservation, at several times after changes."""
    dice = random.Random(seed)
    world = crowded(dice)
    world.step(2.0, *gang_of(dice))
    for turn in range(8):
        state = world.cluster.state
        held = next(iter(world.cluster.reservations.values()), None)
        if held is None:
            return
        now = 2.0 + turn
        excluded = np.array(dice.sample(range(NODES), dice.choice((0, 0, 1, 2))), dtype=np.int64)
        yield state, held, RunningPods(state, now), excluded
        pods = [pod for pod in state.pods.values() if pod.node]
        ended = [
            replace(pod.seen, phase="Succeeded")
            for pod in dice.sample(pods, min(len(pods), dice.choice((0, 1, 1, 2))))
        ]
        new = factories.pod(f"new-{turn}", 1, node=f"n{dice.randrange(NODES)}", phase="Running")
        world.step(now + 0.5, *ended, *[new] * (dice.random() < 0.5))


@pytest.mark.long
def test_what_is_ruled_out_is_not_found() -> None:
    ruled_out = better = 0
    for seed in seeds(60):
        for state, own, pods, excluded in looks(seed):
            may_be = may_be_better(state, own, pods, excluded)
            found = plan_reservation(state, own.gang, own.request, pods, excluded)
            is_better = found is not None and found.better_than(own, state.snapshot, inf)
            assert may_be or not is_better, seed
            ruled_out += not may_be
            better += is_better
    assert not ALL_SEEDS or ruled_out > 60
    assert not ALL_SEEDS or better > 20


def request_of(*groups: tuple[int, int], required: str = "") -> PlacementRequest:
    """Of so many pods with so many GPUs each."""
    return PlacementRequest(
        tuple((factories.spec(gpus), count) for count, gpus in groups), required=required
    )


def fewest(state: ClusterState, spec: PodSpec, count: int, rows: list[int], freed: Freed) -> float:
    """GPUs that lack on the best of all choices of rows for equal pods."""
    columns, gpus = state.snapshot.columns, dict(spec.requests)[GPU]
    after = columns.free[:, 0] + freed.by_row(0, len(columns.names))
    found = [
        sum(max(gpus * rows.count(row) - int(columns.free[row, 0]), 0) for row in set(rows))
        for rows in map(list, combinations_with_replacement(rows, count))
        if all(gpus * rows.count(row) <= after[row] for row in rows)
    ]
    return min(found, default=inf)


@pytest.mark.parametrize("required", ["", RACK, NODE])
def test_the_fewest_gpus_that_lack_are_those_of_the_best_choice(required: str) -> None:
    """Exact where the pods are equal and nothing but GPUs counts."""
    of_level = {
        "": [list(range(NODES))],
        RACK: [[0, 1], [2, 3], [4, 5]],
        NODE: [[row] for row in range(NODES)],
    }
    for seed in seeds(30):
        dice = random.Random(seed)
        state = crowded(dice).cluster.state
        names = [*state.snapshot.columns.names]
        useful: Bools = np.array([bool(name) for name in names], dtype=np.bool_)
        excluded = np.array(dice.sample(range(NODES), 2), dtype=np.int64)
        until = dice.choice((0.0, 61.0, 91.0, inf))
        freed = RunningPods(state, 2.0).freed(useful, excluded, until)
        for count, gpus in ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2), (2, 3), (2, 4)):
            request = request_of((count, gpus), required=required)
            rows = [[names.index(f"n{n}") for n in domain] for domain in of_level[required]]
            expected = min(fewest(state, request.groups[0][0], count, each, freed) for each in rows)
            for spec, _ in request.groups:
                state.snapshot.view(spec).refresh()
            assert least_lacking(state.snapshot, request, useful, freed) == expected


def test_pods_of_unlike_sizes_lack_at_least_what_units_of_their_divisor_lack() -> None:
    """2 and 4 GPUs: each node is left with an even number."""
    world = World(*(factories.node(f"n{n}", gpus=4) for n in range(2)))
    used = [factories.pod(f"u{n}", 3, node=f"n{n}", phase="Running") for n in range(2)]
    world.step(1.0, *used)
    state, request = world.cluster.state, request_of((1, 2), (1, 4))
    for spec, _ in request.groups:
        state.snapshot.view(spec).refresh()
    useful = np.array([bool(name) for name in state.snapshot.columns.names], dtype=np.bool_)
    freed = RunningPods(state, 2.0).freed(useful, NONE, inf)
    nothing = Freed(NONE, freed.amounts[:0])
    assert least_lacking(state.snapshot, request, useful, freed) == 1 + 2 + 1
    assert least_lacking(state.snapshot, request, useful, nothing) == inf
    assert least_lacking(state.snapshot, request_of((2, 0)), useful, freed) == 0
    assert least_lacking(state.snapshot, request_of((1, 10**9)), useful, freed) == inf


def test_nodes_that_the_pods_may_not_use_offer_nothing() -> None:
    """In the rack one node takes one pod, another one none; a third node is in no rack."""
    taint = Taint("own", "yes", "NoSchedule")
    world = World(
        factories.node("small", rack="r0", cpu=150),
        factories.node("tainted", rack="r0", taints=(taint,)),
        factories.node("elsewhere"),
    )
    snapshot = world.cluster.state.snapshot
    useful = np.array([name in ("small", "elsewhere") for name in snapshot.columns.names])
    nothing = Freed(NONE, np.zeros((0, snapshot.columns.width), dtype=np.int64))
    for *groups, expected in (
        ((1, 1), 0),
        ((2, 1), inf),
        ((1, 6), (1, 4), inf),
        ((1, 6), (1, 2), 0),
    ):
        request = request_of(*groups, required=RACK)
        for spec, _ in request.groups:
            snapshot.view(spec).refresh()
        assert least_lacking(snapshot, request, useful, nothing) == expected
