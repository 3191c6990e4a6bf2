"""Gangs whose request was refused a moment ago for another gang are refused alike, thousands with a few array
operations.

Since the other gang was refused capacity was only taken, so the answer is the same. Nothing happens between two of
the gangs, so what is looked up once holds for all. Where neither victims nor quota matter, gangs that request more GPUs
than are free on all nodes together stay refused as well, however unlike their requests are.

Design: docs/design/pending-gangs.md
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.resources import requested
from central.scheduler.pending_cause import start_refusal
from central.scheduler.queues.queue_claims import exceeds_share
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.state.attempt import SURPLUS_BITS, Outcome
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import MAX_FACTOR

# Gangs that are looked at together at first; then eight times as many, and so on.
FIRST_WINDOW = 256
# While so few gangs wait, each that was refused is tried, so that its reason counts at once what was freed.
TRIED_MOST = 100


class _KnownRefusal(NamedTuple):
    reason: str
    refusal: GangRefusal | None


def refuse(scheduler: Scheduler, gang: Gang, same: Gang) -> None:
    """Copies the refusal of an equal request."""
    rows = np.array([gang.attempt.row], dtype=np.int64)
    _give(scheduler, rows, {gang.attempt.equivalence: _answer_of(scheduler, same)})


def refuse_next(
    scheduler: Scheduler,
    rows: Ints,
    first_refused: Mapping[int, Gang],
    *,
    left_out: Collection[Gang],
    barred: Collection[str],
    goes_on: Callable[[Gang], bool],
) -> int:
    """Refuses the first of these gangs, in their order, as long as each makes a request that was refused in this
    epoch, and goes_on() holds, which has one answer for all gangs with equal needs. Returns how many.
    left_out: are not refused, nor are gangs with reservations, with a long attempt due, or of the barred namespaces."""
    if not len(rows):
        return 0
    most_pods = _most_pods(scheduler)
    if not _is_refused(scheduler, rows[0], first_refused) and not (
        _lack_gpus(scheduler, rows[:1], most_pods).any()
    ):
        return 0
    pending = scheduler.state.pending
    columns = pending.columns
    holders = [gang for key in scheduler.reservations if (gang := pending.waiting.get(key))]
    excluded = columns.mask(columns.rows_of((*holders, *left_out)))
    answers: dict[int, _KnownRefusal] = {}
    known = list[int]()
    if most_pods is not None:  # else the answer to each request is looked for, below
        known = [n for n, same in first_refused.items() if same.attempt.refused_at == pending.epoch]
    count, width = 0, FIRST_WINDOW
    while count < len(rows):
        window = rows[count : count + width]
        is_long = columns.work_factor[window] > MAX_FACTOR
        fit = _until(excluded[window] | is_long | ~columns.waiting[window])
        if barred:
            fit = _until(np.array([g.namespace in barred for g in columns.of(window[:fit])]), fit)
        unknown = ~_lack_gpus(scheduler, window[:fit], most_pods)
        if known:
            unknown |= np.isin(columns.equivalence[window[:fit]], known)
        fit = _answer(scheduler, window[:fit], first_refused, answers, unknown, goes_on=goes_on)
        count, width = count + fit, 8 * width
        if fit < len(window):
            break
    _give(scheduler, rows[:count], answers)
    return count


class LackOfGpus:
    """Says in one pass which gangs stay refused without a visit, where there are queues: those that request more GPUs
    than are free on all nodes together, and get neither victims nor a reservation."""

    def __init__(
        self, scheduler: Scheduler, reserved: ReservedCapacity, first_refused: dict[int, Gang]
    ) -> None:
        """first_refused: of the round; those that it refuses are added"""
        self._scheduler, self._reserved, self._first_refused = scheduler, reserved, first_refused
        self._counted_at = (-1, -1)  # steps and epoch for which the amounts are
        self._most_pods: Ints | None = None

    def without(self, rows: Ints) -> Ints:
        """Leaves out the gangs of queues in which each stays refused as things are now. Few kinds are asked in their
        turn, when reservations have ended and others claim."""
        pending, stay = self._scheduler.state.pending, self._lacking(rows)
        columns = pending.columns
        _, firsts = np.unique(columns.equivalence[rows[stay]], return_index=True)
        if len(firsts) <= TRIED_MOST:
            return rows
        alike = columns.of(rows[stay][firsts])
        visited = columns.rows_of([gang for gang in alike if not self._stays_refused(gang)])
        queues = columns.queue[np.concatenate([rows[~stay], visited])]
        stay &= ~np.isin(columns.queue[rows], queues)
        columns.refused_at[rows[stay]] = pending.epoch
        columns.outcome[rows[stay]] = Outcome.REFUSED
        return rows[~stay]

    def refuses(self, gang: Gang) -> bool:
        """Refuses the gang if it stays refused, and with it those behind it that request the same. Returns whether it
        does."""
        if gang.attempt.refused_at < 0:
            return False
        rows = np.array([gang.attempt.row], dtype=np.int64)
        if not self._lacking(rows).any() or not self._stays_refused(gang):
            return False
        gang.attempt.refused_at = self._scheduler.state.pending.epoch
        self._first_refused[gang.attempt.equivalence] = gang
        return True

    def _lacking(self, rows: Ints) -> Bools:
        pending = self._scheduler.state.pending
        if (at := (pending.steps, pending.epoch)) != self._counted_at:
            self._counted_at, self._most_pods = at, None
            if self._scheduler.queues.enabled and _is_by_capacity(self._scheduler):
                self._most_pods = _pods_by_gpus(self._scheduler)
        is_short = pending.columns.work_factor[rows] <= MAX_FACTOR
        lacking: Bools = is_short & _lack_gpus(self._scheduler, rows, self._most_pods)
        return lacking

    def _stays_refused(self, gang: Gang) -> bool:
        scheduler, queues = self._scheduler, self._scheduler.queues
        refusal = scheduler.refused.get(gang.key)
        if refusal is None or refusal.over_quota or gang.key in scheduler.reservations:
            return False
        if gang.account is None or scheduler.preemption.time_sharing.shares(gang):
            return False
        groups = refusal.request.groups
        if not queues.in_flight.none and start_refusal(scheduler, gang, groups)[0]:
            return False  # it may await the quota that pods leave
        return exceeds_share(queues, gang, queues.currency.counted(requested(groups))) and (
            self._reserved.replaced_for(gang, refusal.request) is None
        )


def _is_by_capacity(scheduler: Scheduler) -> bool:
    """Returns whether many gangs wait, and none gets a place that others leave or are moved from."""
    state = scheduler.state
    few = len(state.pending.waiting) <= TRIED_MOST
    return not (few or state.any_pod.movable or scheduler.elastic.has_donors)


def _most_pods(scheduler: Scheduler) -> Ints | None:
    """Returns how many pods of so many GPUs, which is the index, fit on all nodes together at most. None: what is free
    does not decide alone, since gangs might get victims or quota, or reserve capacity."""
    pending = scheduler.state.pending
    if scheduler.queues.enabled or not _is_by_capacity(scheduler):
        return None
    tried = pending.columns.outcome
    if not any(
        pending.waiting.get(key) is held.gang and tried[held.gang.attempt.row] == Outcome.REFUSED
        for key, held in scheduler.reservations.items()
        if not held.by_eviction
    ):
        return None  # the next gang that is refused may be the head of the queue
    return _pods_by_gpus(scheduler)


def _pods_by_gpus(scheduler: Scheduler) -> Ints:
    free = np.bincount(scheduler.state.snapshot.gpus_with_reserved())
    gpus, asked = np.arange(len(free)), np.arange(1, len(free) + 1)  # no node has the last amount
    fit: Ints = np.concatenate([[0], (gpus // asked[:, None]) @ free])
    return fit


def _lack_gpus(scheduler: Scheduler, rows: Ints, most_pods: Ints | None) -> Bools:
    """Returns for each of the rows whether its gang was refused before and cannot fit now, whatever its pods request
    beside GPUs, nor evict others. most_pods: see _most_pods(); None: False for all."""
    if most_pods is None:
        return np.zeros(len(rows), dtype=np.bool_)
    columns, pending = scheduler.state.pending.columns, scheduler.state.pending
    gpus = columns.least_gpus[rows]
    fit = most_pods[np.minimum(gpus, len(most_pods) - 1)]
    known = (gpus > 0) & (columns.equivalence[rows] != 0) & (columns.refused_at[rows] >= 0)
    not_urgent = -(columns.tier[rows] >> SURPLUS_BITS) <= pending.lowest_priority
    lacking: Bools = known & not_urgent & (columns.least_pods[rows] > fit)
    return lacking


def _until(ends: Bools, most: int | None = None) -> int:
    """Returns how many entries come before the first that is true."""
    first = int(ends.argmax()) if len(ends) else 0
    if len(ends) and ends[first]:
        return first
    return len(ends) if most is None else most


def _is_refused(scheduler: Scheduler, row: int, first_refused: Mapping[int, Gang]) -> bool:
    pending = scheduler.state.pending
    same = first_refused.get(int(pending.columns.equivalence[row]))
    return same is not None and same.attempt.refused_at == pending.epoch


def _answer_of(scheduler: Scheduler, same: Gang) -> _KnownRefusal:
    return _KnownRefusal(same.attempt.reason, scheduler.refused.get(same.key))


def _answer(
    scheduler: Scheduler,
    rows: Ints,
    first_refused: Mapping[int, Gang],
    answers: dict[int, _KnownRefusal],
    asked: Bools,
    *,
    goes_on: Callable[[Gang], bool],
) -> int:
    """Adds the answers by request. Returns for how many of the rows, up to the first whose request was not refused, or
    for which goes_on() does not hold; equal requests have equal needs. asked: the others are refused in any case."""
    columns = scheduler.state.pending.columns
    numbers, unknown = columns.equivalence[rows], asked.copy()
    while unknown.any():
        first = int(unknown.argmax())
        refused = _is_refused(scheduler, rows[first], first_refused)
        if not refused or not goes_on(columns.at(rows[first])):
            return first
        number = int(numbers[first])
        if number not in answers:
            answers[number] = _answer_of(scheduler, first_refused[number])
        unknown &= numbers != number
    return len(rows)


def _give(scheduler: Scheduler, rows: Ints, answers: Mapping[int, _KnownRefusal]) -> None:
    columns = scheduler.state.pending.columns
    numbers, changed = columns.equivalence[rows], np.zeros(len(rows), dtype=np.bool_)
    columns.refused_at[rows] = scheduler.state.pending.epoch
    for number, answer in answers.items():
        alike = numbers == number
        of = rows[alike]
        if answer.refusal is not None:
            scheduler.refused.give_all(of, answer.refusal)
        other = columns.reason[of] != answer.reason
        columns.reason[of] = answer.reason
        changed[alike] = other
    scheduler.refused.list_new(rows)
    _reasons_changed(scheduler, rows[changed])


def _reasons_changed(scheduler: Scheduler, rows: Ints) -> None:
    pending = scheduler.state.pending
    columns = pending.columns
    owned = columns.owned[rows]
    pending.reasons_changed(rows[~owned])
    for gang in columns.of(rows[owned]):  # the owner's status says it too
        pending.changed(gang)
