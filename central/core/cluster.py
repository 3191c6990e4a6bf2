"""What we believe: nodes, pods and gangs, told by facts and changed by what we decide. One owner;
apply() and assume() are the only ways in, check() raises on any broken promise.

A pod's GPUs are a plan until its node's agent reports them from pod-resources; then they are the
truth, and every plan in their way is made anew.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from central.core import gangs, hypernodes, promises
from central.core.decisions import Bind
from central.core.facts import (
    BindDone,
    BindFailed,
    EvictDone,
    Fact,
    GangGone,
    GangSeen,
    HyperNodeGone,
    HyperNodeSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeReported,
    NodeSeen,
    NodeSilent,
    PodGone,
    PodSeen,
    PodSpec,
    Rule,
)
from central.core.gangs import Gang, Key, Pod
from central.core.kinds import Kinds
from central.core.nodes import Node
from central.core.snapshot import Snapshot
from central.core.tree import Queues
from central.core.volumes import (
    AttachLimits,
    ClaimGone,
    ClaimSeen,
    StorageClassGone,
    StorageClassSeen,
    StorageFact,
    VolumeGone,
    VolumeSeen,
)
from protos.names import GPU
from protos.topology import Grant

if TYPE_CHECKING:
    from central.core.reservation import Reservation

SPARED_S = 60.0  # a pod whose eviction was refused is left alone for so long
PATIENCE_S = 600.0  # once a gang has headed the line for so long, nobody like it delays it


class Cluster:
    def __init__(self, levels: tuple[str, ...] = (), patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self.snapshot = Snapshot(levels)
        self.kinds = Kinds(self.snapshot.neighbours)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.uids: dict[tuple[str, str], str] = {}  # by namespace and name
        self.gangs: dict[Key, Gang] = {}
        self.changed: dict[Key, Gang] = {}  # since they were last looked at
        self.waiting: dict[Key, Gang] = {}  # with pods that want a place
        self.partial: dict[Key, Gang] = {}  # bound in part, never whole
        self.retrying: dict[Key, Gang] = {}  # asked again though nothing was gained
        self.asked_at = -1  # the snapshot's gains when all who wait were last asked
        self.likes: dict[object, int] = {}  # the numbers of wishes (Gang.like)
        self.numbers = count(1)
        self.queues = Queues()
        self.shut: set[str] = set()  # nodes that take nobody now
        self.now = 0.0  # of the turn, by a clock that never goes back
        self.hypernodes: dict[str, HyperNodeSeen] = {}
        self.tree = hypernodes.Tree()
        self._levels = levels  # of labels: the tree where there are no HyperNodes
        self._tree_is_old = False
        # when evictions that were refused, or did not help, are thought of again
        self.claims_due: set[float] = set()
        self.lowest = inf  # no gang that has a place was ever less urgent
        self.reserved: dict[Key, Reservation] = {}  # room kept for gangs that wait
        self.ailing: set[str] = set()  # nodes with GPUs that are not fit
        self.replanned: set[str] = set()  # nodes whose intents changed since they were told

    # --- facts ---------------------------------------------------------------

    def apply(self, fact: Fact) -> None:  # noqa: PLR0912  a case for each kind of fact
        match fact:
            case PodSeen():
                self._pod_seen(fact)
            case PodGone():
                self._pod_gone(fact.uid)
            case NodeSeen():
                self._node_seen(fact)
            case NodeGone():
                self._node_gone(fact.name)
            case NodeReported():
                self._node_reported(fact)
            case NodeSilent():
                self._node(fact.node).silent = True
            case GangSeen():
                self._gang((fact.namespace, fact.name, True)).object = fact
            case GangGone():
                self._gang_gone((fact.namespace, fact.name, True))
            case HyperNodeSeen():
                self._tree_is_old |= self.hypernodes.get(fact.name) != fact
                self.hypernodes[fact.name] = fact
            case HyperNodeGone():
                self._tree_is_old |= self.hypernodes.pop(fact.name, None) is not None
            case NamespaceSeen() | NamespaceGone():
                self._namespace(fact)
                self._rule(fact)
            case (
                ClaimSeen()
                | ClaimGone()
                | VolumeSeen()
                | VolumeGone()
                | StorageClassSeen()
                | StorageClassGone()
                | AttachLimits()
            ):
                self._storage(fact)
            case BindDone():
                pass  # believed already; the watch brings the pod with its node
            case BindFailed():
                self._bind_failed(fact)
            case EvictDone():
                self._evict_done(fact)
            case _:
                self._rule(fact)

    def settle_tree(self) -> None:
        """Builds the network tree anew where HyperNodes, or nodes that they may hold, changed."""
        if not self._tree_is_old:
            return
        self._tree_is_old = False
        seen = [node.seen for node in self.nodes.values() if node.seen is not None]
        self.tree = hypernodes.build(self.hypernodes, seen)
        if self.hypernodes:
            domains = self.tree.domains
            self.snapshot.relevel(self.tree.levels, lambda node: domains.get(node.name, {}))
        else:
            self.snapshot.relevel(self._levels, lambda node: node.labels)

    def assume(self, bind: Bind) -> None:
        """Believes a binding before the world confirms it. Its room must not be taken yet."""
        pod = self.pods[bind.pod]
        pod.assumed = True
        self._settle_pod(pod, bind.node, gpus=bind.gpus)

    def seat(self, gang: Gang, pods: Sequence[Pod], places: Sequence[tuple[str, int]]) -> None:
        """assume() for many pods of a gang whose room is already taken: (node, GPUs) by pod."""
        for pod, (name, gpus) in zip(pods, places, strict=True):
            node = self.nodes[name]
            node.pods[pod.seen.uid] = pod
            pod.node, pod.gpus, pod.held = name, gpus, pod.spec
            pod.assumed, pod.confirmed, pod.since = True, False, self.now
            if gpus or pod.spec.rdma_limits:
                self.replanned.add(name)
        if any(pod.spec.matched for pod in pods):
            self.snapshot.gains += 1  # whoever waits to be near them may go now
        gang.tally.seat(pods)
        self.changed[gang.key] = gang

    def _pod_seen(self, fact: PodSeen) -> None:
        name = (fact.namespace, fact.name)
        other = self.uids.get(name)
        if other is not None and other != fact.uid:
            self._pod_gone(other)  # deleted and made again under its name
        self.uids[name] = fact.uid
        pod = self.pods.get(fact.uid)
        stale: PodSpec | None = None
        if pod is None:
            pod = self.pods[fact.uid] = Pod(fact, fact.spec)
            self._learn(pod, None)
            self._join(pod, first_sight=True)
        elif pod.seen == fact:
            return  # its status moved in ways that don't matter here
        else:
            rejoin = gangs.key_of(fact) != gangs.key_of(pod.seen)
            if rejoin:
                self._leave(pod)
            before, pod.seen = pod.seen, fact
            stale = before.spec
            self._learn(pod, before)
            if rejoin:
                self._join(pod, first_sight=False)
        if fact.phase == "Running" and pod.since is None:
            pod.since = self.now
        if fact.node:
            pod.assumed = False
            pod.blocked = ""
        # A pod is never unbound: what comes without a node was said before it was bound.
        self._settle_pod(pod, fact.node or pod.node, pod.gpus)
        if stale is not None and stale != fact.spec:
            self.kinds.unlearn(stale)

    def _pod_gone(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        name = (pod.seen.namespace, pod.seen.name)
        if pod.node:
            self._node(pod.node).truth.pop(name, None)  # it does not speak for the next of its name
        self._settle_pod(pod, "")
        self.kinds.unlearn(pod.seen.spec)
        self.kinds.file(None, pod.seen)
        self._leave(pod)
        if self.uids.get(name) == uid:
            del self.uids[name]

    def _node_seen(self, fact: NodeSeen) -> None:
        node = self._node(fact.name)
        if node.seen == fact:
            return
        new = node.seen is None
        if self.hypernodes and (new or node.seen is None or node.seen.labels != fact.labels):
            self._tree_is_old = True
        node.seen = fact
        (self.shut.discard if fact.ready and not fact.unschedulable else self.shut.add)(fact.name)
        self._put(node)
        if new:
            for pod in node.pods.values():
                self._hold(pod)
            self._settle_gpus(node)

    def _node_gone(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is None or node.seen is None:
            return
        for pod in node.pods.values():
            self._release(pod)
        node.seen = None
        node.forget()
        self.shut.discard(name)
        self.snapshot.drop_node(name)
        self._look_after(node)
        self._forget_if_empty(name)

    def _look_after(self, node: Node) -> None:
        """Whoever is on a node with GPUs that are, or were, not fit is told anew."""
        ails, ailed = node.ails(), node.name in self.ailing
        if ails:
            self.ailing.add(node.name)
        else:
            self.ailing.discard(node.name)
        if ails or ailed:
            for pod in node.pods.values():
                self._touch(pod)

    def _node_reported(self, fact: NodeReported) -> None:
        node = self._node(fact.node)
        node.silent = False
        before = node.rdma_most
        if node.learn(fact):
            if node.seen is not None and node.rdma_most != before:
                self._put(node)
            self._settle_gpus(node)
            self._look_after(node)

    def _put(self, node: Node) -> None:
        """What the API server and the agent say of it, in one row."""
        if node.seen is not None:
            self.snapshot.put_node(replace(node.seen, rdma_most=node.rdma_most))

    def _gang_gone(self, key: Key) -> None:
        gang = self.gangs.get(key)
        if gang is not None:
            gang.object = None
            self.changed[key] = gang
            self._drop_if_empty(gang)

    def _bind_failed(self, fact: BindFailed) -> None:
        pod = self.pods.get(fact.pod)
        if pod is None or not pod.assumed or pod.node != fact.node:
            return  # the pod is gone, or the watch knows better
        pod.assumed = False
        pod.blocked = fact.why if fact.final else ""
        self._settle_pod(pod, "")
        gang = self.gang_of(pod)
        if gang is not None:
            gang.bind_failures += 1

    def _evict_done(self, fact: EvictDone) -> None:
        pod = self.pods.get(fact.pod)
        if pod is not None and fact.why:
            pod.evicting = False
            pod.spared_until = self.now + SPARED_S
            self.claims_due.add(pod.spared_until)  # refused: asked again later
            self._touch(pod)

    def _rule(self, fact: Rule) -> None:
        if self.queues.apply(fact):
            self.changed.update(self.gangs)
            self.snapshot.gains += 1  # what was refused is asked again

    def check(self) -> None:
        """Raises AssertionError on any broken promise (see promises)."""
        promises.check(self)

    # --- pods in their places --------------------------------------------------

    def _settle_pod(self, pod: Pod, where: str, gpus: int = 0) -> None:
        """Puts the pod on the node (none: nowhere), with these GPUs planned. Does nothing where
        nothing changed: most of what is seen of a pod is its status."""
        moved = pod.node != where
        if moved or not pod.alive or pod.held != pod.spec or pod.gpus != gpus:
            self._release(pod)
        if moved:
            if pod.node:
                self._node(pod.node).pods.pop(pod.seen.uid, None)
                self._replan(pod)
                self._forget_if_empty(pod.node)
            pod.node, pod.confirmed = where, False
            if where:
                self._node(where).pods[pod.seen.uid] = pod
            self._replan(pod)
        pod.gpus = gpus if where and pod.alive else 0
        self._hold(pod)
        if where and (pod.seen.namespace, pod.seen.name) in self._node(where).truth:
            self._settle_gpus(self._node(where))  # its agent spoke of it before the API server did
        self._touch(pod)

    def _hold(self, pod: Pod) -> None:
        row = self.snapshot.row.get(pod.node)
        if row is None or pod.held is not None or not pod.alive:
            return
        self.snapshot.take(row, pod.spec, 1, pod.gpus)
        pod.held = pod.spec
        if pod.spec.matched:
            self.snapshot.gains += 1  # whoever waits to be near it may go now

    def _release(self, pod: Pod) -> None:
        if pod.held is None:
            return
        self.snapshot.give(self.snapshot.row[pod.node], pod.held)
        pod.held = None
        if pod.gpus:
            pod.gpus = 0
            self._remask(self.nodes[pod.node])

    def _remask(self, node: Node) -> None:
        row = self.snapshot.row.get(node.name)
        if row is not None:
            self.snapshot.put_gpus(row, node.shape, node.free())

    def _settle_gpus(self, node: Node) -> None:
        """Brings the node's plans in line with the truth, and the snapshot in line with both."""
        node.settle(self._named)
        self.replanned.add(node.name)
        self._remask(node)

    def _named(self, name: tuple[str, str]) -> Pod | None:
        return self.pods.get(self.uids.get(name, ""))

    def _replan(self, pod: Pod) -> None:
        if pod.spec.request(GPU) or pod.spec.rdma_containers:
            self.replanned.add(pod.node)

    def intents(self, name: str) -> tuple[Grant, ...]:
        """What the pods of the node should be given where it is not yet known what they were."""
        node = self.nodes.get(name)
        return node.intents() if node is not None else ()

    # --- kinds -----------------------------------------------------------------

    def _learn(self, pod: Pod, before: PodSeen | None) -> None:
        """Gives the pod its kind, and those their new one of whom its rules speak."""
        spec = pod.seen.spec
        if before is None or before.spec != spec:
            fresh = self.kinds.learn(spec)
            for uid in self.kinds.spoken_of(fresh):
                self._rekind(self.pods[uid])
        pod.spec = self.kinds.of(pod.seen)
        self.kinds.file(pod.seen, before)

    def _rekind(self, pod: Pod) -> None:
        """Where it is, it stays: only what is counted there changes."""
        kind = self.kinds.of(pod.seen)
        if kind == pod.spec:
            return
        pod.spec = kind
        if pod.held is not None:
            row = self.snapshot.row[pod.node]
            self.snapshot.give(row, pod.held)
            self.snapshot.take(row, kind)
            pod.held = kind
        self._touch(pod)

    def _namespace(self, fact: NamespaceSeen | NamespaceGone) -> None:
        labels = dict(fact.labels) if isinstance(fact, NamespaceSeen) else None
        if self.kinds.put_namespace(fact.name, labels):
            for pod in self.pods.values():
                if pod.seen.namespace == fact.name:
                    self._rekind(pod)

    def _storage(self, fact: StorageFact) -> None:
        for uid in self.kinds.storage.apply(fact):
            self._rekind(self.pods[uid])
        if isinstance(fact, AttachLimits):
            self.snapshot.neighbours.put_limits(fact.node, dict(fact.limits))
            self.snapshot.gains += 1

    # --- gangs -----------------------------------------------------------------

    def gang_of(self, pod: Pod) -> Gang | None:
        key = gangs.key_of(pod.seen)
        return self.gangs.get(key) if key is not None else None

    def _gang(self, key: Key) -> Gang:
        gang = self.gangs.get(key)
        if gang is None:
            gang = self.gangs[key] = Gang(key)
        self.changed[key] = gang
        return gang

    def _join(self, pod: Pod, *, first_sight: bool) -> None:
        key = gangs.key_of(pod.seen)
        if key is not None:
            gang = self._gang(key)
            gang.members[pod.seen.uid] = pod
            gang.touch()
            if first_sight and pod.seen.phase == "Running":
                gang.started = True  # it ran before we came

    def _leave(self, pod: Pod) -> None:
        gang = self.gang_of(pod)
        if gang is not None:
            gang.members.pop(pod.seen.uid, None)
            gang.touch()
            self.changed[gang.key] = gang
            self._drop_if_empty(gang)

    def _touch(self, pod: Pod) -> None:
        gang = self.gang_of(pod)
        if gang is not None:
            gang.touch()
            self.changed[gang.key] = gang

    def _drop_if_empty(self, gang: Gang) -> None:
        if not gang.members and gang.object is None:
            self.gangs.pop(gang.key, None)
            self.changed.pop(gang.key, None)
            self.file(gang, waiting=False, partial=False)
            self.queues.forget(gang)

    def file(self, gang: Gang, *, waiting: bool, partial: bool) -> None:
        if not waiting:
            self.retrying.pop(gang.key, None)
        for wanted, under in ((waiting, self.waiting), (partial, self.partial)):
            if wanted:
                under[gang.key] = gang
            else:
                under.pop(gang.key, None)

    def _node(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name)
        return node

    def _forget_if_empty(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None and node.seen is None and not node.pods and node.report is None:
            del self.nodes[name]
