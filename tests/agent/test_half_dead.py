"""A GPU that answers UNKNOWN to every query but its identity, under a running agent: the kubelet loses that GPU
alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.nvml_box import NvmlBox, nvml_box

UNKNOWN, CORRUPTED_INFOROM = 999, 14


@pytest.fixture
def box(nvml_folder: Path) -> Iterator[NvmlBox]:
    with nvml_box(nvml_folder) as made:
        yield made


def test_a_half_dead_gpu_leaves_and_returns(box: NvmlBox) -> None:
    with box.running():
        box.control.fail("nvmlDeviceGetMinorNumber", CORRUPTED_INFOROM, 6)
        box.assert_logged(
            "GPU 6: its InfoROM is corrupted (nvmlDeviceGetMinorNumber); it still works"
        )
        box.assert_healthy(8)
        box.control.set("erring", 3, UNKNOWN)
        box.assert_healthy(7)
        box.assert_logged("is unhealthy: NVML answers UNKNOWN to ")
        shown = json.loads(box.hardware.seen("topology", "-o", "json"))
        sick = [gpu for gpu in shown["gpus"] if not gpu["healthy"]]
        assert [gpu["index"] for gpu in sick] == [3]
        assert sick[0]["why"].endswith("which a GPU like it answers"), "without a past"
        box.control.set("erring", 3, 0)
        box.assert_healthy(8)
    box.control.set("erring", 3, UNKNOWN)
    box.whole = 7
    with box.running():
        box.assert_logged("listening for the events of 7 GPUs")
