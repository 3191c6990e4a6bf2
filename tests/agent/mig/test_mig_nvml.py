"""MIG through NVML, with the agent as a process: slices are created, deleted and fail while pods
run."""

import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.machine import capture
from agent.machine.facts import Machine
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU
from tests.agent.nvml_box import NvmlBox, nvml_box
from tests.agent.nvml_fixture import CAPTURES
from tests.captures.mig import sliced
from tests.fakes.eventually import eventually
from tests.fakes.nvml import build

pytestmark = pytest.mark.slow

ONE, TWO, THREE = (f"nvidia.com/mig-{name}" for name in ("1g.5gb", "2g.10gb", "3g.20gb"))
MACHINE = capture.load(CAPTURES / "dgx-a100-mig-8.json")


@pytest.fixture
def box(nvml_folder: Path) -> Iterator[NvmlBox]:
    with nvml_box(nvml_folder) as made:
        made.hardware.install(MACHINE)
        made.whole = 6
        yield made


def divided(gpu: int, profiles: dict[int, str] | None) -> Machine:
    """The machine with this GPU partitioned differently; None: not in MIG mode."""
    parts = list(MACHINE.nvml.gpus)
    plain = replace(parts[gpu], mig=False, slices=())
    parts[gpu] = plain if profiles is None else sliced(plain, profiles)
    return replace(MACHINE, nvml=replace(MACHINE.nvml, gpus=tuple(parts)))


def assert_allocatable(box: NvmlBox, resource: str, count: int) -> None:
    eventually(lambda: box.kubelet.allocatable.get(resource, 0) == count, 40)


def slice_pod(box: NvmlBox, name: str, resource: str, count: int = 1) -> dict[str, str]:
    wants = (Container("c0", ((resource, count),)),)
    admission = box.kubelet.add_pod(KubeletPod(f"uid-{name}", "team", name, wants))
    assert admission.ok, admission
    return dict(admission.containers[0].envs)


def test_an_error_of_one_instance(box: NvmlBox) -> None:
    with box.running("--survey-every=60"):
        assert_allocatable(box, ONE, 9)
        box.control.xid(7, 94, 9, 0)
        assert_allocatable(box, ONE, 8)
        box.assert_logged(
            "GPU 7's 1g.5gb (gi 9, ci 0) is unhealthy: XID 94: contained memory error"
        )
        box.assert_logged(", GPU instance 9) XID 94")
        box.assert_logged("GPU 7's 1g.5gb (gi 9, ci 0) is healthy again")
        assert_allocatable(box, ONE, 9)
        box.control.xid(7, 79, 9, 0)  # concerns the whole GPU
        assert_allocatable(box, ONE, 2)
        box.assert_logged("GPU 7 (")
    assert "GPU 6" not in box.said().replace("GPU 6 (GPU-", "")


def test_repartitioning_without_a_restart(box: NvmlBox) -> None:
    with box.running():
        assert_allocatable(box, THREE, 1)
        held = slice_pod(box, "a", THREE)["NVIDIA_VISIBLE_DEVICES"]
        box.hardware.install(divided(6, {1: "3g.20gb", 2: "3g.20gb"}))
        assert_allocatable(box, THREE, 2)
        assert_allocatable(box, TWO, 0)
        assert_allocatable(box, ONE, 7)
        box.assert_logged("is in MIG slices: 3g.20gb, 3g.20gb")
        assert slice_pod(box, "b", THREE)["NVIDIA_VISIBLE_DEVICES"] != held
        box.control.xid(6, 94, 2, 0)  # the GPU has a new handle
        box.assert_logged("GPU 6's 3g.20gb (gi 2, ci 0) is unhealthy")
        assert_allocatable(box, THREE, 1)
        assert_allocatable(box, THREE, 2)
        box.assert_logged("nvidia.com/mig-2g.10gb has no devices any more")
        box.hardware.install(divided(6, {}))
        assert_allocatable(box, THREE, 0)
        box.assert_logged("is in MIG mode without slices")
        box.assert_healthy(6)
        box.hardware.install(divided(6, None))
        box.assert_logged("is whole")
        box.assert_healthy(6)  # two pods still hold slices of it
        box.kubelet.end_pod("uid-a")
        box.kubelet.end_pod("uid-b")
        box.assert_healthy(7, 20)


def test_the_slices_of_a_lost_gpu_are_unhealthy(box: NvmlBox) -> None:
    with box.running():
        assert_allocatable(box, ONE, 9)
        box.control.set("lost", 7, build.GPU_IS_LOST)
        assert_allocatable(box, ONE, 2)
        assert box.kubelet.capacity[ONE] == 9
        box.control.set("lost", 7, 0)
        assert_allocatable(box, ONE, 9)


def test_without_the_rights_the_slices_are_unknown_and_not_none(box: NvmlBox) -> None:
    refused = "the driver refuses the agent nvmlDeviceGetMemoryInfo in MIG mode: add components/mig"
    with box.running():
        assert_allocatable(box, ONE, 9)
        box.control.set("mig_monitor", 6, 0)
        box.control.set("mig_monitor", 7, 0)
        assert_allocatable(box, ONE, 0)
        box.assert_logged(f"GPU 7 ({MACHINE.nvml.gpus[7].uuid}) is unhealthy: {refused}")
        box.assert_healthy(6)
        shown = box.hardware.seen("topology")
        assert f"GPU7: {refused}" in shown
        assert "-cgi PROFILE" not in shown
        box.control.set("mig_monitor", 6, 1)
        box.control.set("mig_monitor", 7, 1)
        eventually(lambda: box.kubelet.allocatable.get(ONE) == 9)


def test_a_driver_that_hangs_in_a_slice(box: NvmlBox) -> None:
    with box.running():
        box.control.hang("nvmlDeviceGetComputeInstanceId", 1.0)
        assert_allocatable(box, ONE, 0)
        box.assert_healthy(0)
        box.control.hang("nvmlDeviceGetComputeInstanceId", 0)
        eventually(lambda: box.kubelet.allocatable.get(ONE) == 9)


def test_memory_use_of_slices(box: NvmlBox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def metrics() -> dict[str, list[tuple[dict[str, str], float]]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    with box.running("--metrics-listen", f"127.0.0.1:{port}", "--report-every=0.2"):
        assert_allocatable(box, TWO, 1)
        uuid = slice_pod(box, "a", TWO)["LOCKSTEP_SLICES"]
        box.control.set("slice_used", 6, 5, 700)
        name = "lockstep_grant_slice_memory_used_bytes"
        eventually(lambda: metrics().get(name), 40)
        ((labels, used),) = metrics()[name]
        parent = MACHINE.nvml.gpus[6].uuid
        expected = {"gpu": "6", "uuid": parent, "slice": uuid, "profile": "2g.10gb"}
        holder = {"namespace": "team", "pod": "a", "container": "c0"}
        assert labels == {**expected, **holder, "enforcement": "mig"}
        assert used == 700 << 20
        told = metrics()
        assert (expected, 700 << 20) in told["lockstep_slice_memory_used_bytes"]
        assert (expected, 9984 << 20) in told["lockstep_slice_memory_bytes"]
        assert [fit for _, fit in told["lockstep_slice_healthy"]] == [1] * 11
        assert ({"resource": TWO}, 1) in told["lockstep_agent_registered"]


def test_whole_gpus_and_slices_at_once(box: NvmlBox) -> None:
    with box.running():
        assert_allocatable(box, ONE, 9)
        slice_pod(box, "a", ONE, 9)
        whole = slice_pod(box, "w", GPU, 6)
        assert whole["LOCKSTEP_GPUS"] == "0,1,2,3,4,5"
        refused = box.kubelet.add_pod(
            KubeletPod("uid-v", "team", "v", (Container("c0", ((GPU, 1),)),))
        )
        assert not refused.ok
