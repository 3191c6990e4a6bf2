"""Pods and gangs as the cluster keeps them. A pod without a gang is a gang of one."""

from collections import Counter
from typing import NamedTuple

from central.model.facts import GangSeen, PodSeen, SubGroups
from central.model.resources import DEFAULT, Sums
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gang_counts import GangCounts
from central.scheduler.state.subgroups import SubgroupDivision

GangKey = tuple[str, str, bool]  # namespace, name, whether it is a gang's name (or a single pod's)


class Account(NamedTuple):
    """What a gang is in its queue's books with."""

    queue: str
    used: Sums
    asks: Sums


class Gang:
    __slots__ = (
        "_tally",
        "account",
        "bind_failures",
        "broken_since",
        "claims_at",
        "class_priority",
        "failures_seen",
        "headed",
        "key",
        "like",
        "members",
        "no_at",
        "object",
        "quiet",
        "rank",
        "reason",
        "retry_at",
        "spared",
        "started",
        "told",
        "warned",
        "word",
        "yields_to",
    )

    def __init__(self, key: GangKey) -> None:
        self.key = key
        self.object: GangSeen | None = None
        self.members: dict[str, Pod] = {}
        self.started = False  # its minimum was placed once
        self.broken_since: float | None = None  # partly placed, never started
        self.headed: float | None = None  # since when it heads the line
        self.claims_at = 0.0  # no evictions for it are thought of before
        self.spared = ""  # which budgets keep those who would give way to it
        self.yields_to = ""  # for whom some of it is evicted
        self.rank: tuple[int, float, GangKey] = (0, 0.0, key)  # its place in the line
        self.like = 0  # those with the same number want the same, on the same terms; 0: not known
        self.no_at = -1  # the snapshot's gains when it did not fit
        self.reason = ""
        self.told: tuple[object, ...] = ()
        self.warned: frozenset[tuple[str, str, str]] = frozenset()  # see ailing
        self.bind_failures = 0
        self.failures_seen = 0
        self.retry_at = 0.0
        self.word: tuple[str, str] | None = None  # phase and sentence, where its Job knows better
        self.quiet = False  # an Event of its Job says the same
        self.account: Account | None = None
        self.class_priority: int | None = None  # the value of the class that its object names
        self._tally: GangCounts | None = None

    @property
    def tally(self) -> GangCounts:
        if self._tally is None:
            self._tally = GangCounts.of(self.members.values())
        return self._tally

    def touch(self) -> None:
        """A member changed: it is counted anew when somebody asks."""
        self._tally = None

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def called(self) -> str:
        """What people know it by: a PodGroup that somebody's controller made is that one's gang."""
        kind, _, name = self.owner.rpartition("/")
        return f"{kind} {name}".lstrip() or self.name

    @property
    def called_in_full(self) -> str:
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
        return (self.tally.label_min or 1) if self.key[2] else 1

    def short_tasks(self) -> dict[str, int]:
        """How many pods each role lacks to its own minimum."""
        wanted = self.object.task_min if self.object is not None else ()
        if not wanted:
            return {}
        placed = Counter(pod.seen.task for pod in self.tally.placed)
        return {task: least - placed[task] for task, least in wanted if placed[task] < least}

    def missing(self) -> int:
        """How many more pods must be placed, at once, for the gang to be whole; 0: it is."""
        short = max(self.minimum - len(self.tally.placed), 0)
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
        return SubgroupDivision.of(self.subgroups, self.tally.waiting, self.tally.placed)

    def starters(self) -> list[Pod]:
        """Those who would make it whole, in rank order: each role's minimum, then the first ranks.
        Shorter than missing() where pods lack."""
        missing, short, waiting = self.missing(), self.short_tasks(), self.waiting()
        if self.subgroups:
            units = self.division().starters(self.subgroups, missing, short)
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
        return self.tally.priority or own

    @property
    def created(self) -> float:
        return self.object.created if self.object is not None else self.tally.created

    @property
    def required(self) -> str:
        if self.object is not None and self.object.topology_required:
            return self.object.topology_required
        return self.tally.required

    @property
    def placement(self) -> str:
        """Empty: as the cluster has it."""
        if self.object is not None and self.object.placement:
            return self.object.placement
        return self.tally.placement

    @property
    def preferred(self) -> str:
        if self.object is not None and self.object.topology_preferred:
            return self.object.topology_preferred
        return self.tally.preferred

    def waiting(self) -> list[Pod]:
        """That may be bound, in rank order."""
        return self.tally.waiting

    def placed(self) -> list[Pod]:
        return self.tally.placed


def key_of(seen: PodSeen) -> GangKey | None:
    if not seen.ours:
        return None
    if seen.gang:
        return (seen.namespace, seen.gang, True)
    return (seen.namespace, seen.name, False)
