"""The sentence that says why an elastic gang has its size, and what would make it grow."""

from collections.abc import Sequence

from central.model import wording
from central.model.redaction import qualified
from central.scheduler.elastic import pools, unready
from central.scheduler.elastic.autoscaler import Autoscaler
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.pools import Pool
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.state.gangs import GangKey


def describe(
    autoscaler: Autoscaler,
    context: PreemptionContext,
    gangs: Sequence[ElasticGang],
    key: GangKey,
    now: float,
) -> str:
    """gangs: all elastic ones. Empty for a gang that is not elastic, and for one that has not started, whose reason is
    that of any pending gang."""
    gang = next((each for each in gangs if each.key == key), None)
    if gang is None or not gang.started:
        return ""
    task, size = gang.task, len(gang.placed)
    last = f"last change: {gang.why}" if gang.why else ""
    parts = (
        f"{size} of {task.least} to {task.most} members",
        last,
        _growth(autoscaler, context, gangs, gang, now),
    )
    return "; ".join(filter(None, parts))


def _growth(
    autoscaler: Autoscaler,
    context: PreemptionContext,
    gangs: Sequence[ElasticGang],
    gang: ElasticGang,
    now: float,
) -> str:
    size = len(gang.placed)
    if gang.ending:
        what = "has succeeded" if gang.gang.counts.succeeded else "below others has no seat"
        return f"a member {what}, so no more come"
    if gang.waits or not gang.settled:
        return f"a change to {len(gang.members)} members is under way"
    if gang.unready:
        return f"{unready.describe(gang, sorted(gang.unready))}; it does not grow meanwhile"
    if gang.asked > size:
        return f"{gang.asked - size} more wait for nodes (lockstep.dev/elastic-ask)"
    if size >= gang.task.most:
        return "this is the most that it can use"
    lowered = autoscaler.unready.lowered.get(gang.key)
    if lowered is not None and lowered.until > now and size >= lowered.size:
        return f"{lowered.why}; it is tried again in {lowered.until - now:.0f} s"
    if size >= gang.most_useful:
        return "it would not be faster with more (lockstep.dev/speed)"
    pool = next(each for each in pools.pools_of(context, gangs) if gang in each.gangs)
    goal = pools.share(context, pool, autoscaler.headroom)[gang]
    if goal > size:
        return _grows(autoscaler, gang, goal, now)
    return _stays(autoscaler, context, pool, gang, goal)


def _grows(autoscaler: Autoscaler, gang: ElasticGang, goal: int, now: float) -> str:
    if autoscaler.needs:
        first, *others = autoscaler.needs
        more = f" and {len(others)} more" if others else ""
        return f"its share is {goal}; pending gangs take seats first: {qualified(*first[:2])}{more}"
    history = autoscaler.histories.get(gang.key)
    at = history.allowed_at(gang, now) if history else now
    if at > now:
        cost = f"a change costs it {gang.cost_s:g} s of work"
        return (
            f"its share is {goal}; it changes in {at - now:.0f} s at the earliest, because {cost}"
        )
    return f"its share is {goal}; it changes when seats have been free for a while"


def _stays(
    autoscaler: Autoscaler, context: PreemptionContext, pool: Pool, gang: ElasticGang, goal: int
) -> str:
    queue = gang.gang.queue
    if context.queues.enabled and pools.at_capability(context, pool.spec, queue):
        return f"queue {queue} is at its capability"
    others = len(pool.gangs) - 1
    among = f", shared with {wording.counted(others, 'other Job')}" if others else ""
    free = max(pool.free, 0)
    kept = f"; {autoscaler.headroom:.0%} is kept free (--elastic-headroom)" * bool(
        autoscaler.headroom
    )
    return (
        f"{wording.counted(free, 'seat')} free for more; its share is {goal - gang.task.least} of the "
        f"{max(pool.seats, 0)} seats above the least sizes{among}{kept}"
    )
