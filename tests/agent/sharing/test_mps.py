"""GPUs shared by MPS: the real agent and the real gpu-setup, the fake NVML library, and a fake of
NVIDIA's control daemon."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from protos.gpu_sharing import MEMORY
from protos.names import GPU, GPU_SHARE
from tests.fakes.eventually import eventually
from tests.fakes.sharebox import GIB, ShareBox, pod, share_box, uid, whole

pytestmark = pytest.mark.slow

ANYBODY, ONE_PROCESS = 0, 3


@pytest.fixture
def box() -> Iterator[ShareBox]:
    with share_box() as made:
        (made.config / "default").write_text("0-3: mps; 4-7: none")
        yield made


def mode(box: ShareBox, gpu: int) -> int:
    """The GPU's compute mode."""
    text = box.kept.read_text() if box.kept.exists() else ""
    rows = [line.split() for line in text.splitlines()]
    return int(
        [row[2] for row in [["mode", str(gpu), "0"], *rows] if row[:2] == ["mode", str(gpu)]][-1]
    )


def control(box: ShareBox, gpu: int, command: str) -> str:
    """The answer of the GPU's daemon."""
    done = subprocess.run(
        [box.folder / "driver/usr/bin/nvidia-cuda-mps-control"],
        input=command + "\n",
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(box.sharing / box.uuids[gpu] / "pipe")},
    )
    return done.stdout.strip()


def limit(box: ShareBox, gpu: int) -> str:
    return control(box, gpu, "get_default_device_pinned_mem_limit 0")


def levels(box: ShareBox, *gpus: int) -> tuple[str, ...]:
    """As reported to the scheduler; the kubelet may learn it sooner."""
    return tuple(box.gpu(gpu).enforcement for gpu in gpus)


def test_from_the_first_share_to_the_last(box: ShareBox) -> None:
    box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(800)
    eventually(lambda: levels(box, 0, 4) == ("mps", "none"))
    assert mode(box, 1) == ANYBODY  # no pods: the former mode
    given = box.share("a", 1, 4 * GIB, "mps")
    assert given.ok, given
    container = given.containers[0]
    told = {key: value for key, value in container.envs.items() if "MPS" in key or "GPU_E" in key}
    assert told == {
        "LOCKSTEP_GPU_ENFORCEMENT": "mps",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    pipe = box.sharing / box.uuids[1] / "pipe"
    assert container.mounts == (
        (str(pipe), "/tmp/nvidia-mps", False),
        (str(box.sharing / "shm"), "/dev/shm", False),
    )
    assert (pipe / "control").is_socket()
    assert mode(box, 1) == ONE_PROCESS
    assert limit(box, 1) == "4096M"
    # Clients without a cap get the largest one as limit, on running servers, too.
    assert control(box, 1, "start_server -uid 0") == ""
    server = control(box, 1, "get_server_list")
    assert box.share("b", 1, 6 * GIB, part=20).ok
    eventually(lambda: limit(box, 1) == "6144M")
    eventually(lambda: control(box, 1, f"get_device_pinned_mem_limit {server} 0") == "6144M")
    box.share("c", 1, part=20)  # without a cap: all memory
    eventually(lambda: limit(box, 1) == f"{box.gpu(1).memory_bytes >> 20}M")
    # Other GPUs are not affected.
    assert "CUDA_MPS_PIPE_DIRECTORY" not in box.share("d", 5).containers[0].envs
    assert box.kubelet.allocatable[GPU] == 6
    for name in "abc":
        box.end(name)
    eventually(lambda: mode(box, 1) == ANYBODY)
    assert limit(box, 1) == "Cannot find MPS control daemon process"
    assert box.kubelet.add_pod(whole("w", 7)).ok


def test_a_daemon_that_dies_is_started_again_and_its_shares_are_unhealthy_meanwhile(
    box: ShareBox,
) -> None:
    box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(800)
    assert box.share("a", 1, GIB).ok
    refuse = box.sharing / box.uuids[1] / "refuse"
    refuse.write_text("no more")
    daemon = (box.sharing / box.uuids[1] / "pipe" / "nvidia-cuda-mps-control.pid").read_text()
    os.kill(int(daemon), signal.SIGKILL)
    box.assert_shares(700)
    eventually(lambda: "no more" in box.gpu(1).share_why)
    assert box.gpu(1).enforcement == "mps"
    assert mode(box, 1) == ONE_PROCESS  # no process bypasses the server
    refused = box.share("b", 1, GIB)
    assert not refused.ok or "LOCKSTEP_GPUS" in refused.containers[0].envs  # on another GPU
    refuse.unlink()
    box.assert_shares(800)
    assert limit(box, 1) == "1024M"
    assert box.kubelet.held()["team", "a", "c0"][GPU_SHARE]


def test_neither_restart_disturbs_who_runs(box: ShareBox) -> None:
    setup = box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(800)
    assert box.share("a", 1, 4 * GIB).ok
    control(box, 1, "start_server -uid 0")
    server = control(box, 1, "get_server_list")
    box.restart()
    eventually(lambda: box.gpu(1).enforcement == "mps")
    setup.kill()
    setup.wait()
    box.assert_shares(400)
    box.keep()
    box.assert_shares(800)
    assert box.share("b", 1, 5 * GIB).ok
    assert control(box, 1, "get_server_list") == server
    eventually(lambda: limit(box, 1) == "5120M")
    assert control(box, 1, f"get_device_pinned_mem_limit {server} 0") == "5120M"
    # A pod that ends while the agent is down has ended.
    box.agent.kill()
    box.agent.wait()
    for name in "ab":
        box.kubelet.remove_pod(uid(name))
    box.start()
    eventually(lambda: mode(box, 1) == ANYBODY)


def test_a_change_waits_until_nobody_is_there(box: ShareBox) -> None:
    box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(800)
    box.share("a", 1)
    box.share("b", 5)
    (box.config / "default").write_text("0-3: none; 4-7: mps")
    box.assert_shares(600)
    eventually(lambda: "when its pods have ended" in box.gpu(5).share_why)
    assert levels(box, 1, 5) == ("mps", "none")
    assert mode(box, 1) == ONE_PROCESS
    box.end("a")
    box.end("b")
    box.assert_shares(800)
    eventually(lambda: levels(box, 1, 5) == ("none", "mps"))
    assert box.share("c", 1).containers[0].envs["LOCKSTEP_GPU_ENFORCEMENT"] == "none"
    assert box.share("d", 5).containers[0].envs["LOCKSTEP_GPU_ENFORCEMENT"] == "mps"


def test_without_the_keeper_none_is_offered_and_it_says_so(box: ShareBox) -> None:
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(400)
    absent = f"`lockstep-agent gpu-setup` is not running for {box.sharing}"
    eventually(lambda: absent in box.gpu(0).share_why)
    box.keep()
    box.assert_shares(800)


def test_without_nvidias_programs_none_is_offered(box: ShareBox) -> None:
    (box.folder / "driver/usr/bin/nvidia-cuda-mps-control").unlink()
    box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(400)
    eventually(lambda: "nvidia-cuda-mps-control is not on the path" in box.gpu(0).share_why)


def test_a_container_waits_for_its_server_and_is_refused_without(box: ShareBox) -> None:
    box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(800)
    box.control.fail("nvmlDeviceSetComputeMode", 4)
    refused = box.share("a", 1, GIB)
    assert "SYS_ADMIN is missing" in refused.message
    box.control.fail("nvmlDeviceSetComputeMode", 0)
    eventually(lambda: box.kubelet.start_pod(pod("a", 30).uid).ok)


def test_a_cap_that_is_not_the_one_it_was_given_is_not_run_with(box: ShareBox) -> None:
    """Variables are set at admission, when the container is not known for certain; its start checks
    them."""
    box.keep()
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(800)
    assert box.share("a", 1, 4 * GIB).ok
    limits = {**dict(box.plans["a"].limits), MEMORY: 2 * GIB}
    box.plan("a", replace(box.plans["a"], limits=tuple(sorted(limits.items()))))
    assert "but its plan has" in box.kubelet.start_pod(pod("a", 30).uid).message


def test_time_slices(box: ShareBox) -> None:
    box.keep()
    (box.config / "default").write_text("0,1: none timeslice=long; 2: none")
    box.start("--sharing-dir", box.sharing)
    box.assert_shares(300)
    set_ = box.folder / "fake-nvml.timeslices"
    assert not set_.exists()
    assert box.share("a", 1).containers[0].envs["LOCKSTEP_GPU_TIMESLICE"] == "long"
    eventually(lambda: set_.exists() and set_.read_text() == f"{box.uuids[1]} 3\n")
    assert "LOCKSTEP_GPU_TIMESLICE" not in box.share("b", 2).containers[0].envs
    box.end("a")
    eventually(lambda: set_.read_text().splitlines()[-1] == f"{box.uuids[1]} 0")
    assert len(set_.read_text().splitlines()) == 2
