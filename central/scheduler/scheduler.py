"""Composes the scheduler from its parts. cycle.py decides, apply.py applies facts."""

from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy.ma  # noqa: F401  np.unique imports it when it is called first, and a cycle would take 0.1 s longer

from central.model import defaults
from central.model.decisions import Decision
from central.model.facts import Answered, PodSeen
from central.model.pending_causes import CAPACITY
from central.scheduler.elastic.autoscaler import Autoscaler
from central.scheduler.elastic.elastic_gang import ElasticGang, Resize
from central.scheduler.elastic.idle_gangs import IdleGpus
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption.disruption_budgets import DisruptionBudgets
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.preemption.victim_bounds import Candidates
from central.scheduler.quarantine import Quarantine
from central.scheduler.queues.group_admission import GroupAdmission
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.shared_refusals import CountedCapacity
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.refusals import Refusals
from central.scheduler.status.gpu_memory import GpuMemoryOveruse
from central.scheduler.status.hypernode_status import HyperNodeStatuses
from central.scheduler.status.node_deaths import NodeDeaths
from central.scheduler.status.queue_status import QueueStatuses
from central.scheduler.status.rdma_usage import RdmaUsage
from protos.names import PACK


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings that every decision of a run shares. Seconds."""

    patience_s: float = defaults.PATIENCE_S
    placement: str = PACK  # pack or spread, for gangs that set neither
    preempt_across: str = defaults.ACROSS_NAMESPACES  # whom a higher priority may evict
    min_runtime_s: float = 0.0  # before a gang may be evicted
    max_grace_s: float = defaults.MAX_GRACE_S  # that a victim may take to end
    large_claim: int = defaults.LARGE_CLAIM  # see preemption/proportion.py; 0: no claim is large
    large_claim_wait_s: float = defaults.LARGE_CLAIM_WAIT_S  # since the claimant's creation
    lost_after_s: float = defaults.LOST_AFTER_S  # behind the grace of a pod whose node is not ready
    reserve_after_s: float = defaults.RESERVE_AFTER_S
    reserve_idle: float = defaults.RESERVE_IDLE
    names_all: bool = False  # whether Events and statuses may name gangs of other namespaces
    mig_fractions: tuple[tuple[str, Fraction], ...] = ()  # of one GPU, by MIG resource
    elastic_headroom: float = 0.0  # share of the capacity that surplus of elastic gangs leaves free
    share_by_weight: frozenset[str] = frozenset()  # see Queues.is_claimed()
    # Before a gang that is not ready is evicted; 0: never.
    start_within_s: float = defaults.START_WITHIN_S


@dataclass(slots=True, eq=False)
class GangRefusal:
    """A pending gang's refusal, so that its reason can be computed again. Gangs that were refused alike share it, and
    so its reason."""

    gang: Gang  # that was tried
    request: PlacementRequest  # for its minimum
    base: str  # the reason, without what reservations mean for the gang
    binding: tuple[Reservation, ...] = ()  # reservations of other gangs that it must leave free
    volumes_only: tuple[Reservation, ...] = ()  # of these only the volumes
    reason: str = ""
    stamp: tuple[object, ...] | None = None  # of the capacity that the reason counts
    missing: int = 0  # pods that each of the gangs lacked for its minimum
    left_to_surplus: bool = False  # surplus leaves for it
    over_quota: bool = False  # its queue may not start it, or minResources; else it does not fit
    cause: str = CAPACITY  # of pending_causes.CAUSES
    counted: CountedCapacity | None = None  # for the base, if it does not fit


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """Reports of agents on the use of devices, and the nodes where gangs died."""

    gpu_memory: GpuMemoryOveruse = field(default_factory=GpuMemoryOveruse)
    idle: IdleGpus = field(default_factory=IdleGpus)
    rdma: RdmaUsage = field(default_factory=RdmaUsage)
    deaths: NodeDeaths = field(default_factory=NodeDeaths)


class JobControllers:
    """The scheduler's view of the controllers of Jobs and of the objects that create Jobs
    (central.controllers.composite), with the answers where there are none. Pods are those that are part of a Job."""

    def apply(self, fact: Any) -> None: ...
    def discard(self, fact: Any) -> None: ...
    def answered(self, fact: Answered, quarantine: Quarantine, now: float) -> bool:
        return False

    def pod_seen(
        self, pod: PodSeen, quarantine: Quarantine, now: float, *, evicting: bool
    ) -> None: ...
    def pod_gone(
        self, pod: PodSeen, quarantine: Quarantine, now: float, *, evicting: bool
    ) -> None: ...
    def owned_groups(self) -> Collection[tuple[str, str]]:
        return ()

    def elastic_gangs(self, state: ClusterState) -> list[ElasticGang]:
        return []

    def size_left_alone(self, key: GangKey, now: float) -> str:
        return ""

    def training(self, key: GangKey, now: float) -> str:
        return ""

    def job_of(self, key: GangKey) -> str:
        return ""

    def resize(self, asked: Resize) -> None: ...
    def restore(self, memory: Any) -> None: ...
    def decide(
        self,
        state: ClusterState,
        queues: Queues,
        min_resources: MinResources,
        quarantine: Quarantine,
        now: float,
        *,
        decisions: list[Decision],
    ) -> None: ...
    def due(self, now: float) -> list[float]:
        return []


class Scheduler:
    def __init__(
        self,
        controllers: JobControllers,
        levels: tuple[str, ...] = (),
        policy: Policy = Policy(),
        half_life_s: float = defaults.USAGE_HALF_LIFE_S,
        quarantine: Quarantine | None = None,
    ) -> None:
        """levels: label keys of the network tree, widest first. half_life_s: half-life of past usage
        in queue ordering; 0: only present usage counts. quarantine: None: a new one."""
        self.quarantine = quarantine or Quarantine()
        self.policy = policy
        self._levels = levels
        self.state = ClusterState(levels, self, self.quarantine, names_all=policy.names_all)
        self.queues = Queues(
            half_life_s,
            dict(policy.mig_fractions),
            self.quarantine,
            self.state.node_sets.not_ready,
            policy.share_by_weight,
        )
        self.min_resources = MinResources()
        self.admission = GroupAdmission()
        self.budgets = DisruptionBudgets()
        self.reservations: dict[GangKey, Reservation] = {}
        self.refused: Refusals[GangRefusal] = self.state.pending.refused
        self.preemption = PreemptionContext(
            self.state,
            self.queues,
            self.budgets,
            self.reservations,
            Candidates(self.state, policy.max_grace_s),
            policy.preempt_across,
            policy.min_runtime_s,
            policy.max_grace_s,
            policy.large_claim,
            policy.large_claim_wait_s,
        )
        self.elastic = Autoscaler(policy.elastic_headroom)
        self.elastic.unready.start_within_s = policy.start_within_s
        self.queue_statuses = QueueStatuses()
        self.hypernode_statuses = HyperNodeStatuses()
        self.device_usage = DeviceUsage()
        self.controllers = controllers

    @property
    def levels(self) -> tuple[str, ...]:
        return self._levels

    def emptied(
        self, quarantine: Quarantine | None = None, controllers: JobControllers | None = None
    ) -> "Scheduler":
        """Returns a scheduler without state, with the same settings, and with the same quarantine if there is no other.
        Without others its controllers see nothing."""
        return Scheduler(
            controllers or JobControllers(),
            self.levels,
            self.policy,
            self.queues.half_life_s,
            quarantine or self.quarantine,
        )

    def pass_time(self, now: float) -> None:
        self.state.now = self.queues.now = now
        self.state.snapshot.filter_results.now = now

    def adopt(self, fresh: "Scheduler") -> None:
        """Takes over the state of a scheduler that emptied() made. The controllers stay, if that has none."""
        controllers = self.controllers
        self.__dict__.update(fresh.__dict__)
        if type(fresh.controllers) is JobControllers:
            self.controllers = controllers
        self.state.observer = self

    # --- Observer of the state ---------------------------------------------------

    def pod_seen(self, pod: PodSeen, *, evicting: bool) -> None:
        if pod.phase == "Failed" and not (evicting or pod.deleting):
            self.device_usage.deaths.observe(self.state, pod)
        if pod.part is not None:
            self.controllers.pod_seen(pod, self.quarantine, self.state.now, evicting=evicting)

    def pod_gone(self, pod: PodSeen, *, evicting: bool) -> None:
        if pod.part is not None:
            self.controllers.pod_gone(pod, self.quarantine, self.state.now, evicting=evicting)

    def gang_forgotten(self, gang: Gang) -> None:
        self.queues.forget(gang)
        self.elastic.unready.forget_start(gang.key)
        self.preemption.time_sharing.forgotten(gang, self.state.now)
        self.queue_statuses.forget(gang.key)
        if gang.key[2]:
            self.admission.forget(gang.key)
        if self.min_resources.forget(gang.key):
            self.state.pending.capacity_freed("minResources released")
        if self.queues.fifo.forget(gang.key):
            self.state.pending.capacity_freed("head of a fifo queue left")
