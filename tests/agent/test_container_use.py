"""The use of GPUs by container: of a real agent on a fake driver, and in parts."""

import json
from pathlib import Path

import pytest

from agent import container_use
from agent.node_state import NodeState
from agent.nvml.usage import Usage
from protos.names import GPU, GPU_SHARE, MIG, RDMA
from protos.nearest import share_id
from protos.topology import GpuUse, Grant
from tests.fakes import proc


def state(*grants: Grant) -> NodeState:
    return NodeState(grants=grants, grants_known=True)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"a": (0.5, 10), "b": (1.0, 20)}, (0.75, 30)),
        ({"a": (0.0, 10), "b": (None, None)}, (0.0, 10)),
        ({"a": (None, 5)}, (-1.0, 5)),
        ({}, (-1.0, -1)),
        ({"a": (2.55, 2**64 - 1)}, (1.0, 2**63 - 1)),  # beyond these the scheduler takes no report
    ],
)
def test_a_container_alone_on_its_gpus(
    usage: dict[str, tuple[float | None, int | None]], expected: tuple[float, int]
) -> None:
    known = {uuid: Usage(uuid, size, rate) for uuid, (rate, size) in usage.items()}
    grants = (Grant("ns", "p", "c", GPU, ("a", "b")), Grant("ns", "p", "c", RDMA, ("x",)))
    assert container_use.exclusive(state(*grants), known) == [GpuUse("ns", "p", "c", *expected)]


def test_a_slice_has_its_memory_alone() -> None:
    grant = Grant("ns", "p", "c", f"{MIG}1g.10gb", ("MIG-1",))
    found = container_use.exclusive(state(grant), {"MIG-1": Usage("MIG-1", 7)})
    assert found == [GpuUse("ns", "p", "c", -1.0, 7)]


UID, OTHER = "11111111-2222-3333-4444-555555555555", "11111111-2222-3333-4444-666666666666"


def pods_on(first: str, second: str, folder: Path) -> NodeState:
    """Two pods with shares of these GPUs, also in the kubelet's checkpoint."""
    ids = [(share_id(uuid, at), share_id(uuid, at + 50)) for at, uuid in enumerate((first, second))]
    grants = [Grant("ns", name, "c", GPU_SHARE, each) for name, each in zip("pq", ids, strict=True)]
    entries = [
        {"PodUID": uid, "ContainerName": "c", "ResourceName": GPU_SHARE, "DeviceIDs": each}
        for uid, each in zip((UID, OTHER), ids, strict=True)
    ]
    data = {"Data": {"PodDeviceEntries": entries}, "Checksum": 0}
    (folder / "kubelet_internal_checkpoint").write_text(json.dumps(data))
    return state(*grants)


def test_containers_that_share_a_gpu(tmp_path: Path) -> None:
    """Processes of other pods, of pods on other GPUs, and such as have ended, count for no container."""
    known = pods_on("GPU-a", "GPU-a", tmp_path)
    proc.of_the_host(tmp_path)
    for pid, uid in ((10, UID), (11, UID), (12, OTHER), (13, "no")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{uid}/x\n")
    memory = {"GPU-a": {10: 1, 11: 2, 12: 4, 13: 8, 14: 16}, "GPU-b": {10: 32}, "GPU-c": None}
    rates = {"GPU-a": {10: 0.7, 11: 0.6, 13: 0.1}}
    assert container_use.shared_gpus(known) == ["GPU-a"]
    found = container_use.shared(known, memory, rates, tmp_path, tmp_path)
    assert sorted(found) == [GpuUse("ns", "p", "c", 1.0, 3), GpuUse("ns", "q", "c", 0.0, 4)]


def test_a_shared_gpu_whose_processes_the_driver_does_not_report_is_not_idle(
    tmp_path: Path,
) -> None:
    known = pods_on("GPU-a", "GPU-b", tmp_path)
    proc.of_the_host(tmp_path)
    found = container_use.shared(known, {"GPU-a": None, "GPU-b": {}}, {}, tmp_path, tmp_path)
    assert sorted(found) == [GpuUse("ns", "p", "c", -1.0, -1), GpuUse("ns", "q", "c", 0.0, 0)]


def test_shares_have_no_use_where_the_agent_does_not_see_the_host_s_processes(
    tmp_path: Path,
) -> None:
    """The driver then lists none, as if the GPU were idle."""
    known = pods_on("GPU-a", "GPU-a", tmp_path)
    proc.of_a_container(tmp_path)
    assert container_use.shared(known, {"GPU-a": {}}, {}, tmp_path, tmp_path) == []
