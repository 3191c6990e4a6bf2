"""One queue, with what its gangs and those of its descendants use."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from central.model.facts import QueueSeen
from central.model.resources import Sums, add
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.queues.queue_terms import QueueTerms, terms_of
from central.scheduler.queues.received_service import ReceivedService
from central.scheduler.queues.usage_by_priority import UsageByPriority
from central.scheduler.queues.usage_history import DecayedUsage
from central.scheduler.state.gangs import Gang, GangKey

NAMESPACE, USER = "namespace", "user"  # kinds of tenants of a queue


@dataclass(slots=True)
class TenantUsage:
    """The usage of a queue by the gangs of one namespace or user, and how many these are."""

    used: Sums = field(default_factory=dict)
    running: int = 0


@dataclass(slots=True)
class QueueHistory:
    parent: str
    waits: bool  # whether gangs of it or of its descendants are pending
    past_usage: DecayedUsage
    received: ReceivedService


class Queue:
    __slots__ = (
        "_by_priority",
        "_received",
        "_terms",
        "_waiting",
        "_weights",
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
        self._waiting = 0  # its pending gangs and those of its descendants
        self.past_usage = DecayedUsage()  # with --usage-half-life only
        self._received = ReceivedService()  # without
        self.seen = seen  # its object, or the defaults
        self._terms = terms
        self.deserved, self.capability = terms.deserved, terms.capability
        self.guarantee = terms.guarantee
        self._weights: dict[str, float] = {}  # where siblings deserve more than there is

    @classmethod
    def without_object(cls, name: str) -> "Queue":
        seen = QueueSeen(name)
        return cls(seen, terms_of(seen, GpuCurrency()))

    def borrows(self, resource: str) -> bool:
        """Returns whether borrowingLimit, and not capability, limits the queue's use of the resource."""
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
        """Takes over the gangs of the queue that this one replaces."""
        self.gangs, self._by_priority = before.gangs, before._by_priority

    @property
    def usage_by_priority(self) -> UsageByPriority:
        """The usage of the queue's own gangs, by their priority."""
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

    @property
    def is_part(self) -> bool:
        """Returns whether the queue is the part of a namespace in another one, NAMESPACE/QUEUE, without an object of
        its own."""
        return "/" in self.name

    def siblings(self, other: "Queue") -> tuple["Queue", "Queue"] | None:
        """Returns the queues in both paths directly below the level that they have in common; None: they share none, or
        one is above the other."""
        own, others = self.path[::-1], other.path[::-1]
        if own[0] is not others[0]:
            return None
        return next(((a, b) for a, b in zip(own, others, strict=False) if a is not b), None)

    def weigh(self, resource: str, weight: float | None) -> None:
        """Sets what its use of the resource is divided by; None: its weight."""
        self._weights.pop(resource, None)
        if weight is not None:
            self._weights[resource] = weight

    @property
    def uncharged(self) -> Sums:
        """The amounts that the queue's history does not count: what it deserves, of resources of which all siblings'
        deserved amounts fit."""
        if not self._weights:
            return self.deserved
        return {name: own for name, own in self.deserved.items() if name not in self._weights}

    @property
    def below_deserved(self) -> bool:
        """Returns whether the queue has a deserved amount, and uses less than that of every resource in it."""
        return bool(self.deserved) and all(
            self.used.get(resource, 0) < own for resource, own in self.deserved.items()
        )

    def share_above_deserved(self, used: Sums, total: Sums) -> float:
        """The dominant share of the total that is used above the deserved amount, divided by the weight."""
        uncharged = self.uncharged
        return self._dominant({r: own - uncharged.get(r, 0) for r, own in used.items()}, total)

    def past_share(self, at: float, half_life_s: float, total: Sums) -> float:
        """The same of what it will have used at that time, past usage included, if it goes on."""
        means = self.past_usage.means(at, self.used, self.uncharged, half_life_s)
        return self._dominant(means, total)

    def _dominant(self, amounts: Mapping[str, float], total: Sums) -> float:
        weight, weights = self.seen.weight, self._weights
        shares = (
            amount / (whole * weights.get(resource, weight))
            for resource, amount in amounts.items()
            if (whole := total.get(resource, 0))
        )
        return max(shares, default=0.0)

    @property
    def is_waiting(self) -> bool:
        """True while the queue, or one below it, has a pending gang."""
        return self._waiting > 0

    def count_waiting(self, times: int, now: float) -> None:
        """A gang of the queue is pending, or no longer."""
        for inner, outer in pairwise(self.path):
            before = inner._waiting
            inner._waiting += times
            if not inner._waiting:
                inner._received.idle_since = now
            elif not before:
                inner._received.begin_waiting(now, outer._received)

    @property
    def received(self) -> float:
        """The service that the queue has received for its weight while others waited, to be compared with its siblings:
        seconds in which it had everything, divided by its weight."""
        return self._received.amount

    def receive(self, now: float, total: Sums) -> None:
        """Counts what it has used until now."""
        if self.parent is not None and self._received.at != now:
            share = self.share_above_deserved(self.used, total)
            self._received.advance(now, share, self.seen.weight, self.parent._received)

    def receive_below(self, now: float, total: Sums) -> None:
        """Counts what its children have used until now, once for all that begin to wait at a time."""
        if self._received.most_at != now:
            self._received.most_at = now
            for child in self.children:
                child.receive(now, total)

    def history(self) -> QueueHistory:
        waits = self._waiting > 0
        return QueueHistory(self.seen.parent, waits, self.past_usage, self._received)

    def keep_history(self, before: QueueHistory, now: float) -> None:
        """Takes over what the queue that this one replaces has used and received. Under another parent it begins level
        with its siblings there."""
        self.past_usage = before.past_usage
        if self.seen.parent != before.parent:
            self._received = ReceivedService(before.received.most)
            return
        self._received = before.received
        if before.waits:
            self._received = replace(before.received, idle_since=now)

    def running(self) -> int:
        """Returns how many gangs use anything of the queue."""
        return sum(usage.running for (kind, _), usage in self.tenants.items() if kind == NAMESPACE)


@dataclass(frozen=True, slots=True)
class TermsInUse:
    """The kinds of terms that the queues of a tree have at all. Most clusters have few of them."""

    guarantees: bool = False
    restricted: bool = False  # rules or limits for namespaces
    limits_users: bool = False
    entitled: frozenset[str] = frozenset()  # resources with a deserved amount or a guarantee
    limited: frozenset[str] = frozenset()  # resources with these or a capability
    priorities: bool = False  # that differ

    @classmethod
    def of(cls, tree: Queue, objects: Collection[QueueSeen]) -> "TermsInUse":
        entitled = frozenset(name for queue in tree for name in (*queue.deserved, *queue.guarantee))
        return cls(
            any(queue.guarantee for queue in tree),
            any(
                seen.access is not None
                or seen.namespace_gangs is not None
                or seen.namespace_amounts
                for seen in objects
            ),
            any(seen.user_gangs is not None or seen.user_amounts for seen in objects),
            entitled,
            entitled.union(*(queue.capability for queue in tree)),
            len({queue.seen.priority for queue in tree}) > 1,
        )
