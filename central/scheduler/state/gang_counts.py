"""The members of a gang, counted by what the scheduler needs to know of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

from central.model.facts import PodSeen
from central.model.phases import ENDED
from central.scheduler.inventory.pods import ASSUMED, Pod


@dataclass(slots=True)
class GangCounts:
    """Counted in one pass, and cached until a member changes."""

    waiting: list[Pod] = field(default_factory=list)  # may be bound now, in rank order
    placed: list[Pod] = field(default_factory=list)  # and not being deleted
    deleting: list[Pod] = field(default_factory=list)
    assumed: int = 0  # of the placed pods, those without a confirmed binding
    # of the placed pods, those that their kubelets cannot start or do not find ready
    unready: int = 0
    unplaced: int = 0  # pods without a node that have not ended
    gated: int = 0
    blocked: str = ""  # the error of a binding that cannot succeed; the pod is not tried again
    label_min: int = 0
    priority: int = 0
    least_priority: int = 0
    created: float = 0.0
    required: str = ""
    preferred: str = ""
    placement: str = ""
    tier: int | None = None  # the narrowest required tier of all members
    queue: str = ""
    never_evicted: bool = False  # a member says that it is not preemptable
    cooldown_s: float = 0.0  # the longest of all members
    suspension_s: float | None = None  # ... and the highest; None: one can't be suspended
    tied: bool = False  # a member's replacement runs on the same node or nowhere
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    _tasks: Counter[str] | None = None

    @property
    def tasks(self) -> Counter[str]:
        """Returns how many pods of each task wait or are placed. Only gangs whose roles come one after the other
        ask."""
        if self._tasks is None:
            self._tasks = Counter(pod.seen.task for pod in (*self.waiting, *self.placed))
        return self._tasks

    @classmethod
    def of(cls, members: Iterable[Pod]) -> "GangCounts":
        """Hot path: every gang is counted before it is tried. Most members have the same settings, so each
        combination is read once."""
        counts, pods = cls(), [*members]
        waiting, placed = counts.waiting, counts.placed
        facts = [pod.seen for pod in pods]
        for pod, seen in zip(pods, facts, strict=True):
            phase = seen.phase
            if seen.deleting:
                counts.deleting.append(pod)
            elif pod.node:
                placed.append(pod)
                counts.assumed += pod.life.stage == ASSUMED
                counts.unready += not seen.ready
            elif pod.life.why or seen.gated or phase != "Pending":
                counts._count_unplaced(pod)
            else:
                waiting.append(pod)
            if phase != "Pending":
                counts.running += phase == "Running"
                counts.succeeded += phase == "Succeeded"
                counts.failed += phase == "Failed"
        if facts:
            counts.created = min(map(_created, facts))
            for name, value in _combined(frozenset(map(_settings, facts))):
                setattr(counts, name, value)
        counts.unplaced += len(waiting)
        waiting.sort(key=_rank)
        return counts

    def _count_unplaced(self, pod: Pod) -> None:
        """Counts a pod without a node that has ended, is gated, or could not be bound."""
        if pod.seen.phase in ENDED:
            return
        self.gated += pod.seen.gated
        if pod.bind_error:
            self.unplaced += 1
            self.blocked = pod.bind_error
        else:
            self.waiting.append(pod)

    def assign(self, pods: Sequence[Pod]) -> None:
        """Moves these pods from waiting to placed. Their binding is not confirmed yet."""
        if len(pods) == len(self.waiting):
            self.waiting = []
        else:
            assigned = set(map(id, pods))
            self.waiting = [pod for pod in self.waiting if id(pod) not in assigned]
        self.placed = [*self.placed, *pods]
        self.assumed += len(pods)
        self.unplaced -= len(pods)


def _least_given(values: Sequence[int | None]) -> int | None:
    given = [each for each in values if each is not None]
    return min(given) if given else None


# By attribute of GangCounts: the field of PodSeen, and what the members' values of it are for the gang.
_SETTINGS: tuple[tuple[str, str, Callable[[Sequence[Any]], object]], ...] = (
    ("priority", "priority", max),
    ("least_priority", "priority", min),
    ("label_min", "gang_min", lambda values: max(filter(None, values), default=0)),
    ("required", "topology_required", max),
    ("preferred", "topology_preferred", max),
    ("placement", "placement", max),
    ("tier", "required_tier", _least_given),
    ("queue", "queue", max),
    ("never_evicted", "preemptable", lambda values: False in values),
    ("cooldown_s", "cooldown_s", max),
    ("suspension_s", "suspension_s", lambda values: None if None in values else max(values)),
    ("tied", "tied", any),
)
_settings: Callable[[PodSeen], tuple[Any, ...]] = attrgetter(*(seen for _, seen, _ in _SETTINGS))
_rank, _created = attrgetter("seen.order"), attrgetter("created")


@lru_cache(maxsize=1 << 10)
def _combined(settings: frozenset[tuple[Any, ...]]) -> list[tuple[str, object]]:
    """Returns the attributes of GangCounts for members with these settings."""
    columns = zip(_SETTINGS, zip(*settings, strict=True), strict=True)
    return [(name, combined(values)) for (name, _, combined), values in columns]
