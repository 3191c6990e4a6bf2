"""The state of the cluster as the scheduler knows it: nodes, pods, gangs, and the free capacity.

Facts change it through handlers.py, decisions through handlers.assume().
A pod's GPUs are planned until its node's agent reports them from pod-resources. From then on they are
observed, and the scheduler replaces every plan that they contradict.
"""

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol

from central.model.facts import GangSeen, PodSeen
from central.model.redaction import redacted
from central.scheduler.inventory.cluster_node import ClusterNode, NodePlan
from central.scheduler.inventory.pods import Pod
from central.scheduler.quarantine import PODGROUP, Quarantine, SetAsideKey
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.network_tree import NetworkTree
from central.scheduler.state.owner_gangs import OwnerGangs
from central.scheduler.state.pending_gangs import PendingGangs
from central.scheduler.state.podclasses import PodClasses
from protos.topology import Grant


class Observer(Protocol):
    """Is called at once when a pod or a gang changes, to update accounting outside the state."""

    def pod_seen(self, pod: PodSeen, *, evicting: bool) -> None: ...
    def pod_gone(self, pod: PodSeen, *, evicting: bool) -> None: ...
    def gang_forgotten(self, gang: Gang) -> None: ...


@dataclass(slots=True)
class AnyPod:
    """Requests that any pod so far has made. Where none has, the search for such pods is skipped."""

    movable: bool = False  # defragmentation may move it
    cooldown: bool = False  # it must run for a time before it may be evicted


@dataclass(slots=True)
class NodeSets:
    """Names of the nodes that something keeps pods or devices away from."""

    unschedulable: set[str] = field(default_factory=set)  # not ready, or cordoned
    not_ready: set[str] = field(default_factory=set)
    with_lost_pods: set[str] = field(default_factory=set)  # see lost_pods.py
    unhealthy: set[str] = field(default_factory=set)  # with an unhealthy GPU or RDMA NIC
    not_offered: set[str] = field(default_factory=set)  # whose kubelet lacks their devices now


class ClusterState:
    def __init__(
        self,
        levels: tuple[str, ...],
        observer: Observer,
        quarantine: Quarantine,
        *,
        names_all: bool = False,
    ) -> None:
        """names_all: objects of a namespace may name gangs of others."""
        self._quarantine = quarantine
        self.snapshot = Snapshot(levels)
        self.podclasses = PodClasses(self.snapshot.pod_counts, quarantine)
        self.network = NetworkTree(levels)
        self.pending = PendingGangs(self.snapshot)
        self.nodes: dict[str, ClusterNode] = {}
        self.pods: dict[str, Pod] = {}  # by uid
        self.uids: dict[tuple[str, str], str] = {}  # by namespace and name
        self.gangs: dict[GangKey, Gang] = {}
        self.owners = OwnerGangs()
        self.node_sets = NodeSets()
        self.nodes_to_notify: set[str] = set()  # their planned devices changed since the last cycle
        self.any_pod = AnyPod()
        # while it is built again: plans are not settled before every pod has its own
        self.keeps_plans = False
        self.now = 0.0  # time of the cycle, in seconds since the epoch; never decreases
        self.observer = observer
        self._names_all = names_all
        self._others_leaving: dict[str, Pod] = {}
        self._others_with_devices: dict[str, Pod] = {}

    def others_leaving(self) -> list[Pod]:
        """The terminating pods without a gang that hold capacity: of other schedulers, or set aside."""
        leaving = (pod for pod in self._others_leaving.values() if pod.leaving)
        return [pod for pod in leaving if pod.charged_spec is not None]

    def some_pod_leaves(self) -> bool:
        """Returns whether a pod with a node is terminating, of this scheduler or of another one."""
        others = any(pod.node and pod.leaving for pod in self._others_leaving.values())
        return others or self.pending.some_member_leaves()

    def set_other_leaving(self, pod: Pod) -> None:
        """Records a terminating pod without a gang."""
        self._others_leaving[pod.seen.uid] = pod

    def others_with_devices(self) -> list[Pod]:
        """The pods of other schedulers that hold GPUs, shares or MIG slices."""
        return [pod for pod in self._others_with_devices.values() if pod.charged_spec is not None]

    def set_other_with_devices(self, pod: Pod, requests: bool) -> None:
        """Records whether a pod without a gang requests devices."""
        if requests:
            self._others_with_devices[pod.seen.uid] = pod
        else:
            self._others_with_devices.pop(pod.seen.uid, None)

    def forget_other(self, uid: str) -> None:
        """The pod has gone, or has a gang."""
        self._others_leaving.pop(uid, None)
        self._others_with_devices.pop(uid, None)

    def gang_of(self, pod: Pod) -> Gang | None:
        key = pod.seen.gang_key
        return self.gangs.get(key) if key is not None else None

    def why_set_aside(self, gang: Gang) -> str:
        """Returns why the gang or its PodGroup is set aside; empty: it is not."""
        quarantine = self._quarantine
        if not quarantine.set_asides:
            return ""
        group = SetAsideKey(PODGROUP, gang.key[:2])
        return quarantine.gang_why(gang.key) or (quarantine.why(group) if gang.key[2] else "")

    def group_of(self, gang: Gang) -> GangSeen | None:
        """The gang's PodGroup, also one that is set aside."""
        if gang.object is not None or not gang.key[2] or not self._quarantine.set_asides:
            return gang.object
        group = self._quarantine.content(PODGROUP, gang.key[:2])
        return group if isinstance(group, GangSeen) else None

    @property
    def namespaces(self) -> frozenset[str]:
        """All that sentences may name."""
        return frozenset((*self.podclasses.namespaces, *map(itemgetter(0), self.gangs)))

    def public(self, text: str, namespace: str) -> str:
        """The sentence for objects of the namespace, whose readers may not see other ones. `lockstep explain` names
        what its asker may see."""
        if self._names_all or "/" not in text:
            return text
        return redacted(text, self.podclasses.namespaces, lambda name: name == namespace)

    def planned_devices(self, name: str) -> tuple[Grant, ...]:
        """The devices that each container on the node is to get, unless they are observed already."""
        node = self.nodes.get(name)
        return node.planned_devices() if node is not None else ()

    def claimed_gpus(self, pod: Pod) -> int:
        """The mask of the GPUs that the pod has by claims, or is to get."""
        node = self.nodes.get(pod.node)
        if node is None or not node.reported.claimable or not pod.alive:
            return 0
        has = self.podclasses.device_claims.devices_of(pod.seen.uid)
        return sum(mask for mask, device in node.reported.claimable.items() if device in has)

    def node_plan(self, name: str) -> NodePlan:
        return NodePlan(
            self.planned_devices(name), self.podclasses.device_claims.claims_on.plans(name)
        )
