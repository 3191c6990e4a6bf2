"""A gang's claim on others' room, and the plan that would satisfy it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from central.model.arrays import Ints
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.snapshot.draft import Draft
from central.scheduler.state.gangs import Gang

MayTake = Callable[[Gang, Gang], bool]


def less_urgent(claimant: Gang, victim: Gang) -> bool:
    return victim.priority < claimant.priority


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
