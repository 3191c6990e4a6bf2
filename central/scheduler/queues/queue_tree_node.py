"""One queue, with what its gangs and those of its descendants use."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from central.model.facts import QueueSeen
from central.model.resources import Sums, add
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.queues.queue_terms import QueueTerms, terms_of
from central.scheduler.queues.usage_by_priority import UsageByPriority
from central.scheduler.queues.usage_history import DecayedUsage
from central.scheduler.state.gangs import Gang, GangKey

NAMESPACE, USER = "namespace", "user"  # kinds of tenants of a queue


@dataclass(slots=True)
class TenantUsage:
    """What the gangs of one namespace or user use of a queue, and how many they are."""

    used: Sums = field(default_factory=dict)
    running: int = 0


class Queue:
    __slots__ = (
        "_by_priority",
        "_terms",
        "capability",
        "children",
        "demand",
        "deserved",
        "error",
        "gangs",
        "guarantee",
        "name",
        "parent",
        "past_usage",
        "path",
        "seen",
        "tenants",
        "usage_version",
        "used",
    )

    def __init__(self, seen: QueueSeen, terms: QueueTerms) -> None:
        self.name = seen.name
        self.error = ""  # why none of its gangs may start
        self.parent: Queue | None = None
        self.children: list[Queue] = []  # by name
        self.path: tuple[Queue, ...] = (self,)  # from itself up to the root
        self.gangs: dict[GangKey, Gang] = {}
        self._by_priority = UsageByPriority()  # what its own gangs use
        self.demand: Sums = {}  # requests of its own pending gangs
        self.usage_version = 0  # increased with every change of used
        self.used: Sums = {}  # by its gangs and those of its descendants
        # the same by NAMESPACE or USER, and name
        self.tenants: dict[tuple[str, str], TenantUsage] = {}
        self.past_usage = DecayedUsage()  # with --usage-half-life only
        self.seen = seen  # its object, or the defaults
        self._terms = terms
        self.deserved, self.capability = terms.deserved, terms.capability
        self.guarantee = terms.guarantee

    @classmethod
    def without_object(cls, name: str) -> "Queue":
        seen = QueueSeen(name)
        return cls(seen, terms_of(seen, GpuCurrency()))

    def borrows(self, resource: str) -> bool:
        """Whether borrowingLimit, and not capability, limits its use of the resource."""
        return resource in self._terms.borrowing

    def __iter__(self) -> Iterator["Queue"]:
        """The queue and its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child

    def add(self, gang: Gang, used: Sums) -> None:
        """used: what the gang is charged for."""
        self.gangs[gang.key] = gang
        if any(used.values()):
            self._by_priority.add(gang, used)

    def remove(self, gang: Gang) -> None:
        del self.gangs[gang.key]
        self._by_priority.remove(gang)

    def adopt_gangs(self, before: "Queue") -> None:
        """Those of the queue that this one replaces."""
        self.gangs, self._by_priority = before.gangs, before._by_priority

    @property
    def usage_by_priority(self) -> UsageByPriority:
        """What its own gangs use."""
        return self._by_priority

    def charge(self, namespace: str, user: str, used: Sums, times: int) -> None:
        """Counts what a gang of the namespace uses, once more or once less. user: empty: users are not counted."""
        add(self.used, used, times)
        for key in ((NAMESPACE, namespace), (USER, user)) if user else ((NAMESPACE, namespace),):
            own = self.tenants.setdefault(key, TenantUsage())
            add(own.used, used, times)
            own.running += times
            if not own.running:
                del self.tenants[key]
        self.usage_version += 1

    def running(self) -> int:
        """How many gangs use anything of it."""
        return sum(usage.running for (kind, _), usage in self.tenants.items() if kind == NAMESPACE)
