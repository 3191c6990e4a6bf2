"""The surplus members that leave so that pending gangs fit: one plan for all that wait.

A need is a gang whose minimum does not fit. It is served by counts: on each node the surplus is taken that lets
the most pods fit for each member that leaves, from the jobs with the most surplus first. Equal single pods,
such as those of a service, are served together. Where as many other members of the same jobs would do, those leave
whose seats free whole domains (who_leaves.py). What is freed for a gang of several pods is proven by a trial
placement and reserved for it. A gang that requires closeness is placed as preemption places it, with the surplus as
its only victims.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from central.scheduler import placement
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.who_leaves import who_leaves
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.eviction_rules import ELASTIC_SURPLUS, Claimant, may_evict
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.reservation.release_forecast import DraftMark, ReleasablePods, taken_capacity
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

Member = tuple[int, Pod]  # index of the donor, and its pod


@dataclass(frozen=True, slots=True)
class Need:
    """A gang that was refused, with the request for its minimum."""

    gang: Gang
    request: PlacementRequest

    @property
    def is_plain(self) -> bool:
        """Returns whether counts say where the gang fits."""
        return not self.request.required and not self.request.subgroups

    @property
    def is_single(self) -> bool:
        return sum(count for _, count in self.request.groups) == 1


@dataclass(slots=True)
class NeedsPlan:
    leaving: dict[int, list[Pod]] = field(default_factory=dict)  # by index of the elastic gang
    for_whom: dict[int, str] = field(default_factory=dict)
    plans: list[tuple[Need, PreemptionPlan]] = field(default_factory=list)
    unserved: list[Gang] = field(default_factory=list)

    def take(self, index: int, pod: Pod, need: Need, namespace: str) -> None:
        self.leaving.setdefault(index, []).append(pod)
        self.for_whom.setdefault(index, need.gang.name_for(namespace))


def may_take(context: PreemptionContext, claimant: Gang, donor: ElasticGang) -> bool:
    """Returns whether surplus of the donor may leave for the claimant."""
    victim = donor.gang
    if victim is claimant or not donor.task.yields or donor.spare <= 0:
        return False
    return may_evict(ELASTIC_SURPLUS, Claimant(context, claimant, context.state.now), victim)


def plan(
    context: PreemptionContext, donors: Sequence[ElasticGang], needs: Sequence[Need], now: float
) -> NeedsPlan:
    """needs: in the order in which they are served."""
    found = NeedsPlan()
    # The pods that are to free the place of one leave already.
    leaving = {key for key, held in context.reservations.items() if held.by_eviction}
    needs = [need for need in needs if need.gang.key not in leaving]
    for need in needs:
        if not need.is_plain:
            _plan_by_search(context, donors, need, now, found)
    plain = [need for need in needs if need.is_plain]
    if plain:
        _plan_by_counts(context, donors, plain, found)
    return found


def _plan_by_search(
    context: PreemptionContext,
    donors: Sequence[ElasticGang],
    need: Need,
    now: float,
    found: NeedsPlan,
) -> None:
    """Adds victims for the need and their plan to `found`, or else the gang as unserved. Only surplus of the donors may
    leave, so that each keeps its least size."""
    givers = {
        id(donor.gang): index
        for index, donor in enumerate(donors)
        if may_take(context, need.gang, donor)
    }
    held = [other.place.rows for other in context.reservations.values() if other.by_eviction]
    held += [plan.taken.rows for _, plan in found.plans]
    excluded = np.concatenate([np.zeros(0, dtype=np.int64), *held])

    def may_evict(_: Gang, victim: Gang) -> bool:
        return id(victim) in givers

    request = PreemptionRequest(need.gang, need.request, now, excluded, may_evict)
    chosen: PreemptionPlan | None = None
    with suppress(WorkLimitReached):
        chosen = preemption_plan.find_victims(context, request) if givers else None
    victims = chosen.victims if chosen is not None else ()
    members = [(givers[id(context.state.gang_of(pod))], pod) for pod in victims]
    taken = Counter(index for index, _ in members)
    used = {index: len(found.leaving.get(index, ())) for index in taken}
    if (
        chosen is None
        # a pod of a task that is not elastic
        or any(pod not in donors[index].may_leave() for index, pod in members)
        or any(count + used[index] > donors[index].spare for index, count in taken.items())
    ):
        found.unserved.append(need.gang)
        return
    for index, pod in members:
        found.take(index, pod, need, donors[index].gang.namespace)
    found.plans.append((need, chosen))


def _plan_by_counts(
    context: PreemptionContext,
    donors: Sequence[ElasticGang],
    needs: Sequence[Need],
    found: NeedsPlan,
) -> None:
    state = context.state
    gone = [pod for pod in state.pods.values() if pod.node and pod.charged_spec and pod.leaving]
    gone += [pod for pods in found.leaving.values() for pod in pods]
    releasable = ReleasablePods(state, gone)
    with releasable.without(np.arange(len(gone))) as snapshot:
        draft = Draft(snapshot)
        freed = snapshot.freed
        given: list[Member] = []
        try:
            for held in context.reservations.values():
                if held.by_eviction:
                    _place(draft, held.request)
            for need, _ in found.plans:
                _place(draft, need.request)
            counts = _Counts(context, donors, draft, given, found)
            for alike in _alike(needs):
                if alike[0].is_single:
                    counts.serve_singles(alike)
                else:
                    counts.serve_gang(alike[0])
        finally:
            draft.undo()
            _give(snapshot, given, back=True)
            snapshot.freed = freed


def _place(draft: Draft, request: PlacementRequest) -> None:
    """Takes what the request needs, if it fits: others must leave that free."""
    try:
        with draft.all_or_nothing():
            placement.fit(draft, request)
    except (DoesNotFit, WorkLimitReached):
        return


def _alike(needs: Sequence[Need]) -> list[list[Need]]:
    """Equal requests of one queue, namespace and priority, in the order of the first of each. A gang of several pods is
    alone."""
    groups: dict[tuple[object, ...], list[Need]] = {}
    for need in needs:
        gang = need.gang
        key: tuple[object, ...] = (gang.key,)
        if need.is_single:
            key = (need.request.groups, gang.queue, gang.namespace, gang.priority)
        groups.setdefault(key, []).append(need)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _Counts:
    """given: the members that were taken out of the draft's snapshot."""

    context: PreemptionContext
    donors: Sequence[ElasticGang]
    draft: Draft
    given: list[Member]
    found: NeedsPlan

    def serve_singles(self, needs: list[Need]) -> None:
        """Equal needs."""
        draft = self.draft
        view = draft.snapshot.view(needs[0].request.groups[0][0])
        fits = _take_free(draft, view, len(needs))
        if fits < len(needs):
            self._remove(needs[0], view, len(needs) - fits)
            fits += _take_free(draft, view, len(needs) - fits)
        self.found.unserved += [need.gang for need in needs[fits:]]

    def serve_gang(self, need: Need) -> None:
        """All of its pods or none."""
        draft, request = self.draft, need.request
        snapshot = draft.snapshot
        mark, given = len(draft.assignments), len(self.given)
        views = [(snapshot.view(spec).refresh(), count) for spec, count in request.groups]
        views.sort(key=lambda each: int(each[0].by_row.sum()))  # the hardest to place first
        fits = True
        for view, count in views:
            missing = count - _take_free(draft, view, count)
            if missing:
                self._remove(need, view, missing)
                fits = fits and _take_free(draft, view, missing) == missing
        draft.undo(mark)
        before = DraftMark.of(draft)
        try:
            if not fits:
                raise DoesNotFit("")
            with draft.all_or_nothing():
                placement.fit(draft, request)
        except (DoesNotFit, WorkLimitReached):
            self._keep(given)
            self.found.unserved.append(need.gang)
            return
        if victims := tuple(pod for _, pod in self.given[given:]):
            taken = taken_capacity(draft, before).on_any_gpus()
            self.found.plans.append((need, PreemptionPlan(victims, taken)))

    def _keep(self, mark: int) -> None:
        """Keeps the members that were to leave since the mark."""
        stay = {id(pod) for _, pod in self.given[mark:]}
        _give(self.draft.snapshot, self.given[mark:], back=True)
        del self.given[mark:]
        leaving = self.found.leaving
        for index, pods in list(leaving.items()):
            leaving[index] = [pod for pod in pods if id(pod) not in stay]
            if not leaving[index]:
                del leaving[index], self.found.for_whom[index]

    def _remove(self, need: Need, view: PodClassCapacity, missing: int) -> None:
        """Members leave, until that many more pods fit; fewer may, if the surplus does not suffice."""
        if view.share or view.nics or view.interpod is not None:
            return  # not to be counted; preemption searches
        snapshot, found = self.draft.snapshot, self.found
        spare = {
            index: donor.spare - len(found.leaving.get(index, ()))
            for index, donor in enumerate(self.donors)
            if may_take(self.context, need.gang, donor)
        }
        going = {id(pod) for pods in found.leaving.values() for pod in pods}
        candidates = [
            (index, pod)
            for index in spare
            for pod in self.donors[index].may_leave()
            if id(pod) not in going
        ]
        removal = _Removal(snapshot, view, self.donors, spare, candidates)
        chosen = removal.choose(missing)
        if len(need.request.groups) == 1:
            chosen = self._kept_together(view, chosen, missing - removal.missing)
        _give(snapshot, chosen)
        self.given.extend(chosen)
        for index, pod in chosen:
            found.take(index, pod, need, self.donors[index].gang.namespace)

    def _kept_together(
        self, view: PodClassCapacity, chosen: list[Member], fitting: int
    ) -> list[Member]:
        """Returns as many members of the same donors, but those whose seats leave the others closest to each other; if
        that many of the pods fit without them, too."""
        going = {id(pod) for pods in self.found.leaving.values() for pod in pods}
        others: list[Member] = []
        for index, count in Counter(index for index, _ in chosen).items():
            donor = self.donors[index]
            there = [pod for pod in donor.placed.values() if id(pod) not in going]
            leaving = who_leaves(self.context, donor, there, count, self.context.state.now)
            others += [(index, pod) for pod in leaving]
        before = int(view.refresh().by_row.sum())
        _give(self.draft.snapshot, others)
        fit = int(view.refresh().by_row.sum()) - before
        _give(self.draft.snapshot, others, back=True)
        return others if fit >= fitting else chosen


def _give(snapshot: Snapshot, members: Sequence[Member], *, back: bool = False) -> None:
    """Gives the seats of these to the snapshot, or back to them."""
    for _, pod in members:
        assert pod.charged_spec is not None
        row = snapshot.columns.row[pod.node]
        (snapshot.take if back else snapshot.give)(row, pod.charged_spec, 1, pod.gpus)


def _take_free(draft: Draft, view: PodClassCapacity, wanted: int) -> int:
    """Takes places for as many of these pods as fit, up to `wanted`, where the fewest fit first."""
    by_row = view.refresh().by_row
    rows = np.flatnonzero(by_row > 0)
    rows = rows[np.argsort(by_row[rows], kind="stable")]
    counts = by_row[rows]
    before = np.cumsum(counts) - counts
    counts = np.clip(wanted - before, 0, counts)
    rows, counts = rows[counts > 0], counts[counts > 0]
    if len(rows):
        draft.take_all(view.spec, rows, counts)
    return int(counts.sum())


# less is better; the row and its members last
_Choice = tuple[float, float, int, int, list[Member]]


class _Removal:
    """Members to remove, by counts, until enough more pods of the class fit. spare: by index of the donor,
    how many of its members may go."""

    def __init__(
        self,
        snapshot: Snapshot,
        view: PodClassCapacity,
        donors: Sequence[ElasticGang],
        spare: dict[int, int],
        candidates: Sequence[Member],
    ) -> None:
        self._donors, self._spare = donors, spare
        self.missing = 0  # of choose(): still
        columns, wanted = snapshot.columns, view.columns.tolist()
        self._request: list[int] = view.amounts.tolist()
        self._on_row: dict[int, list[Member]] = {}
        self._amounts: dict[int, list[int]] = {}  # by pod class
        passed = set(view.passed_rows().tolist())
        for index, pod in candidates:
            row = columns.row[pod.node]
            if row not in passed:
                continue
            self._on_row.setdefault(row, []).append((index, pod))
            if id(pod.charged_spec) not in self._amounts:
                assert pod.charged_spec is not None
                own = snapshot.view(pod.charged_spec)
                have = dict(zip(own.columns.tolist(), own.amounts.tolist(), strict=True))
                self._amounts[id(pod.charged_spec)] = [have.get(column, 0) for column in wanted]
        self._free = {
            row: [
                columns.free.item(row, column) if column else columns.gpus.count.item(row)
                for column in wanted
            ]
            for row in self._on_row
        }

    def choose(self, missing: int) -> list[Member]:
        """Returns the members to remove so that `missing` more pods fit; fewer may, if the surplus does not suffice."""
        self.missing = missing
        chosen: list[Member] = []
        heap = [best for row in sorted(self._on_row) if (best := self._best(row)) is not None]
        heapify(heap)
        while self.missing > 0 and heap:
            offered = heappop(heap)
            current = self._best(offered[3])
            if current is None:
                continue
            if heap and current[:4] > heap[0][:4]:
                heappush(heap, current)  # its donors have given elsewhere
                continue
            self._take(current, chosen)
            if (following := self._best(current[3])) is not None:
                heappush(heap, following)
        return chosen

    def _take(self, choice: _Choice, chosen: list[Member]) -> None:
        _, _, _, row, members = choice
        free, before = self._free[row], self._capacity(self._free[row])
        for member in members:
            index, pod = member
            self._spare[index] -= 1
            self._on_row[row].remove(member)
            free = self._without(free, pod)
        self._free[row] = free
        self.missing -= self._capacity(free) - before
        chosen += members

    def _best(self, row: int) -> _Choice | None:
        """Returns the members on this row that make room for the most pods each, from the gangs with the most
        surplus."""
        free, start = self._free[row], self._capacity(self._free[row])
        left: dict[int, int] = {}
        picked: list[Member] = []
        best: _Choice | None = None
        for index, pod in sorted(self._on_row[row], key=self._order):
            if left.setdefault(index, self._spare[index]) <= 0:
                continue
            left[index] -= 1
            picked.append((index, pod))
            free = self._without(free, pod)
            gained = min(self._capacity(free) - start, self.missing)
            if gained > 0 and (best is None or -gained / len(picked) < best[0]):
                levels = min(self._spare[one] for one, _ in picked)
                lowest = min(self._height(one, pod) for one, pod in picked)
                best = (-gained / len(picked), -levels, -lowest, row, list(picked))
            if gained == self.missing:
                break
        return best

    def _height(self, index: int, pod: Pod) -> int:
        """Returns the member's number if the highest leave first, because all above it leave with it; else 0."""
        donor = self._donors[index]
        return (donor.number(pod) or 0) if donor.highest_first else 0

    def _order(self, member: Member) -> tuple[int, int]:
        index, pod = member
        return (-self._spare[index], -(self._donors[index].number(pod) or 0))

    def _without(self, free: list[int], pod: Pod) -> list[int]:
        return list(map(int.__add__, free, self._amounts[id(pod.charged_spec)]))

    def _capacity(self, free: list[int]) -> int:
        return max(0, min(have // ask for have, ask in zip(free, self._request, strict=True)))
