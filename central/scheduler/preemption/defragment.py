"""Defragmentation: others are moved so that a gang fits, though nobody is less urgent. Only who says that it may be
moved, whole and settled, not more urgent than the gang; and only if on one draft the gang has its seats and
everybody who is moved finds a place beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from central.model.resources import requested
from central.scheduler import placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import placement_attempts
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.preemption.victims import VictimSearch
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state.gangs import Gang
from protos.names import GPU

SETTLED_S = 300.0  # nobody is moved who has not run for so long: no gang goes back and forth
TRIALS = 200  # sets of gangs that are tried, the least harm first
TOGETHER = 3  # of so many gangs at most


def plan(context: PreemptionContext, claim: PreemptionRequest) -> PreemptionPlan | None:
    if not _room_in_all(context, claim):
        return None

    def may_move(claimant: Gang, other: Gang) -> bool:
        return other.priority <= claimant.priority and _is_movable(context, other, claim.now)

    def find_places(draft: Draft, moved: Sequence[Pod]) -> bool:
        return _find_places(context, draft, moved)

    asked = replace(claim, may_take=may_move, also=find_places)
    found = preemption_plan.room_for(context, asked) or _one_after_the_other(context, asked)
    return replace(found, moved=True) if found is not None else None


def later(context: PreemptionContext, now: float) -> list[float]:
    """When the next of those who may be moved has settled."""
    times = [
        began + SETTLED_S
        for pod in context.state.pods.values()
        if pod.seen.movable and pod.node and pod.alive and (began := _began(pod)) is not None
    ]
    return sorted(time for time in times if time > now)[:1]


def _room_in_all(context: PreemptionContext, claim: PreemptionRequest) -> bool:
    """What is free must be enough: who is moved takes as much elsewhere."""
    snapshot = context.state.snapshot
    free = snapshot.columns.free.sum(axis=0)
    free[0] = snapshot.columns.gpus.count.sum()
    return all(
        resource in snapshot.columns.column and amount <= free[snapshot.columns.column[resource]]
        for resource, amount in requested(claim.want.groups).items()
    )


def _is_movable(context: PreemptionContext, gang: Gang, now: float) -> bool:
    """Those with groups or roles inside, and those on their way, are left alone."""
    if not gang.started or gang.preemption.preempted_for or gang.missing():
        return False
    inside = gang.object is not None and (gang.object.subgroups or gang.object.roles is not None)
    return not inside and all(
        pod.seen.movable and not pod.leaving and _settled(pod, now)
        for pod in gang.placed()
        if pod.alive
    )


def _settled(pod: Pod, now: float) -> bool:
    began = _began(pod)
    return began is not None and now - began >= SETTLED_S


def _began(pod: Pod) -> float | None:
    return pod.seen.started if pod.seen.started is not None else pod.since


def _find_places(context: PreemptionContext, draft: Draft, moved: Sequence[Pod]) -> bool:
    """Whether all of them fit beside what is on the draft, the largest gang first."""
    gangs: dict[int, tuple[Gang, list[Pod]]] = {}
    for pod in moved:
        gang = context.state.gang_of(pod)
        if gang is None:
            return False
        gangs.setdefault(id(gang), (gang, []))[1].append(pod)
    for gang, pods in sorted(gangs.values(), key=_size, reverse=True):
        try:
            placement.fit(draft, placement_attempts.re_place(context.state, gang, pods))
        except DoesNotFit:
            return False
    return True


def _size(one: tuple[Gang, list[Pod]]) -> tuple[int, int]:
    _, pods = one
    return max(pod.spec.request(GPU) for pod in pods), len(pods)


def _one_after_the_other(
    context: PreemptionContext, claim: PreemptionRequest
) -> PreemptionPlan | None:
    """The choice of least harm may leave no place for the others; another one may."""
    usable = np.ones(len(context.state.snapshot.columns.names), dtype=np.bool_)
    usable[claim.apart] = False
    field = VictimSearch(context, claim, usable)
    for _, pods in zip(range(TRIALS), _sets(field, claim.now), strict=False):
        if field.may_go(pods) and (found := field.trial(pods)) is not None:
            return found
    return None


def _sets(field: VictimSearch, now: float) -> Iterator[list[Pod]]:
    """Whole gangs: one, then two, each by the work that it loses."""
    whole = sorted((pods for pods, _ in field.gangs), key=lambda pods: _lost(pods, now))
    for count in range(1, TOGETHER + 1):
        for chosen in combinations(whole, count):
            yield [pod for pods in chosen for pod in pods]


def _lost(pods: Sequence[Pod], now: float) -> tuple[int, int]:
    return sum(pod.lost(now) for pod in pods), len(pods)
