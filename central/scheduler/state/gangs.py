"""Pods and gangs as the cluster keeps them. A pod without a gang is a gang of one."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from central.model.facts import GangSeen, PodSeen, SubGroups
from central.model.resources import DEFAULT, Sums
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gang_counts import GangCounts
from central.scheduler.state.subgroups import SubgroupDivision

GangKey = tuple[str, str, bool]  # namespace, name, whether it is a gang's name (or a single pod's)


class Account(NamedTuple):
    """What a gang counts for in its queue."""

    queue: str
    used: Sums
    demand: Sums  # requests of pending pods that only lack capacity


@dataclass(slots=True)
class Attempt:
    """The last attempt to place a gang's pending pods. PendingGangs and the scheduling cycle write it."""

    rank: tuple[int, float, GangKey]  # order inside its queue: priority, age, name
    equivalence: int = (
        0  # gangs with the same number ask for the same on the same terms; 0: unknown
    )
    refused_at: int = -1  # the capacity epoch in which it did not fit; -1: not refused
    reason: str = ""  # why it did not fit; empty: it did, or was not tried
    bind_failures: int = 0
    failures_handled: int = 0  # of bind_failures, those that retry_at accounts for
    retry_at: float = 0.0
    partial_since: float | None = None  # some pods bound, the minimum never reached


@dataclass(slots=True)
class PreemptionStanding:
    """A gang's part in reservations and preemption, as claimant and as victim."""

    head_since: float | None = None  # since when it is at the head of its queue
    not_before: float = 0.0  # no victims are searched for it before
    blocked_by: str = ""  # the disruption budgets that keep its victims, as a sentence
    preempted_for: str = ""  # the gang that some of its pods are evicted for


@dataclass(slots=True)
class Published:
    """What a gang's PodGroup and Events said last, and what they are to say instead."""

    state: tuple[object, ...] = ()  # phase, sentence and counts, as last written
    warned: frozenset[tuple[str, str, str]] = frozenset()  # devices that a warning was sent for
    override: tuple[str, str] | None = None  # phase and sentence, where a controller knows better
    suppress_event: bool = False  # an Event of its Job says the same


class Gang:
    __slots__ = (
        "_counts",
        "account",
        "attempt",
        "class_priority",
        "key",
        "members",
        "object",
        "preemption",
        "published",
        "started",
    )

    def __init__(self, key: GangKey) -> None:
        self.key = key
        self.object: GangSeen | None = None
        self.members: dict[str, Pod] = {}
        self.started = False  # its minimum was placed once
        self.account: Account | None = None
        self.class_priority: int | None = None  # the value of the class that its object names
        self.attempt = Attempt((0, 0.0, key))
        self.preemption = PreemptionStanding()
        self.published = Published()
        self._counts: GangCounts | None = None

    @property
    def counts(self) -> GangCounts:
        if self._counts is None:
            self._counts = GangCounts.of(self.members.values())
        return self._counts

    def invalidate_counts(self) -> None:
        """A member changed: it is counted anew when somebody asks."""
        self._counts = None

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def display_name(self) -> str:
        """What people know it by: a PodGroup that somebody's controller made is that one's gang."""
        kind, _, name = self.owner.rpartition("/")
        return f"{kind} {name}".lstrip() or self.name

    @property
    def qualified_name(self) -> str:
        """The same with its namespace, for who may be of another."""
        kind, _, name = self.owner.rpartition("/")
        return f"{kind} {self.namespace}/{name or self.name}".lstrip()

    @property
    def owner(self) -> str:
        """Of its PodGroup: job/sweep."""
        return self.object.owner if self.object is not None else ""

    @property
    def queue(self) -> str:
        """The queue that it is charged to; "default" while there are no Queue objects."""
        return self.account.queue if self.account is not None else DEFAULT

    @property
    def minimum(self) -> int:
        if self.object is not None:
            return max(self.object.min_member, 1)
        return (self.counts.label_min or 1) if self.key[2] else 1

    def short_tasks(self) -> dict[str, int]:
        """How many pods each role lacks to its own minimum."""
        wanted = self.object.task_min if self.object is not None else ()
        if not wanted:
            return {}
        placed = Counter(pod.seen.task for pod in self.counts.placed)
        return {task: least - placed[task] for task, least in wanted if placed[task] < least}

    def missing(self) -> int:
        """How many more pods must be placed, at once, for the gang to be whole; 0: it is."""
        short = max(self.minimum - len(self.counts.placed), 0)
        if self.object is None:
            return short
        if self.object.subgroups:
            short = max(short, self.division().missing(self.object.subgroups))
        if self.object.task_min:
            short = max(short, sum(self.short_tasks().values()))
        return short

    @property
    def subgroups(self) -> tuple[SubGroups, ...]:
        return self.object.subgroups if self.object is not None else ()

    def division(self) -> SubgroupDivision:
        """Its members by the groups that they stand in."""
        return SubgroupDivision.of(self.subgroups, self.counts.waiting, self.counts.placed)

    def pods_to_start(self) -> list[Pod]:
        """Those who would make it whole, in rank order: each role's minimum, then the first ranks.
        Shorter than missing() where pods lack."""
        missing, short, waiting = self.missing(), self.short_tasks(), self.waiting()
        if self.subgroups:
            units = self.division().units_to_start(self.subgroups, missing, short)
            return [pod for _, pods in units for pod in pods]
        if not short:
            return waiting[:missing]
        chosen: set[int] = set()
        for pod in waiting:
            if short.get(pod.seen.task, 0) > 0:
                short[pod.seen.task] -= 1
                chosen.add(id(pod))
        if any(short.values()):
            return []
        for pod in waiting:
            if len(chosen) < missing:
                chosen.add(id(pod))
        return [pod for pod in waiting if id(pod) in chosen]

    @property
    def priority(self) -> int:
        if self.class_priority is not None:
            return self.class_priority
        own = self.object.priority if self.object else 0
        return self.counts.priority or own

    @property
    def created(self) -> float:
        return self.object.created if self.object is not None else self.counts.created

    @property
    def required(self) -> str:
        if self.object is not None and self.object.topology_required:
            return self.object.topology_required
        return self.counts.required

    @property
    def placement(self) -> str:
        """Empty: as the cluster has it."""
        if self.object is not None and self.object.placement:
            return self.object.placement
        return self.counts.placement

    @property
    def preferred(self) -> str:
        if self.object is not None and self.object.topology_preferred:
            return self.object.topology_preferred
        return self.counts.preferred

    def waiting(self) -> list[Pod]:
        """That may be bound, in rank order."""
        return self.counts.waiting

    def placed(self) -> list[Pod]:
        return self.counts.placed


def key_of(seen: PodSeen) -> GangKey | None:
    if not seen.ours:
        return None
    if seen.gang:
        return (seen.namespace, seen.gang, True)
    return (seen.namespace, seen.name, False)
