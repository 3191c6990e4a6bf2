"""The matrix of a small machine, whole."""

from protos import matrix
from protos.topology import Gpu, Hca, NodeTopology, RdmaLimit

TOPOLOGY = NodeTopology(
    gpus=(
        Gpu(0, "GPU-a", "A", 80 << 30, "0000:07:00.0", 3, cpu_affinity="0-3", numa_affinity="3"),
        Gpu(1, "GPU-b", "A", 80 << 30, "0000:0f:00.0", healthy=False, why="GPU is lost"),
    ),
    hcas=(Hca("mlx5_4", "0000:0c:00.0", 3, "InfiniBand", 200.0),),
    links=(("X", "NV12", "PXB"), ("NV12", "X", "SYS"), ("PXB", "SYS", "X")),
    islands=((0, 1),),
    pcie_switches=((0,), (1,)),
    rdma_cgroup=(("mlx5_4", RdmaLimit(hca_handle=2)),),
    driver_version="535.161.08",
)
TABLE = """\
      GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity  GPU NUMA ID
GPU0  X     NV12  PXB   0-3           3              N/A
GPU1  NV12  X     SYS   N/A           N/A            N/A
NIC0  PXB   SYS   X
"""


def test_the_table_reads_as_nvidia_smi_writes_it() -> None:
    text = matrix.table(TOPOLOGY)
    assert text.startswith(TABLE)
    assert "\nNIC Legend:\n\n  NIC0: mlx5_4\n" in text
    assert text.endswith("Unhealthy:\n\n  GPU1: GPU is lost\n")


def test_a_machine_without_nics_has_no_nic_legend() -> None:
    one = NodeTopology(gpus=TOPOLOGY.gpus[:1], links=(("X",),))
    assert matrix.table(one).startswith("      GPU0  CPU Affinity")
    assert "NIC" not in matrix.table(one)


def test_an_empty_machine_has_a_table() -> None:
    assert matrix.rows(NodeTopology()) == [["", *matrix.AFFINITY]]
    assert matrix.table(NodeTopology())
