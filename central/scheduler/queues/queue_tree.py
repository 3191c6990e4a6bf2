"""The queues as a tree, and their books: what the gangs of each use and ask for, kept gang by gang
as these change. A queue that can't be used stops itself and those below it, with a sentence.

Without any Queue object nothing is counted: there is one queue, and everybody is in it.
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

SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Queue:
    __slots__ = (
        "asks",
        "children",
        "error",
        "gangs",
        "lately",
        "moved",
        "name",
        "parent",
        "path",
        "seen",
        "used",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = QueueSeen(name)  # what its object says, or what goes without one
        self.error = ""  # why none of its gangs may start
        self.parent: Queue | None = None
        self.children: list[Queue] = []  # by name
        self.path: tuple[Queue, ...] = (self,)  # from itself up to the root
        self.gangs: dict[GangKey, Gang] = {}
        self.asks: Sums = {}  # by its own gangs that wait
        self.moved = 0  # grows with every change of what is used
        self.used: Sums = {}  # by its gangs and those below it
        self.lately = DecayedUsage()  # what it used above its own, where the past counts

    def __iter__(self) -> Iterator["Queue"]:
        """Itself and all below it."""
        yield self
        for child in self.children:
            yield from child


class Queues:
    def __init__(self, half_life_s: float = 0.0) -> None:
        self.half_life_s = half_life_s  # of what was used in the past; 0: it does not count
        self.now = 0.0
        self.fifo = FifoQueues()
        self.by_name: dict[str, Queue] = {}
        self.root = Queue(ROOT)
        self.total: Sums = {}  # what the tree may use in all
        self.worked_out: dict[tuple[str, str], Any] = {}  # from the books, until they change
        self.guarantees = False
        self._seen: dict[str, QueueSeen] = {}
        self._spaces: dict[str, str] = {}
        self._priorities = dict(SYSTEM)
        self._grow()

    @property
    def on(self) -> bool:
        return bool(self._seen)

    def apply(self, fact: Rule) -> bool:
        """Whether anything is different now: then every gang is filed anew."""
        before = (self._seen.copy(), self._spaces.copy(), self._priorities.copy())
        match fact:
            case QueueSeen():
                self._seen[fact.name] = fact
            case QueueGone():
                self._seen.pop(fact.name, None)
            case NamespaceSeen(queue=""):
                self._spaces.pop(fact.name, None)
            case NamespaceSeen():
                self._spaces[fact.name] = fact.queue
            case NamespaceGone():
                self._spaces.pop(fact.name, None)
            case PrioritySeen():
                self._priorities[fact.name] = fact.value
            case PriorityGone():
                self._priorities.pop(fact.name, None)
        if before[0] != self._seen:
            self._grow()
        return before != (self._seen, self._spaces, self._priorities)

    # --- gangs -----------------------------------------------------------------

    def name_of(self, gang: Gang) -> str:
        """The queue that its PodGroup names, else its pods, else its namespace."""
        named = gang.object.queue if gang.object is not None else ""
        if named in ("", DEFAULT):
            named = gang.counts.queue or self._spaces.get(gang.namespace, "") or DEFAULT
        return named

    def priority_of(self, gang: Gang) -> int | None:
        """Of the class that its PodGroup names; None: it names none that there is."""
        return self._priorities.get(gang.object.priority_class) if gang.object else None

    def file(self, gang: Gang) -> bool:
        """Brings the books in line with the gang as it is now; whether others of its queue may be
        luckier for that."""
        gang.class_priority = self.priority_of(gang)
        account = self._account(gang) if self.on else None
        if account != gang.account:
            self.forget(gang)
            if account is not None:
                queue = self.by_name.get(account.queue) or self._unknown(account.queue)
                queue.gangs[gang.key] = gang
                self._book(queue, account, 1)
                gang.account = account
        name = account.queue if account is not None else ""
        stands = name and account is not None and account.asks and self.by_name[name].seen.fifo
        return self.fifo.file(gang, name if stands and is_ready(gang) else "")

    def forget(self, gang: Gang) -> None:
        account = gang.account
        if account is None:
            return
        gang.account = None
        queue = self.by_name[account.queue]
        del queue.gangs[gang.key]
        self._book(queue, account, -1)
        if not queue.gangs and queue.name not in self._seen and queue.name != DEFAULT:
            del self.by_name[queue.name]

    def _account(self, gang: Gang) -> Account:
        there = (pod for pod in gang.members.values() if pod.node and pod.alive)
        return Account(self.name_of(gang), sums_of(there), _asks(gang))

    def _book(self, queue: Queue, account: Account, times: int) -> None:
        self.worked_out.clear()
        add(queue.asks, account.asks, times)
        if account.used:
            for above in queue.path:
                self.remember(above)
                add(above.used, account.used, times)
                above.moved += 1

    def remember(self, queue: Queue) -> None:
        """What it uses until now is its past from here on."""
        if self.half_life_s:
            deserved = dict(queue.seen.deserved)
            queue.lately.pass_to(self.now, queue.used, deserved, self.half_life_s)

    def _unknown(self, name: str) -> Queue:
        near = get_close_matches(name, sorted(self._seen), 1)
        queue = self.by_name[name] = Queue(name)
        queue.error = f"queue {name} does not exist" + (f"; is {near[0]} meant?" if near else "")
        return queue

    # --- the tree --------------------------------------------------------------

    def measure(self, snapshot: Snapshot, shut: frozenset[str] | set[str]) -> None:
        """Counts what there is to share: what the tree uses and what is free, but on nodes that
        are shut. What others use is not there to be shared."""
        self.worked_out.clear()
        free = snapshot.columns.free.sum(axis=0)
        free[0] = snapshot.columns.gpus.count.sum()
        for name in shut:
            if (row := snapshot.columns.row.get(name)) is not None:
                free -= snapshot.columns.free[row]
                free[0] += snapshot.columns.free[row, 0] - snapshot.columns.gpus.count[row]
        self.total = {
            resource: max(int(free[column]), 0) + self.root.used.get(resource, 0)
            for resource, column in snapshot.columns.column.items()
        }

    def _grow(self) -> None:
        """The tree from what is known of the queues, and the sums over it."""
        self.worked_out.clear()
        before = self.by_name
        root = self.root = Queue(ROOT)
        found = {name: Queue(name) for name in sorted({*self._seen, DEFAULT} - {ROOT})}
        self.by_name = {ROOT: root, **found}
        for name, queue in self.by_name.items():
            queue.seen = self._seen.get(name, queue.seen)
            if (old := before.get(name)) is not None:
                self.remember(old)
                queue.lately = old.lately
        for queue in found.values():
            queue.error = self._flaw(queue.seen)
            if not queue.error:
                queue.parent = self.by_name[queue.seen.parent or ROOT]
                queue.parent.children.append(queue)
        if root.seen.error:
            root.seen = QueueSeen(ROOT)  # all would stop: then rather none of its limits holds
        for queue in self.by_name.values():
            self._stop_below(queue)
        self.guarantees = any(queue.seen.guarantee for queue in root)
        for queue in root:
            queue.path = (queue, *(queue.parent.path if queue.parent else ()))
        for name, old in before.items():
            if old.gangs:
                queue = self.by_name.get(name) or self._unknown(name)
                queue.gangs = old.gangs
        for queue in list(self.by_name.values()):
            for gang in queue.gangs.values():
                if gang.account is not None:
                    self._book(queue, gang.account, 1)

    def _flaw(self, seen: QueueSeen) -> str:
        if seen.error:
            return f"queue {seen.name} can't be used: {seen.error}"
        if (circle := self._circle(seen.name)) is not None:
            return (
                f"queue {seen.name} can't be used: spec.parent: "
                f"{', '.join(circle)} are above each other in a circle"
                if len(circle) > 1
                else f"queue {seen.name} can't be used: spec.parent: it is its own parent"
            )
        if seen.parent and seen.parent not in self.by_name:
            return (
                f"queue {seen.name} can't be used: spec.parent: queue {seen.parent} does not exist"
            )
        return ""

    def _circle(self, name: str) -> list[str] | None:
        """The queues that the queue goes round in by its parents, if it does."""
        way = [name]
        while (seen := self._seen.get(way[-1])) is not None and seen.parent not in ("", ROOT):
            if seen.parent == name:
                return sorted(way)
            if seen.parent in way:
                return None  # a circle further up, which this one only hangs from
            way.append(seen.parent)
        return None

    def _stop_below(self, queue: Queue) -> None:
        """What hangs from a queue that can't be used can't be used, by the same sentence."""
        if not queue.error:
            return
        children, queue.children = queue.children, []
        for child in children:
            child.parent = None
            child.error = child.error or f"queue {child.name} is below another: {queue.error}"
            self._stop_below(child)


def _asks(gang: Gang) -> Sums:
    """Of its pods that could be bound now if there were room."""
    tally = gang.counts
    if tally.gated or (gang.object is not None and gang.object.error):
        return {}
    return sums_of(pod for pod in tally.waiting if not pod.spec.unsupported)


def sums_of(pods: Iterable[Pod]) -> Sums:
    kinds: dict[PodSpec, int] = {}
    for pod in pods:
        kinds[pod.spec] = kinds.get(pod.spec, 0) + 1
    return requested(kinds.items())
