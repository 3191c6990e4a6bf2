"""A node beside its row in the snapshot: who is there, what its agent reports, and which GPUs each
pod is planned or known to have."""

from collections.abc import Callable
from dataclasses import replace

from central.core import cards
from central.core.facts import NodeReported, NodeSeen
from central.core.gangs import Pod
from protos.closest import closest
from protos.names import CHASSIS, CLIQUE, GPU
from protos.topology import Grant, NodeTopology, Shape, indices_of, mask_of

Name = tuple[str, str]  # namespace and pod


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: NodeSeen | None = None
        self.rdma_most: tuple[tuple[str, int], ...] | None = None  # see NodeSeen
        self.rdma_total: tuple[tuple[str, int], ...] = ()  # the same of all pods together
        self.levels: tuple[tuple[str, str], ...] = ()  # that its agent tells
        self.report: NodeReported | None = None
        self.silent = False
        self.shape: Shape | None = None
        self.truth: dict[Name, int] = {}  # GPUs by pod, as reported
        self.pods: dict[str, Pod] = {}  # by uid: those that are there, alive or not
        self.foreign = 0  # GPUs that pod-resources gives to pods we don't know

    def learn(self, report: NodeReported) -> bool:
        """Takes the report unless a newer one of the same agent is known."""
        known = self.report
        same = known is not None and known.boot == report.boot
        if same and known is not None and known.generation >= report.generation:
            return False
        self.report = report
        self.shape = report.topology.shape()
        self.truth = _truth(report)
        self.rdma_most = cards.most(report.topology)
        self.rdma_total = cards.allocatable(report.topology)
        self.levels = _levels(report.topology)
        return True

    def forget(self) -> None:
        self.report = self.rdma_most = None
        self.rdma_total = self.levels = ()
        self.shape, self.truth, self.foreign = None, {}, 0

    def added(self) -> tuple[object, ...]:
        """What its agent adds to its row."""
        return self.rdma_most, self.rdma_total, self.levels

    def row(self) -> NodeSeen | None:
        """What the API server and the agent say of it."""
        if self.seen is None:
            return None
        has = self.allocatable()
        return replace(self.seen, allocatable=has, rdma_most=self.rdma_most, told=self.levels)

    def allocatable(self) -> dict[str, int]:
        """What the API server says, and what the agent adds."""
        return {**(self.seen.allocatable if self.seen else {}), **dict(self.rdma_total)}

    def healthy(self) -> int:
        return self.report.topology.healthy_mask() if self.report else 0

    def ails(self) -> bool:
        return self.report is not None and any(not gpu.healthy for gpu in self.report.topology.gpus)

    def free(self) -> int:
        """The GPUs that are healthy and nobody's."""
        taken = self.foreign
        for pod in self.pods.values():
            taken |= pod.gpus
        return self.healthy() & ~taken

    def settle(self, find: Callable[[Name], Pod | None]) -> None:
        """Brings plans in line with the truth. Where they are in its way they are made anew."""
        taken = 0
        self.foreign = 0
        for name, mask in sorted(self.truth.items()):
            pod = find(name)
            here = pod is not None and pod.node == self.name
            if here and pod is not None and not pod.alive:
                continue  # it has ended: the kubelet takes its devices back at the next admission
            mine = mask & ~taken  # a list that gives a GPU twice is not believed the second time
            taken |= mine
            if here and pod is not None:
                pod.gpus, pod.confirmed = mine, True
            else:
                self.foreign |= mine
        for _, pod in sorted(self.pods.items()):
            if (pod.seen.namespace, pod.seen.name) in self.truth or not pod.alive:
                continue
            if pod.confirmed and pod.gpus & taken:
                pod.gpus, pod.confirmed = 0, False
            if not pod.confirmed:
                self._plan(pod, taken)
            taken |= pod.gpus

    def _plan(self, pod: Pod, taken: int) -> None:
        """A plan holds while its GPUs are healthy and free; else the next best one is made."""
        wanted = pod.spec.request(GPU) if pod.seen.ours else 0
        free = self.healthy() & ~taken
        if pod.gpus.bit_count() == wanted and not pod.gpus & ~free:
            return
        others = 0
        for other in self.pods.values():
            if other is not pod and other.alive:
                others |= other.gpus
        pod.gpus = 0
        if self.shape is not None and wanted:
            pod.gpus = closest(self.shape, free & ~others, wanted) or closest(
                self.shape, free, wanted
            )

    def intents(self) -> tuple[Grant, ...]:
        """Container by container, what pods should be given whose truth is not known yet."""
        if self.report is None or self.shape is None:
            return ()
        uuids = [gpu.uuid for gpu in self.report.topology.gpus]
        grants: list[Grant] = []
        planned: dict[cards.Container, int] = {}
        for pod in self.pods.values():
            if pod.confirmed or not pod.gpus or not pod.alive:
                continue
            left = pod.gpus
            for container, count in pod.spec.gpu_containers:
                share = closest(self.shape, left, count)
                left &= ~share
                planned[pod.seen.namespace, pod.seen.name, container] = share
                ids = tuple(uuids[index] for index in indices_of(share))
                if ids:
                    grants.append(Grant(pod.seen.namespace, pod.seen.name, container, GPU, ids))
        asking = [pod for pod in self.pods.values() if pod.spec.rdma_containers]
        if asking:
            grants += cards.intents(self.report, asking, planned)
        return tuple(sorted(grants))


def _levels(topology: NodeTopology) -> tuple[tuple[str, str], ...]:
    """Of a machine whose GPUs are not all in one clique there is none."""
    found = []
    for level, values in (
        (CLIQUE, {gpu.clique for gpu in topology.gpus}),
        (CHASSIS, {gpu.chassis for gpu in topology.gpus}),
    ):
        if len(values) == 1 and (value := values.pop()):
            found.append((level, value))
    return tuple(found)


def _truth(report: NodeReported) -> dict[Name, int]:
    """The GPUs that each pod holds, as masks; what names no GPU of the node is left out."""
    index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
    masks: dict[Name, int] = {}
    for grant in report.grants:
        if grant.resource == GPU:
            mask = mask_of(index[uuid] for uuid in grant.device_ids if uuid in index)
            name = (grant.namespace, grant.pod)
            masks[name] = masks.get(name, 0) | mask
    return masks
