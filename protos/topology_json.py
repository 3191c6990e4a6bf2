"""A node's topology as the JSON of `topology -o json`. Pure."""

from protos import nic_access
from protos.topology import Gpu, Hca, NodeTopology, RdmaLimit, Slice


def to_json(node: str, topology: NodeTopology) -> dict[str, object]:
    return {
        "node": node,
        "gpus": [_gpu(gpu) for gpu in topology.gpus],
        "hcas": [_nic(hca, topology) for hca in topology.hcas],
        "links": [list(row) for row in topology.links],
        "islands": [list(island) for island in topology.islands],
        "pcie_switches": [list(switch) for switch in topology.pcie_switches],
        "numa_nodes": [{"id": numa.id, "cpus": numa.cpus} for numa in topology.numa_nodes],
        "rdma_cgroup": {
            "available": topology.rdma_cgroup is not None,
            "settable": topology.rdma_settable,
            "default": _limit(topology.rdma_default),
            "devices": {name: _limit(limit) for name, limit in topology.rdma_cgroup or ()},
        },
        "rdma_exclusive": topology.rdma_exclusive,
        "memlock": topology.memlock,
        "driver_version": topology.driver_version,
        "cuda_version": topology.cuda_version,
        "pcie_source": topology.pcie_source or "/sys",
        "imex_why": topology.imex_why,
        "bandwidth_gb_per_s": [list(row) for row in topology.bandwidth],
        "weak": [{"gpus": sorted({pair.a, pair.b}), "why": pair.why} for pair in topology.weak],
    }


def _gpu(gpu: Gpu) -> dict[str, object]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "memory_bytes": gpu.memory_bytes,
        "pci": gpu.pci,
        "numa": gpu.numa,
        "healthy": gpu.healthy,
        "why": gpu.why,
        "cpu_affinity": gpu.cpu_affinity,
        "numa_affinity": gpu.numa_affinity,
        "gpu_numa": gpu.gpu_numa,
        "clique": gpu.clique,
        "chassis": gpu.chassis,
        "slot": gpu.slot,
        "tray": gpu.tray,
        "mig": gpu.mig,
        "mig_change": gpu.mig_change,
        "slices": [_slice(part) for part in gpu.slices],
        "shares": gpu.shares,
        "enforcement": gpu.enforcement,
        "share_why": gpu.share_why,
        "capability": gpu.capability,
    }


def _slice(part: Slice) -> dict[str, object]:
    return {
        "uuid": part.uuid,
        "profile": part.profile,
        "gi": part.gi,
        "ci": part.ci,
        "memory_bytes": part.memory_bytes,
        "healthy": part.healthy,
        "why": part.why,
    }


def _nic(hca: Hca, topology: NodeTopology) -> dict[str, object]:
    return {
        "name": hca.name,
        "pci": hca.pci,
        "numa": hca.numa,
        "link_layer": hca.link_layer,
        "rate_gbps": hca.rate_gbps,
        "port": hca.port,
        "uverbs": hca.uverbs,
        "why": hca.why,
        "shares": hca.shares,
        "rail": hca.rail,
        "vendor": hca.vendor,
        "device": hca.device,
        "driver": hca.driver,
        "net": hca.net,
        "physical": hca.physical,
        "pods": nic_access.access(hca, topology),
    }


def _limit(limit: RdmaLimit) -> dict[str, int | str]:
    """Returns the limits in the form of rdma.max."""
    return {
        "hca_handle": limit.hca_handle if limit.hca_handle >= 0 else "max",
        "hca_object": limit.hca_object if limit.hca_object >= 0 else "max",
    }
