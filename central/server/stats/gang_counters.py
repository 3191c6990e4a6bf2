"""Counters of gangs by queue, from the decisions and facts of each cycle.

A gang is counted once for each time that it starts, when its bindings are confirmed; after a restart of the scheduler,
gangs that run already are not counted again. Runs in the scheduling loop: a few dictionary look-ups for each decision.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from central.model.decisions import Bind, Decision, Evict, UpdateGangStatus
from central.model.facts import Fact, GangGone, PodGone, PodSeen
from central.model.phases import COMPLETED, INQUEUE, PENDING, RUNNING
from central.model.resources import GPU_UNITS
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey

ADMITTED, STARTED, FAILED = "admitted", "started", "failed"
ENDED = "completed"
WAIT_BUCKETS_S = (
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    4 * 3600.0,
    12 * 3600.0,
    86400.0,
    7 * 86400.0,
)
BIND_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
SIZES = ((0, "0"), (8, "1-8"), (64, "9-64"), (inf, "65+"))  # GPUs up to, label
UNBOUND_MOST = 200_000  # pods whose binding is not confirmed yet


@dataclass(slots=True)
class Buckets:
    """A histogram. bounds: upper bounds in seconds; the last count is of what is above them all."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class GangCounters:
    """label: the label of a queue's name in metrics."""

    scheduler: Scheduler
    label: Callable[[str], str] = str
    gangs: dict[str, Counter[str]] = field(default_factory=dict)  # by event, then by queue
    evictions: Counter[tuple[str, str]] = field(default_factory=Counter)  # by queue and cause
    waits: dict[str, Buckets] = field(default_factory=dict)  # until the start, by queue
    # until the bindings of the minimum are confirmed, by size
    starts: dict[str, Buckets] = field(
        default_factory=lambda: {size: Buckets(WAIT_BUCKETS_S) for _, size in SIZES}
    )
    binds: Buckets = field(default_factory=lambda: Buckets(BIND_BUCKETS_S))
    lost_gpu_s: defaultdict[tuple[str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )  # by queue and cause
    # queue, cause, direction
    resizes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _resized: object = ()  # what was counted last
    _phases: dict[GangKey, str] = field(default_factory=dict)
    _starting: dict[GangKey, float] = field(default_factory=dict)  # since when they have nodes
    _unbound: dict[str, float] = field(default_factory=dict)  # creation by uid of the pod

    def __post_init__(self) -> None:
        self.gangs = {event: Counter() for event in (ADMITTED, STARTED, ENDED, FAILED)}

    def labels(self) -> set[str]:
        """Returns the labels of queues with any count; some of them may be gone."""
        counted = {label for counts in list(self.gangs.values()) for label in list(counts)}
        return counted | {label for label, _ in list(self.evictions)}

    def observe(self, facts: Sequence[Fact], decisions: Sequence[Decision]) -> None:
        """Counts a cycle, called after it with its facts and decisions."""
        now = self.scheduler.state.now
        self._count_resizes()
        for decision in decisions:
            match decision:
                case Bind():
                    pod = self.scheduler.state.pods.get(decision.pod)
                    if pod is not None and len(self._unbound) < UNBOUND_MOST:
                        self._unbound[decision.pod] = pod.seen.created
                case UpdateGangStatus():
                    self._status(decision, now)
                case Evict(trial=False):
                    self._evicted(decision, now)
                case _:
                    pass
        for fact in facts:
            match fact:
                case PodSeen() if fact.node and fact.uid in self._unbound:
                    created = self._unbound.pop(fact.uid)
                    self.binds.observe(max(0.0, now - created))
                case PodGone():
                    self._unbound.pop(fact.uid, None)
                case GangGone():
                    self._phases.pop((fact.namespace, fact.name, True), None)
                case _:
                    pass
        self._count_starts()
        if len(self._phases) > 2 * len(self.scheduler.state.gangs) + 1000:
            known = self.scheduler.state.gangs
            self._phases = {key: phase for key, phase in self._phases.items() if key in known}

    def _status(self, update: UpdateGangStatus, now: float) -> None:
        gang = gang_of_update(self.scheduler, update)
        if gang is None:
            return
        counts = gang.counts
        ended = bool(gang.members) and counts.failed + counts.succeeded == len(gang.members)
        phase = FAILED if ended and update.failed else update.phase
        before = self._phases.get(gang.key)
        self._phases[gang.key] = phase
        if phase == before:
            return
        queue = self.label(gang.queue_name)
        if phase == INQUEUE:
            known = before is not None or gang.object is None or gang.object.phase != INQUEUE
            self._count(ADMITTED, queue, known=known)
        elif phase == RUNNING:
            # else it ran before this scheduler did
            if before in (PENDING, INQUEUE) or gang.counts.assumed:
                self._starting.setdefault(gang.key, now)
        elif phase in (COMPLETED, FAILED):
            event = ENDED if phase == COMPLETED else FAILED
            self._count(event, queue, known=before is not None)

    def _count_resizes(self) -> None:
        latest = self.scheduler.elastic.latest
        if latest is not self._resized:
            self._resized = latest
            self.resizes.update(
                (self.label(queue), cause, direction) for queue, cause, direction in latest
            )

    def _count(self, event: str, queue: str, *, known: bool) -> None:
        """known: it was in another phase before. Else it may have been in this one for long."""
        if known:
            self.gangs[event][queue] += 1

    def _count_starts(self) -> None:
        """Counts a start once the API server has the bindings. One that is refused is tried again, and is not a
        start."""
        for key, since in list(self._starting.items()):
            gang = self.scheduler.state.gangs.get(key)
            if gang is None or (len(gang.counts.placed) < gang.minimum and not _ended(gang)):
                del self._starting[key]
            elif not gang.counts.assumed:
                del self._starting[key]
                queue = self.label(gang.queue_name)
                self.gangs[STARTED][queue] += 1
                waits = self.waits.setdefault(queue, Buckets(WAIT_BUCKETS_S))
                waits.observe(max(0.0, since - gang.created))
                now = self.scheduler.state.now
                self.starts[self._size(gang)].observe(max(0.0, now - gang.created))

    def _size(self, gang: Gang) -> str:
        worth = self.scheduler.queues.currency.worth
        gpus = sum(worth(pod.spec.requests) for pod in gang.counts.placed) / GPU_UNITS
        return next(size for most, size in SIZES if gpus <= most)

    def _evicted(self, evict: Evict, now: float) -> None:
        scheduler = self.scheduler
        pod = scheduler.state.pods.get(evict.pod)
        gang = scheduler.state.gang_of(pod) if pod is not None else None
        label = self.label(gang.queue_name if gang is not None else "")
        self.evictions[label, evict.cause] += 1
        if pod is None:
            return
        self.lost_gpu_s[label, evict.cause] += lost_gpu_s(scheduler, pod, now)


def gang_of_update(scheduler: Scheduler, update: UpdateGangStatus) -> Gang | None:
    gangs = scheduler.state.gangs
    gang = gangs.get((update.namespace, update.gang, True))
    if gang is None or (gang.object is None and update.has_object):
        gang = gangs.get((update.namespace, update.gang, False)) or gang
    return gang


def lost_gpu_s(scheduler: Scheduler, pod: Pod, now: float) -> float:
    """Returns the GPU-seconds since the start or the last checkpoint of a pod that is evicted now."""
    began = pod.seen.started if pod.seen.started is not None else pod.since
    if began is None:
        return 0.0
    gpus = scheduler.queues.currency.worth(pod.spec.requests) / GPU_UNITS
    return gpus * max(0.0, now - max(began, pod.checkpoint or 0.0))


def _ended(gang: Gang) -> bool:
    return gang.counts.succeeded + gang.counts.failed > 0
