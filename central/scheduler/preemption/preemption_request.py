"""A gang's request for preemption, and the plan that would serve it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from central.model.arrays import Ints
from central.model.defaults import ACROSS_NAMESPACES, ACROSS_NONE, ACROSS_QUEUES
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption.counts_in_reasons import CountsInReasons
from central.scheduler.preemption.disruption_budgets import DisruptionBudgets
from central.scheduler.preemption.time_sharing import TimeSharing
from central.scheduler.preemption.victim_bounds import Candidates
from central.scheduler.queues import quota
from central.scheduler.queues.claim_watch import ClaimWatch
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import EvictionKind, Reservation
from central.scheduler.snapshot.draft import Draft
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey

MayEvict = Callable[[Gang, Gang], bool]


def outranks(across: str, claimant: Gang, victim: Gang) -> bool:
    """Returns whether the claimant may evict the victim by its priority."""
    if victim.priority >= claimant.priority:
        return False
    if across == ACROSS_NONE and victim.namespace != claimant.namespace:
        return False
    return across == ACROSS_QUEUES or victim.queue == claimant.queue


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """The state and settings that preemption reads beside the request."""

    state: ClusterState
    queues: Queues
    budgets: DisruptionBudgets
    reservations: dict[GangKey, Reservation]  # by the gang that capacity is kept for
    candidates: Candidates
    across: str = ACROSS_NAMESPACES
    min_runtime_s: float = 0.0  # before a gang may be evicted, where its queue sets none
    max_grace_s: float = inf  # that a victim may take to end
    large_claim: int = 0  # see proportion.py; 0: no claim is large
    large_claim_wait_s: float = 0.0
    claim_watch: ClaimWatch = field(default_factory=ClaimWatch)
    time_sharing: TimeSharing = field(default_factory=TimeSharing)
    counts_in_reasons: CountsInReasons = field(default_factory=CountsInReasons)

    def tenant(self, gang: Gang) -> tuple[object, ...]:
        """Returns what makes the answers to equal requests of one queue and priority differ: what the policies of its
        queue read, whether the gang shares time, and the namespace if victims must be in it. Empty: nothing."""
        own = quota.tenant(self.queues, gang)
        if self.time_sharing.shares(gang):
            own = (*own, "shares time")
        return (*own, gang.namespace) if self.across == ACROSS_NONE else own


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A pending gang's minimum, or one more member of a gang that has it. excluded: rows reserved for other gangs by
    eviction."""

    gang: Gang
    placement: PlacementRequest
    now: float
    excluded: Ints
    may_evict: MayEvict
    by_group: bool = False  # may_evict answers alike for gangs of one victim_table.victim_group()
    among: frozenset[str] | None = None  # the queues of gangs that may be evicted; None: any
    suspended: tuple[Gang, ...] = ()  # gangs that may be evicted whatever may_evict says
    growth: bool = False  # above the minimum
    ignore_budgets: bool = False  # only to find out whether disruption budgets block
    beyond_marks: bool = False  # how pods and budgets protect gangs of other queues does not count
    quota: Sequence[Shortfall] = ()  # that the victims must free as well
    # Victims that give surplus only. The gang itself: members that it does not need leave for one that it lacks.
    spared: frozenset[GangKey] = frozenset()
    accepts: Callable[[Sequence[Pod]], bool] = lambda victims: True  # what else holds for victims
    # A further condition, on the draft that holds the gang and no victims.
    extra_check: Callable[[Draft, Sequence[Pod]], bool] | None = None

    def marks_hold(self, victim: Gang) -> bool:
        """Returns whether what its pods and disruption budgets say protects the victim."""
        return not self.beyond_marks or victim.queue == self.gang.queue

    def spares_minimum(self, victim: Gang) -> bool:
        return victim.key in self.spared


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    victims: tuple[Pod, ...]
    taken: TakenCapacity  # what the gang will take
    evictions: EvictionKind = EvictionKind.ORDINARY
    new_places: tuple[Reservation, ...] = ()  # of the victims, if they are moved
