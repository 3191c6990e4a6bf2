"""Rules that say which pods may be evicted at all, by any claimant.

Pods with volcano.sh/preemptable: "false" never are, and neither is a gang that has run for less than its minimum run
time, except for its members above the minimum. Such marks, and a cooldown-time, do not protect what a queue has above
its share from a queue that is entitled to it (PreemptionRequest.marks_hold); the queues' own minimum run times do.

Design: docs/design/evictions.md
"""

from operator import attrgetter

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import past_runs
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.state.gangs import Gang

NOT_PREEMPTABLE, TOO_YOUNG = "not preemptable", "min runtime"


def may_leave(gang: Gang, pod: Pod) -> bool:
    """Returns whether this pod may be evicted. Its own setting takes precedence over its PodGroup's."""
    own = pod.seen.preemptable
    if own is None and gang.object is not None:
        own = gang.object.preemptable
    return own is not False


class MinRuntimes:
    """The minimum run times of queues, each looked up once. For one search, because a Queue may change its own."""

    def __init__(self, context: PreemptionContext) -> None:
        self._context = context
        self._by_queue: dict[str, float] = {}

    @property
    def any_set(self) -> bool:
        """Returns whether --min-runtime or a queue protects gangs for a while."""
        queues = self._context.queues.by_name.values()
        return self._context.min_runtime_s > 0 or any(
            bool(queue.seen.min_runtime_s) for queue in queues
        )

    def why_whole(self, gang: Gang, now: float, *, marks_hold: bool = True) -> str:
        """Returns why the gang may not fall below its minimum now; empty: it may."""
        never = marks_hold and gang.never_evicted
        if never and not all(may_leave(gang, pod) for pod in gang.counts.placed):
            return NOT_PREEMPTABLE
        least_s = self.of(gang, marks_hold=marks_hold)
        return TOO_YOUNG if least_s and now < self.end(gang, now, marks_hold=marks_hold) else ""

    def end(self, gang: Gang, now: float, *, marks_hold: bool = True) -> float:
        """Returns when the gang reaches its minimum run time."""
        since = past_runs.began(gang.counts.placed, now)
        return (now if since is None else since) + self.of(gang, marks_hold=marks_hold)

    def of(self, gang: Gang, *, marks_hold: bool = True) -> float:
        """The minimum run time of the nearest queue that sets one, else --min-runtime; at least the cooldown-time of
        the gang's pods, if that holds."""
        name = gang.queue
        if (least_s := self._by_queue.get(name)) is None:
            found = self._context.queues.nearest(name, attrgetter("min_runtime_s"))
            least_s = self._context.min_runtime_s if found is None else found
            self._by_queue[name] = least_s
        return max(least_s, gang.counts.cooldown_s) if marks_hold else least_s


def next_end(context: PreemptionContext, now: float) -> list[float]:
    """Returns when the next gang reaches its minimum run time, with its cooldown-time or, for a claimant against which
    that does not hold, without it; empty: none has run for less."""
    runtimes = MinRuntimes(context)
    every = runtimes.any_set
    if not every and not context.state.any_pod.cooldown:
        return []
    ends = [
        end
        for gang in context.state.gangs.values()
        if gang.counts.placed and (every or gang.counts.cooldown_s)
        for marks_hold in (True, False)
        if (end := runtimes.end(gang, now, marks_hold=marks_hold)) > now
    ]
    return [min(ends)] if ends else []
