"""Partially bound gangs. A gang that never reached its minimum is evicted if the rest of its pods
is not bound in time, so that it does not hold GPUs in vain. A gang that once started keeps its
pods while it is above its minimum. Below it, where a lost member has no place beside the others, it moves whole as soon
as all of it fits elsewhere.

Design: docs/design/gangs.md
"""

from contextlib import suppress

from central.model import wording
from central.model.decisions import INCOMPLETE, Decision, Evict
from central.model.facts.gang_facts import MOVE_AFTER_S
from central.scheduler.inventory.pods import evictions
from central.scheduler.placement import placement_attempts
from central.scheduler.reservation.planned_reservation import fits_without
from central.scheduler.reservation.release_forecast import ReleasablePods
from central.scheduler.reservation.reservation import MovedPods, Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

UNDO_AFTER_S = 30.0  # how long a gang may stay partially bound
KEPT_S = 300.0  # how long the new place of a moved gang is kept for pods that are created again


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
    gang.attempt.partial_since = now  # refused evictions are retried after the same time
    return [*evictions(placed, why, INCOMPLETE)]


def move_whole(
    state: ClusterState, gang: Gang, policy: str, now: float
) -> tuple[Reservation, list[Evict]] | None:
    """Evicts a started gang that has been below its minimum for its move_after_s, and reserves the place where all of
    it fits. None: it is too early, or there is no such place. policy: of placement, unless the gang has its own"""
    if gang.attempt.partial_since is None:
        gang.attempt.partial_since = now
    after_s = gang.object.move_after_s if gang.object is not None else MOVE_AFTER_S
    if now < gang.attempt.partial_since + after_s:
        state.pending.preemption_retry_at.add(gang.attempt.partial_since + after_s)
        return None
    rows = state.snapshot.columns.row
    placed = [pod for pod in gang.counts.placed if pod.alive]
    if any(pod.evicting or pod.assumed or now < pod.evict_backoff.not_before for pod in placed):
        return None
    lost = gang.missing()
    with gang.unplaced(placed):
        _, requests = placement_attempts.attempts(state, gang, gang.missing(), policy)
    releasable, found = ReleasablePods(state, [pod for pod in placed if pod.node in rows]), None
    with suppress(WorkLimitReached):
        found = fits_without(state, releasable, requests[-1], len(releasable.pods))
    if found is None:
        return None
    taken = found if requests[-1].by_islands else found.on_any_gpus()
    place = ReservedPlace.on(state.snapshot, taken)
    held = Reservation.by_evictions(gang, requests[-1], place, now)
    held.moved = MovedPods(frozenset(pod.seen.uid for pod in placed), now + KEPT_S)
    pods = wording.counted(lost, "pod")
    why = (
        f"gang {gang.display_name} is moved: it has lacked {pods} for {wording.format_duration(after_s)}, which "
        f"{'has' if lost == 1 else 'have'} no place beside the others, and all of it fits elsewhere"
    )
    return held, evictions(placed, why, INCOMPLETE)
