"""The gangs that the scheduling cycle tries, and the times at which it tries them again.

A gang that did not fit stays refused until a change may let it fit. The capacity epoch counts such
changes. A refusal records its epoch and is valid in that epoch only, so a cycle in which nothing was
freed tries only the gangs that changed and those whose backoff has ended. The model is
kube-scheduler's SchedulingQueue (active, backoff, unschedulable).

    gang g is refused in epoch 7; a PodSeen changes another gang: g is not tried
    a node becomes ready: epoch 8, g is tried; a binding of g fails: tried again after 1 s, 2 s, ... 30 s
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, islice
from math import inf
from typing import Any

import numpy as np

from central.model.arrays import Ints
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.pending_columns import PendingColumns
from central.scheduler.state.refusals import Refusals

TOUCHED_KEPT = 20_000  # gangs; with more, a reader that follows the changes reads all gangs again
RETRY_MAX_S = 30.0  # longest backoff after failed bindings
EQUIVALENCES_KEPT = 10_000


@dataclass(slots=True)
class PendingMemory:
    """Fields of PendingGangs."""

    epoch: int = 0
    wakeups: Counter[str] = field(default_factory=Counter)
    claims_over: int = 0
    preemption_retry_at: set[float] = field(default_factory=set)


class PendingGangs:
    def __init__(self, snapshot: Snapshot) -> None:
        self.waiting: dict[GangKey, Gang] = {}  # with pods that need a node
        self.columns = PendingColumns()  # of all gangs
        self.refused: Refusals[Any] = Refusals(self.columns)  # those that do not fit
        self.partial: dict[GangKey, Gang] = {}  # some pods bound, the minimum never reached
        self.changed_gangs: dict[GangKey, Gang] = {}  # changed since the last cycle
        self.unaccounted: dict[GangKey, Gang] = {}  # those of them that no cycle has counted yet
        self.unpublished: dict[GangKey, Gang] = {}  # changed since their status was computed
        self.all_changed = False  # queues or priorities did, so that all gangs count as changed
        self.retrying: dict[GangKey, Gang] = {}  # to be tried in the same epoch
        self.preemption_retry_at: set[float] = set()  # times of the next searches for victims
        self.claims_over = 0  # claims on victims that have ended, one way or the other
        self.lowest_priority = inf  # the lowest priority of all gangs that ever had a placed pod
        # How often: pods that are Pending or being deleted use no disruption budget.
        self.budget_uses_changed = 0
        self.wakeups: Counter[str] = Counter()  # calls of capacity_freed(), by reason
        self.round: Any = None  # the agenda.Round that the next cycle continues
        self._snapshot = snapshot
        # Gangs of which only the reason changed since their status was computed: rows, with their turns.
        self._reason_turns: deque[tuple[Ints, Ints]] = deque()
        self._next_turn = 0
        self._touched: dict[Gang, None] | None = None  # see take_touched()
        self._may_leave: dict[Gang, None] = {}  # all that have terminating pods, and others
        self._freed = 0
        self._steps = 0
        self._tried_in = -1  # the epoch in which all waiting gangs were tried last
        numbers = count(1)
        self._equivalences = lru_cache(EQUIVALENCES_KEPT)(lambda terms: next(numbers))

    # --- changes that others report ------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Grows with every change that may let a refused gang fit. The snapshot counts what is freed
        in its columns, capacity_freed() counts all other changes."""
        return self._snapshot.freed + self._freed

    @property
    def steps(self) -> int:
        """Cycles and bindings so far. While it stays the same no facts come and nothing is bound."""
        return self._steps

    def step(self) -> None:
        self._steps += 1

    def changed(self, gang: Gang) -> None:
        """The gang itself changed: the next cycle examines it."""
        self.changed_gangs[gang.key] = self.unaccounted[gang.key] = gang
        self.touch(gang)

    def take_unaccounted(self, most: int | None) -> list[Gang]:
        """The next of them; None: all."""
        if most is None or len(self.unaccounted) <= most:
            taken, self.unaccounted = self.unaccounted, {}
            return list(taken.values())
        keys = [*islice(self.unaccounted, most)]
        return [self.unaccounted.pop(key) for key in keys]

    def all_decided(self) -> None:
        """The cycle has decided about all that changed. Their statuses are due."""
        for gang in self.changed_gangs.values():
            if gang in self._may_leave and not gang.some_member_leaves():
                del self._may_leave[gang]
        self.unpublished.update(self.changed_gangs)
        self.changed_gangs.clear()
        self.unaccounted.clear()

    def publish(self, gang: Gang) -> None:
        """Makes the gang's status due, though the gang did not change."""
        self.unpublished[gang.key] = gang

    def take_unpublished(self, most: int, most_reasons: int) -> list[Gang]:
        """The next gangs whose statuses are due. most_reasons: of those of which only the reason changed."""
        keys = [*islice(self.unpublished, most)]
        taken = [self.unpublished.pop(key) for key in keys]
        for gang in taken:
            self.columns.reason_turn[gang.attempt.row] = -1
        return taken + self._take_reasons(most_reasons)

    def reasons_changed(self, rows: Ints) -> None:
        """Records that only the reason of these gangs changed. Their statuses are due after those that are due
        already."""
        turns = self.columns.reason_turn
        rows = rows[turns[rows] < 0]
        if len(rows):
            turns[rows] = np.arange(self._next_turn, self._next_turn + len(rows))
            self._reason_turns.append((rows, turns[rows]))
            self._next_turn += len(rows)

    @property
    def has_changed_reasons(self) -> bool:
        while self._reason_turns and not self._still_due(*self._reason_turns[0]).any():
            self._reason_turns.popleft()
        return bool(self._reason_turns)

    def _take_reasons(self, most: int) -> list[Gang]:
        taken: list[Gang] = []
        while self._reason_turns and len(taken) < most:
            rows, turns = self._reason_turns.popleft()
            due = np.flatnonzero(self._still_due(rows, turns))
            now = due[: most - len(taken)]
            if len(now) < len(due):
                later = due[len(now) :]
                self._reason_turns.appendleft((rows[later], turns[later]))
            self.columns.reason_turn[rows[now]] = -1
            taken += self.columns.of(rows[now])
        return taken

    def _still_due(self, rows: Ints, turns: Ints) -> Any:
        columns = self.columns
        return columns.waiting[rows] & (columns.reason_turn[rows] == turns)

    def touch(self, gang: Gang) -> None:
        """The gang changed as a victim of preemption: what it holds, or what its queue is charged for it."""
        self._may_leave[gang] = None
        if self._touched is not None:
            self._touched[gang] = None
            if len(self._touched) > TOUCHED_KEPT:
                self._touched = None

    def take_touched(self) -> Iterable[Gang] | None:
        """The gangs that changed since the last call, in the order of their first change; None: too many, or this
        is the first call."""
        touched, self._touched = self._touched, {}
        return touched

    def some_member_leaves(self) -> bool:
        """Returns whether a pod of a gang is terminating on its node. Looks at gangs that changed in this cycle, and at
        some that did before."""
        while self._may_leave:
            gang = next(reversed(self._may_leave))
            if gang.some_member_leaves():
                return True
            del self._may_leave[gang]
        return False

    def capacity_freed(self, why: str) -> None:
        """A change outside the rows of the snapshot may let refused gangs fit."""
        self._freed += 1
        self.wakeups[why] += 1

    def remembered(self) -> PendingMemory:
        retry_at = self.preemption_retry_at
        return PendingMemory(self.epoch, self.wakeups, self.claims_over, retry_at)

    def continue_from(self, before: PendingMemory) -> None:
        """Continues the epoch and the counters of a state that this one replaces. Each counts one more, so that all
        gangs are tried, and may claim, once more."""
        self._freed += max(0, before.epoch - self.epoch) + 1
        self.wakeups, self.claims_over = Counter(before.wakeups), before.claims_over + 1
        self.preemption_retry_at = before.preemption_retry_at
        self.wakeups["state rebuilt"] += 1

    # --- for the scheduling cycle -----------------------------------------------------

    def update(self, gang: Gang, *, waiting: bool, partial: bool) -> None:
        before = self.waiting.get(gang.key)
        if before is not None and (before is not gang or not waiting):
            del self.waiting[gang.key]
            self.columns.waiting[before.attempt.row] = False
        if waiting:
            self.waiting[gang.key] = gang
            self.columns.set_waiting(gang)
        else:
            self.retrying.pop(gang.key, None)
            if not gang.counts.assumed:  # all are bound, and the watch shows it
                gang.attempt.failed_attempts = 0
        if partial:
            self.partial[gang.key] = gang
        else:
            self.partial.pop(gang.key, None)

    def forget(self, gang: Gang) -> None:
        self.touch(gang)
        self._may_leave.pop(gang, None)
        if (before := self.waiting.pop(gang.key, None)) is not None:
            self.columns.waiting[before.attempt.row] = False
        for known in (self.changed_gangs, self.unaccounted, self.unpublished, self.retrying):
            known.pop(gang.key, None)
        self.partial.pop(gang.key, None)
        self.refused.pop(gang.key)
        self.columns.release(gang)

    def due(self, now: float) -> Ints:
        """Rows of the waiting gangs that this cycle tries."""
        waiting, epoch, columns = self.waiting, self.epoch, self.columns
        if self._tried_in == epoch:
            pool = [key for key in (*self.changed_gangs, *self.retrying) if key in waiting]
            return self._due_of(dict.fromkeys(pool), now)
        self._tried_in = epoch
        changed = columns.mask(columns.rows_of(self.changed_gangs.values()))
        rows = columns.in_rank_order()
        is_due = (columns.refused_at[rows] != epoch) | changed[rows]
        due = columns.mask(rows[is_due & (columns.retry_at[rows] <= now)])
        failed = [gang for gang in self.changed_gangs.values() if gang.attempt.new_failures]
        for gang in dict.fromkeys((*failed, *self.retrying.values())):
            due[gang.attempt.row] = gang.key in waiting and self._is_due(gang, epoch, now)
        return rows[due[rows]]

    def due_changed(self, now: float) -> Ints:
        """The same in an epoch whose gangs are being tried: of those that changed, and of those that
        retry and were not tried."""
        retrying = self.columns.rows_of(self.retrying.values())
        untried = self.columns.of(retrying[~self.columns.were_tried(retrying)])
        pool = [key for key in self.changed_gangs if key in self.waiting]
        return self._due_of(dict.fromkeys([*pool, *(gang.key for gang in untried)]), now)

    def _due_of(self, keys: Iterable[GangKey], now: float) -> Ints:
        gangs = [self.waiting[key] for key in keys]
        return self.columns.rows_of([g for g in gangs if self._is_due(g, self.epoch, now)])

    def try_all_again(self) -> None:
        """The next cycle tries all waiting gangs that were not refused in its epoch."""
        self._tried_in = -1

    @property
    def tries_all_again(self) -> bool:
        return self._tried_in == -1

    def refused_before(self) -> Ints:
        """Rows of the waiting gangs that were refused in an earlier epoch."""
        rows = self.columns.in_rank_order()
        at: Ints = self.columns.refused_at[rows]
        found: Ints = rows[(at >= 0) & (at != self.epoch)]
        return found

    def refuse(self, gang: Gang, reason: str) -> None:
        """Records that the gang does not fit in this epoch."""
        gang.attempt.reason, gang.attempt.refused_at = reason, self.epoch

    def try_later(self, gang: Gang, at: float) -> None:
        """Has the gang tried at that time, or at a later one that was set before, even if no capacity is freed."""
        gang.attempt.refused_at, gang.attempt.retry_at = -1, max(gang.attempt.retry_at, at)
        self.retrying[gang.key] = gang

    def equivalence(self, terms: object) -> int:
        """A number for a request with its terms. Equal terms have equal numbers."""
        return self._equivalences(terms)

    def retry_times(self, now: float) -> list[float]:
        """Returns the times at which a backoff ends, or the next search for victims is due."""
        times = [
            gang.attempt.retry_at for gang in self.retrying.values() if gang.attempt.retry_at > now
        ]
        return [*times, *self.preemption_retry_at]

    def end_preemption_backoff(self, now: float) -> None:
        if over := {time for time in self.preemption_retry_at if time <= now}:
            self.preemption_retry_at -= over
            self.capacity_freed("preemption backoff over")

    def _is_due(self, gang: Gang, epoch: int, now: float) -> bool:
        attempt = gang.attempt
        if attempt.new_failures:
            attempt.failures_handled = attempt.bind_failures
            if now >= attempt.retry_at:  # later ones belong to the same attempt
                attempt.failed_attempts += 1
                wait_s = min(RETRY_MAX_S, 2.0 ** min(attempt.failed_attempts - 1, 6))
                attempt.retry_at = now + wait_s
            self.retrying[gang.key] = gang
        if now < attempt.retry_at:
            return False
        self.retrying.pop(gang.key, None)
        return gang.key in self.changed_gangs or attempt.refused_at != epoch
