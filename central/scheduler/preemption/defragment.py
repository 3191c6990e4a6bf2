"""Defragmentation: gangs that allow it are moved so that a pending gang of at least their priority
fits.

A gang is moved only if all its pods are movable and have run for a while (eviction_rules.py). One draft must hold the
pending gang and, beside it, every moved gang.

Design: docs/design/defragmentation.md
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np

from central.model.resources import requested
from central.scheduler import placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import placement_attempts
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.eviction_rules import (
    MOVABLE,
    Claimant,
    applies,
    may_evict,
    settled_at,
)
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.preemption.victims import VictimSearch
from central.scheduler.queues.queue_claims import Claim
from central.scheduler.reservation.release_forecast import DraftMark, taken_capacity
from central.scheduler.reservation.reservation import EvictionKind, MovedPods, Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state.gangs import Gang
from protos.gpu_sharing import WHOLE
from protos.names import BY_CLASS, GPU

KEPT_S = 300.0  # after a move is decided, in which the pods' controller makes them again
MAX_TRIALS = 200  # sets of gangs that are tried, least work lost first
MAX_GANGS = 3  # in such a set


def plan(context: PreemptionContext, request: PreemptionRequest) -> PreemptionPlan | None:
    claimant = Claimant(context, request.gang, request.now, _claim(context, request))
    if not applies(MOVABLE, claimant) or not _enough_in_total(context, request):
        return None

    def may_move(_: Gang, other: Gang) -> bool:
        return may_evict(MOVABLE, claimant, other)

    places: dict[frozenset[str], tuple[Reservation, ...]] = {}  # by the pods that are moved

    def find_places(draft: Draft, victims: Sequence[Pod]) -> bool:
        kept = _find_places(context, draft, victims, request.now)
        if kept is not None:
            places[_uids(victims)] = kept
        return kept is not None

    narrowed = replace(request, may_evict=may_move, by_group=False, extra_check=find_places)
    found = preemption_plan.find_victims(context, narrowed) or _try_gang_sets(context, narrowed)
    if found is None:
        context.budgets.blocked_a_request |= context.budgets.cover_any(_movable(context))
        return None
    kept = places[_uids(found.victims)]
    return replace(found, evictions=EvictionKind.MOVES, new_places=kept)


def next_settled(context: PreemptionContext, now: float) -> list[float]:
    """Returns when the next movable pod has run long enough to be moved; empty: there is none."""
    times = map(settled_at, _movable(context))
    return sorted(time for time in times if now < time < inf)[:1]


def _movable(context: PreemptionContext) -> Iterator[Pod]:
    pods = context.state.pods.values()
    return (pod for pod in pods if pod.seen.movable and pod.node and pod.alive)


def _claim(context: PreemptionContext, request: PreemptionRequest) -> Claim | None:
    queues, account = context.queues, request.gang.account
    if not queues.enabled or account is None or queues.by_name[account.queue].error:
        return None
    need = queues.currency.counted(requested(request.placement.groups))
    return Claim(queues, request.gang, need, {})


def _enough_in_total(context: PreemptionContext, request: PreemptionRequest) -> bool:
    """Moved pods take as much elsewhere, so what is free in all must suffice."""
    snapshot = context.state.snapshot
    free = np.maximum(snapshot.columns.free, 0).sum(axis=0)
    gpus = snapshot.columns.gpus
    free[0] = (
        gpus.count.sum() + sum(sum(open_gpus.values()) for open_gpus in gpus.free_shares) // WHOLE
    )
    return all(
        resource in snapshot.columns.column and amount <= free[snapshot.columns.column[resource]]
        for resource, amount in requested(request.placement.groups).items()
        if not resource.startswith(BY_CLASS)
    )


def _uids(pods: Sequence[Pod]) -> frozenset[str]:
    return frozenset(pod.seen.uid for pod in pods)


def _find_places(
    context: PreemptionContext, draft: Draft, victims: Sequence[Pod], now: float
) -> tuple[Reservation, ...] | None:
    """Returns places for all victims beside what the draft holds, the gang with the largest pods first; None: they do
    not fit."""
    snapshot = draft.snapshot
    gangs: dict[int, tuple[Gang, list[Pod]]] = {}
    for pod in victims:
        gang = context.state.gang_of(pod)
        if gang is None:
            return None
        gangs.setdefault(id(gang), (gang, []))[1].append(pod)
    found: list[Reservation] = []
    for gang, pods in sorted(gangs.values(), key=_size, reverse=True):
        before = DraftMark.of(draft)
        request = placement_attempts.re_place(context.state, gang, pods)
        try:
            placement.fit(draft, request)
        except DoesNotFit:
            return None
        taken = taken_capacity(draft, before)
        place = ReservedPlace.on(snapshot, taken if request.by_islands else taken.on_any_gpus())
        held = Reservation.by_evictions(gang, request, place, now)
        held.moved = MovedPods(_uids(pods), now + KEPT_S)
        found.append(held)
    return tuple(found)


def _size(one: tuple[Gang, list[Pod]]) -> tuple[int, int]:
    _, pods = one
    return max(pod.spec.request(GPU) for pod in pods), len(pods)


def _try_gang_sets(context: PreemptionContext, request: PreemptionRequest) -> PreemptionPlan | None:
    """Tries other sets of gangs, because the least harmful one may have no place elsewhere."""
    search = preemption_plan.whole_search(context, request)
    for _, pods in zip(range(MAX_TRIALS), _gang_sets(search), strict=False):
        if search.units.may_evict(pods) and (found := search.try_without(pods)) is not None:
            return found
    return None


def _gang_sets(search: VictimSearch) -> Iterator[list[Pod]]:
    """The pods of one whole gang, then of two, then of three, least harm first."""
    whole = search.units.whole_gangs()
    for count in range(1, MAX_GANGS + 1):
        for chosen in combinations(whole, count):
            yield [pod for pods in chosen for pod in pods]
