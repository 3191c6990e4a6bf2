"""A gang, with what the scheduler keeps about it. A pod without a gang is a gang of one."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from central.model.facts import GangSeen, SubGroups
from central.model.redaction import qualified
from central.model.resources import DEFAULT, Sums
from central.scheduler.inventory.pods import Pod
from central.scheduler.state import later_roles
from central.scheduler.state.attempt import NO_ROWS, Attempt, AttemptColumns
from central.scheduler.state.gang_counts import GangCounts
from central.scheduler.state.subgroups import SubgroupDivision

GangKey = tuple[str, str, bool]  # PodSeen.gang_key


UNKNOWN = -(2**30)


class Account(NamedTuple):
    """The amounts for which a gang counts in its queue."""

    queue: str  # the queue that is charged; of one that its namespaces share: NAMESPACE/QUEUE
    used: Sums
    demand: Sums  # requests of pending pods that only lack capacity
    user: str = ""  # whom it counts for (queues/tenant_limits.py), while a Queue limits users
    never_evicted: bool = False


@dataclass(slots=True)
class PreemptionStanding:
    """A gang's record by reservations and preemption, as the preemptor and as a victim."""

    head_since: float | None = None  # when it became the first of those that compete for its nodes
    latest_start: float = inf  # its reserved start when the reservation became strict
    overrun: float = 1.0  # the most, as a factor, by which a pod in its way exceeded its run time
    not_before: float = 0.0  # earliest time of the next search for victims
    claims_over: int = 0  # PendingGangs.claims_over at the last of these searches
    blocked_by: str = ""  # the disruption budgets that protect its victims, as a clause
    preempted_for: str = ""  # name of the gang that some of its pods are evicted for
    suspended: bool = False  # ... because it is that gang's turn
    started_by_reservation: bool = False  # ... of capacity that others had to leave free
    # Where it stands among the gangs of its queue that take turns, instead of its creation; None: it takes none.
    turn: float | None = None
    turn_by: float | None = None  # when those that may be suspended for it have had their quanta

    def end_of_turn(self) -> None:
        """Forgets its turn, when it has started or others come first. As the head again, it waits anew."""
        self.head_since, self.latest_start, self.overrun = None, inf, 1.0


class PublishedStatus(NamedTuple):
    phase: str = ""  # empty: none was written yet
    reason: str = ""
    pod_phases: tuple[int, int, int] = (0, 0, 0)  # running, succeeded, failed
    shown: int = 0  # pods whose condition has the reason
    turns: tuple[float, float, bool] | None = None  # of its PastTurns: ran_s, until, runs
    cause: str = ""
    podgroups: tuple[tuple[str, bool], ...] = ()  # as in UpdateGangStatus


NOTHING_PUBLISHED = PublishedStatus()


@dataclass(slots=True)
class Published:
    """The last published status of a gang, and overrides by controllers."""

    state: PublishedStatus = NOTHING_PUBLISHED  # as last written
    # By uid of a pending pod, the condition that was decided last, as in PodSeen.told. The watch may not show it yet.
    told: dict[str, tuple[str, str]] = field(default_factory=dict)
    warned: frozenset[tuple[str, str, str]] = frozenset()  # unhealthy devices with a warning
    override: tuple[str, str] | None = None  # phase and reason, set by a controller
    suppress_event: bool = False  # an Event of its Job has the same content
    of_job: bool = False
    suspended: bool = False  # its Job is; it waits for nothing but to be resumed
    # Members that succeeded and whose pods were deleted, which status.succeeded counts too; negative: not known yet.
    completed: int = 0


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

    def __init__(self, key: GangKey, columns: AttemptColumns = NO_ROWS) -> None:
        """columns: in which its attempts get a row; NO_ROWS: it is never tried"""
        self.key = key
        self.object: GangSeen | None = None
        self.members: dict[str, Pod] = {}
        self.started = False  # its minimum was placed at least once
        self.account: Account | None = None
        self.class_priority: int | None = None  # value of the PriorityClass in its PodGroup
        self.attempt = Attempt(columns, (0, 0, 0.0, key))
        if self.attempt.row:
            columns.gangs[self.attempt.row] = self
        self.preemption = PreemptionStanding()
        self.published = Published()
        self._counts: GangCounts | None = None

    @property
    def counts(self) -> GangCounts:
        if self._counts is None:
            self._counts = GangCounts.of(self.members.values())
        return self._counts

    @contextmanager
    def unplaced(self, pods: Sequence[Pod]) -> Iterator[None]:
        """Makes these of its placed pods pending, inside the with block."""
        counts = self.counts
        waiting = sorted([*pods, *counts.waiting], key=lambda pod: pod.seen.order)
        others = [pod for pod in counts.placed if pod not in pods]
        self._counts = replace(counts, waiting=waiting, placed=others, _tasks=None)
        try:
            yield
        finally:
            self._counts = counts

    def some_member_leaves(self) -> bool:
        """Returns whether a member with a node is terminating."""
        for pod in self.members.values():  # noqa: SIM110  a cycle asks all gangs that changed
            if (pod.life.leaving or pod.seen.deleting) and pod.node:
                return True
        return False

    def invalidate_counts(self) -> None:
        """Drops the cached counts, after a change of a member."""
        self._counts = None

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def display_name(self) -> str:
        """The name that users know: "job sweep" for a PodGroup that a Job owns, else its own."""
        kind, _, name = self.owner.rpartition("/")
        return f"{kind} {name}".lstrip() or self.name

    @property
    def qualified_name(self) -> str:
        """The display name with the namespace, for messages on objects of other namespaces."""
        kind, _, name = self.owner.rpartition("/")
        return qualified(self.namespace, name or self.name, kind)

    def name_for(self, namespace: str) -> str:
        """Returns the name for messages on objects of this namespace: with its own namespace if that is another one, so
        that central.model.redaction can leave it out."""
        return self.display_name if namespace == self.namespace else self.qualified_name

    @property
    def owner(self) -> str:
        """The owner of its PodGroup, for example job/sweep; empty if it has none."""
        return self.object.owner if self.object is not None else ""

    @property
    def queue(self) -> str:
        """The queue that is charged for it; "default" while no Queue object exists."""
        return self.account.queue if self.account is not None else DEFAULT

    @property
    def queue_name(self) -> str:
        """The same as the name of a Queue object."""
        return self.queue.rpartition("/")[2]

    @property
    def foreign(self) -> bool:
        """Returns whether it may be another scheduler's: kube-scheduler reads PodGroups of scheduling.k8s.io and
        controllers' objects, too, and the schedulerName of the pods decides. Such a group has no queue, no phase and no
        status here."""
        group = self.object
        return (
            group is not None and not self.members and bool(group.native_version or group.declared)
        )

    @property
    def has_podgroup(self) -> bool:
        """Returns whether there is a PodGroup, whose status is written."""
        return self.object is not None and not self.object.declared

    def settle_completed(self) -> None:
        """Counts the completed members that were deleted before the scheduler saw the gang: as its status says, or
        else, because it runs, all that are missing."""
        if self.published.completed >= 0:
            return
        group = self.object
        if group is not None and not (group.declared or group.native_version):
            self.published.completed = max(0, group.succeeded - self.counts.succeeded)
        elif self.started and not (group is not None and group.later):
            self.published.completed = max(0, self.minimum - len(self.members))
        else:
            self.published.completed = 0

    @property
    def task_min(self) -> tuple[tuple[str, int], ...]:
        if self.object is None or self._own_minimum:
            return ()
        found = self.object.task_min
        if self.object.later:
            found = tuple(later_roles.task_minima(self.object, self.counts.tasks).items())
        return self._without_completed(found) if self.published.completed > 0 and found else found

    def _without_completed(self, minima: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        existing = Counter(pod.seen.task for pod in self.members.values())
        left, found = self.published.completed, list[tuple[str, int]]()
        for task, least in minima:
            gone = min(left, max(0, least - existing[task]))
            left -= gone
            found.append((task, least - gone))
        return tuple(found)

    @property
    def _own_minimum(self) -> bool:
        """Returns whether its pods set a minimum, which takes precedence over that of a controller's object."""
        return self.object is not None and self.object.declared and self.counts.label_min > 0

    @property
    def minimum(self) -> int:
        """The pods that must run together."""
        if not self.key[2]:
            return 1  # a pod without a gang, whose end nothing counts
        least = self._declared_minimum
        return least if self.published.completed <= 0 else least - self.collected

    @property
    def collected(self) -> int:
        """Completed members whose pods were deleted, as many as the gang lacks to its minimum: where all exist again,
        they run again."""
        if self.published.completed <= 0:
            return 0
        existing = len(self.members) - len(self.counts.deleting)
        return min(self.published.completed, max(0, self._declared_minimum - existing))

    @property
    def _declared_minimum(self) -> int:
        if self.object is not None and not self._own_minimum:
            if self.object.later:
                return later_roles.minimum(self.object, self.counts.tasks)
            return max(self.object.min_member, 1)
        return self.counts.label_min or 1

    def short_tasks(self) -> dict[str, int]:
        """Returns how many pods each task lacks to its minimum, for the tasks that lack some."""
        wanted = self.task_min
        if not wanted:
            return {}
        placed = Counter(pod.seen.task for pod in self.counts.placed)
        return {task: least - placed[task] for task, least in wanted if placed[task] < least}

    def missing(self) -> int:
        """Returns how many more pods must be placed together to reach every minimum; 0: none."""
        group, placed = self.object, len(self.counts.placed)
        if not self.key[2]:
            return 0 if placed else 1  # most, and asked often
        if group is None or not (group.subgroups or group.task_min):
            return max(self.minimum - placed, 0)
        short = self.minimum - placed
        if group.subgroups:
            short = max(short, self.division().missing())
        if self.task_min:
            short = max(short, sum(self.short_tasks().values()))
        return max(short, 0)

    @property
    def is_broken(self) -> bool:
        """Returns whether it has started and holds capacity, with fewer placed members than its minimum."""
        return self.started and bool(self.counts.placed) and self.missing() > 0

    @property
    def subgroups(self) -> tuple[SubGroups, ...]:
        return self.object.subgroups if self.object is not None else ()

    def division(self) -> SubgroupDivision:
        """The members by subgroup."""
        return SubgroupDivision.of(self.subgroups, self.counts.waiting, self.counts.placed)

    def pods_to_start(self, missing: int) -> list[Pod]:
        """The smallest set of waiting pods that reaches every minimum, in rank order: the minimum of
        each task first, then the first ranks. missing: as missing() says; fewer pods if too few exist."""
        short, waiting = self.short_tasks(), self.counts.waiting
        if self.subgroups:
            units = self.division().units_to_start(missing, short)
            return [pod for _, pods in units for pod in pods]
        return first_ranks(waiting, missing, short) if short else waiting[:missing]

    @property
    def priority(self) -> int:
        if self.class_priority is not None:
            return self.class_priority
        own = self.object.priority if self.object else 0
        return self.counts.priority or own

    @property
    def lasting_uid(self) -> str:
        """The uid of its object or of its first pod, or a name: every scheduler of the cluster finds the same."""
        if self.has_podgroup and self.object is not None and self.object.uid:
            return self.object.uid
        if not self.key[2] and self.members:
            return min(self.members)
        return f"{self.namespace}/{self.name}@{self.created:.0f}"

    @property
    def never_evicted(self) -> bool:
        """Returns whether it, or one of its pods, is not preemptable."""
        group = self.object
        return self.counts.never_evicted or (group is not None and group.preemptable is False)

    @property
    def preempts(self) -> bool:
        """Returns whether others may be evicted for it."""
        by_group = self.object is None or self.object.preempts
        return by_group and all(pod.seen.preempts for pod in self.counts.waiting)

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
        """pack or spread; empty: the policy of the cluster."""
        if self.object is not None and self.object.placement:
            return self.object.placement
        return self.counts.placement

    @property
    def preferred(self) -> str:
        if self.object is not None and self.object.topology_preferred:
            return self.object.topology_preferred
        return self.counts.preferred


def first_ranks(waiting: Sequence[Pod], count: int, short: Mapping[str, int]) -> list[Pod]:
    """The minimum of each task first, then the first ranks; in rank order. Fewer if there are too few, and none if a
    task lacks some. short: how many of them must be of each task."""
    left, chosen = dict(short), set[int]()
    for pod in waiting:
        if left.get(pod.seen.task, 0) > 0:
            left[pod.seen.task] -= 1
            chosen.add(id(pod))
    if any(left.values()):
        return []
    for pod in waiting:
        if len(chosen) < count:
            chosen.add(id(pod))
    return [pod for pod in waiting if id(pod) in chosen]
