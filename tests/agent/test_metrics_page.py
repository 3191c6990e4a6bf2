"""Every sample of the agent's metrics, of a node that has one of each."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agent.allocations import Forgotten
from agent.health.gpu_health import DeviceHealth
from agent.health.gpu_speed import Speed
from agent.kubelet.latency import Latency
from agent.machine.facts import NvLink, Wear
from agent.machine.findings import Finding
from agent.metrics import Metrics
from agent.node import AgentNode
from agent.nvml.usage import Usage
from agent.sharing.responses import ShareSettings
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.topology import Gpu, Grant, Hca, NodeTopology, RdmaLimit, RdmaUse, Slice
from tests.fakes import machines

MIG = "nvidia.com/mig-1g.10gb"
GPUS = (
    Gpu(0, "g0", "H100", 80, "p0"),
    Gpu(1, "g1", "H100", 80, "p1", healthy=False, shares=0, enforcement="watch"),
    Gpu(2, "g2", "A30", 24, "p2", shares=100, enforcement="kernel"),
    Gpu(
        3, "g3", "A100", 40, "p3", mig=True,
        slices=(Slice("m1", "1g.10gb", 7, 0, 10), Slice("m2", "1c.3g.20gb", 2, 1, 20, healthy=False)),
    ),
)  # fmt: skip
HCAS = (Hca("mlx5_0", "n0", rate_gbps=400.0), Hca("mlx5_1", "n1", rate_gbps=200.0, why="down"))
SHARES, OTHERS = tuple(share_id("g2", n) for n in (1, 2, 3)), (share_id("g2", 9),)
GRANTS = (
    Grant("ns", "a", "c", GPU, ("g0", "g9")),
    Grant("ns", "b", "c", GPU_SHARE, SHARES),
    Grant("ns", "d", "c", GPU_SHARE, OTHERS),
    Grant("ns", "e", "c", MIG, ("m1", "m9")),
    Grant("ns", "f", "c", "nvidia.com/mig-1c.3g.20gb", ("m2",)),
    Grant("ns", "h", "c", GPU_SHARE, (share_id("g9", 1),)),
)
USAGE = (
    Usage("g0", 11, 0.5, 40, 300.0, 6),
    Usage("g2", 12),
    Usage("m1", 13),
    Usage("m2", 14),
    Usage("g9", 15, 0.1),
)


def node(**topology: Any) -> AgentNode:
    made = AgentNode("n")
    made.set_topology(NodeTopology(GPUS, HCAS, **topology))
    made.set_grants(GRANTS, forgotten=(Forgotten(GPU, ("g1",), "held back"),))
    uses = (
        RdmaUse("ns", "a", "mlx5_0", RdmaLimit(3, 0), RdmaLimit(64, -1), 7),
        RdmaUse("ns", "b", "mlx5_1", RdmaLimit(-1, 5), RdmaLimit(-1, 9), -1),
    )
    made.set_rdma_use(uses)
    made.set_intents(GRANTS[:2], 1)
    return made


def monitor(**other: Any) -> Any:
    links = tuple(NvLink(number, number != 1, "gpu", "p0") for number in range(4))
    fact = machines.machine(1).nvml.gpus[0]
    wear = Wear(ecc_volatile=0, ecc_aggregate=2)
    xid, lost = Finding("xid", "XID 79"), Finding("lost", "gone")
    made = SimpleNamespace(
        usage=lambda: USAGE,
        facts=(
            replace(fact, uuid="g0", nvlinks=links, wear=wear),
            replace(fact, uuid="g1", nvlinks=(), wear=Wear(-1, 5), corrupt=("nvmlDeviceGetSerial",)),
            replace(fact, uuid="g8", nvlinks=links, wear=wear),
        ),
        gpus={"g0": DeviceHealth(), "g1": DeviceHealth(cause=xid), "g2": DeviceHealth(cause=lost, clear_since=3.0)},
        speeds={"g0": Speed(DeviceHealth(cause=Finding("thermal", "hot"))), "g2": Speed(DeviceHealth()), "g9": Speed(DeviceHealth(cause=xid))},
        nics={"mlx5_0": DeviceHealth(failures=2)},
        xids={("g1", 79): 3, ("", 31): 1, ("g7", 48): 2},
        events=SimpleNamespace(listening=4),
        sharing=SimpleNamespace(settings=lambda: {SHARES: ShareSettings("kernel", 5)}, used={SHARES: 21}),
    )  # fmt: skip
    vars(made).update(other)
    return made


def samples(metrics: Metrics) -> dict[str, dict[str, float]]:
    """By name and labels; none is there twice."""
    found: dict[str, dict[str, float]] = {}
    for family in metrics.collect():
        rows = found.setdefault(family.name, {})
        for each in family.samples:
            labels = " ".join(f"{key}={value}" for key, value in each.labels.items())
            name = each.name.removeprefix(family.name)
            key = f"{name} {labels}".strip()
            assert key not in rows
            rows[key] = each.value
    return found


def page(**other: Any) -> dict[str, dict[str, float]]:
    took = Latency()
    took.add(0.003)
    plugins: Any = [
        SimpleNamespace(resource=GPU, registered=True, took=took),
        SimpleNamespace(resource=MIG, registered=False, took=Latency()),
    ]
    reporter: Any = SimpleNamespace(sent=5, failed=2)
    return samples(Metrics(node(), monitor(**other), plugins, reporter))


ZERO, ONE, TWO, THREE = ("gpu=0 uuid=g0", "gpu=1 uuid=g1", "gpu=2 uuid=g2", "gpu=3 uuid=g3")
CONTAINER = "namespace=ns pod={} container=c"
FIRST, SECOND = f"{THREE} slice=m1 profile=1g.10gb", f"{THREE} slice=m2 profile=1c.3g.20gb"


def of(pod: str, rest: str) -> str:
    return f"{CONTAINER.format(pod)} {rest}"


EXPECTED: dict[str, dict[str, float]] = {
    "lockstep_gpu_info": {f"{ZERO} model=H100": 1, f"{ONE} model=H100": 1, f"{TWO} model=A30": 1, f"{THREE} model=A100": 1},
    "lockstep_gpu_healthy": {ZERO: 1, ONE: 0, TWO: 1, THREE: 1},
    "lockstep_gpu_unfit": {f"{ONE} class=xid": 1, f"{TWO} class=held": 1},
    "lockstep_gpu_slow": {f"{ZERO} class=thermal": 1},
    "lockstep_gpu_memory_bytes": {ZERO: 80, ONE: 80, TWO: 24, THREE: 40},
    "lockstep_gpu_held_back": {ONE: 1},
    "lockstep_imex_missing": {"": 0},
    "lockstep_gpu_memory_used_bytes": {ZERO: 11, TWO: 12},
    "lockstep_gpu_utilization_ratio": {ZERO: 0.5},
    "lockstep_gpu_temperature_celsius": {ZERO: 40},
    "lockstep_gpu_power_watts": {ZERO: 300.0},
    "lockstep_gpu_nvlink_errors": {f"_total {ZERO}": 6},
    "lockstep_gpu_nvlinks_active": {ZERO: 3},
    "lockstep_gpu_ecc_uncorrectable": {f"{ZERO} since=volatile": 0, f"{ZERO} since=aggregate": 2, f"{ONE} since=aggregate": 5},
    "lockstep_gpu_inforom_corrupted": {ONE: 1},
    "lockstep_gpu_xid": {f"_total {ONE} xid=79": 3, "_total gpu= uuid= xid=31": 1, "_total gpu= uuid=g7 xid=48": 2},
    "lockstep_grant_devices": {
        of("a", f"resource={GPU}"): 2,
        of("b", f"resource={GPU_SHARE}"): 3,
        of("d", f"resource={GPU_SHARE}"): 1,
        of("e", f"resource={MIG}"): 2,
        of("f", "resource=nvidia.com/mig-1c.3g.20gb"): 1,
        of("h", f"resource={GPU_SHARE}"): 1,
    },
    "lockstep_grant_gpu_memory_used_bytes": {of("a", "gpu=0"): 11},
    "lockstep_slice_healthy": {FIRST: 1, SECOND: 0},
    "lockstep_slice_memory_bytes": {FIRST: 10, SECOND: 20},
    "lockstep_slice_memory_used_bytes": {FIRST: 13, SECOND: 14},
    "lockstep_grant_slice_memory_used_bytes": {
        of("e", f"{FIRST} enforcement=mig"): 13,
        of("f", f"{SECOND} enforcement=none"): 14,
    },
    "lockstep_gpu_shares": {f"{ZERO} enforcement=none": 0, f"{ONE} enforcement=watch": 0, f"{TWO} enforcement=kernel": 100},
    "lockstep_grant_gpu_hundredths": {
        of("a", "gpu=0 enforcement=whole"): 100,
        of("b", "gpu=2 enforcement=kernel"): 3,
        of("d", "gpu=2 enforcement=unknown"): 1,
    },
    "lockstep_grant_gpu_share_memory_used_bytes": {of("b", "gpu=2 enforcement=kernel"): 21},
    "lockstep_hca_up": {"hca=mlx5_0": 1, "hca=mlx5_1": 0},
    "lockstep_hca_rate_gbps": {"hca=mlx5_0": 400.0, "hca=mlx5_1": 200.0},
    "lockstep_runtime_memlock_bytes": {},
    "lockstep_hca_falls": {"hca=mlx5_0": 2},
    "lockstep_grant_rdma_used": {
        "namespace=ns pod=a hca=mlx5_0 kind=handles": 3,
        "namespace=ns pod=a hca=mlx5_0 kind=objects": 0,
        "namespace=ns pod=b hca=mlx5_1 kind=objects": 5,
    },
    "lockstep_grant_rdma_limit": {
        "namespace=ns pod=a hca=mlx5_0 kind=handles": 64,
        "namespace=ns pod=b hca=mlx5_1 kind=objects": 9,
    },
    "lockstep_grant_rdma_failures": {"_total namespace=ns pod=a hca=mlx5_0": 7},
    "lockstep_agent_registered": {f"resource={GPU}": 1, f"resource={MIG}": 0},
    "lockstep_agent_intents": {"": 2},
    "lockstep_agent_event_gpus": {"": 4},
    "lockstep_agent_reports": {"_total outcome=sent": 5, "_total outcome=failed": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_metric(name: str) -> None:
    assert page()[name] == EXPECTED[name]


def test_there_is_no_other_metric() -> None:
    found = page()
    assert found.pop("lockstep_agent_generation")[""] == node().state.generation
    took = found.pop("lockstep_agent_allocate_seconds")
    assert took[f"_bucket resource={GPU} le=0.001"] == 0
    assert took[f"_bucket resource={GPU} le=0.005"] == 1
    assert (took[f"_count resource={GPU}"], took[f"_sum resource={GPU}"]) == (1, 0.003)
    assert took[f"_count resource={MIG}"] == 0
    assert found.keys() == EXPECTED.keys()


def test_what_a_node_does_not_have() -> None:
    plain = samples(Metrics(AgentNode("n"), monitor(events=None), [], None))
    assert plain["lockstep_agent_event_gpus"] == {"": 0}
    assert "lockstep_agent_reports" not in plain
    assert not [name for name in plain if "slice" in name]
    assert plain["lockstep_gpu_memory_used_bytes"] == {}, "GPUs that are not the node's"
    for memlock, shown in ((0, {}), (8, {"": 8.0}), (-1, {"": float("inf")})):
        given = node(memlock=memlock)
        assert samples(Metrics(given, monitor(), [], None))["lockstep_runtime_memlock_bytes"] == shown  # fmt: skip
