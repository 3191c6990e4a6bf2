"""The count of gangs by queue and phase, from which all views take it, and the status of Queue objects: state, gangs
by phase, and allocated resources including child queues. Written on change, at most once a second, with one write in
flight per queue.

    Open      its gangs may start
    Closing   it is closed, and it or a queue below it has gangs that have not completed
    Closed    it is closed, and all its gangs have completed
    Unknown   the object is invalid; its gangs are pending with the reason
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from central.model.decisions import SetStatus
from central.model.phases import INQUEUE, PENDING
from central.model.resources import GPU_EQUIVALENTS, Sums
from central.model.stored_fields import NOT_STORED
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status.status_writes import Status, StatusWrites

KIND = "Queue"
NOT_STARTED = (PENDING, INQUEUE)
PHASES = ("pending", "inqueue", "running", "unknown", "completed")


@dataclass(slots=True, eq=False)
class QueueStatuses:
    _counted: dict[GangKey, tuple[str, str]] = field(default_factory=dict)  # queue and phase
    _counts: dict[str, Counter[str]] = field(default_factory=dict)
    writes: StatusWrites = field(default_factory=partial(StatusWrites, KIND))
    stale: bool = False  # whether all gangs must be counted
    # Root of the queue tree at the last check of all queues.
    _root: Queue | None = field(default=None, metadata=NOT_STORED)

    def count(self, gang: Gang, phase: str) -> None:
        """Counts the gang in its queue, in its present phase. Another scheduler's gang, and that of a suspended Job, is
        not counted."""
        before = self._counted.get(gang.key)
        now = None if gang.foreign or gang.published.suspended else (gang.queue_name, phase)
        if now == before:
            if now is not None:
                self.writes.changed[now[0]] = None  # its usage may have changed
            return
        self.forget(gang.key)
        if now is not None:
            self._counted[gang.key] = now
            self._counts.setdefault(now[0], Counter())[now[1].lower()] += 1
            self.writes.changed[now[0]] = None

    def forget(self, key: GangKey) -> None:
        if (before := self._counted.pop(key, None)) is not None:
            queue, phase = before
            counts = self._counts[queue]
            counts[phase.lower()] -= 1
            # pods name any number of queues, also such as do not exist
            if not any(counts.values()):
                del self._counts[queue]
            self.writes.changed[queue] = None

    def recount(self) -> None:
        """The queues were built again: the next decide() checks all of them."""
        self._root = None

    def decide(self, queues: Queues, now: float) -> list[SetStatus]:
        if self._root is not queues.root:
            self._root = queues.root
            self.writes.changed = dict.fromkeys((*self.writes.names(), *queues.by_name))
        changed = self.writes.changed
        for name in list(changed):  # usage counts in the queues above, too
            if (queue := queues.by_name.get(name)) is not None:
                changed.update((above.name, None) for above in queue.path)
        return [
            decision
            for name in sorted(changed)
            if (decision := self._write(queues, name, now)) is not None
        ]

    def by_queue(self) -> dict[str, Counter[str]]:
        """Gangs by phase, of each queue that gangs name, whether it exists or not."""
        return {queue: +counts for queue, counts in self._counts.items()}

    def pending(self, queue: str | None = None) -> list[GangKey]:
        """The gangs that have not started: of one queue, or of all."""
        return [
            key
            for key, (of, phase) in self._counted.items()
            if phase in NOT_STARTED and queue in (None, of)
        ]

    def _write(self, queues: Queues, name: str, now: float) -> SetStatus | None:
        queue = queues.by_name.get(name)
        if queue is None or not queue.seen.uid:
            del self.writes.changed[name]
            self.writes.forget(name)
            return None
        if not self.writes.ready(name, now):
            return None
        del self.writes.changed[name]
        return self.writes.write(name, queue.seen.uid, self._status(queues, queue), now)

    def _status(self, queues: Queues, queue: Queue) -> Status:
        counts = self._counts.get(queue.name, Counter())
        return {
            "state": self.state(queue),
            "closedBy": _closed_by(queue),
            "ancestors": queues.ancestors(queue.name),  # the API server refuses cycles by them
            **{phase: counts[phase] for phase in PHASES},
            "allocated": quantities(queue.used),
        }

    def state(self, queue: Queue) -> str:
        if queue.error:
            return "Unknown"
        if not any(above.seen.closed for above in queue.path):
            return "Open"
        inside = (self._counts.get(below.name, Counter()) for below in queue)
        return "Closing" if any(c.total() > c["completed"] for c in inside) else "Closed"


def _closed_by(queue: Queue) -> str:
    """The closed queue above an open one; empty: none. Without it the state that was written would be read
    as the queue's own, and would stay when the other one opens."""
    if queue.seen.closed:
        return ""
    return next((above.name for above in queue.path if above.seen.closed), "")


def quantities(sums: Sums) -> dict[str, str]:
    """Amounts as Kubernetes quantities."""
    return {
        resource: _quantity(resource, amount)
        for resource, amount in sorted(sums.items())
        if resource != GPU_EQUIVALENTS
    }


def _quantity(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount}m"
    if resource in ("memory", "ephemeral-storage") and amount and amount % 2**20 == 0:
        return f"{amount // 2**20}Mi"
    return str(amount)
