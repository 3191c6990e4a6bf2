"""A gang's claim on others' room, and the plan that would satisfy it."""

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

MayTake = Callable[[Gang, Gang], bool]


def less_urgent(claimant: Gang, victim: Gang) -> bool:
    return victim.priority < claimant.priority


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """What preemption looks at beside the request."""

    state: ClusterState
    queues: Queues
    budgets: DisruptionBudgets
    reservations: dict[GangKey, Reservation]  # by the gang that capacity is kept for


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A gang's minimum that waits; apart: rows whose room is spoken for."""

    gang: Gang
    want: PlacementRequest
    now: float
    apart: Ints
    may_take: MayTake = less_urgent
    regardless: bool = False  # of disruption budgets: only to say what they cost
    # What must be true as well once the gang has its seats on the draft and these are gone.
    also: Callable[[Draft, Sequence[Pod]], bool] | None = None


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    victims: tuple[Pod, ...]
    rows: Ints  # where the gang will be, with what it will take there
    need: Ints
    masks: Sequence[int]
    moved: bool = False  # the victims fit elsewhere
    volumes: frozenset[str] = frozenset()
