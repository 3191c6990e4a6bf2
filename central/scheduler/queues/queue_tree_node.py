"""One queue, with what its gangs and those of its descendants use."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from central.model.facts import QueueSeen
from central.model.resources import Sums, add
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.queues.usage_history import DecayedUsage
from central.scheduler.state.gangs import Gang, GangKey


@dataclass(slots=True)
class NamespaceUsage:
    """What the gangs of one namespace use of a queue, and how many they are."""

    used: Sums = field(default_factory=dict)
    running: int = 0


class Queue:
    __slots__ = (
        "_borrowing",
        "capability",
        "children",
        "demand",
        "deserved",
        "error",
        "gangs",
        "guarantee",
        "name",
        "namespaces",
        "parent",
        "past_usage",
        "path",
        "seen",
        "usage_version",
        "used",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.error = ""  # why none of its gangs may start
        self.parent: Queue | None = None
        self.children: list[Queue] = []  # by name
        self.path: tuple[Queue, ...] = (self,)  # from itself up to the root
        self.gangs: dict[GangKey, Gang] = {}
        self.demand: Sums = {}  # requests of its own pending gangs
        self.usage_version = 0  # increased with every change of used
        self.used: Sums = {}  # by its gangs and those of its descendants
        self.namespaces: dict[str, NamespaceUsage] = {}  # the same by namespace
        self.past_usage = DecayedUsage()  # with --usage-half-life only
        self.describe_as(QueueSeen(name), GpuCurrency())

    def describe_as(self, seen: QueueSeen, currency: GpuCurrency) -> None:
        """Sets its object, or the defaults, and what limits its usage."""
        self.seen = seen
        deserved = self.deserved = currency.entitled(seen.deserved)
        self.capability: Sums = currency.limits(seen.capability)  # with borrowingLimit
        self._borrowing: set[str] = set()
        for resource, most in currency.limits(seen.borrowing_limit).items():
            limit = deserved.get(resource, 0) + most
            if limit < self.capability.get(resource, limit + 1):
                self.capability[resource] = limit
                self._borrowing.add(resource)
        self.guarantee: Sums = currency.entitled(seen.guarantee)  # with what lendingLimit withholds
        for resource, most in currency.limits(seen.lending_limit).items():
            kept = max(0, deserved.get(resource, 0) - most)
            if kept > self.guarantee.get(resource, 0):
                self.guarantee[resource] = kept

    def borrows(self, resource: str) -> bool:
        """Whether borrowingLimit, and not capability, limits its use of the resource."""
        return resource in self._borrowing

    def __iter__(self) -> Iterator["Queue"]:
        """The queue and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child

    def charge(self, namespace: str, used: Sums, times: int) -> None:
        """Counts what a gang of the namespace uses, once more or once less."""
        add(self.used, used, times)
        own = self.namespaces.setdefault(namespace, NamespaceUsage())
        add(own.used, used, times)
        own.running += times
        if not own.running:
            del self.namespaces[namespace]
        self.usage_version += 1

    def running(self) -> int:
        """How many gangs use anything of it."""
        return sum(usage.running for usage in self.namespaces.values())
