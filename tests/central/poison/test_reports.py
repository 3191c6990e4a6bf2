"""Reports of a compromised node: refused with the field's name, or harmless to the core."""

from collections.abc import Callable

import pytest

from central.model import limits
from central.model.facts import NodeReported
from central.server.grpc import report_bounds
from central.server.grpc.agent_service import _fact
from central.server.grpc.report_bounds import MalformedReport
from protos.names import GPU, GPU_SHARE, RDMA
from protos.stubs import fleet_pb2 as pb
from tests.central import factories
from tests.central.kube.raw_objects import container
from tests.central.poison import corpus
from tests.central.poison.world import CYCLE_S, World, read

HUGE = 2**63 - 1


def report(gpus: int = 8, hcas: int = 0, node: str = "n0") -> pb.NodeReport:
    """A report of the healthy gang's node."""
    message = pb.NodeReport(node=node, boot_id="b", generation=1)
    side = gpus + hcas
    for i in range(gpus):
        message.topology.gpus.add(
            index=i, uuid=f"GPU-{i}", pci=f"0000:{i % 256:02x}:00.0", healthy=True
        )
    for i in range(hcas):
        message.topology.hcas.add(name=f"mlx5_{i}", shares=16)
        message.topology.rdma_cgroup.devices[f"mlx5_{i}"].hca_handle = 1000
    for i in range(side):
        message.topology.links.add(cells=["X" if i == j else "SYS" for j in range(side)])
    return message


def gpu(**values: object) -> Callable[[pb.NodeReport], None]:
    def change(message: pb.NodeReport) -> None:
        for name, value in values.items():
            setattr(message.topology.gpus[0], name, value)

    return change


def hca(**values: object) -> Callable[[pb.NodeReport], None]:
    def change(message: pb.NodeReport) -> None:
        for name, value in values.items():
            setattr(message.topology.hcas[0], name, value)

    return change


def limit(handles: int) -> Callable[[pb.NodeReport], None]:
    def change(message: pb.NodeReport) -> None:
        message.topology.rdma_cgroup.devices["mlx5_0"].hca_handle = handles

    return change


def grants(
    count: int = 1, devices: int = 1, **limits_by_name: int
) -> Callable[[pb.NodeReport], None]:
    def change(message: pb.NodeReport) -> None:
        for i in range(count):
            ids = [f"GPU-{n}" for n in range(devices)]
            message.grants.add(pod=f"p{i}", resource=GPU, device_ids=ids, limits=limits_by_name)

    return change


def rows(**values: float) -> Callable[[pb.NodeReport], None]:
    def change(message: pb.NodeReport) -> None:
        for _ in range(8):
            message.topology.bandwidth.add(gb_per_s=[*values.values()] * 8)

    return change


def decode(message: pb.NodeReport) -> NodeReported | None:
    """As the service does."""
    report_bounds.check(message)
    return _fact(message, None)


def refused(message: pb.NodeReport) -> str:
    with pytest.raises(MalformedReport) as error:
        decode(message)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (gpu(memory_bytes=2**64 - 1), "topology.gpus[0].memory_bytes: 18446744073709551615"),
        (gpu(shares=2**32 - 1), "topology.gpus[0].shares"),
        (gpu(numa=2**31 - 1), "topology.gpus[0].numa"),
        (gpu(uuid=""), "topology.gpus[0]: '' is not the name"),
        (gpu(uuid="GPU-1"), "topology: two GPUs have the same uuid"),
        (gpu(pci="zz:00"), "topology.gpus[0].pci"),
        (gpu(why="x" * 100_000), "topology.gpus[0].why: 100000 characters; at most 1024"),
        (gpu(clique="x" * 100_000), "topology.gpus[0].clique"),
        (gpu(index=70), "topology: GPU indices"),
        (hca(name="mlx5_1"), "topology.hcas: two are called mlx5_1"),
        (hca(rate_gbps=float("nan")), "topology.hcas[0].rate_gbps: nan"),
        (hca(rate_gbps=float("inf")), "topology.hcas[0].rate_gbps: inf"),
        (hca(rate_gbps=-1.0), "topology.hcas[0].rate_gbps"),
        (hca(shares=2**32 - 1), "topology.hcas[0].shares"),
        (limit(HUGE), "topology.rdma_cgroup.devices[mlx5_0].hca_handle"),
        (limit(-(2**63)), "topology.rdma_cgroup.devices[mlx5_0].hca_handle"),
        (grants(limits.GRANTS + 1), "grants: 16385 entries; at most 16384"),
        (grants(devices=limits.GRANT_DEVICES + 1), "grants[0].device_ids"),
        (grants(share=HUGE), "grants[0].limits[share]"),
        (grants(memory=-HUGE), "grants[0].limits[memory]"),
        (rows(rate=float("nan")), "topology.bandwidth[0].gb_per_s[0]: nan"),
        (lambda m: m.topology.weak.add(a=99), "topology.weak[0]: 99"),
        (lambda m: m.topology.islands.add(gpus=[0] * 10_000), "topology.islands[0]"),
        (lambda m: m.topology.islands.add(gpus=[70]), "topology: an island has an unknown GPU"),
        (lambda m: m.topology.pcie_switches.add(gpus=[0] * 10_000), "topology.pcie_switches[0]"),
        (
            lambda m: m.topology.pcie_switches.add(gpus=[70]),
            "topology: a PCIe switch has an unknown",
        ),
        (
            lambda m: m.topology.pcie_switches.add(gpus=[1, 1]),
            "topology.pcie_switches: a GPU is below",
        ),
        (lambda m: m.rdma_use.add(failures=-(2**63)), "rdma_use[0].failures"),
        (lambda m: m.memory_over.add(gpu=2**32 - 1), "memory_over[0].gpu"),
        (lambda m: m.memory_over.add(used=-1), "memory_over[0].used"),
        (lambda m: setattr(m, "boot_id", "b" * 100_000), "boot_id"),
        (lambda m: setattr(m.topology, "memlock", -5), "topology.memlock"),
    ],
)
def test_a_report_out_of_bounds_names_its_field(
    change: Callable[[pb.NodeReport], object], says: str
) -> None:
    message = report(8, 2)
    change(message)
    assert refused(message).startswith(says)


@pytest.mark.parametrize(("gpus", "hcas"), [(64, 0), (63, 0), (1000, 0), (8, 600)])
def test_a_machine_larger_than_any(gpus: int, hcas: int) -> None:
    assert " entries; at most " in refused(report(gpus, hcas))


def test_the_largest_report_that_is_accepted_harms_nobody() -> None:
    message = report(limits.GPUS, 64)
    for gpu in message.topology.gpus:
        gpu.memory_bytes, gpu.shares, gpu.enforcement = limits.GPU_MEMORY, 100, "kernel"
    message.topology.rdma_cgroup.available = message.topology.rdma_cgroup.settable = True
    for hca in message.topology.hcas:
        hca.shares, hca.rate_gbps = report_bounds.NIC_SHARES, 1e9
        message.topology.rdma_cgroup.devices[hca.name].hca_handle = limits.NIC_AMOUNT
    message.topology.islands.add(gpus=range(limits.GPUS))
    grants(1000, 40, share=100)(message)
    fact = decode(message)
    assert isinstance(fact, NodeReported)
    world = World()
    cases: list[dict[str, str]] = [{GPU: "60"}, {GPU_SHARE: "1"}, {GPU: "1", RDMA: "64"}]
    pods = [
        corpus.pod(containers=[{**container(), "resources": {"limits": each}}]) for each in cases
    ]
    for number, raw in enumerate(pods):
        raw["metadata"] |= {"name": f"p-{number}", "uid": f"u{number}"}
    seen = factories.node("n0", rack="r1", block="b", gpus=limits.GPUS, shares=True)
    facts = [found for raw in pods if (found := read("pods", raw).fact)]
    _, spent_s = world.cycle(seen, fact, *facts)
    assert spent_s < CYCLE_S
