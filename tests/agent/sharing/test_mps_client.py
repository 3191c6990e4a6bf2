"""What the agent asks of gpu-setup, and what an MPS client gets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.resources.device_resource import Refused
from agent.sharing.mps_client import CLIENTS, GpuSetupClient
from agent.sharing.responses import ShareSettings
from agent.sharing.setup_requests import DesiredSetup, SetupCapabilities, SetupRequests

MIB, GIB = 2**20, 2**30
MPS = ShareSettings("mps")


class Box:
    """The agent's client, and gpu-setup's side of the same folder, with its lock."""

    def __init__(self, folder: Path) -> None:
        self.client = GpuSetupClient(folder)
        self.setup = SetupRequests(folder)

    def asked(self) -> dict[str, DesiredSetup]:
        return self.setup.all_desired()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "sharing")
    with made.setup.exclusive():
        made.setup.publish(SetupCapabilities())
        yield made


def test_without_a_folder_nothing_is_set_up() -> None:
    client = GpuSetupClient(None)
    assert client.why_not()
    assert client.troubles({"GPU-1": "6.1"}) == {}
    client.request("GPU-1", [MPS], GIB)
    client.release_others([])


def test_why_mps_cannot_be_used(box: Box) -> None:
    assert box.client.why_not() == ""
    box.setup.publish(SetupCapabilities("no control program", ""))
    assert box.client.why_not() == "no control program"


def test_the_largest_cap_is_the_limit_of_clients_without_one(box: Box) -> None:
    box.client.request(
        "GPU-1", [ShareSettings("mps", GIB), ShareSettings("mps", 2 * GIB)], 80 * GIB
    )
    assert box.asked() == {"GPU-1": DesiredSetup(mps=True, limit_mib=2048)}
    box.client.request("GPU-1", [ShareSettings("mps", GIB), MPS], 80 * GIB)
    assert box.asked() == {"GPU-1": DesiredSetup(mps=True, limit_mib=80 * 1024)}
    box.client.request("GPU-2", [ShareSettings("none", 4 * GIB), ShareSettings("mps", GIB)], 0)
    assert box.asked()["GPU-2"] == DesiredSetup(mps=True, limit_mib=4096)


def test_the_first_time_slice_stays_until_all_shares_are_released(box: Box) -> None:
    box.client.request("GPU-1", [ShareSettings("none")], GIB)
    assert box.asked() == {}
    first, other = ShareSettings("none", 0, "short"), ShareSettings("watch", 0, "long")
    box.client.request("GPU-1", [ShareSettings("none"), first, other], GIB)
    assert box.asked() == {"GPU-1": DesiredSetup(slice="short")}
    box.client.request("GPU-1", [other], GIB)
    assert box.asked() == {"GPU-1": DesiredSetup(slice="short")}
    box.client.request("GPU-2", [other], GIB)
    box.client.release_others(["GPU-2"])
    assert box.asked() == {"GPU-2": DesiredSetup(slice="long")}
    box.client.release_others([])
    assert box.asked() == {}


def test_which_gpus_have_no_mps(box: Box) -> None:
    box.client.request("GPU-1", [MPS], GIB)
    box.client.request("GPU-2", [ShareSettings("none", 0, "short")], GIB)
    for uuid, wanted in box.asked().items():
        box.setup.set_state(uuid, wanted, "the daemon ends")
    old = "MPS cannot limit memory on GPUs before Volta"
    capabilities = {"GPU-3": "6.1", "GPU-4": "7.0", "GPU-5": "9.0", "GPU-6": ""}
    assert box.client.troubles(capabilities) == {"GPU-1": "the daemon ends", "GPU-3": old}


def test_what_a_client_gets(box: Box) -> None:
    envs, mounts = box.client.client_access("GPU-1", 30, ShareSettings("mps", 4096 * MIB))
    pipe = envs["CUDA_MPS_PIPE_DIRECTORY"]
    assert envs == {
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    assert mounts == (
        (str(box.setup.pipe("GPU-1")), pipe, False),
        (str(box.setup.shm), "/dev/shm", False),
    )
    envs, _ = box.client.client_access("GPU-1", 30, MPS)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in envs


def test_a_container_waits_for_its_daemon(box: Box) -> None:
    box.client.request("GPU-1", [MPS], GIB)
    with pytest.raises(Refused, match="MPS does not run on its GPU: setup in progress"):
        box.client.wait("GPU-1", 0.0)
    box.setup.set_state("GPU-1", box.asked()["GPU-1"], "")
    box.client.wait("GPU-1", 0.0)


def test_nothing_waits_longer_than_its_daemon_takes(box: Box) -> None:
    """One look after the other, until the time is over."""
    box.client.request("GPU-1", [MPS], GIB)
    answers = iter(["setup in progress", "setup in progress", ""])
    looks: list[str] = []

    class Slow(SetupRequests):
        def ready(self, uuid: str) -> str:
            looks.append(uuid)
            return next(answers)

    box.client._requests = Slow(box.setup.folder)
    box.client.wait("GPU-1", 60.0)
    assert looks == ["GPU-1"] * 3


def test_a_server_has_as_many_clients_as_nvidia_says() -> None:
    assert CLIENTS == 48
