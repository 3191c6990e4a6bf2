"""GPUs that work, but slower than others of their model, as the agent's process sees and reports them."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from central.standalone.local_cluster import free_port
from protos.names import GPU
from tests.agent.nvml_box import NvmlBox, nvml_box
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import gpus, pod

pytestmark = pytest.mark.slow
IDLE, SETTINGS, POWER_CAP, HOT = 1, 2, 4, 0x48


@pytest.fixture
def box(nvml_folder: Path) -> Iterator[NvmlBox]:
    with nvml_box(nvml_folder) as made:
        yield made


def slow_metric(at: int) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{at}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    return [line for line in lines if line.startswith("lockstep_gpu_slow{")]


def test_a_hot_gpu_is_said_and_allocated_last(box: NvmlBox) -> None:
    at = free_port()
    with box.running(f"--metrics-listen=127.0.0.1:{at}"):
        for gpu, reasons in ((0, IDLE), (1, SETTINGS), (2, POWER_CAP), (3, HOT | POWER_CAP)):
            box.control.set("clocks", gpu, reasons)
        box.assert_logged("GPU 3 (")
        assert "is slow: the GPU is too hot: its hardware lowers the clocks" in box.said()
        assert box.said().count(" is slow: ") == 1
        (metric,) = slow_metric(at)
        assert 'class="thermal"' in metric
        assert 'gpu="3"' in metric
        assert box.kubelet.allocatable[GPU] == 8
        assert 3 not in gpus(box.kubelet.add_pod(pod("seven", 7)))
        assert gpus(box.kubelet.add_pod(pod("last", 1))) == [3]
        box.control.set("clocks", 3, IDLE)
        box.assert_logged("is no longer slow")
        eventually(lambda: not slow_metric(at), 40)


def test_a_fabric_with_limited_capacity_makes_its_gpu_slow(box: NvmlBox) -> None:
    box.control.set("fabric_health", 5, 3)
    seen = json.loads(box.hardware.seen("topology", "-o", "json"))
    assert seen["weak"] == [{"gpus": [5], "why": "the NVLink fabric has limited capacity"}]
    assert all(gpu["healthy"] for gpu in seen["gpus"])
    shown = box.hardware.seen("topology")
    assert "Slow GPUs:\n\n  GPU5: the NVLink fabric has limited capacity\n" in shown
    with box.running():
        assert 5 not in gpus(box.kubelet.add_pod(pod("seven", 7)))
