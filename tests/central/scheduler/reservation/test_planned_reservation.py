"""When a pending gang fits first as running pods end, and where, against trying it at each end in a cluster that is
built without those that have ended."""

import random
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.arrays import Ints
from central.model.facts import Fact, PodSeen
from central.scheduler import placement
from central.scheduler.apply import apply
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.planned_reservation import plan_reservation
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from protos.names import NODE, RACK
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

NODES, GPUS, NOW = 6, 4, 10.0


@dataclass
class Case:
    pods: list[PodSeen]
    request: PlacementRequest
    excluded: list[int]  # nodes on whose pods nobody may count

    def made(self, without: frozenset[str] = frozenset()) -> Scheduler:
        scheduler = new_scheduler(factories.LEVELS)
        facts: list[Fact] = [
            factories.node(f"n{n}", gpus=GPUS, rack=f"r{n // 2}") for n in range(NODES)
        ]
        for fact in (*facts, *(pod for pod in self.pods if pod.uid not in without)):
            scheduler.state.now = getattr(fact, "started", None) or 0.0
            apply(scheduler, fact)
        scheduler.state.now = NOW
        return scheduler

    def fits(self, without: frozenset[str]) -> bool:
        draft = Draft(self.made(without).state.snapshot)
        try:
            placement.fit(draft, self.request)
        except DoesNotFit:
            return False
        return True


def drawn(dice: random.Random) -> Case:
    left, pods = [GPUS] * NODES, list[PodSeen]()
    for number in range(dice.randrange(10, 24)):
        node, gpus = dice.randrange(NODES), dice.choice((1, 1, 2, 4))
        if left[node] < gpus:
            continue
        left[node] -= gpus
        lasts = dice.choice((*[None] * 5, *range(20, 100, 10)))
        started = float(dice.randrange(1, 9))
        own: dict[str, Any] = {"ours": dice.random() < 0.95, "started": started, "node": f"n{node}"}
        pods.append(factories.pod(f"p{number}", gpus, phase="Running", runs_for_s=lasts, **own))
    count, gpus = dice.choice(((1, 4), (1, 3), (2, 2), (2, 4), (3, 2), (5, 4)))
    groups: PodCounts = ((factories.spec(gpus), count),)
    if count < 4 and dice.random() < 0.5:
        groups = (*groups, (factories.spec(dice.choice((1, 2, 3)), cpu=200), 2))
    request = PlacementRequest(groups, required=dice.choice(("", "", RACK, NODE)))
    return Case(pods, request, dice.sample(range(NODES), dice.choice((0, 0, 0, 1))))


def ends(case: Case, made: Scheduler) -> dict[str, float]:
    """Of the pods that are counted on: those of other schedulers only with a run time."""
    return {
        pod.uid: made.state.pods[pod.uid].ends(NOW)
        for pod in case.pods
        if int(pod.node[1:]) not in case.excluded and (pod.ours or pod.runs_for_s is not None)
    }


def planned(case: Case, made: Scheduler) -> Reservation | None:
    gang = made.state.gangs[("ns", "waits", False)]
    excluded: Ints = np.array(sorted(case.excluded), dtype=np.int64)
    return plan_reservation(made.state, gang, case.request, RunningPods(made.state, NOW), excluded)


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_it_is_the_first_end_at_which_the_gang_fits(part: int) -> None:
    seen = Counter[str]()
    for seed in range(30 * part, 30 * part + 30):
        case = drawn(random.Random(seed))
        made = case.made()
        apply(made, factories.pod("waits", 1))
        known = ends(case, made)
        found = planned(case, made)
        if case.fits(frozenset()):
            continue  # it would have been bound
        first = next(
            (
                end
                for end in sorted({*known.values()})
                if case.fits(frozenset(uid for uid in known if known[uid] <= end))
            ),
            None,
        )
        assert (found and found.start) == first, f"seed {seed}"
        assert not made.state.snapshot.is_half_changed
        seen["never" if first is None else "unknown" if first == inf else "known"] += 1
        if found is not None:
            assert (found.planned_at, found.by_eviction) == (NOW, False)
            check_place(case, made, known, found)
    assert {*seen} == {"never", "unknown", "known"}


def check_place(case: Case, made: Scheduler, known: dict[str, float], found: Reservation) -> None:
    """It has space for the gang at that time; if all that end by then is known, it is in use the longest; and it says
    on whose end it depends."""
    gone = {uid for uid, end in known.items() if end <= found.start}
    rows, columns = found.place.rows.tolist(), made.state.snapshot.columns
    freed = Counter[int]()
    for pod in case.pods:
        freed[int(pod.node[1:])] += dict(pod.spec.requests).get("nvidia.com/gpu", 0) * (
            pod.uid in gone
        )
    free = [int(columns.free[row, 0]) + freed[row] for row in range(NODES)]
    need = found.place.need[:, 0].tolist()
    assert all(amount <= free[row] for row, amount in zip(rows, need, strict=True))
    assert sum(need) == sum(
        count * spec.request("nvidia.com/gpu") for spec, count in case.request.groups
    )
    assert not any(found.place.masks), "any GPUs will do"
    if case.request.required == RACK:
        assert len({row // 2 for row in rows}) == 1
    if case.request.required == NODE:
        assert len(rows) == 1
    if found.start == inf:
        return
    last = [pod.name for pod in case.pods if pod.uid in gone and known[pod.uid] == found.start]
    assert found.after in last
    began = [pod.started for pod in case.pods if pod.uid in gone and int(pod.node[1:]) in rows]
    tied = len(last) > 1
    assert tied or found.place.newest == max(filter(None, began), default=0.0)
    if len(rows) == 1 and sum(count for _, count in case.request.groups) == 1:
        (gpus,) = need
        released = [
            max(
                (known[p.uid] for p in case.pods if p.uid in gone and int(p.node[1:]) == row),
                default=-inf,
            )
            for row in range(NODES)
        ]
        assert released[rows[0]] == max(released[row] for row in range(NODES) if free[row] >= gpus)


def test_of_unknown_ends_those_of_the_rack_that_lacks_least_come_first() -> None:
    """In a rack that would fit the gang if it were empty."""
    compared = 0
    for seed in seeds(30):
        dice = random.Random(seed)
        used = [dice.randrange(GPUS + 1) for _ in range(NODES)]
        pods = [
            factories.pod(f"p{n}-{i}", 1, node=f"n{n}", phase="Running")
            for n in range(NODES)
            for i in range(used[n])
        ]
        fixed = dice.randrange(3)  # a rack with a pod of another scheduler
        pods.append(
            factories.pod(
                "theirs", 0, cpu=64_000, node=f"n{2 * fixed}", phase="Running", ours=False
            )
        )
        count = dice.choice((5, 6, 7, 8))
        case = Case(pods, PlacementRequest(((factories.spec(1), count),), required=RACK), [])
        made = case.made()
        apply(made, factories.pod("waits", 1))
        lacks = {
            rack: count - sum(GPUS - used[n] for n in (2 * rack, 2 * rack + 1))
            for rack in range(3)
            if rack != fixed
        }
        found = planned(case, made)
        if min(lacks.values()) <= 0 or len({*lacks.values()}) == 1:
            continue
        assert found is not None
        assert found.start == inf
        assert found.place.name == f"rack r{min(lacks, key=lacks.__getitem__)}"
        compared += 1
    assert not ALL_SEEDS or compared > 8
