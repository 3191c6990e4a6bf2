"""What must hold of the history of API events, whatever the nemesis does.

    one node       a pod is bound once, and stays there
    GPUs           the pods bound to a node ask for no more GPUs than it has
    queues         the pods bound in a queue ask for no more GPUs than its capability
    gangs, Jobs    when nothing breaks any more, each completes: none is lost, and none stays in part
    answers        each decision has one answer

A request that the network delivers after its client has given up can break the second and the third for a
moment, as can a leader that was paused between its last look at the lease and its request, and a restored
etcd: then kubelets reject the pod, and its owner makes another. Such times are excused, and only these."""

from collections import Counter
from dataclasses import dataclass, field

from central.standalone.object_store import WatchEvent
from central.standalone.served_kinds import ResourceKey
from tests.simulation.nemesis.virtual_nodes import GPUS, gpus_of
from tests.simulation.nemesis.virtual_runtime import Kernel

EXCUSED_S = 90.0  # after it, what is bound beyond a limit must have been rejected
ALIVE = {"Pending", "Running"}


@dataclass
class _Bound:
    node: str
    gpus: int
    queue: str


@dataclass
class History:
    kernel: Kernel
    queues: dict[str, str]  # by PodGroup
    capability: dict[str, int]
    excused_until: float = 0.0
    restores: int = 0
    bound: dict[str, _Bound] = field(default_factory=dict)  # pods that are alive, by uid
    events: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def excuse(self, seconds: float = EXCUSED_S) -> None:
        """What the nemesis does now may break a limit until then."""
        self.excused_until = max(self.excused_until, self.kernel.now + seconds)

    def on_event(self, key: ResourceKey, event: WatchEvent) -> None:
        self.events[f"{key[1]} {event.type}"] += 1
        meta = event.item.obj["metadata"]
        self.trace.append(f"{self.kernel.now:.3f} {event.type} {key[1]} {meta['name']}")
        if key != ("", "pods"):
            return
        pod = event.item.obj
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        node = pod["spec"].get("nodeName", "")
        before = self.bound.get(uid)
        if before is not None and node != before.node:
            self._report(f"pod {name} went from {before.node} to {node or 'nowhere'}")
        alive = (pod.get("status") or {}).get("phase", "Pending") in ALIVE
        if event.type == "DELETED" or not alive or not node:
            self.bound.pop(uid, None)
            return
        annotations = pod["metadata"].get("annotations") or {}
        queue = self.queues.get(annotations.get("scheduling.k8s.io/group-name", ""), "")
        self.bound[uid] = _Bound(node, gpus_of(pod), queue)
        if before is None:
            self.events["bound"] += 1
            self._check_limits(name, node, queue)

    def restored(self) -> None:
        """etcd was: what was bound since its backup is not any more."""
        self.restores += 1
        self.bound.clear()
        self.excuse()

    def _check_limits(self, name: str, node: str, queue: str) -> None:
        used = sum(each.gpus for each in self.bound.values() if each.node == node)
        if used > GPUS:
            self._limit(f"{used} of {GPUS} GPUs of {node} are bound, with {name}")
        if queue in self.capability:
            used = sum(each.gpus for each in self.bound.values() if each.queue == queue)
            if used > self.capability[queue]:
                self._limit(
                    f"{used} of {self.capability[queue]} GPUs of queue {queue}, with {name}"
                )

    def _limit(self, what: str) -> None:
        if self.kernel.now > self.excused_until:
            self._report(what)
        else:
            self.events["excused"] += 1

    def _report(self, what: str) -> None:
        self.broken.append(f"{self.kernel.now:.1f} s: {what}")
