"""The content of an agent's report, as the scheduler uses it: read once for each report."""

from dataclasses import dataclass, field

from central.model.device_claims import DeviceId
from central.model.facts import NodeReported, Taint
from central.model.selectors import SOFT
from central.scheduler.inventory import gpu_shares, mig, nic_limits
from central.scheduler.inventory.gpu_shares import NOTHING, GpuShares, Offered
from central.scheduler.inventory.nic_limits import Container, NicCapacity
from central.scheduler.inventory.pods import PodName
from protos import nic_ids, slicing
from protos.claim_devices import device_name
from protos.gpu_sharing import hundredths
from protos.names import CHASSIS, CLIQUE, DRA_DRIVER, GPU, GPU_SHARE, RDMA, SLOW_GPU
from protos.topology import NodeTopology, Shape, mask_of

SLOW = Taint(SLOW_GPU, "", SOFT)
CLAIMS_ONLY = "only"  # see NodeReported.claims


@dataclass(slots=True)
class Reported:
    """The defaults are those of a node without a report."""

    shape: Shape | None = None
    healthy: int = 0  # mask of GPUs
    offered: Offered = NOTHING  # masks of GPUs that may be shared
    gpu_models: tuple[tuple[str, int], ...] = ()  # see NodeSeen.gpus
    levels: tuple[tuple[str, str], ...] = ()  # network levels
    memory_level: str = "none"  # see NodeSeen
    rdma_exclusive: bool = False  # see NodeSeen
    rdma_most: tuple[tuple[str, int], ...] | None = None  # see NodeSeen
    rdma_total: tuple[tuple[str, int], ...] = ()  # limits of all pods together
    nics: NicCapacity | None = None  # without any pods; None if no limit is shared by all pods
    slices: mig.MigSlices = mig.NONE
    claimable: dict[int, DeviceId] = field(default_factory=dict)  # whole GPUs, by their mask
    plugin: bool = True  # the device plugin offers whole GPUs
    taints: tuple[Taint, ...] = ()  # that pods should avoid beside those of the API server
    # observed devices
    gpus: dict[PodName, int] = field(default_factory=dict)  # masks of whole GPUs
    shares: dict[PodName, GpuShares] = field(default_factory=dict)
    container_gpus: dict[Container, int] = field(default_factory=dict)  # masks, slices included
    held_nics: dict[Container, tuple[str, ...]] = field(default_factory=dict)  # one for each share
    # NICs that are held by rail
    held_rails: dict[Container, tuple[str, ...]] = field(default_factory=dict)
    forgotten: list[tuple[str, PodName]] = field(default_factory=list)  # see forget()

    @classmethod
    def of(cls, report: NodeReported) -> "Reported":
        topology = report.topology
        reported = cls(
            shape=topology.shape(),
            healthy=topology.healthy_mask(),
            offered=gpu_shares.offered(topology),
            gpu_models=tuple(
                sorted({(gpu.model, gpu.memory_bytes) for gpu in topology.gpus if gpu.model})
            ),
            levels=_levels(topology),
            memory_level=gpu_shares.best_enforcement(topology),
            rdma_exclusive=topology.rdma_exclusive,
            rdma_most=nic_limits.max_limits(topology),
            rdma_total=nic_limits.allocatable(topology),
            nics=nic_limits.from_topology(topology),
            slices=mig.from_report(report),
            taints=(SLOW,) if topology.slow() else (),
            plugin=report.claims != CLAIMS_ONLY,
        )
        reported._read_grants(report)
        for gpu in topology.gpus if report.claims else ():
            if not gpu.mig and (name := device_name(gpu.uuid)):
                reported.claimable[1 << gpu.index] = DeviceId(DRA_DRIVER, report.node, name)
        return reported

    def _read_grants(self, report: NodeReported) -> None:
        """Unknown device ids are ignored."""
        if not report.grants:
            return
        index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
        nic = nic_ids.names(report.topology)
        with_slices = index | {part.uuid: gpu.index for gpu, part in slicing.of(report.topology)}
        for grant in report.grants:
            name = (grant.namespace, grant.pod)
            container = (*name, grant.container)
            gpus = [index[uuid] for uuid in grant.device_ids if uuid in index]
            if grant.resource == RDMA:
                self.held_nics[container] = tuple(map(nic, grant.device_ids))
            elif nic_ids.is_rail(grant.resource):
                before = self.held_rails.get(container, ())
                self.held_rails[container] = (*before, *map(nic, grant.device_ids))
            elif grant.resource == GPU or slicing.is_slice(grant.resource):
                known = (with_slices[uuid] for uuid in grant.device_ids if uuid in with_slices)
                self.container_gpus[container] = mask_of(known)
                if grant.resource == GPU:
                    self.gpus[name] = self.gpus.get(name, 0) | mask_of(gpus)
            elif grant.resource == GPU_SHARE and gpus and hundredths(grant) > 0:
                parts = self.shares.setdefault(name, {})
                parts[gpus[0]] = parts.get(gpus[0], 0) + hundredths(grant)

    def has(self, name: PodName) -> bool:
        """Returns whether devices of the pod are observed."""
        if name in self.gpus or name in self.shares or name in self.slices.held:
            return True
        return self.nics is not None and any(key[:2] == name for key in self.held_nics)

    def adopt(self, uid: str, name: PodName) -> None:
        """Adds the devices that are reported under the pod's uid to those under its name."""
        unnamed = "", uid
        if unnamed in self.gpus:
            self.gpus[name] = self.gpus.get(name, 0) | self.gpus.pop(unnamed)
        for gpu, part in self.shares.pop(unnamed, {}).items():
            parts = self.shares.setdefault(name, {})
            parts[gpu] = parts.get(gpu, 0) + part

    def forget(self, uid: str, name: PodName) -> None:
        """The pod is gone; a later pod of this name has other devices."""
        before, self.slices = self.slices, self.slices.without(name)
        found: list[object] = [self.gpus.pop(name, None), self.shares.pop(name, None)]
        for held in (self.held_nics, self.held_rails, self.container_gpus):
            if held:
                found += [held.pop(key) for key in [key for key in held if key[:2] == name]]
        if self.slices is not before or found.count(None) < len(found):
            self.forgotten.append((uid, name))


def _levels(topology: NodeTopology) -> tuple[tuple[str, str], ...]:
    """The node's NVLink clique and chassis, each only if all its GPUs are in the same one."""
    found = []
    for level, values in (
        (CLIQUE, {gpu.clique for gpu in topology.gpus}),
        (CHASSIS, {gpu.chassis for gpu in topology.gpus}),
    ):
        if len(values) == 1 and (value := values.pop()):
            found.append((level, value))
    return tuple(found)
