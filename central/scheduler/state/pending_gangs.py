"""Which gangs the scheduling cycle tries, and when it tries them again.

A gang that did not fit stays refused until something changed that may let it fit. The capacity epoch
counts such changes: a refusal names the epoch in which it was given, and holds while the epoch stays.
So a cycle in which nothing was freed looks only at the gangs that changed and at those whose backoff
is over. kube-scheduler's SchedulingQueue (active, backoff, unschedulable) is the model.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import count
from math import inf

from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Gang, GangKey

RETRY_MAX_S = 30.0  # longest backoff after failed bindings
EQUIVALENCES_KEPT = 10_000


class PendingGangs:
    def __init__(self, snapshot: Snapshot) -> None:
        self.waiting: dict[GangKey, Gang] = {}  # with pods that need a node
        self.partial: dict[GangKey, Gang] = {}  # some pods bound, the minimum never reached
        self.changed_gangs: dict[GangKey, Gang] = {}  # since the last cycle looked at them
        self.retrying: dict[GangKey, Gang] = {}  # tried again though the epoch is the same
        self.preemption_retry_at: set[float] = set()  # when victims are searched for again
        self.lowest_priority = inf  # no gang with a placed pod was ever less urgent
        self.wakeups: Counter[str] = Counter()  # times that the epoch grew, by reason
        self._snapshot = snapshot
        self._freed = 0
        self._tried_in = -1  # the epoch in which all waiting gangs were tried last
        self._equivalences: dict[object, int] = {}
        self._numbers = count(1)

    # --- what others report ------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Grows whenever a gang that was refused may fit now. The snapshot counts what is freed in
        its columns; capacity_freed() counts everything else."""
        return self._snapshot.freed + self._freed

    def changed(self, gang: Gang) -> None:
        """The gang itself changed: the next cycle looks at it."""
        self.changed_gangs[gang.key] = gang

    def capacity_freed(self, why: str) -> None:
        """Something other than a row of the snapshot changed that may let refused gangs fit."""
        self._freed += 1
        self.wakeups[why] += 1

    # --- what the cycle asks -----------------------------------------------------

    def update(self, gang: Gang, *, waiting: bool, partial: bool) -> None:
        if not waiting:
            self.retrying.pop(gang.key, None)
        for wanted, under in ((waiting, self.waiting), (partial, self.partial)):
            if wanted:
                under[gang.key] = gang
            else:
                under.pop(gang.key, None)

    def forget(self, gang: Gang) -> None:
        self.changed_gangs.pop(gang.key, None)
        self.update(gang, waiting=False, partial=False)

    def due(self, now: float) -> dict[GangKey, None]:
        """The waiting gangs that this cycle tries."""
        waiting, epoch = self.waiting, self.epoch
        pool: Iterable[GangKey] = waiting
        if self._tried_in == epoch:
            pool = [key for key in (*self.changed_gangs, *self.retrying) if key in waiting]
        self._tried_in = epoch
        return {key: None for key in pool if self._is_due(waiting[key], epoch, now)}

    def refused_before(self) -> set[GangKey]:
        """The waiting gangs whose refusal is of an earlier epoch."""
        epoch = self.epoch
        return {key for key, gang in self.waiting.items() if 0 <= gang.attempt.refused_at != epoch}

    def refuse(self, gang: Gang, reason: str) -> None:
        """The gang does not fit in this epoch."""
        gang.attempt.reason, gang.attempt.refused_at = reason, self.epoch

    def equivalence(self, terms: object) -> int:
        """The number of what gangs ask for and on what terms: equal terms, equal number."""
        number = self._equivalences.get(terms)
        if number is None:
            if len(self._equivalences) >= EQUIVALENCES_KEPT:
                self._equivalences.clear()
            number = self._equivalences[terms] = next(self._numbers)
        return number

    def retry_times(self, now: float) -> list[float]:
        """When a backoff ends, or victims are searched for again."""
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
        if attempt.bind_failures != attempt.failures_handled:
            attempt.failures_handled = attempt.bind_failures
            attempt.retry_at = now + min(RETRY_MAX_S, 2.0 ** min(attempt.bind_failures - 1, 6))
            self.retrying[gang.key] = gang
        if now < attempt.retry_at:
            return False
        self.retrying.pop(gang.key, None)
        return gang.key in self.changed_gangs or attempt.refused_at != epoch
