"""What a gang needs by preemption, and the plan that would give it that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from central.model.arrays import Ints
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption.disruption_budgets import DisruptionBudgets
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.snapshot.draft import Draft
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey

MayEvict = Callable[[Gang, Gang], bool]


def less_urgent(claimant: Gang, victim: Gang) -> bool:
    return victim.priority < claimant.priority


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """What preemption reads beside the request."""

    state: ClusterState
    queues: Queues
    budgets: DisruptionBudgets
    reservations: dict[GangKey, Reservation]  # by the gang that capacity is kept for


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A pending gang's minimum. excluded: rows reserved for other gangs by eviction."""

    gang: Gang
    placement: PlacementRequest
    now: float
    excluded: Ints
    may_evict: MayEvict = less_urgent
    ignore_budgets: bool = False  # only to find out whether disruption budgets block
    # A further condition, on the draft that holds the gang and no victims.
    extra_check: Callable[[Draft, Sequence[Pod]], bool] | None = None


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    victims: tuple[Pod, ...]
    rows: Ints  # what the gang will take, by row and column
    need: Ints
    masks: Sequence[int]
    victims_fit_elsewhere: bool = False
    volumes: frozenset[str] = frozenset()
