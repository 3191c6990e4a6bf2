"""Composes the scheduler from its parts. cycle.py decides, apply.py applies facts."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from central.model.decisions import Decision
from central.model.facts import Answered, PodSeen
from central.scheduler.preemption.disruption_budgets import DisruptionBudgets
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.queues.group_admission import GroupAdmission
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status.gpu_memory import GpuMemoryOveruse
from central.scheduler.status.hypernode_status import HyperNodeStatuses
from central.scheduler.status.queue_status import QueueStatuses
from central.scheduler.status.rdma_usage import RdmaUsage
from protos.names import PACK

PATIENCE_S = 600.0  # seconds at the head of a queue after which a gang's reservation is strict


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings that every decision of a run shares. Seconds."""

    patience_s: float = PATIENCE_S
    placement: str = PACK  # pack or spread, for gangs that set neither


class JobControllers(Protocol):
    """What the scheduler needs of the controllers of Jobs and of the objects that create Jobs
    (central.controllers.composite)."""

    def apply(self, fact: Any) -> None: ...
    def answered(self, fact: Answered, now: float) -> bool: ...
    def pod_seen(self, pod: PodSeen, now: float, *, evicting: bool) -> None: ...
    def pod_gone(self, pod: PodSeen, now: float, *, evicting: bool) -> None: ...
    def owned_groups(self) -> Collection[tuple[str, str]]: ...
    def decide(
        self, state: ClusterState, queues: Queues, min_resources: MinResources, now: float
    ) -> list[Decision]: ...
    def due(self, now: float) -> list[float]: ...
    def check(self, state: ClusterState) -> None: ...


class Scheduler:
    def __init__(
        self,
        controllers: JobControllers,
        levels: tuple[str, ...] = (),
        policy: Policy = Policy(),
        half_life_s: float = 0.0,
    ) -> None:
        """levels: label keys of the network tree, widest first. half_life_s: half-life of past usage
        in queue ordering; 0: only present usage counts."""
        self.policy = policy
        self.levels = levels
        self.state = ClusterState(levels, self)
        self.queues = Queues(half_life_s)
        self.min_resources = MinResources()
        self.admission = GroupAdmission()
        self.budgets = DisruptionBudgets()
        self.reservations: dict[GangKey, Reservation] = {}
        self.preemption = PreemptionContext(
            self.state, self.queues, self.budgets, self.reservations
        )
        self.queue_statuses = QueueStatuses()
        self.hypernode_statuses = HyperNodeStatuses()
        self.gpu_memory = GpuMemoryOveruse()
        self.rdma_usage = RdmaUsage()
        self.controllers = controllers

    # --- Observer of the state ---------------------------------------------------

    def pod_seen(self, pod: PodSeen, *, evicting: bool) -> None:
        self.controllers.pod_seen(pod, self.state.now, evicting=evicting)

    def pod_gone(self, pod: PodSeen, *, evicting: bool) -> None:
        self.controllers.pod_gone(pod, self.state.now, evicting=evicting)

    def gang_forgotten(self, gang: Gang) -> None:
        self.queues.forget(gang)
        self.queue_statuses.forget(gang.key)
        self.admission.forget(gang.key)
        if self.min_resources.forget(gang.key):
            self.state.pending.capacity_freed("minResources released")
        if self.queues.fifo.forget(gang.key):
            self.state.pending.capacity_freed("head of a fifo queue left")
