"""A gang's members, counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from central.model.phases import ENDED
from central.scheduler.inventory.pods import ASSUMED, Pod


@dataclass(slots=True)
class GangCounts:
    """Made in one pass, and kept until one of them changes."""

    waiting: list[Pod] = field(default_factory=list)  # that may be bound, in rank order
    placed: list[Pod] = field(default_factory=list)
    assumed: int = 0  # of those placed
    unplaced: int = 0  # that have no place, those that may not be bound included
    gated: int = 0
    blocked: str = ""  # why one of them is not tried again
    label_min: int = 0
    priority: int = 0
    created: float = 0.0
    required: str = ""
    preferred: str = ""
    placement: str = ""
    tier: int | None = None  # the same by number, the closest that one of them asks for
    queue: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @classmethod
    def of(cls, members: Iterable[Pod]) -> "GangCounts":
        """Hot: a gang that is decided was counted just before."""
        counts = cls()
        waiting, placed = counts.waiting, counts.placed
        first = True
        for pod in members:
            seen = pod.seen
            if first or seen.priority > counts.priority:
                counts.priority = seen.priority
            if first or seen.created < counts.created:
                counts.created = seen.created
            first = False
            if seen.gang_min and seen.gang_min > counts.label_min:
                counts.label_min = seen.gang_min
            counts.required = max(counts.required, seen.topology_required)
            counts.preferred = max(counts.preferred, seen.topology_preferred)
            counts.placement = max(counts.placement, seen.placement)
            if (tier := seen.required_tier) is not None:
                counts.tier = tier if counts.tier is None else min(tier, counts.tier)
            counts.queue = max(counts.queue, seen.queue)
            phase = seen.phase
            if seen.deleting:
                pass
            elif pod.node:
                placed.append(pod)
                counts.assumed += pod.life.stage == ASSUMED
            elif pod.life.why or seen.gated or phase != "Pending":
                counts._count_unplaced(pod)
            else:
                waiting.append(pod)
            if phase != "Pending":
                counts.running += phase == "Running"
                counts.succeeded += phase == "Succeeded"
                counts.failed += phase == "Failed"
        counts.unplaced += len(waiting)
        waiting.sort(key=_rank)
        return counts

    def _count_unplaced(self, pod: Pod) -> None:
        """Without a place, and not simply waiting for one."""
        if pod.seen.phase in ENDED:
            return
        self.gated += pod.seen.gated
        if pod.bind_error:
            self.unplaced += 1
            self.blocked = pod.bind_error
        else:
            self.waiting.append(pod)

    def assign(self, pods: Sequence[Pod]) -> None:
        """These waiting pods have a place now, by our own assumption."""
        if len(pods) == len(self.waiting):
            self.waiting = []
        else:
            seated = set(map(id, pods))
            self.waiting = [pod for pod in self.waiting if id(pod) not in seated]
        self.placed = [*self.placed, *pods]
        self.assumed += len(pods)
        self.unplaced -= len(pods)


_rank = attrgetter("seen.order")
