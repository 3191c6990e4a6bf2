"""A node's topology as the JSON of `topology -o json`. Pure."""

from protos import nic_access
from protos.common.picked import picked
from protos.topology import NodeTopology, RdmaLimit

_GPU = (
    "index uuid model memory_bytes pci numa healthy why cpu_affinity numa_affinity gpu_numa clique chassis slot tray "
    "mig mig_change slices shares enforcement share_why capability pcie_root"
)
_SLICE = "uuid profile gi ci memory_bytes healthy why"
_NIC = "name pci numa link_layer rate_gbps port uverbs why shares rail vendor device driver net physical"


def to_json(node: str, topology: NodeTopology) -> dict[str, object]:
    return {
        "node": node,
        "gpus": [
            {**picked(gpu, _GPU), "slices": [picked(part, _SLICE) for part in gpu.slices]}
            for gpu in topology.gpus
        ],
        "hcas": [
            {**picked(hca, _NIC), "pods": nic_access.access(hca, topology)} for hca in topology.hcas
        ],
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
        **picked(topology, "rdma_exclusive memlock driver_version cuda_version"),
        "pcie_source": topology.pcie_source or "/sys",
        "imex_why": topology.imex_why,
        "bandwidth_gb_per_s": [list(row) for row in topology.bandwidth],
        "weak": [{"gpus": sorted({pair.a, pair.b}), "why": pair.why} for pair in topology.weak],
    }


def _limit(limit: RdmaLimit) -> dict[str, int | str]:
    """Returns the limits in the form of rdma.max."""
    return {
        "hca_handle": limit.hca_handle if limit.hca_handle >= 0 else "max",
        "hca_object": limit.hca_object if limit.hca_object >= 0 else "max",
    }
