"""Partially bound gangs. A gang that never reached its minimum is evicted if the rest of its pods
is not bound in time, so that it does not hold GPUs in vain. A gang that once started keeps its
pods.
"""

from central.model.decisions import INCOMPLETE, Decision, Evict
from central.scheduler.inventory.pods import start_leaving
from central.scheduler.state.gangs import Gang

UNDO_AFTER_S = 30.0  # how long a gang may stay partially bound


def undo_partial(gang: Gang, now: float) -> list[Decision]:
    if gang.attempt.partial_since is None:
        gang.attempt.partial_since = now
    if now - gang.attempt.partial_since < UNDO_AFTER_S:
        return []
    placed = gang.counts.placed
    why = (
        f"gang {gang.display_name} is incomplete: {len(placed)} of {gang.minimum} pods were bound, "
        f"and the rest did not follow within {UNDO_AFTER_S:.0f} s"
    )
    leaving = [pod for pod in placed if pod.alive and not pod.evicting and not pod.assumed]
    evictions: list[Decision] = [
        Evict(pod.seen.uid, pod.seen.namespace, pod.seen.name, pod.node, why, cause=INCOMPLETE)
        for pod in leaving
    ]
    start_leaving(leaving)
    gang.attempt.partial_since = now  # refused evictions are retried after the same time
    return evictions
