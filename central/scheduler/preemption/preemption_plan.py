"""The domain that a gang gets by eviction, and its victims.

Nothing is evicted unless all of the gang fits afterwards. Whole gangs go, or single members above a
minimum. Bounds come first: what a row or domain would hold without all possible victims, and what
that costs at least (victim_bounds.py). So a "no" is cheap. Victims are searched on the rows and in
the domains with the lowest bounds first, until nothing else can be better.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.filters.interpod import is_interpod
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import victim_bounds
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.preemption.victims import VictimSearch, alike, largest_group
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.shortfall import GANGS
from central.scheduler.reservation.release_forecast import fits_when_empty
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

FIRST_ROWS, FIRST_DOMAINS = 2, 4  # that are searched first; then four times as many, and so on
WIDER = 4
FEW = 1000  # candidates; this many are always searched together


def find_victims(context: PreemptionContext, request: PreemptionRequest) -> PreemptionPlan | None:
    placement, snapshot = request.placement, context.state.snapshot
    if not fits_when_empty(snapshot, placement, request.excluded):
        return None
    classes = [*(spec for spec, _ in placement.groups), *context.candidates.table.refresh().classes]
    shared = any(podclass.share_containers for podclass in classes)
    if request.quota:
        return _from_those_that_count(context, request) or search_everywhere(context, request)
    # What shares and whole GPUs free is no sum.
    if shared or request.spares_minimum(request.gang):
        return search_everywhere(context, request)
    # Bounds see one kind of pods, and no victims whose leaving lifts a rule.
    unseen = not alike(placement) or any(is_interpod(spec) for spec, _ in placement.groups)
    if unseen and context.candidates.table.entries.used <= FEW:
        return search_everywhere(context, request)
    found = _Narrowed(context, request).find()
    return search_everywhere(context, request) if found is None and unseen else found


def _from_those_that_count(
    context: PreemptionContext, request: PreemptionRequest
) -> PreemptionPlan | None:
    """Victims for the capacity alone, of those that count for the quota, where they free it too: no others are read if
    none may go, or there are many."""

    def counts(_: Gang, victim: Gang) -> bool:
        queue = context.queues.by_name.get(victim.queue)
        return queue is not None and any(each.counts(victim, queue) for each in request.quota)

    def may_evict(claimant: Gang, victim: Gang) -> bool:
        return counts(claimant, victim) and request.may_evict(claimant, victim)

    near = replace(request, quota=(), may_evict=may_evict)
    table, allowed = context.candidates.table, _allowed(context, request)
    few = table.entries.used <= FEW and bool((allowed & ~_allowed(context, near)).any())
    if few or (request.placement.required and find_without_victims(context, near)):
        return None  # of domains with enough room others would be preferred
    found = find_victims(context, near)
    return found if found is not None and _free_quota(context, request, found.victims) else None


def _free_quota(
    context: PreemptionContext, request: PreemptionRequest, victims: Sequence[Pod]
) -> bool:
    freed: Counter[tuple[int, str]] = Counter()
    going = {pod.seen.uid for pod in victims}
    for gang in dict.fromkeys(map(context.state.gang_of, victims)):
        if gang is None or (queue := context.queues.by_name.get(gang.queue)) is None:
            continue
        placed = [pod for pod in gang.counts.placed if not pod.leaving]
        mine = [pod for pod in placed if pod.seen.uid in going]
        amounts = context.queues.currency.counted(sums_of(mine))
        amounts = {**amounts, GANGS: int(len(mine) == len(placed))}
        for number, short in enumerate(request.quota):
            for resource in short.amounts if short.counts(gang, queue) else ():
                freed[number, resource] += amounts.get(resource, 0)
    return all(
        freed[number, resource] >= amount
        for number, short in enumerate(request.quota)
        for resource, amount in short.amounts.items()
    )


def find_without_victims(
    context: PreemptionContext, request: PreemptionRequest
) -> PreemptionPlan | None:
    """The place that the gang takes where what terminates in any case is enough; None: there is none."""
    usable, nobody = _usable(context, request), np.zeros(0, dtype=np.int64)
    leaving = context.candidates.table.refresh().leaving(usable)
    return VictimSearch(context, request, usable, nobody, leaving).try_without(())


def whole_search(context: PreemptionContext, request: PreemptionRequest) -> VictimSearch:
    """Returns a search with all candidates of the request."""
    table = context.candidates.table.refresh()
    allowed = _allowed(context, request)
    usable = _usable(context, request)
    rows = np.ones_like(usable) if request.quota else usable
    slots = table.slots_on(rows, allowed)
    return VictimSearch(context, request, usable, slots, table.leaving(usable))


def search_everywhere(
    context: PreemptionContext, request: PreemptionRequest
) -> PreemptionPlan | None:
    placement, snapshot = request.placement, context.state.snapshot
    search = whole_search(context, request)
    if not search.may_free_quota():
        return None
    return search.plan([rows for rows in _domains(snapshot, placement) if search.may_fit(rows)])


def _usable(context: PreemptionContext, request: PreemptionRequest) -> Bools:
    usable = np.ones(len(context.state.snapshot.columns.names), dtype=np.bool_)
    usable[request.excluded] = False
    return usable


def _allowed(context: PreemptionContext, request: PreemptionRequest) -> Bools:
    """Returns by slot of the table whether the gang may be evicted."""
    table, claimant, may_evict = context.candidates.table, request.gang, request.may_evict
    allowed = table.may_evict(
        lambda other: may_evict(claimant, other), by_group=request.by_group, among=request.among
    )
    allowed[[slot for gang in request.suspended if (slot := table.slot_of(gang)) >= 0]] = True
    if (own := table.slot_of(claimant)) >= 0:
        allowed[own] = request.spares_minimum(claimant)
    return allowed


class _Narrowed:
    """A search in parts of the cluster: those first where victims for the largest group cost least."""

    def __init__(self, context: PreemptionContext, request: PreemptionRequest) -> None:
        self._context, self._request = context, request
        self._snapshot = context.state.snapshot
        spec, self._count = largest_group(self._snapshot, request.placement)
        self._on_node = request.placement.required in island_masks.ON_NODE
        self._table = context.candidates.table.refresh()
        self._allowed, self._usable = _allowed(context, request), _usable(context, request)
        pods = self._count if self._on_node or self._count == 1 else 0
        self._bounds = context.candidates.bounds(spec, pods)
        self._bounds.update(self._snapshot, self._table, self._allowed, self._usable, request.now)
        self._snapshot.meter.spend_rows(self._table.entries.used)
        # Where pods of other groups fit without victims.
        self._fits_others = np.zeros_like(self._usable)
        for other, _ in request.placement.groups:
            if other != spec:
                self._fits_others |= self._snapshot.view(other).refresh().by_row > 0

    def find(self) -> PreemptionPlan | None:
        """The plan of the first part of which it is certain that no other can be better. Searches a part that
        includes all before, until it is everything."""
        best: PreemptionPlan | None = None
        for part, next_bound in self._parts():
            try:
                best = self._search(part) or best
            except WorkLimitReached:
                if best is None:
                    raise
                return best
            if best is not None and self._is_best(best, next_bound):
                return best
        return best

    def _parts(self) -> Iterator[tuple[Bools, victim_bounds.Bound | None]]:
        """Rows, each time more of them, and the bound of all other rows. None: there are no others."""
        required = self._request.placement.required
        if self._on_node or (not required and self._count == 1):
            first, pieces = FIRST_ROWS, self._rows()
        elif required:
            first, pieces = FIRST_DOMAINS, self._whole_domains()
        else:
            yield from self._halves()
            return
        part = np.zeros(len(self._usable), dtype=np.bool_)
        if not self._on_node and not required:
            part |= self._usable & (self._bounds.fits > 0)
        following = next(pieces, None)
        while following is not None:
            for rows, _ in (following, *islice(pieces, first - 1)):
                part[rows] = True
            following = next(pieces, None)
            first *= WIDER - 1
            yield part, following[1] if following is not None else None

    def _rows(self) -> Iterator[tuple[Ints, victim_bounds.Bound]]:
        existing = set(self._request.placement.existing_rows)
        if len(existing) > 1 and self._on_node:
            return
        for bound, row in self._bounds.cheapest():
            if not existing or not self._on_node or row in existing:
                yield np.array([row], dtype=np.int64), bound

    def _whole_domains(self) -> Iterator[tuple[Ints, victim_bounds.Bound]]:
        snapshot, bounds = self._snapshot, self._bounds
        level = snapshot.columns.domains.levels.index(self._request.placement.required)
        of = snapshot.columns.domains.of[level]
        existing = {int(of[row]) for row in self._request.placement.existing_rows}
        inside = (of >= 0) & self._usable
        fits = np.bincount(of[inside], bounds.fits[inside], snapshot.columns.domains.count(level))
        missing = np.maximum(self._count - fits.astype(np.int64), 0)
        enough = ((victim_bounds.NOTHING, each) for each in np.flatnonzero(missing == 0).tolist())
        for bound, domain in chain(enough, victim_bounds.by_domain(bounds, of, missing)):
            if existing <= {domain}:
                yield np.flatnonzero(of == domain), bound

    def _halves(self) -> Iterator[tuple[Bools, victim_bounds.Bound | None]]:
        """Rows that together hold twice what is missing, then everything."""
        bounds = self._bounds
        fits = self._usable & (bounds.fits > 0)
        missing = self._count - int(bounds.fits[fits].sum())
        possible = self._usable & (bounds.most > bounds.fits)
        if int((bounds.most - bounds.fits)[possible].sum()) < missing:
            return
        if self._table.candidates_on(possible, self._allowed) > FEW:
            part, gained = fits.copy(), 0
            for _, row in bounds.cheapest():
                part[row] = True
                gained += int(bounds.most[row] - bounds.fits[row])
                if gained >= 2 * missing:
                    yield part, None
                    break
        yield self._usable & (bounds.most > 0), None  # others hold no pod of it even when empty

    def _search(self, part: Bools) -> PreemptionPlan | None:
        table, placement = self._table, self._request.placement
        usable = part & self._usable
        slots = table.slots_on(usable, self._allowed)
        if not (len(slots) or len(table.leaving(usable))):
            return None
        if not placement.required:
            usable |= self._fits_others & self._usable
        if not placement.required or placement.required not in island_masks.ON_NODE:
            usable[table.rows_of(slots)] = True  # what a gang frees elsewhere counts too
            usable &= self._usable
        leaving = table.leaving(usable)
        search = VictimSearch(self._context, self._request, usable, slots, leaving)
        domains = [*_domains(self._snapshot, placement, usable)]
        if self._count > 1 or placement.required:  # else the bounds have told
            domains = [rows for rows in domains if search.may_fit(rows)]
        return search.plan(domains)

    def _is_best(self, plan: PreemptionPlan, next_bound: victim_bounds.Bound | None) -> bool:
        if next_bound is None or not plan.victims:
            return True
        return victim_bounds.at_most(self._table, plan.victims, next_bound, self._request.now)


def _domains(
    snapshot: Snapshot, placement: PlacementRequest, among: Bools | None = None
) -> Iterator[Ints]:
    """The rows of each domain of the required level. Existing members fix the domain. among: only domains with one
    of these rows."""
    every = np.arange(len(snapshot.columns.names), dtype=np.int64)
    existing = set(placement.existing_rows)
    if not placement.required:
        yield every
        return
    if placement.required in island_masks.ON_NODE:
        rows: Sequence[int] = list(existing) or (
            every.tolist() if among is None else np.flatnonzero(among).tolist()
        )
        for row in rows:
            if len(existing) < 2:
                yield np.array([row], dtype=np.int64)
        return
    of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(placement.required)]
    around = {int(of[row]) for row in existing}
    for domain in np.unique(of[of >= 0] if among is None else of[among & (of >= 0)]):
        if around <= {int(domain)}:
            yield np.flatnonzero(of == domain)
