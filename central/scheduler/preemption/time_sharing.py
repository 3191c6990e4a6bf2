"""Time sharing: in a queue with a quantum, a gang that is behind its fair share takes the place of one that is ahead of
its own, has had its quantum and can be suspended.

While it exists a gang's queue is asked for `contention` times what it may use, so even division would make the gang
that much slower. Its fair finish leaves a part of that delay for the wait for others' quanta:

    fair finish   created + run time x (1 + DELAY x (contention - 1))
    latest start  fair finish - what is left of the run time

At its latest start a gang becomes late. Late gangs go first, by their latest starts, and they alone suspend others, of
those that are not late. These go last, the longest first: they are what would run alone at the end. While a gang runs
it does not become late, and while it waits its latest start does not come nearer; contention counts at its highest. So two
gangs never suspend each other for the same state.

A quantum is at least so long that suspensions cost a gang CHURN of its run time. A gang that would need more than LONGEST
quanta of its queue for that shares no time: it would take turns and give none.

Design: docs/design/0300-time-sharing.md
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from central.model import wording
from central.scheduler.preemption import surplus_members
from central.scheduler.preemption.run_histories import (
    Lateness,
    RunHistories,
    RunHistory,
    SharedTerms,
)
from central.scheduler.preemption.short_stays import CHURN
from central.scheduler.queues import order
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.reservation.reservation import rough_duration
from central.scheduler.state.attempt_columns import Rank
from central.scheduler.state.gangs import Gang, GangKey

NOT_LATE = 1e12  # added to the order of gangs that are not late: behind every time
# A gang without an object whose pods have gone: its controller makes them again.
REMEMBERED_S = 600.0
LONGEST = 10  # a gang's own quantum, in quanta of its queue

Suspendable = Sequence[tuple[Gang, float]]  # and when each has had its quantum


class TimeSharing:
    def __init__(self) -> None:
        self._histories = RunHistories()
        # When a gang becomes late, or the next quantum ends that a late one waits for.
        self._next = inf
        # Answers of one cycle, until a gang of the queue changes:
        self._ahead: dict[str, dict[float, dict[int, Suspendable]]] = {}  # by time and priority
        self._lines: dict[str, list[Rank]] = {}  # of the gangs of a queue that wait

    # --- what is known of gangs ----------------------------------------------------------------

    def update(self, queues: Queues, gang: Gang, now: float) -> None:
        """After a change of the gang or its members."""
        history = self._histories.by_key.get(gang.key)
        quantum_s = self.quantum_s(queues, gang)
        if quantum_s is None:
            if history is not None and gang.members:
                self._drop(history)
                gang.preemption.turn = None
                gang.attempt.rank = order.rank(gang)
                gang.attempt.run_time_s = order.backfill_time_s(gang)
            elif history is not None:
                history.stop(now)
                self._write(history, None)
            return
        if history is None:
            history = self._histories.add(gang)
        history.gang = gang
        self._histories.gone_at.pop(gang.key, None)
        history.created = min(history.created, gang.created)
        began = _began(gang, now)
        if began is None:
            history.stop(now)
        elif history.since is None:
            history.since = began
        if gang.preemption.turn is None:
            gang.preemption.turn = gang.created
        self._histories.turn[history.row] = gang.preemption.turn
        self._write(history, quantum_s)

    def _write(self, history: RunHistory, quantum_s: float | None) -> None:
        before = history.terms
        terms = self._terms(history, quantum_s)
        if terms != before:
            self._histories.write(history, terms)
            if terms.since is not None:
                self._ahead.pop(terms.queue, None)
            if before is not None and before.since is not None:
                self._ahead.pop(before.queue, None)
        rank = history.gang.attempt.rank if terms.waits and terms.since is None else None
        moved = before is not None and before.queue != terms.queue
        if rank != history.rank or moved:
            self._leave_line(history, before)
            if rank is not None and terms.queue in self._lines:
                insort(self._lines[terms.queue], rank)
            history.rank = rank

    def _terms(self, history: RunHistory, quantum_s: float | None) -> SharedTerms:
        gang, gone = history.gang, history.gang.key in self._histories.gone_at
        counts = gang.account is not None and not gone
        return SharedTerms(
            history.created,
            history.attained_s,
            history.since,
            quantum_s,
            _run_time_s(gang),
            counts and bool(gang.counts.waiting),
            gang.queue if counts else "",
            gang.priority,
        )

    def _leave_line(self, history: RunHistory, terms: SharedTerms | None) -> None:
        """terms: of the time when it joined the others that wait."""
        if history.rank is not None and terms is not None and terms.queue in self._lines:
            line = self._lines[terms.queue]
            del line[bisect_left(line, history.rank)]

    def _drop(self, history: RunHistory) -> None:
        terms = history.terms
        self._leave_line(history, terms)
        if terms is not None:
            self._ahead.pop(terms.queue, None)
        self._histories.remove(history)

    def forgotten(self, gang: Gang, now: float) -> None:
        """Its last pod has gone, and its object if it had one. If it was evicted its controller makes it again."""
        history = self._histories.by_key.get(gang.key)
        if history is not None and gang.preemption.preempted_for:
            history.stop(now)
            self._histories.gone_at.pop(gang.key, None)
            self._histories.gone_at[gang.key] = now
            self._write(history, None)
        elif history is not None:
            self._drop(history)

    def quantum_s(self, queues: Queues, gang: Gang) -> float | None:
        """How long the gang runs at least before it is suspended; None: it shares no time."""
        cost_s = gang.counts.suspension_s
        if cost_s is None or gang.never_evicted:
            return None
        quantum_s = _quantum_of(queues, gang.queue)
        if not quantum_s or cost_s / CHURN > LONGEST * quantum_s:
            return None
        if surplus_members.surplus_count(gang, gang.counts.placed):
            return None
        return max(quantum_s, cost_s / CHURN)

    def shares(self, gang: Gang) -> bool:
        return gang.preemption.turn is not None

    def look(self, queues: Queues, now: float) -> bool:
        """Puts the pending gangs in their order. Returns whether one of them may claim more than at the last look."""
        histories = self._histories
        due, self._next, self._ahead = self._next <= now, inf, {}
        if not histories.by_key:
            return False
        self._forget_those_gone(now)
        histories.raise_contention(
            {name: _contention(queues, queues.by_name.get(name)) for name in histories.queues()}
        )
        rows, (left_s, latest_start) = histories.waiting(), histories.lateness(now)
        late = latest_start[rows] <= now
        turns = np.where(late, latest_start[rows], NOT_LATE - left_s[rows])
        changed = turns != histories.turn[rows]
        histories.turn[rows] = turns
        for history, turn in zip(histories.at(rows[changed]), turns[changed].tolist(), strict=True):
            self._set_turn(history, turn)
        self._next = float(np.min(latest_start[rows[~late]], initial=inf))
        for name in histories.queues_of(rows[late]):
            ends = (at for equals in self._who_is_ahead(name, now).values() for _, at in equals)
            self._next = min(self._next, min((at for at in ends if at > now), default=inf))
        return due

    def due(self) -> list[float]:
        return [self._next] if self._next < inf else []

    def _forget_those_gone(self, now: float) -> None:
        gone_at = self._histories.gone_at
        while gone_at and now - gone_at[key := next(iter(gone_at))] > REMEMBERED_S:
            self._histories.remove(self._histories.by_key[key])

    def _set_turn(self, history: RunHistory, turn: float) -> None:
        gang = history.gang
        gang.preemption.turn = turn
        rank = gang.attempt.rank = order.rank(gang)
        if rank != history.rank:
            history.rank = rank
            self._lines.pop(gang.queue, None)  # of many gangs at once: it is sorted again

    # --- who is suspended ----------------------------------------------------------------------

    def latest_start(self, gang: Gang, now: float) -> float:
        """When the gang becomes late or did; inf: it shares no time."""
        history = self._histories.by_key.get(gang.key)
        if history is None:
            return inf
        return self._histories.lateness(now).latest_start.item(history.row)

    def may_be_suspended(self, claimant: Gang, now: float) -> Suspendable:
        """The gangs that may be suspended for this one; who goes first comes first."""
        if not self.shares(claimant) or self.latest_start(claimant, now) > now:
            return ()
        equals = self._who_is_ahead(claimant.queue, now).get(claimant.priority, ())
        if claimant.counts.placed:
            return [each for each in equals if each[0] is not claimant]
        return equals

    def _who_is_ahead(self, queue: str, now: float) -> Mapping[int, Suspendable]:
        """The running gangs of the queue that are not late, by priority, the one that ends first first."""
        by_time = self._ahead.setdefault(queue, {})
        if now not in by_time:
            by_time[now] = self._find_ahead(queue, now, self._histories.lateness(now))
        return by_time[now]

    def _find_ahead(self, queue: str, now: float, lateness: Lateness) -> dict[int, Suspendable]:
        left_s, latest_start = lateness
        rows = self._histories.running(queue)
        rows = rows[latest_start[rows] > now]
        found: dict[int, list[tuple[float, GangKey, Gang, float]]] = {}
        for history, left in zip(self._histories.at(rows), left_s[rows].tolist(), strict=True):
            gang, terms = history.gang, history.terms
            assert terms is not None
            at = (terms.since or 0.0) + (terms.quantum_s or 0.0)
            found.setdefault(terms.priority, []).append((left, gang.key, gang, at))
        return {
            priority: [(gang, at) for _, _, gang, at in sorted(equals, key=lambda each: each[:2])]
            for priority, equals in found.items()
        }

    # --- what is said --------------------------------------------------------------------------

    def remark(self, gang: Gang, now: float) -> str:
        """When the pending gang has its turn; empty: it shares no time."""
        if not self.shares(gang) or gang.key not in self._histories.by_key:
            return ""
        if (latest_start := self.latest_start(gang, now)) > now:
            rest = rough_duration(latest_start - now)
            return f"it shares time and is not behind its fair share; others may be suspended for it in {rest}"
        if before := bisect_left(self._line(gang.queue), gang.attempt.rank):
            return f"it is behind its fair share, and {wording.counted(before, 'gang')} of its queue have their turn before it"
        if (by := gang.preemption.turn_by) is None:
            return (
                "it is behind its fair share, but no gang that may be suspended for it frees enough"
            )
        rest = rough_duration(max(0.0, by - now))
        return f"its turn comes in {rest} at the latest, unless gangs come before it"

    def _line(self, queue: str) -> list[Rank]:
        """The ranks of its gangs that wait, in order."""
        if (line := self._lines.get(queue)) is None:
            waiting = self._histories.at(self._histories.waiting(queue))
            ranks = (history.rank for history in waiting)
            line = self._lines[queue] = sorted(rank for rank in ranks if rank is not None)
        return line

    def adopt(self, before: "TimeSharing", gangs: Mapping[GangKey, Gang]) -> None:
        """What another one knew of these gangs, and of those that may come again."""
        self._histories, self._ahead, self._lines = before._histories, {}, {}
        for key, history in [*self._histories.by_key.items()]:
            if key not in gangs and key not in self._histories.gone_at:
                self._histories.remove(history)
            history.gang = gangs.get(key, history.gang)

    def check(
        self, queues: Queues, gangs: Mapping[GangKey, Gang], changed: Mapping[GangKey, Gang]
    ) -> None:
        """Raises AssertionError where what is known of gangs is not so."""
        for key, history in self._histories.by_key.items():
            if key in changed or key in self._histories.gone_at:
                continue
            gang = gangs.get(key)
            assert gang is history.gang, f"{key}: time sharing knows another gang"
            runs = _began(gang, 0.0) is not None
            assert runs == (history.since is not None), f"{key}: runs or does not"
            assert history.attained_s >= 0, f"{key}: {history}"
            assert history.terms == self._terms(history, self.quantum_s(queues, gang)), history
            self._histories.check(history)
            assert history.rank in (None, gang.attempt.rank), f"{key}: {history.rank}"
        self._histories.check_times()
        for name, line in self._lines.items():
            waiting = self._histories.at(self._histories.waiting(name))
            assert line == sorted(each.rank for each in waiting if each.rank is not None), name
        for name, by_time in self._ahead.items():
            for now, known in by_time.items():
                fresh = self._find_ahead(name, now, self._histories.lateness_of_all(now))
                assert known == fresh, f"queue {name}, who is ahead: {known}; found {fresh}"
        for key, gang in gangs.items():
            if key not in changed and gang.members and self.quantum_s(queues, gang) is not None:
                assert key in self._histories.by_key, f"{key} shares time and is not known"


def _began(gang: Gang, now: float) -> float | None:
    """When the first of its members that hold capacity began; None: there are none."""
    times = [
        pod.seen.started if pod.seen.started is not None else pod.since
        for pod in gang.counts.placed
        if pod.alive
    ]
    return min((now if time is None else time for time in times), default=None)


def _quantum_of(queues: Queues, name: str) -> float:
    """Of the nearest queue that sets one."""
    queue = queues.by_name.get(name)
    for above in queue.path if queue is not None and queues.enabled else ():
        if above.seen.quantum_s is not None:
            return above.seen.quantum_s
    return 0.0


def _contention(queues: Queues, queue: Queue | None) -> float:
    """How many times its fair share the queue is asked for, of the resource where that is most."""
    most = 1.0
    if queue is None:
        return most
    for resource in {*queue.used, *queue.demand}:
        if queues.is_shared(resource):
            share = fair_shares(queues, resource).get(queue.name, 0)
            asked = queue.used.get(resource, 0) + queue.demand.get(resource, 0)
            if 0 < share < asked:
                most = max(most, asked / share)
    return most


def _run_time_s(gang: Gang) -> float | None:
    """As its pods say; None: unknown."""
    pods = [*gang.counts.waiting, *gang.counts.placed]
    times = [pod.seen.runs_for_s for pod in pods]
    known = [each for each in times if each is not None]
    return max(known) if known and len(known) == len(times) else None
