"""Undoes partially bound gangs: if the minimum of a gang is not bound within 30 s, its bound pods are
evicted. A gang whose minimum ran once keeps its pods."""

from central.model.decisions import Decision, Evict
from central.scheduler.inventory.pods import EVICTED
from central.scheduler.state.gangs import Gang

UNDO_AFTER_S = 30.0  # after the first cycle that finds the gang bound below its minimum


def undo_partial(gang: Gang, now: float) -> list[Decision]:
    if gang.attempt.partial_since is None:
        gang.attempt.partial_since = now
    if now - gang.attempt.partial_since < UNDO_AFTER_S:
        return []
    gang.attempt.partial_since = now  # a refused eviction is repeated after the same time
    placed = gang.placed()
    why = (
        f"gang {gang.display_name} could not be completed: {len(placed)} of {gang.minimum} pods were "
        f"bound, and the rest did not follow within {UNDO_AFTER_S:.0f} s"
    )
    evictions: list[Decision] = []
    for pod in placed:
        if pod.alive and not pod.evicting and not pod.assumed:
            pod.advance(EVICTED)
            seen = pod.seen
            evictions.append(Evict(seen.uid, seen.namespace, seen.name, pod.node, why))
    return evictions
