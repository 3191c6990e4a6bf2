"""Time sharing: in a queue with a quantum, a gang that is behind its fair share takes the place of one that is ahead of
its own, has had its quantum and can be suspended.

While it exists a gang's queue is asked for `contention` times what it may use, so even division would make the gang
that much slower. Its fair finish leaves a part of that delay for the wait for others' quanta:

    fair finish   created + run time x (1 + DELAY x (contention - 1))
    latest start  fair finish - what is left of the run time

At its latest start a gang becomes late. Late gangs go first, by their latest starts, and they alone suspend others, of
those that are not late. These go last, the longest first: they are what would run alone at the end. While a gang runs
it does not become late, and while it waits its latest start does not come nearer; contention counts at its highest. So
two gangs never suspend each other for the same state.

A quantum is at least so long that suspensions cost a gang CHURN of its run time. A gang that would need more than
LONGEST quanta of its queue for that shares no time: it would suspend others and not be suspended.

Design: docs/design/time-sharing.md
"""

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter

import numpy as np

from central.model import wording
from central.model.past_turns import PastTurns
from central.scheduler.preemption import past_runs, surplus_members
from central.scheduler.preemption.run_histories import (
    RunHistories,
    RunHistory,
    RunsMemory,
    SharedTerms,
)
from central.scheduler.queues import order
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.reservation.reservation import rough_duration
from central.scheduler.state.gangs import Gang, GangKey

NOT_LATE = 1e12  # added to the order of gangs that are not late: behind every time
# A gang without an object whose pods have gone: its controller makes them again.
REMEMBERED_S = 600.0
LONGEST = 10  # a gang's own quantum, in quanta of its queue
CHURN = 0.05  # share of a gang's running time that suspensions, or changes of size, may cost

Suspendable = Sequence[tuple[Gang, float]]  # and when each has had its quantum


class TimeSharing:
    def __init__(self) -> None:
        self.histories = RunHistories()
        # When a gang becomes late, or the next quantum ends that a late one waits for.
        self._next = inf
        # By queue and priority, as all claimants of a cycle find them.
        self._ahead: dict[str, dict[int, Suspendable]] = {}

    # --- what is known of gangs ----------------------------------------------------------------

    def update(self, queues: Queues, gang: Gang, now: float) -> None:
        """Updates the gang's history and turn after a change of the gang or its members."""
        history = self.histories.by_key.get(gang.key)
        quantum_s = self.quantum_s(queues, gang)
        if quantum_s is None:
            if history is not None and gang.members:
                self._drop(history)
                _stand(gang, None)
            elif history is not None:
                history.stop(now)
                self._write(history, None)
            return
        if history is None:
            history = self.histories.add(gang, now)
        history.gang = gang
        self.histories.gone_at.pop(gang.key, None)
        history.created = min(history.created, gang.created)
        began = past_runs.began(gang.counts.placed, now)
        if began is None:
            history.stop(now)
        else:
            history.start(began)
        turn = gang.preemption.turn
        if turn is None:
            _stand(gang, turn := gang.created)
        self.histories.set_turn(history, turn)
        self._write(history, quantum_s)

    def _write(self, history: RunHistory, quantum_s: float | None) -> None:
        before, terms = history.terms, self._terms(history, quantum_s)
        if terms == before:
            return
        self.histories.write(history, terms)
        for each in (before, terms):
            if each is not None and each.since is not None:
                self._ahead.pop(each.queue, None)

    def _terms(self, history: RunHistory, quantum_s: float | None) -> SharedTerms:
        gang, gone = history.gang, history.gang.key in self.histories.gone_at
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

    def _drop(self, history: RunHistory) -> None:
        if history.terms is not None:
            self._ahead.pop(history.terms.queue, None)
        self.histories.remove(history)

    def forgotten(self, gang: Gang, now: float) -> None:
        """Drops the history of a gang whose last pod has gone, and its object if it had one. If it was evicted, stops
        the history instead: its controller makes it again."""
        history = self.histories.by_key.get(gang.key)
        if history is not None and gang.preemption.preempted_for:
            history.stop(now)
            self.histories.gone_at.pop(gang.key, None)
            self.histories.gone_at[gang.key] = now
            self._write(history, None)
        elif history is not None:
            self._drop(history)

    def past_turns(self, gang: Gang) -> PastTurns | None:
        """Returns what the gang's status says for the next scheduler; None: it shares no time."""
        history = self.histories.by_key.get(gang.key)
        if history is not None:
            return self.histories.past_turns(history)
        return gang.object.past_turns if gang.object is not None and not gang.members else None

    def quantum_s(self, queues: Queues, gang: Gang) -> float | None:
        """Returns the seconds that the gang runs at least before it is suspended; None: it shares no time."""
        cost_s = gang.counts.suspension_s
        if cost_s is None or gang.never_evicted:
            return None
        quantum_s = queues.nearest(gang.queue, attrgetter("quantum_s"))
        if not quantum_s or cost_s / CHURN > LONGEST * quantum_s:
            return None
        if surplus_members.surplus_count(gang, gang.counts.placed):
            return None
        return max(quantum_s, cost_s / CHURN)

    def shares(self, gang: Gang) -> bool:
        return gang.preemption.turn is not None

    def look(self, queues: Queues, now: float) -> bool:
        """Puts the pending gangs in their order. Returns whether one of them may claim more than at the last look."""
        histories = self.histories
        due, self._next, self._ahead = self._next <= now, inf, {}
        if not histories.by_key:
            return False
        self._forget_those_gone(now)
        histories.look(
            {name: _contention(queues, queues.by_name.get(name)) for name in histories.queues()},
            now,
        )
        rows, (left_s, latest_start) = histories.waiting(), histories.lateness()
        late = latest_start[rows] <= now
        turns = np.where(late, latest_start[rows], NOT_LATE - left_s[rows])
        for history, turn in histories.set_turns(rows, turns):
            _stand(history.gang, turn)
        self._next = float(np.min(latest_start[rows[~late]], initial=inf))
        for name in histories.queues_of(rows[late]):
            ends = (at for equals in self._who_is_ahead(name).values() for _, at in equals)
            self._next = min(self._next, min((at for at in ends if at > now), default=inf))
        return due

    def due(self) -> list[float]:
        return [self._next] if self._next < inf else []

    def _forget_those_gone(self, now: float) -> None:
        gone_at = self.histories.gone_at
        while gone_at and now - gone_at[key := next(iter(gone_at))] > REMEMBERED_S:
            self.histories.remove(self.histories.by_key[key])

    # --- who is suspended ----------------------------------------------------------------------

    def latest_start(self, gang: Gang) -> float:
        """Returns when the gang becomes late or did, as the last look() found; inf: it shares no time."""
        history = self.histories.by_key.get(gang.key)
        if history is None:
            return inf
        return self.histories.lateness().latest_start.item(history.row)

    def may_be_suspended(self, claimant: Gang) -> Suspendable:
        """The gangs that may be suspended for this one; who goes first comes first."""
        if not self.shares(claimant) or self.latest_start(claimant) > self.histories.now:
            return ()
        equals = self._who_is_ahead(claimant.queue).get(claimant.priority, ())
        if claimant.counts.placed:
            return [each for each in equals if each[0] is not claimant]
        return equals

    def _who_is_ahead(self, queue: str) -> Mapping[int, Suspendable]:
        """The running gangs of the queue that are not late, by priority, the one that ends first first."""
        if queue not in self._ahead:
            self._ahead[queue] = self._find_ahead(queue)
        return self._ahead[queue]

    def _find_ahead(self, queue: str) -> dict[int, Suspendable]:
        left_s, latest_start = self.histories.lateness()
        rows = self.histories.running(queue)
        rows = rows[latest_start[rows] > self.histories.now]
        found: dict[int, list[tuple[float, GangKey, Gang, float]]] = {}
        for history, left in zip(self.histories.at(rows), left_s[rows].tolist(), strict=True):
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
        """Returns a clause that says when the pending gang has its turn; empty: it shares no time."""
        history = self.histories.by_key.get(gang.key)
        if history is None or not self.shares(gang):
            return ""
        if (latest_start := self.latest_start(gang)) > now:
            rest = rough_duration(latest_start - now)
            return f"it shares time and is not behind its fair share; others may be suspended for it in {rest}"
        if before := self.histories.turns_before(history):
            others = wording.counted(before, "gang")
            return f"it is behind its fair share; running gangs are suspended for {others} of its queue first"
        if (by := gang.preemption.turn_by) is None:
            return (
                "it is behind its fair share, but no gang that may be suspended for it frees enough"
            )
        rest = rough_duration(max(0.0, by - now))
        return f"running gangs are suspended for it in {rest} at the latest, unless other gangs get ahead of it"

    def restore(self, runs: RunsMemory, gangs: Mapping[GangKey, Gang]) -> None:
        """Takes over the histories of these gangs, and of those that may come again."""
        self.histories.gone_at = dict(runs.gone_at)
        for key, kept in runs.by_key.items():
            if key in gangs or key in runs.gone_at:
                history = self.histories.restore(gangs.get(key) or Gang(key), kept)
                self._write(history, None)  # until the gang is counted


def _stand(gang: Gang, turn: float | None) -> None:
    """Puts the gang in its place among the others. turn: as PreemptionStanding.turn"""
    gang.preemption.turn = turn
    gang.attempt.rank = order.rank(gang)
    gang.attempt.run_time_s = order.backfill_time_s(gang)


def _contention(queues: Queues, queue: Queue | None) -> float:
    """Returns the contention of the queue, for the resource where that is highest; at least 1."""
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
    """Returns the run time that the gang's pods say, in seconds; None: unknown."""
    pods = [*gang.counts.waiting, *gang.counts.placed]
    times = [pod.seen.runs_for_s for pod in pods]
    known = [each for each in times if each is not None]
    return max(known) if known and len(known) == len(times) else None
