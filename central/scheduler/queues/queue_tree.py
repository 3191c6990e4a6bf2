"""The tree of queues, with what the gangs of each use and request.

Sums change gang by gang, when a gang changes. An invalid queue disables itself and its descendants,
with a reason; other queues are not affected. Without Queue objects nothing is counted, and all
gangs are in one queue.

Design: docs/design/0015-queues.md
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from central.model.facts import (
    NamespaceGone,
    NamespaceSeen,
    PodSpec,
    PriorityGone,
    PrioritySeen,
    QueueGone,
    QueueSeen,
    Rule,
)
from central.model.resources import DEFAULT, ROOT, Sums, add, requested
from central.scheduler.inventory.pods import Pod
from central.scheduler.queues.fifo import FifoQueues, is_ready
from central.scheduler.queues.usage_history import DecayedUsage
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Account, Gang, GangKey

SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class Queue:
    __slots__ = (
        "children",
        "demand",
        "error",
        "gangs",
        "name",
        "parent",
        "past_usage",
        "path",
        "seen",
        "usage_version",
        "used",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = QueueSeen(name)  # its object, or the defaults
        self.error = ""  # why none of its gangs may start
        self.parent: Queue | None = None
        self.children: list[Queue] = []  # by name
        self.path: tuple[Queue, ...] = (self,)  # from itself up to the root
        self.gangs: dict[GangKey, Gang] = {}
        self.demand: Sums = {}  # requests of its own pending gangs
        self.usage_version = 0  # increased with every change of used
        self.used: Sums = {}  # by its gangs and those of its descendants
        self.past_usage = DecayedUsage()  # with --usage-half-life only

    def __iter__(self) -> Iterator["Queue"]:
        """The queue and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child


class Queues:
    def __init__(self, half_life_s: float = 0.0) -> None:
        self.half_life_s = half_life_s  # of past usage; 0: it does not count
        self.now = 0.0
        self.fifo = FifoQueues()
        self.by_name: dict[str, Queue] = {}
        self.root = Queue(ROOT)
        self.total: Sums = {}  # capacity to share
        self.cache: dict[tuple[str, str], Any] = {}  # derived values, until a sum changes
        self.guarantees = False
        self._seen: dict[str, QueueSeen] = {}
        self._namespace_queues: dict[str, str] = {}
        self._priorities = dict(SYSTEM_PRIORITIES)
        self._build_tree()

    @property
    def enabled(self) -> bool:
        return bool(self._seen)

    def apply(self, fact: Rule) -> bool:
        """Returns whether anything changed. The caller then updates every gang."""
        before = (self._seen.copy(), self._namespace_queues.copy(), self._priorities.copy())
        match fact:
            case QueueSeen():
                self._seen[fact.name] = fact
            case QueueGone():
                self._seen.pop(fact.name, None)
            case NamespaceSeen(queue=""):
                self._namespace_queues.pop(fact.name, None)
            case NamespaceSeen():
                self._namespace_queues[fact.name] = fact.queue
            case NamespaceGone():
                self._namespace_queues.pop(fact.name, None)
            case PrioritySeen():
                self._priorities[fact.name] = fact.value
            case PriorityGone():
                self._priorities.pop(fact.name, None)
        if before[0] != self._seen:
            self._build_tree()
        return before != (self._seen, self._namespace_queues, self._priorities)

    # --- gangs -----------------------------------------------------------------

    def name_of(self, gang: Gang) -> str:
        """The queue named by the PodGroup, else by the pods, else by the namespace, else
        default."""
        named = gang.object.queue if gang.object is not None else ""
        if named in ("", DEFAULT):
            named = gang.counts.queue or self._namespace_queues.get(gang.namespace, "") or DEFAULT
        return named

    def priority_of(self, gang: Gang) -> int | None:
        """Of the PriorityClass that the PodGroup names; None: no such class, or none named."""
        return self._priorities.get(gang.object.priority_class) if gang.object else None

    def update(self, gang: Gang) -> bool:
        """Counts the gang as it is now. Returns whether another gang of its fifo queue may
        start."""
        gang.class_priority = self.priority_of(gang)
        account = self._account(gang) if self.enabled else None
        if account != gang.account:
            self.forget(gang)
            if account is not None:
                queue = self.by_name.get(account.queue) or self._add_missing(account.queue)
                queue.gangs[gang.key] = gang
                self._charge(queue, account, 1)
                gang.account = account
        name = account.queue if account is not None else ""
        fifo = name and account is not None and account.demand and self.by_name[name].seen.fifo
        return self.fifo.update(gang, name if fifo and is_ready(gang) else "")

    def forget(self, gang: Gang) -> None:
        account = gang.account
        if account is None:
            return
        gang.account = None
        queue = self.by_name[account.queue]
        del queue.gangs[gang.key]
        self._charge(queue, account, -1)
        if not queue.gangs and queue.name not in self._seen and queue.name != DEFAULT:
            del self.by_name[queue.name]

    def _account(self, gang: Gang) -> Account:
        placed = (pod for pod in gang.members.values() if pod.node and pod.alive)
        return Account(self.name_of(gang), sums_of(placed), _demand(gang))

    def _charge(self, queue: Queue, account: Account, times: int) -> None:
        self.cache.clear()
        add(queue.demand, account.demand, times)
        if account.used:
            for above in queue.path:
                self.record_usage(above)
                add(above.used, account.used, times)
                above.usage_version += 1

    def record_usage(self, queue: Queue) -> None:
        """Adds the usage until now to the history, before the usage changes."""
        if self.half_life_s:
            deserved = dict(queue.seen.deserved)
            queue.past_usage.advance(self.now, queue.used, deserved, self.half_life_s)

    def _add_missing(self, name: str) -> Queue:
        near = get_close_matches(name, sorted(self._seen), 1)
        queue = self.by_name[name] = Queue(name)
        queue.error = f"queue {name} does not exist" + (
            f"; did you mean {near[0]}?" if near else ""
        )
        return queue

    # --- the tree --------------------------------------------------------------

    def measure_capacity(
        self, snapshot: Snapshot, unschedulable: frozenset[str] | set[str]
    ) -> None:
        """Sets the capacity to share: what the queues use and what is free on schedulable nodes.
        What pods outside the queues use is not shared."""
        self.cache.clear()
        columns = snapshot.columns
        free = columns.free.sum(axis=0)
        free[0] = columns.gpus.count.sum()
        for name in unschedulable:
            if (row := columns.row.get(name)) is not None:
                free -= columns.free[row]
                free[0] += columns.free[row, 0] - columns.gpus.count[row]
        self.total = {
            resource: max(int(free[column]), 0) + self.root.used.get(resource, 0)
            for resource, column in columns.column.items()
        }

    def _build_tree(self) -> None:
        """Builds the tree and its sums from the Queue objects, and keeps the usage history."""
        self.cache.clear()
        before = self.by_name
        root = self.root = Queue(ROOT)
        found = {name: Queue(name) for name in sorted({*self._seen, DEFAULT} - {ROOT})}
        self.by_name = {ROOT: root, **found}
        for name, queue in self.by_name.items():
            queue.seen = self._seen.get(name, queue.seen)
            if (old := before.get(name)) is not None:
                self.record_usage(old)
                queue.past_usage = old.past_usage
        for queue in found.values():
            queue.error = self._invalid_because(queue.seen)
            if not queue.error:
                queue.parent = self.by_name[queue.seen.parent or ROOT]
                queue.parent.children.append(queue)
        if root.seen.error:
            root.seen = QueueSeen(
                ROOT
            )  # else all queues would be invalid; only the limits of root are lost
        for queue in self.by_name.values():
            self._disable_below(queue)
        self.guarantees = any(queue.seen.guarantee for queue in root)
        for queue in root:
            queue.path = (queue, *(queue.parent.path if queue.parent else ()))
        for name, old in before.items():
            if old.gangs:
                queue = self.by_name.get(name) or self._add_missing(name)
                queue.gangs = old.gangs
        for queue in list(self.by_name.values()):
            for gang in queue.gangs.values():
                if gang.account is not None:
                    self._charge(queue, gang.account, 1)

    def _invalid_because(self, seen: QueueSeen) -> str:
        if seen.error:
            return f"queue {seen.name} is invalid: {seen.error}"
        where = f"queue {seen.name} is invalid: spec.parent"
        if (cycle := self._cycle(seen.name)) is not None:
            if len(cycle) == 1:
                return f"{where}: the queue is its own parent"
            return f"{where}: {', '.join(cycle)} form a cycle"
        if seen.parent and seen.parent not in self.by_name:
            return f"{where}: queue {seen.parent} does not exist"
        return ""

    def _cycle(self, name: str) -> list[str] | None:
        """The queues of the cycle of parents that the queue is in; None: it is in none."""
        path = [name]
        while (seen := self._seen.get(path[-1])) is not None and seen.parent not in ("", ROOT):
            if seen.parent == name:
                return sorted(path)
            if seen.parent in path:
                return None  # an ancestor's cycle, reported there
            path.append(seen.parent)
        return None

    def _disable_below(self, queue: Queue) -> None:
        """Takes the descendants of an invalid queue out of the tree, with the same reason."""
        if not queue.error:
            return
        children, queue.children = queue.children, []
        for child in children:
            child.parent = None
            child.error = child.error or f"queue {child.name}: its parent {queue.error}"
            self._disable_below(child)


def _demand(gang: Gang) -> Sums:
    """The requests of the pods that only lack capacity."""
    counts = gang.counts
    if counts.gated or (gang.object is not None and gang.object.error):
        return {}
    return sums_of(pod for pod in counts.waiting if not pod.spec.unsupported)


def sums_of(pods: Iterable[Pod]) -> Sums:
    """The requests of all pods. Pods share PodSpecs, so equal pods are multiplied, not added."""
    counts: dict[PodSpec, int] = {}
    for pod in pods:
        counts[pod.spec] = counts.get(pod.spec, 0) + 1
    return requested(counts.items())
