"""A GPU that fails under a real agent, seen by whoever reads Node objects: the API in memory, the scheduler and the
agent as processes."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node

pytestmark = pytest.mark.slow

FLAGS = (
    "--node-labels",
    "--node-condition=GpuUnhealthy",
    "--node-taint=lockstep.dev/gpu-unhealthy=broken:NoSchedule",
)
PATIENCE_S = 90.0  # surveys of the agent every 30 s, rounds of the scheduler every 10 s


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The capture of node n1, which a test changes."""
    return Path(shutil.copy(CAPTURES / "dgx-a100-8.json", tmp_path / "machine.json"))


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, machine: Path) -> Iterator[FaultyCluster]:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    nodes = [HollowNode("n1", {"team": "a"}, machine), bare_node("cpu", {}, gpus=0)]
    with FaultyCluster(nodes, flags=FLAGS) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.start_agents()
        yield made


def read(box: FaultyCluster, name: str = "n1") -> Any:
    return box.client.get(f"/api/v1/nodes/{name}")


def condition(box: FaultyCluster, status: str) -> Any:
    """The condition, once it has this status."""
    found = read(box)["status"].get("conditions", ())
    return next((c for c in found if (c["type"], c["status"]) == ("GpuUnhealthy", status)), None)


def test_a_gpu_fails_under_a_real_agent(box: FaultyCluster, machine: Path) -> None:
    healthy = box.wait("the condition", lambda: condition(box, "False"), PATIENCE_S)
    assert healthy["reason"] == "GpusHealthy"
    labels = read(box)["metadata"]["labels"]
    assert labels["team"] == "a"
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert not read(box)["spec"].get("taints")

    broken = json.loads(machine.read_text())
    broken["gpus"][3]["fault"] = "the GPU is lost"
    machine.write_text(json.dumps(broken))
    found = box.wait("the failure", lambda: condition(box, "True"), PATIENCE_S)
    assert found["reason"] == "GpuUnhealthy"
    assert found["message"].startswith("GPU 3 (")
    assert "lost" in found["message"]
    taint = {"key": "lockstep.dev/gpu-unhealthy", "value": "broken", "effect": "NoSchedule"}
    box.wait("the taint", lambda: read(box)["spec"].get("taints") == [taint], PATIENCE_S)
    assert all(key == "kubernetes.io/hostname" for key in read(box, "cpu")["metadata"]["labels"])
