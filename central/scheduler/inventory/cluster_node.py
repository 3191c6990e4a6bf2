"""A node with what its agent reports, the pods on it, and the devices that each pod is observed or planned to
have. Free capacity is in its row of the columns (columns.py)."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from central.model.facts import NodeReported, NodeSeen
from central.scheduler.inventory import gpu_shares, nic_limits, nics
from central.scheduler.inventory.gpu_shares import GpuShares
from central.scheduler.inventory.nic_limits import Container, NicCapacity
from central.scheduler.inventory.node_report import Reported
from central.scheduler.inventory.pods import DEVICES_UNKNOWN, OBSERVED, Pod, PodName
from protos.closest import closest
from protos.gpu_sharing import LEAST, MEMORY, RANKS, SHARE, WHOLE, choose_gpu
from protos.names import GPU, GPU_SHARE
from protos.topology import ClaimPlan, Grant, RdmaUse, indices_of, mask_of


class NodePlan(NamedTuple):
    """The plan that a node's agent receives."""

    grants: tuple[Grant, ...] = ()  # devices of pods whose own are not observed yet
    claims: tuple[ClaimPlan, ...] = ()  # all claims with devices of the agent


class ClusterNode:
    """Observed devices are those in the agent's report (from the kubelet's pod-resources API); planned
    devices are those that the scheduler chose. Names are (namespace, pod)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: NodeSeen | None = None
        self.report: NodeReported | None = None
        self.reported = Reported()
        self.silent = False  # the agent has stopped reporting
        self.offered = True  # False: the kubelet does not have its devices now, see NodeOffers
        self.report_failed = False  # its newest report was lost to a bug
        self.pods: dict[str, Pod] = {}  # by uid, ended ones too
        self.foreign_gpus = 0  # mask: observed, of pods that are not on this node
        self.foreign_shares: GpuShares = {}
        self.claimed = 0  # mask: GPUs that claims hold
        self.leftover = 0  # mask: of these, for claims that are gone and still prepared
        self.planned_nics: dict[Container, tuple[str, ...]] = {}  # where NICs have limits
        self.rdma_use: tuple[RdmaUse, ...] = ()  # reported use of NICs
        self._merged: NodeSeen | None = None
        self._merged_from: tuple[NodeSeen | None, Reported, bool] = None, self.reported, False

    def apply_report(self, report: NodeReported) -> bool:
        """Applies the report unless it is older than the known one of the same boot. Returns whether it did."""
        known = self.report
        same = known is not None and known.boot == report.boot
        if same and known is not None and known.generation >= report.generation:
            return False
        self.report, self.reported = report, Reported.of(report)
        for pod in self.pods.values():
            self.reported.adopt(pod.seen.uid, (pod.seen.namespace, pod.seen.name))
        self.report_failed = False
        return True

    def drop_report(self) -> None:
        self.report, self.reported, self.report_failed = None, Reported(), False
        self.foreign_gpus, self.foreign_shares = 0, {}
        self.claimed = self.leftover = 0
        self.planned_nics, self.rdma_use = {}, ()

    def merged(self) -> NodeSeen | None:
        """The node of the API server with what its agent reports; None if the API server has no such node. Kept until
        one of both changes."""
        if self.seen is None:
            return None
        seen, reported, failed = self._merged_from
        if seen is not self.seen or reported is not self.reported or failed != self.report_failed:
            self._merged = self._merge(self.seen)
            self._merged_from = self.seen, self.reported, self.report_failed
        return self._merged

    def _merge(self, seen: NodeSeen) -> NodeSeen:
        if self.report is None and not self.report_failed:
            return seen
        reported = self.reported
        return NodeSeen(  # written out: replace() takes three times as long, and every report comes here
            name=seen.name,
            labels=seen.labels,
            allocatable=self.allocatable(),
            taints=seen.taints + reported.taints,
            unschedulable=seen.unschedulable or self.report_failed,
            ready=seen.ready,
            rdma_most=reported.rdma_most,
            rdma_exclusive=reported.rdma_exclusive,
            memory_level=reported.memory_level,
            gpus=reported.gpu_models,
            told=reported.levels,
        )

    def allocatable(self) -> dict[str, int]:
        """The API server's allocatable, MIG slices limited to healthy ones, with RDMA limits."""
        has = self.seen.allocatable if self.seen else {}
        limited = self.reported.slices.limit(has) if self.report else has
        return {**limited, **dict(self.reported.rdma_total)}

    def installed(self) -> int:
        """Returns how many GPUs the agent reports, healthy or not, that can be allocated whole."""
        return sum(not gpu.mig for gpu in self.report.topology.gpus) if self.report else 0

    def is_unhealthy(self) -> bool:
        if self.report is None:
            return False
        if any(not gpu.healthy for gpu in self.report.topology.gpus):
            return True
        return bool(self.reported.slices.unhealthy) or bool(self.unhealthy_nics())

    def unhealthy_nics(self) -> dict[str, str]:
        """Reasons by name, for NICs that are offered or in use."""
        if self.report is None:
            return {}
        held = self.reported.held_nics, self.reported.held_rails
        return nics.unhealthy(self.report.topology, *held)

    def free(self) -> int:
        """The mask of GPUs that are healthy and that no pod has, apart from claims that exist."""
        return self.reported.healthy & ~(self.held_by_plugin() | self.leftover)

    def set_claimed(self, mask: int, known: Iterable[ClaimPlan]) -> None:
        """Sets the GPUs that claims hold, and adds those that the agent has prepared for claims that are not known."""
        prepared = self.report.prepared if self.report is not None else ()
        uids = {each.uid for each in known} if prepared else set()
        unknown = (each for each in prepared if each.uid not in uids)
        left = {d.device for each in unknown for d in each.devices if not d.admin}
        devices = self.reported.claimable.items() if left else ()
        self.leftover = sum(gpu for gpu, device in devices if device.device in left) & ~mask
        self.claimed = mask | self.leftover

    def held_by_plugin(self) -> int:
        """The mask of GPUs that pods have, or are to get, from the device plugin: whole or in shares."""
        held = self.foreign_gpus | mask_of(self.foreign_shares)
        for pod in self.pods.values():
            held |= pod.gpus
        return held

    def free_shares(self) -> GpuShares:
        """Returns the free hundredths of each GPU that is in use as shares; 0 if it is unhealthy or may not be
        shared."""
        if not self.pods and not self.foreign_shares:
            return {}
        used = gpu_shares.used(self.pods.values(), self.foreign_shares)
        usable = self.reported.healthy & self.reported.offered[0]
        return {gpu: max(0, WHOLE - part) if usable >> gpu & 1 else 0 for gpu, part in used.items()}

    def nic_capacity(self) -> NicCapacity | None:
        """Returns what the pods leave of the NICs' limits; None if NICs are counted by shares alone."""
        if self.reported.nics is None:
            return None
        return nic_limits.with_pods(self.reported.nics, self.pods.values(), self.known_nics())

    def known_nics(self) -> dict[Container, tuple[str, ...]]:
        """Observed NICs, else planned ones, by container; observed ones of unknown pods too."""
        return {**self.planned_nics, **self.reported.held_nics}

    def assign_nics(self) -> None:
        """Plans NICs for pods without observed ones, where NICs have limits."""
        reported, pods = self.reported, self.pods.values()
        if reported.nics is None or self.report is None:
            return
        gpus = self._planned()[1] | reported.container_gpus
        free = nic_limits.with_pods(reported.nics, pods, reported.held_nics)
        assigner = nics.NicAssigner(self.report.topology, gpus, reported.held_nics, free)
        self.planned_nics = assigner.assignment(pods, self.planned_nics)

    def reconcile_devices(self, find: Callable[[PodName], Pod | None]) -> None:
        """Decides which pod has which GPUs: observed devices first, then plans that still hold, then new
        plans. find: the pod of a name, on whichever node it is.

            1. observed whole GPUs    in order of names; a GPU that is reported twice goes to the first.
                                      A pod with containers that lack theirs keeps as many planned ones
            2. observed shares        at most 100 hundredths of a GPU, none of a GPU of step 1
            3. observed earlier       living pods keep their GPUs if steps 1 and 2 left them free
            4. planned                keep their GPUs if these are healthy and free; without a report all keep theirs
            5. all other living pods  get the closest free GPUs, if there is a report

        Steps 3 to 5 go in order of uids. No new plan takes the GPUs of a plan that holds, so that to reconcile
        again changes nothing.

        A pod of another scheduler gets no new plan, but one that was ours keeps its own while it holds.
        Observed devices of an ended pod are free: the kubelet takes them back at the next admission.
        Observed devices of pods that are not on this node are counted as foreign.

        Example: four GPUs; pod a is planned onto 0 and 1, pod b onto 2. The kubelet gave a GPUs 1 and 2.
        Step 1 sets a to 1 and 2. The plan of b is void, because 2 is taken, and step 5 plans b
        onto the closest of 0 and 3.
        """
        if not (self.pods or self.reported.gpus or self.reported.shares):
            self.foreign_gpus, self.foreign_shares = 0, {}
            return
        taken = self._reconcile_whole_gpus(find)
        used = self._reconcile_shares(find, taken)
        unreported = [pod for _, pod in sorted(self.pods.items()) if self._is_unreported(pod)]
        without: list[Pod] = []
        for pod in sorted(unreported, key=lambda pod: not pod.observed):
            if self._keeps(pod, taken, used):
                taken |= _take(pod, used)
            else:
                without.append(pod)
        for pod in sorted(without, key=lambda pod: pod.seen.uid):
            pod.gpus = 0
            pod.advance(DEVICES_UNKNOWN)
            if self.report is not None and pod.seen.ours:
                self._plan(pod, taken, used)
            taken |= _take(pod, used)

    def _reconcile_whole_gpus(self, find: Callable[[PodName], Pod | None]) -> int:
        """Step 1. Returns the GPUs that are taken, as a mask."""
        taken = 0
        self.foreign_gpus = 0
        observed = mask_of(gpu for mask in self.reported.gpus.values() for gpu in indices_of(mask))
        for name, mask in sorted(self.reported.gpus.items()):
            pod = find(name)
            here = pod is not None and pod.node == self.name
            if here and pod is not None and not pod.alive:
                continue
            mine = mask & ~taken
            taken |= mine
            if here and pod is not None and not pod.share:
                if self.reported.shape is not None and self._unserved(pod):
                    missing = pod.spec.request(GPU) - mine.bit_count()
                    mine |= closest(self.reported.shape, pod.gpus & ~observed, missing)
                    taken |= mine
                pod.gpus = mine
                pod.advance(OBSERVED)
            else:
                self.foreign_gpus |= mine
        return taken

    def _unserved(self, pod: Pod) -> list[tuple[str, int]]:
        """The containers with whole GPUs of which none are observed, REST_OF_POD among them."""
        name, observed = (pod.seen.namespace, pod.seen.name), self.reported.container_gpus
        return [each for each in pod.spec.gpu_containers if (*name, each[0]) not in observed]

    def _is_unreported(self, pod: Pod) -> bool:
        """Returns whether it lives, and the report does not list its devices."""
        observed = self.reported.shares if pod.share else self.reported.gpus
        return pod.alive and (pod.seen.namespace, pod.seen.name) not in observed

    def _reconcile_shares(self, find: Callable[[PodName], Pod | None], taken: int) -> Counter[int]:
        """Step 2. taken: whole GPUs of step 1. Returns the hundredths in use, by GPU."""
        used: Counter[int] = Counter()
        self.foreign_shares = {}
        for name, parts in sorted(self.reported.shares.items()):
            pod = find(name)
            here = pod is not None and pod.node == self.name
            if here and pod is not None and not pod.alive:
                continue
            if here and pod is not None and pod.share:
                gpu = max(sorted(parts), key=parts.__getitem__)
                possible = not taken >> gpu & 1 and used[gpu] + pod.share <= WHOLE
                pod.gpus = 1 << gpu if possible else 0
                pod.advance(OBSERVED)
                used[gpu] += pod.share if possible else 0
                continue
            for gpu, reported in parts.items():
                part = min(reported, WHOLE - used[gpu])
                if not taken >> gpu & 1 and part:
                    self.foreign_shares[gpu] = self.foreign_shares.get(gpu, 0) + part
                    used[gpu] += part
        return used

    def _keeps(self, pod: Pod, taken: int, used: Counter[int]) -> bool:
        """Returns whether the GPUs that were observed earlier, or are planned, can still be the pod's: they are free,
        and planned ones are healthy and enforce memory caps as it requires."""
        if not pod.observed and self.report is None:
            return True
        if pod.share:
            gpu = pod.gpus.bit_length() - 1
            fits = not pod.gpus & taken and used[gpu] + pod.share <= WHOLE
            return fits and (pod.observed or bool(pod.gpus & self._sharable(pod)))
        if pod.observed:
            return not pod.gpus & (taken | mask_of(used))
        free = self.reported.healthy & ~(taken | mask_of(used) | self.claimed)
        return pod.gpus.bit_count() == pod.spec.request(GPU) and not pod.gpus & ~free

    def _sharable(self, pod: Pod) -> int:
        offered = self.reported.offered[RANKS[pod.spec.memory_level]]
        return self.reported.healthy & offered & ~self.claimed

    def _plan(self, pod: Pod, taken: int, used: Counter[int]) -> None:
        """Chooses the closest free GPUs, or the GPU for its share, if there are any."""
        shape = self.reported.shape
        if shape is None:
            return
        if pod.share:
            left = {gpu: WHOLE - used[gpu] for gpu in indices_of(self._sharable(pod) & ~taken)}
            gpu = choose_gpu(shape, left, pod.share)
            pod.gpus = 1 << gpu if gpu >= 0 else 0
        elif wanted := pod.spec.request(GPU):
            free = self.reported.healthy & ~(taken | mask_of(used) | self.claimed)
            pod.gpus = closest(shape, free, wanted)

    def planned_devices(self) -> tuple[Grant, ...]:
        """The plan for the agent: by container, the devices of pods whose own are not observed yet."""
        if self.report is None or self.reported.shape is None:
            return ()
        grants, planned = self._planned()
        with_nics = [pod for pod in self.pods.values() if pod.spec.has_nics]
        if with_nics:
            chosen = self.planned_nics
            held = self.reported.held_nics
            if self.reported.nics is None:
                masks = planned | self.reported.container_gpus
                chosen = nics.nearest_nics(self.report.topology, masks, with_nics, held)
            grants += nics.grants(with_nics, held, chosen)
        return tuple(sorted(grants))

    def _planned(self) -> tuple[list[Grant], dict[Container, int]]:
        """Planned GPUs by container, as grants and as masks."""
        grants: list[Grant] = []
        planned: dict[Container, int] = {}
        if self.report is None or self.reported.shape is None:
            return grants, planned
        uuids = [gpu.uuid for gpu in self.report.topology.gpus]
        for pod in self.pods.values():
            name = (pod.seen.namespace, pod.seen.name)
            reported = sum(self.reported.shares.get(name, {}).values())
            missing = reported < sum(part for _, part in pod.spec.share_containers)
            missing |= bool(pod.spec.memory_cap)  # the agent enforces it while the pod lives
            unserved = self._unserved(pod) if not pod.observed or name in self.reported.gpus else []
            if not pod.gpus or not pod.alive or not (missing if pod.share else unserved):
                continue
            for container, part in pod.spec.share_containers:
                key = (pod.seen.namespace, pod.seen.name, container)
                planned[key] = pod.gpus
                uuid = uuids[pod.gpus.bit_length() - 1]
                grants.append(
                    Grant(*key, GPU_SHARE, (uuid,), _share_limits(pod, part), pod.seen.uid)
                )
            left = pod.gpus
            for container, _ in set(pod.spec.gpu_containers) - set(unserved):
                left &= ~self.reported.container_gpus.get((*name, container), 0)
            for container, count in unserved:
                share = closest(self.reported.shape, left, count)
                left &= ~share
                planned[pod.seen.namespace, pod.seen.name, container] = share
                ids = tuple(uuids[index] for index in indices_of(share))
                if ids:
                    grants.append(Grant(*name, container, GPU, ids, uid=pod.seen.uid))
        return grants, planned


def _share_limits(pod: Pod, part: int) -> tuple[tuple[str, int], ...]:
    """The limits of a container's share: hundredths, memory cap, enforcement rank."""
    least = RANKS[pod.spec.memory_level]
    limits = {SHARE: part, MEMORY: pod.spec.memory_cap, LEAST: least}
    return tuple(sorted((key, amount) for key, amount in limits.items() if amount))


def _take(pod: Pod, used: Counter[int]) -> int:
    """The whole GPUs that it takes; a share is added to the hundredths in use."""
    if not pod.share:
        return pod.gpus
    if pod.gpus:
        used[pod.gpus.bit_length() - 1] += pod.share
    return 0
