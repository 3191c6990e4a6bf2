"""What we believe: nodes, pods and gangs, told by facts and changed by what we decide. One owner;
apply() (see learning) and seat() are the only ways in, check() raises on any broken promise.

A pod's GPUs are a plan until its node's agent reports them from pod-resources; then they are the
truth, and every plan in their way is made anew.
"""

from collections.abc import Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from central.controllers.composite import BatchControllers
from central.controllers.job.job_store import JobStore
from central.model.facts import (
    Answered,
    BindDone,
    BindFailed,
    BudgetGone,
    BudgetSeen,
    CommandGone,
    CommandSeen,
    CronGone,
    CronSeen,
    EvictDone,
    Fact,
    FlowGone,
    FlowSeen,
    GangGone,
    GangSeen,
    HyperNodeGone,
    HyperNodeSeen,
    JobGone,
    JobSeen,
    MemoryExceeded,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeReported,
    NodeSeen,
    NodeSilent,
    OwnerGone,
    OwnerSeen,
    PodGone,
    PodSeen,
    RdmaUsed,
    Rule,
    TemplateGone,
    TemplateSeen,
)
from central.model.volumes import (
    AttachLimits,
    CapacityGone,
    CapacitySeen,
    ClaimGone,
    ClaimSeen,
    DriverGone,
    DriverSeen,
    StorageClassGone,
    StorageClassSeen,
    VolumeGone,
    VolumeSeen,
)
from central.scheduler import invariants
from central.scheduler.inventory import hypernode_tree
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import PLACED, Pod
from central.scheduler.preemption.disruption_budgets import DisruptionBudgets
from central.scheduler.queues.group_admission import GroupAdmission
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import on_gang, on_node, on_owner, on_pod, on_storage, residency
from central.scheduler.state.gangs import Gang, GangKey, key_of
from central.scheduler.state.owner_gangs import OwnerGangs
from central.scheduler.state.podclasses import PodClasses
from central.scheduler.status import gpu_memory, rdma_usage
from central.scheduler.status.hypernode_status import HyperNodeStatuses
from central.scheduler.status.queue_status import QueueStatuses
from protos.names import PACK
from protos.topology import Grant, MemoryOver, RdmaUse

if TYPE_CHECKING:
    from central.scheduler.reservation.reservation import Reservation

PATIENCE_S = 600.0  # once a gang has headed the line for so long, nobody like it delays it


class Cluster:
    def __init__(
        self,
        levels: tuple[str, ...] = (),
        patience_s: float = PATIENCE_S,
        half_life_s: float = 0.0,
        placement: str = PACK,
    ) -> None:
        """half_life_s: of what queues used in the past; 0: only what they use now counts. placement:
        pack or spread, of gangs that say neither."""
        self.placement = placement
        self.patience_s = patience_s
        self.snapshot = Snapshot(levels)
        self.kinds = PodClasses(self.snapshot.neighbours)
        self.nodes: dict[str, ClusterNode] = {}
        self.pods: dict[str, Pod] = {}
        self.uids: dict[tuple[str, str], str] = {}  # by namespace and name
        self.owners = OwnerGangs()
        self.batch = BatchControllers()
        self.gangs: dict[GangKey, Gang] = {}
        self.changed: dict[GangKey, Gang] = {}  # since they were last looked at
        self.waiting: dict[GangKey, Gang] = {}  # with pods that want a place
        self.partial: dict[GangKey, Gang] = {}  # bound in part, never whole
        self.retrying: dict[GangKey, Gang] = {}  # asked again though nothing was gained
        self.asked_at = -1  # the snapshot's gains when all who wait were last asked
        self.likes: dict[object, int] = {}  # the numbers of wishes (Gang.like)
        self.numbers = count(1)
        self.queues = Queues(half_life_s)
        self.statuses = QueueStatuses()
        self.jobs = JobStore()
        self.hypernode_statuses = HyperNodeStatuses()
        self.budgets = DisruptionBudgets()
        self.pledges = MinResources()
        self.anteroom = GroupAdmission()
        self.shut: set[str] = set()  # nodes that take nobody now
        self.now = 0.0  # of the turn, by a clock that never goes back
        self.hypernodes: dict[str, HyperNodeSeen] = {}
        self.tree = hypernode_tree.HyperNodeTree()
        self._levels = levels  # of labels: the tree where there are no HyperNodes
        self.tree_is_old = False
        # when evictions that were refused, or did not help, are thought of again
        self.claims_due: set[float] = set()
        self.lowest = inf  # no gang that has a place was ever less urgent
        self.movable = False  # somebody said once that it may be moved
        self.reserved: dict[GangKey, Reservation] = {}  # room kept for gangs that wait
        self.ailing: set[str] = set()  # nodes with GPUs or network cards that are not fit
        self.overuse: dict[str, MemoryOver] = {}  # of GPU memory, by uid: news since the last turn
        self.overuse_told: dict[str, float] = {}  # when owners were last warned of it
        # network cards that pods have come to their limits of: news, and when they were told
        self.at_limit: dict[tuple[str, str, str], RdmaUse] = {}
        self.at_limit_told: dict[tuple[str, str, str], float] = {}
        self.replanned: set[str] = set()  # nodes whose intents changed since they were told

    def apply(self, fact: Fact) -> None:  # noqa: PLR0912, PLR0915  a case for each kind of fact
        match fact:
            case PodSeen():
                on_owner.pod(self, fact)
            case PodGone():
                on_pod.gone(self, fact.uid)
            case OwnerSeen():
                on_owner.seen(self, fact)
            case OwnerGone():
                self.owners.forget_owner(fact.uid)
            case NodeSeen():
                on_node.seen(self, fact)
            case NodeGone():
                on_node.gone(self, fact.name)
            case MemoryExceeded():
                gpu_memory.learn(self, fact)
            case RdmaUsed():
                rdma_usage.learn(self, fact)
            case NodeReported():
                on_node.reported(self, fact)
            case NodeSilent():
                residency.node_of(self, fact.node).silent = True
            case GangSeen():
                on_gang.know(self, (fact.namespace, fact.name, True)).object = fact
            case GangGone():
                on_gang.gone(self, (fact.namespace, fact.name, True))
            case HyperNodeSeen():
                self.tree_is_old |= self.hypernodes.get(fact.name) != fact
                self.hypernodes[fact.name] = fact
            case HyperNodeGone():
                self.tree_is_old |= self.hypernodes.pop(fact.name, None) is not None
            case NamespaceSeen() | NamespaceGone():
                on_storage.namespace(self, fact)
                self._rule(fact)
            case (
                ClaimSeen()
                | ClaimGone()
                | VolumeSeen()
                | VolumeGone()
                | StorageClassSeen()
                | StorageClassGone()
                | CapacitySeen()
                | CapacityGone()
                | DriverSeen()
                | DriverGone()
                | AttachLimits()
            ):
                on_storage.storage(self, fact)
            case BudgetSeen() | BudgetGone():
                if self.budgets.apply(fact):
                    self.snapshot.gains += 1  # who was refused for its sake is asked again
            case BindDone():
                pass  # believed already; the watch brings the pod with its node
            case BindFailed():
                on_pod.bind_failed(self, fact)
            case EvictDone():
                on_pod.evict_done(self, fact)
            case (
                CommandSeen()
                | CommandGone()
                | CronSeen()
                | CronGone()
                | FlowSeen()
                | FlowGone()
                | TemplateSeen()
                | TemplateGone()
            ):
                self.batch.apply(fact)
            case JobSeen() | JobGone():
                self._job(fact)
            case Answered():
                self._answered(fact)
            case _:
                self._rule(fact)

    def _job(self, fact: JobSeen | JobGone) -> None:
        if isinstance(fact, JobSeen):
            self.jobs.seen(fact)
            self.batch.job_seen(fact)
        else:
            self.batch.job_gone(self.jobs, fact)
            self.jobs.gone((fact.namespace, fact.name))

    def _answered(self, fact: Answered) -> None:
        if self.batch.answered(fact, self.now):
            return
        match fact.kind:
            case "Queue":
                self.statuses.answered(fact, self.now)
            case "HyperNode":
                self.hypernode_statuses.answered(fact, self.now)
            case _:
                self.jobs.answered(fact, self.now)

    def settle_tree(self) -> None:
        """Builds the network tree anew where HyperNodes, or nodes that they may hold, changed."""
        if not self.tree_is_old:
            return
        self.tree_is_old = False
        seen = [node.seen for node in self.nodes.values() if node.seen is not None]
        self.tree = hypernode_tree.build(self.hypernodes, seen)
        self.hypernode_statuses.rebuilt(self.hypernodes)
        if self.hypernodes:
            domains = self.tree.domains
            self.snapshot.relevel(self.tree.levels, lambda node: domains.get(node.name, {}))
        else:
            self.snapshot.relevel(self._levels, lambda node: node.levels())

    def seat(
        self, gang: Gang, members: Sequence[Pod], where: Sequence[str], gpus: Sequence[int]
    ) -> None:
        """Believes bindings before the world confirms them. Their room is taken already."""
        by_name, now, near = self.nodes, self.now, False
        for pod, name, mask in zip(members, where, gpus, strict=True):
            spec = pod.spec
            by_name[name].pods[pod.seen.uid] = pod
            pod.node, pod.gpus, pod.charged_spec = name, mask, spec
            pod.advance(PLACED)
            pod.since = now
            if mask or spec.rdma_containers:
                self.replanned.add(name)
            near |= bool(spec.matched)
        if near:
            self.snapshot.gains += 1  # whoever waits to be near them may go now
        residency.deal_cards(self, *members)
        gang.counts.seat(members)
        self.changed[gang.key] = gang

    def _rule(self, fact: Rule) -> None:
        if self.queues.apply(fact):
            self.changed.update(self.gangs)
            self.snapshot.gains += 1  # what was refused is asked again

    def check(self) -> None:
        """Raises AssertionError on any broken promise (see promises)."""
        invariants.check(self)

    def intents(self, name: str) -> tuple[Grant, ...]:
        """What the pods of the node should be given where it is not yet known what they were."""
        node = self.nodes.get(name)
        return node.intents() if node is not None else ()

    def gang_of(self, pod: Pod) -> Gang | None:
        key = key_of(pod.seen)
        return self.gangs.get(key) if key is not None else None

    def file(self, gang: Gang, *, waiting: bool, partial: bool) -> None:
        if not waiting:
            self.retrying.pop(gang.key, None)
        for wanted, under in ((waiting, self.waiting), (partial, self.partial)):
            if wanted:
                under[gang.key] = gang
            else:
                under.pop(gang.key, None)
