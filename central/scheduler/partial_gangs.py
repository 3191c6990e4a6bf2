"""A gang that was never whole does not stay half: what is bound is evicted once it is clear that the
rest can't join. A gang that once ran whole keeps what it has."""

from central.model.decisions import Decision, Evict
from central.scheduler.inventory.pods import EVICTED
from central.scheduler.state.gangs import Gang

UNDO_AFTER_S = 30.0  # a gang partly bound that can't be completed is undone after this


def undo_partial(gang: Gang, now: float) -> list[Decision]:
    if gang.attempt.partial_since is None:
        gang.attempt.partial_since = now
    if now - gang.attempt.partial_since < UNDO_AFTER_S:
        return []
    gang.attempt.partial_since = now  # an eviction that is refused is asked for again after as long
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
