"""A node beside its row in the snapshot: who is there, what its agent reports, and which GPUs each
pod is planned or known to have."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from central.model.facts import NodeReported, NodeSeen
from central.scheduler.inventory import gpu_shares, mig, nic_limits, nics, node_report
from central.scheduler.inventory.gpu_shares import NOTHING, GpuShares, Offered
from central.scheduler.inventory.nic_assignment import assign
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.inventory.node_report import Name
from central.scheduler.inventory.pods import DEVICES_UNKNOWN, OBSERVED, Pod
from protos.closest import closest
from protos.gpu_sharing import LEAST, MEMORY, RANKS, SHARE, WHOLE, choose_gpu
from protos.names import GPU, GPU_SHARE
from protos.topology import Grant, RdmaUse, Shape, indices_of, mask_of


class ClusterNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: NodeSeen | None = None
        self.rdma_most: tuple[tuple[str, int], ...] | None = None  # see NodeSeen
        self.rdma_total: tuple[tuple[str, int], ...] = ()  # the same of all pods together
        self.levels: tuple[tuple[str, str], ...] = ()  # that its agent tells
        self.memory_level = "none"  # see NodeSeen
        self.gpu_models: tuple[tuple[str, int], ...] = ()  # NodeSeen.gpus
        self.report: NodeReported | None = None
        self.silent = False
        self.shape: Shape | None = None
        self.observed_gpus: dict[Name, int] = {}  # GPUs by pod, as reported
        self.pods: dict[str, Pod] = {}  # by uid: those that are there, alive or not
        self.foreign_gpus = 0  # GPUs that pod-resources gives to pods we don't know
        self.observed_nics: dict[nics.Container, tuple[str, ...]] = {}  # network cards, as reported
        self.planned_nics: dict[
            nics.Container, tuple[str, ...]
        ] = {}  # where limits are summed: planned
        self.rdma_use: tuple[RdmaUse, ...] = ()  # of these cards, by pods
        self.nics_limited = False  # pods' limits of these cards are summed
        self.observed_shares: dict[Name, GpuShares] = {}  # hundredths of GPUs by pod, as reported
        self.foreign_shares: GpuShares = {}
        self.slices = mig.NONE

    def apply_report(self, report: NodeReported) -> bool:
        """Takes the report unless a newer one of the same agent is known."""
        known = self.report
        same = known is not None and known.boot == report.boot
        if same and known is not None and known.generation >= report.generation:
            return False
        self.report = report
        self.shape = report.topology.shape()
        self.observed_gpus = node_report.observed_gpus(report)
        self.observed_shares = node_report.observed_shares(report)
        self.observed_nics = nics.observed(report)
        self.nics_limited = nic_limits.from_topology(report.topology) is not None
        self.slices = mig.from_report(report)
        self.rdma_most = nics.max_limits(report.topology)
        self.rdma_total = nics.allocatable(report.topology)
        self.levels = node_report.levels(report.topology)
        self.memory_level = gpu_shares.best_enforcement(report.topology)
        self.gpu_models = node_report.gpu_models(report.topology)
        return True

    def drop_report(self) -> None:
        self.report = self.rdma_most = None
        self.rdma_total = self.levels = self.gpu_models = ()
        self.memory_level = "none"
        self.shape, self.observed_gpus, self.foreign_gpus = None, {}, 0
        self.observed_shares, self.foreign_shares = {}, {}
        self.observed_nics, self.planned_nics, self.nics_limited = {}, {}, False
        self.rdma_use = ()
        self.slices = mig.NONE

    def has_observed(self, name: Name) -> bool:
        """Whether its agent has seen the pod's devices."""
        if name in self.observed_gpus or name in self.observed_shares or name in self.slices.held:
            return True
        return self.nics_limited and any(key[:2] == name for key in self.observed_nics)

    def forget_pod(self, name: Name) -> None:
        self.observed_gpus.pop(name, None)
        self.observed_shares.pop(name, None)
        for key in [key for key in self.observed_nics if key[:2] == name]:
            del self.observed_nics[key]
        self.slices = self.slices.without(name)

    def reported_values(self) -> tuple[object, ...]:
        """What its agent adds to its row."""
        has = self.slices.limit(self.seen.allocatable) if self.seen and self.report else None
        exclusive = self.report is not None and self.report.topology.rdma_exclusive
        said = self.rdma_most, self.rdma_total, self.levels, self.memory_level
        return *said, self.gpu_models, exclusive, has

    def merged(self) -> NodeSeen | None:
        """What the API server and the agent say of it."""
        if self.seen is None:
            return None
        has = self.allocatable()
        return replace(
            self.seen,
            allocatable=has,
            rdma_most=self.rdma_most,
            told=self.levels,
            memory_level=self.memory_level,
            gpus=self.gpu_models,
            rdma_exclusive=self.report is not None and self.report.topology.rdma_exclusive,
        )

    def allocatable(self) -> dict[str, int]:
        """What the API server says, and what the agent adds."""
        has = dict(self.seen.allocatable) if self.seen else {}
        return {**(self.slices.limit(has) if self.report else has), **dict(self.rdma_total)}

    def healthy(self) -> int:
        return self.report.topology.healthy_mask() if self.report else 0

    def is_unhealthy(self) -> bool:
        if self.report is None:
            return False
        if any(not gpu.healthy for gpu in self.report.topology.gpus):
            return True
        return bool(self.slices.unhealthy) or bool(self.unhealthy_nics())

    def unhealthy_nics(self) -> dict[str, str]:
        """Why, by name: those that are offered, and those that somebody has and are gone."""
        return nics.unhealthy(self.report.topology, self.observed_nics) if self.report else {}

    def free(self) -> int:
        """The GPUs that are healthy and nobody's."""
        taken = self.foreign_gpus | mask_of(self.foreign_shares)
        for pod in self.pods.values():
            taken |= pod.gpus
        return self.healthy() & ~taken

    def offered(self) -> Offered:
        """The GPUs that may be used in shares."""
        return gpu_shares.offered(self.report.topology) if self.report else NOTHING

    def free_shares(self) -> GpuShares:
        """Of the GPUs that are in use as shares: hundredths still to be had."""
        used = gpu_shares.used(self.pods.values(), self.foreign_shares)
        fit = self.healthy() & self.offered()[0]
        return {gpu: max(0, WHOLE - part) if fit >> gpu & 1 else 0 for gpu, part in used.items()}

    def nic_capacity(self) -> NicCapacity | None:
        """What pods have room for on its network cards; None: their shares alone count."""
        if not self.nics_limited or self.report is None:
            return None
        return nics.capacity(self.report.topology, self.pods.values(), self.known_nics())

    def known_nics(self) -> dict[nics.Container, tuple[str, ...]]:
        """Known or planned, of whoever holds room, and of strangers."""
        return {**self.planned_nics, **self.observed_nics}

    def assign_nics(self) -> None:
        """Plans network cards for those who have none, where limits are summed."""
        if self.nics_limited and self.report is not None:
            masks = nics.gpu_masks(self.report, self._planned()[1])
            pods = self.pods.values()
            self.planned_nics = assign(
                self.report.topology, masks, pods, self.observed_nics, self.planned_nics
            )

    def reconcile_devices(self, find: Callable[[Name], Pod | None]) -> None:
        """Brings plans in line with the truth. Where they are in its way they are made anew."""
        taken = 0
        self.foreign_gpus = 0
        for name, mask in sorted(self.observed_gpus.items()):
            pod = find(name)
            here = pod is not None and pod.node == self.name
            if here and pod is not None and not pod.alive:
                continue  # it has ended: the kubelet takes its devices back at the next admission
            mine = mask & ~taken  # a list that gives a GPU twice is not believed the second time
            taken |= mine
            if here and pod is not None and not pod.share:
                pod.gpus = mine
                pod.advance(OBSERVED)
            else:
                self.foreign_gpus |= mine
        used = self._reconcile_shares(find, taken)
        for _, pod in sorted(self.pods.items()):
            told = self.observed_shares if pod.share else self.observed_gpus
            if (pod.seen.namespace, pod.seen.name) in told or not pod.alive:
                continue
            if pod.observed and not self._holds(pod, taken, used):
                pod.gpus = 0
                pod.advance(DEVICES_UNKNOWN)
            if pod.share:
                if not pod.observed:
                    self._plan_share(pod, taken, used)
                if pod.gpus:
                    used[pod.gpus.bit_length() - 1] += pod.share
                continue
            if not pod.observed:
                self._plan(pod, taken | mask_of(used))
            taken |= pod.gpus

    def _reconcile_shares(self, find: Callable[[Name], Pod | None], taken: int) -> Counter[int]:
        """The truth about shares, after that about whole GPUs: hundredths in use by GPU."""
        used: Counter[int] = Counter()
        self.foreign_shares = {}
        for name, parts in sorted(self.observed_shares.items()):
            pod = find(name)
            here = pod is not None and pod.node == self.name
            if here and pod is not None and not pod.alive:
                continue
            if here and pod is not None and pod.share:
                gpu = max(sorted(parts), key=parts.__getitem__)
                believed = not taken >> gpu & 1 and used[gpu] + pod.share <= WHOLE
                pod.gpus = 1 << gpu if believed else 0
                pod.advance(OBSERVED)
                used[gpu] += pod.share if believed else 0
                continue
            for gpu, told in parts.items():
                part = min(told, WHOLE - used[gpu])
                if not taken >> gpu & 1 and part:
                    self.foreign_shares[gpu] = self.foreign_shares.get(gpu, 0) + part
                    used[gpu] += part
        return used

    def _holds(self, pod: Pod, taken: int, used: Counter[int]) -> bool:
        """Whether what it was known to have can still be its own."""
        if pod.share:
            gpu = pod.gpus.bit_length() - 1
            return not pod.gpus & taken and used[gpu] + pod.share <= WHOLE
        return not pod.gpus & (taken | mask_of(used))

    def _plan_share(self, pod: Pod, taken: int, used: Counter[int]) -> None:
        """As for whole GPUs; another GPU only where the planned one has not so much left, or does not
        enforce caps as surely as it must."""
        fit = self.healthy() & self.offered()[RANKS[pod.spec.memory_level]] & ~taken
        left = {gpu: WHOLE - used[gpu] for gpu in indices_of(fit)}
        wanted = pod.share if pod.seen.ours else 0
        now = pod.gpus.bit_length() - 1
        if pod.gpus and left.get(now, 0) >= wanted:
            return
        pod.gpus = 0
        if self.shape is None or not wanted:
            return
        others = dict(left)
        for other in self.pods.values():
            if other is pod or not other.alive or other.observed:
                continue
            for gpu in indices_of(other.gpus):
                others[gpu] = others.get(gpu, 0) - (other.share or WHOLE)
        for room in (others, left):
            if (gpu := choose_gpu(self.shape, room, wanted)) >= 0:
                pod.gpus = 1 << gpu
                return

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

    def planned_devices(self) -> tuple[Grant, ...]:
        """Container by container, what pods should be given whose truth is not known yet."""
        if self.report is None or self.shape is None:
            return ()
        grants, planned = self._planned()
        asking = [pod for pod in self.pods.values() if pod.spec.rdma_containers]
        if asking:
            chosen = self.planned_nics
            if not self.nics_limited:
                masks = nics.gpu_masks(self.report, planned)
                chosen = nics.nearest_nics(self.report.topology, masks, asking, self.observed_nics)
            grants += nics.grants(asking, self.observed_nics, chosen)
        return tuple(sorted(grants))

    def _planned(self) -> tuple[list[Grant], dict[nics.Container, int]]:
        """GPUs of containers, as grants and as masks."""
        grants: list[Grant] = []
        planned: dict[nics.Container, int] = {}
        if self.report is None or self.shape is None:
            return grants, planned
        uuids = [gpu.uuid for gpu in self.report.topology.gpus]
        for pod in self.pods.values():
            name = (pod.seen.namespace, pod.seen.name)
            told = sum(self.observed_shares.get(name, {}).values())
            missing = told < sum(part for _, part in pod.spec.share_containers)
            missing |= bool(pod.spec.memory_cap)  # its agent watches over it as long as it lives
            if not pod.gpus or not pod.alive or not (missing if pod.share else not pod.observed):
                continue
            for container, part in pod.spec.share_containers:
                key = (pod.seen.namespace, pod.seen.name, container)
                planned[key] = pod.gpus
                uuid = uuids[pod.gpus.bit_length() - 1]
                grants.append(Grant(*key, GPU_SHARE, (uuid,), _part(pod, part)))
            left = pod.gpus
            for container, count in pod.spec.gpu_containers:
                share = closest(self.shape, left, count)
                left &= ~share
                planned[pod.seen.namespace, pod.seen.name, container] = share
                ids = tuple(uuids[index] for index in indices_of(share))
                if ids:
                    grants.append(Grant(pod.seen.namespace, pod.seen.name, container, GPU, ids))
        return grants, planned


def _part(pod: Pod, part: int) -> tuple[tuple[str, int], ...]:
    """What a container is to get of its GPU, and what its pod may have of the memory."""
    least = RANKS[pod.spec.memory_level]
    wished = {SHARE: part, MEMORY: pod.spec.memory_cap, LEAST: least}
    return tuple(sorted((key, amount) for key, amount in wished.items() if amount))
