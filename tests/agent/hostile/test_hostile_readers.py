"""Every other file that the agent reads, in every hostile state: of /proc, of cgroups, its own stored state, and what
an administrator mounts. Nothing is raised but what the reader declares, a sentence names the file, and what is read
from other files stays."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agent import cgroups
from agent.cgroups import Cgroups
from agent.gpu_setup import manager
from agent.gpu_setup.mps_server import MpsServer
from agent.gpu_setup.nvidia_tools import Tool
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine import host
from agent.machine.capture import CaptureError, load
from agent.machine.survey import survey
from agent.nics.rdma_limits import RdmaLimitWriter
from agent.node import AgentNode
from agent.reporter import SchedulerEndpoint, SchedulerUnavailable
from agent.resources import device_files
from agent.sharing import kernel_caps
from agent.sharing.setup_requests import DesiredSetup, SetupRequests
from agent.sharing.share_policy import SharePolicy
from protos.names import RDMA
from protos.topology import Grant, RdmaLimit, RdmaUse
from tests.agent.hostile.hostile_files import states
from tests.agent.hostile.reported import accepted
from tests.fakes import machines

READ_S = 8.0  # of processor time, least of three
UID = "11111111-2222-3333-4444-000000000001"
OTHER = "GPU-other"


class Reader(NamedTuple):
    """read: given the folder; what it returns is checked by itself. fails: with a sentence that names the file."""

    file: str
    good: str
    read: Callable[[Path], object]
    fails: tuple[type[Exception], ...] = ()


def _memlock(folder: Path) -> None:
    host._runtime.cache_clear()
    assert -1 <= host.read(folder).memlock < 10**20


def _pod_of(folder: Path) -> None:
    assert cgroups.pod_of(folder, 7) in ("", UID)


def _users(folder: Path) -> None:
    """The driver lists two processes; the other one's files are fine."""
    (folder / "8").mkdir(exist_ok=True)
    (folder / "8/cgroup").write_text(f"0::/kubepods/pod{UID}/x\n")
    (folder / "8/comm").write_text("python3\n")
    users = {"GPU-1": {7: UID}, OTHER: {8: UID}}
    unlisted = UnlistedPods(folder, folder, folder, lambda: users)
    unlisted.read(())
    assert (OTHER,) in [each.device_ids for each in unlisted.forgotten(())]


def _rights(folder: Path) -> None:
    assert kernel_caps.may(folder, kernel_caps.SYS_ADMIN) in (True, False)


def _capability(folder: Path) -> None:
    assert device_files._capability_minor(folder, 0, "gi1/access") >= -1


def _runs(folder: Path) -> None:
    assert cgroups.pod_runs(folder, UID) in (True, False)


def _limits(folder: Path) -> object:
    """The pod's limits and usage; a report of them is one that the scheduler accepts."""
    node = AgentNode("n")
    node.set_topology(survey(machines.machine(2, cards=2)))
    node.set_grants((Grant("ns", "p", "c0", RDMA, ("mlx5_0::0",)),))
    ids = '{"0": ["mlx5_0::0"]}'
    entry = f'{{"PodUID": "{UID}", "ContainerName": "c0", "ResourceName": "{RDMA}", "DeviceIDs": {ids}}}'
    (folder / "kubelet_internal_checkpoint").write_text(
        f'{{"Data": {{"PodDeviceEntries": [{entry}]}}}}'
    )
    writer = RdmaLimitWriter(node, Cgroups(folder), folder, RdmaLimit())
    node.set_rdma_use(writer.keep())
    accepted(node, "rdma limits")
    return node.state.rdma_use


def _state(folder: Path) -> None:
    requests = SetupRequests(folder)
    requests.request(OTHER, DesiredSetup(slice="long"))
    requests.set_state(OTHER, DesiredSetup(slice="long"), "")
    assert requests.all_desired()[OTHER] == DesiredSetup(slice="long")
    for uuid in requests.all_desired():
        assert isinstance(requests.failure(uuid), str)
        requests.ready(uuid)
    requests.capabilities()
    for each in ("GPU-1", OTHER):
        wanted = requests.desired(each)
        assert wanted is None or isinstance(wanted.slice, str)


def _before(folder: Path) -> None:
    assert set(manager._read(folder / "GPU-1/before.json")) <= {"mode", "slice"}


def _last_words(folder: Path) -> None:
    server = MpsServer(Tool(Path("none")), "GPU-1", folder, folder, lambda: None)
    assert len(server._last_words()) <= 200


def _policy(folder: Path) -> None:
    policy = SharePolicy(folder, "node", "all")
    policy.current()


def _token(folder: Path) -> None:
    SchedulerEndpoint("s:1", None, folder / "token", "").metadata()


def _roots(folder: Path) -> None:
    SchedulerEndpoint("s:1", folder / "ca.crt", None, "").channel().close()


def _capture(folder: Path) -> None:
    load(folder / "capture.json")


POD = f"kubepods/pod{UID}"
WANTED = '{"mps": false, "slice": "short", "limit_mib": 5}'
READERS = (
    Reader("42/limits", "Max locked memory  65536  65536  bytes\n", _memlock),
    Reader("42/comm", "containerd\n", _memlock),
    Reader("sys/kernel/random/boot_id", "b\n", _memlock),
    Reader("7/cgroup", f"0::/kubepods/pod{UID}/x\n", _pod_of),
    Reader("7/cgroup", f"0::/kubepods/pod{UID}/x\n", _users),
    Reader("7/comm", "python3\n", _users),
    Reader("self/status", "CapEff:\t00000000a80425fb\n", _rights),
    Reader("driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 4\n", _capability),
    Reader("driver/nvidia-caps/mig-minors", "gpu0/gi1/access 4\n", _capability),
    Reader(f"{POD}/cgroup.events", "populated 1\n", _runs),
    Reader(f"memory/{POD}/cgroup.procs", "7\n", _runs),
    Reader("cgroup.controllers", "rdma cpu\n", _limits),
    Reader(f"{POD}/rdma.max", "mlx5_0 hca_handle=2 hca_object=1000\n", _limits),
    Reader(f"{POD}/rdma.current", "mlx5_0 hca_handle=1 hca_object=10\n", _limits),
    Reader(f"{POD}/rdma.events", "mlx5_0 hca_handle.max=0 hca_handle.alloc_fail=3\n", _limits),
    Reader("wanted/GPU-1.json", WANTED, _state),
    Reader("state/GPU-1.json", f'{{"wanted": {WANTED}, "why": ""}}', _state),
    Reader("keeper.json", '{"mps": "", "slices": ""}', _state),
    Reader("GPU-1/before.json", '{"mode": 0, "slice": 1}', _before),
    Reader("control.log", "failed\n", _last_words),
    Reader("node", "all: watch\n", _policy),
    Reader("default", "all: watch\n", _policy),
    Reader("token", "abc\n", _token, (SchedulerUnavailable,)),
    Reader("ca.crt", "-----BEGIN CERTIFICATE-----\n", _roots, (SchedulerUnavailable,)),
    Reader("capture.json", '{"schema": "lockstep.dev/capture/v1", "gpus": []}', _capture, (CaptureError,)),
)  # fmt: skip


def machine(folder: Path) -> None:
    """All files as they should be."""
    for each in READERS:
        file = folder / each.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(each.good)


@pytest.mark.parametrize(
    "reader", READERS, ids=lambda each: f"{each.file[-24:]}{each.read.__name__}"
)
def test_a_file(reader: Reader, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, state in enumerate(states()):
        folder = tmp_path / str(number)
        machine(folder)
        reader.read(folder)
        caplog.clear()
        state.become(folder / reader.file)
        spent_s = min(_seconds(reader, folder, state.name) for _ in range(2))
        assert spent_s < READ_S, state.name
        for record in caplog.records:
            assert len(record.getMessage()) < 1000, f"{state.name}: {record.getMessage():.200}"


def _seconds(reader: Reader, folder: Path, where: str) -> float:
    """Of processor time."""
    began = time.process_time()
    try:
        reader.read(folder)
    except reader.fails as error:
        told = str(error)
    except Exception as error:
        raise AssertionError(f"{where}: {error!r:.300}") from error
    else:
        return time.process_time() - began
    assert (folder / reader.file).name in told, f"{where}: {told}"
    return time.process_time() - began


def test_the_limits_of_a_pod_are_read(tmp_path: Path) -> None:
    machine(tmp_path)
    assert _limits(tmp_path) == (
        RdmaUse("ns", "p", "mlx5_0", RdmaLimit(1, 10), RdmaLimit(2, 1000), 3),
    )


def test_what_is_mended_is_read(tmp_path: Path) -> None:
    machine(tmp_path)
    requests = SetupRequests(tmp_path)
    file = tmp_path / "wanted/GPU-1.json"
    file.write_text("[" * 100_000)
    assert requests.desired("GPU-1") is None
    file.write_text(WANTED)
    assert requests.desired("GPU-1") == DesiredSetup(slice="short", limit_mib=5)


def test_a_field_of_another_type_makes_no_setup(tmp_path: Path) -> None:
    machine(tmp_path)
    requests = SetupRequests(tmp_path)
    for wrong in (
        '{"mps": 1}',
        '{"slice": ["long"]}',
        '{"limit_mib": "5"}',
        '{"mps": null}',
        "{}x",
    ):
        (tmp_path / "wanted/GPU-1.json").write_text(wrong)
        assert requests.desired("GPU-1") is None, wrong
