"""Faults around the agent (driver, disk, kubelet, large machines): nothing is lost or allocated
twice, and the log says what happened."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from agent.machine import capture, unanswered
from agent.sockets import CHANNEL
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.common.logs import TEXT, Text
from protos.names import GPU, RDMA
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from tests.agent.nvml_fixture import CAPTURES, ROOT, Hardware
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, gpus, node_box, pod
from tests.fakes.nvml import build

pytestmark = pytest.mark.slow

# --- the driver


EACH_CALL = """
import json, sys, time
from pathlib import Path
from agent import nvml
from agent.machine.facts import Machine, Unusable
from agent.nvml import library
from agent.machine.survey import survey
from tests.fakes.nvml.control import Control

def look(root):
    try:
        seen = survey(Machine(nvml=nvml.read(root)))
        return [len(seen.gpus), sum(gpu.healthy for gpu in seen.gpus), ""]
    except Unusable as error:
        return [0, 0, str(error)]

how, profile, whole, *calls = sys.argv[1:]
answers, control = {}, Control(Path(profile))
for call in calls:
    if how == "hidden":
        data = Path(whole).read_bytes()
        root = Path(profile).parent / call
        place = root / "usr/lib64"
        place.mkdir(parents=True)
        hidden = b"\\0x" + call.encode()[1:] + b"\\0"  # another name in its table of symbols
        (place / "libnvidia-ml.so.1").write_bytes(data.replace(b"\\0" + call.encode() + b"\\0", hidden))
        library._forget()
        answers[call] = look(root)
        continue
    for error in (999, 3, 15, 17):
        control.fail(call, error)
        answers[f"{call} {error}"] = look(Path(whole).parents[2])
        control.fail(call, 0)
    assert look(Path(whole).parents[2]) == [8, 8, ""], f"{call}: not as before"
print(json.dumps(answers))
"""


def asked(
    nvml_folder: Path, tmp_path: Path, how: str, name: str
) -> dict[str, tuple[int, int, str]]:
    """The agent's reading of the machine with each library call missing, or failing with several
    errors."""
    data = (nvml_folder / build.LIBRARY).read_bytes()
    calls = sorted(set(re.findall(rb"\0(nvml[A-Z]\w+)(?=\0)", data)))
    place = tmp_path / "whole/usr/lib64"
    place.mkdir(parents=True)
    (place / build.LIBRARY).write_bytes(data)
    hardware = Hardware(None, tmp_path / "machine")
    hardware.install(capture.load(CAPTURES / f"{name}.json"))
    done = hardware.python(
        EACH_CALL,
        how,
        str(hardware.folder / build.CONTROL),
        str(place / build.LIBRARY),
        *(name.decode() for name in calls),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, tuple[int, int, str]] = json.loads(done.stdout)
    assert len(found) >= 40
    return found


# Without these calls no GPU can be identified.
NEEDED = {
    *("nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"),
    "nvmlDeviceGetUUID",
}


MACHINES = pytest.mark.parametrize("name", ["hgx-h100-8", "dgx-a100-mig-8"])


@MACHINES
def test_a_driver_without_any_one_of_its_calls(
    nvml_folder: Path, tmp_path: Path, name: str
) -> None:
    found = asked(nvml_folder, tmp_path, "hidden", name)
    assert {call for call, (_, fit, _) in found.items() if fit != 8} == NEEDED
    for call, (count, _, sentence) in found.items():
        assert count == 8 or "Function Not Found" in sentence, call


@MACHINES
def test_each_call_failing_in_each_way(nvml_folder: Path, tmp_path: Path, name: str) -> None:
    """If every call fails with 15 (GPU is lost) or 17 (operating system error), the GPU is unhealthy, and if one about
    the slices of a GPU in MIG mode does with 999 (UNKNOWN)."""
    found = asked(nvml_folder, tmp_path, "fails", name)
    for question, (count, fit, sentence) in found.items():
        call, error = question.split()
        assert count == 8 or sentence, question
        of_slices = error == "999" and call.startswith(unanswered.OF_SLICES)
        assert fit == 8 or call in NEEDED or error in ("15", "17") or of_slices, question


# --- the disk


def test_a_full_disk(tmp_path: Path) -> None:
    """In a mount namespace of its own, on a full tmpfs of 64 KiB."""
    enter = [shutil.which("unshare") or "unshare", "-Urm"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*enter, "true"], capture_output=True).returncode
    ):
        pytest.skip("no mount namespace can be had here")
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        command = [*enter, sys.executable, "-m", "tests.agent.full_disk", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.pop("healed") == [0, 1]
    assert all(found.values()), found


# --- the kubelet's requests


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box(machines.machine(cards=8)) as made:
        made.start()
        yield made


def plugin(box: NodeBox) -> tuple[grpc.Channel, rpc.DevicePluginStub]:
    channel = grpc.insecure_channel(f"unix:{box.socket()}", options=CHANNEL)
    return channel, rpc.DevicePluginStub(channel)


@pytest.mark.parametrize(
    ("size", "given"), [(0, 0), (-1, 0), (-(2**31), 0), (8, 8), (99, 8), (2**31 - 1, 8)]
)
def test_odd_numbers_of_devices(box: NodeBox, size: int, given: int) -> None:
    channel, stub = plugin(box)
    with channel:
        ids = [machines.uuid(number) for number in range(8)]
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=ids, allocation_size=size
        )
        answer = stub.GetPreferredAllocation(
            pb.PreferredAllocationRequest(container_requests=[request]), timeout=5
        )
        assert len(answer.container_responses[0].deviceIDs) == given


def test_odd_devices(box: NodeBox) -> None:
    channel, stub = plugin(box)
    with channel:

        def allocate(*ids: str) -> pb.AllocateResponse:
            request = pb.ContainerAllocateRequest(devices_ids=ids)
            return stub.Allocate(pb.AllocateRequest(container_requests=[request]), timeout=5)

        with pytest.raises(grpc.RpcError, match=r"no device of nvidia.com/gpu is named") as nothing:
            allocate()
        assert nothing.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        twice = allocate(machines.uuid(3), machines.uuid(3)).container_responses[0]
        assert twice.envs["LOCKSTEP_GPUS"] == "3"
        for odd in ("GPU-unknown", "", "../../etc/passwd", "GPU\n", "x" * 5000):
            with pytest.raises(grpc.RpcError, match="this node has no GPU") as refused:
                allocate(odd)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert gpus(box.kubelet.add_pod(pod("a", 8))) == list(range(8))


def test_too_many_are_refused_and_nothing_is_lost(box: NodeBox) -> None:
    for size in (9, 100, 10**6):
        refused = box.kubelet.add_pod(pod(f"p{size}", size))
        assert refused.message == f"{size} nvidia.com/gpu wanted, 8 available"
    assert gpus(box.kubelet.add_pod(pod("a", 8))) == list(range(8))


HOSTILE = (
    "c\n2026-11-20 00:00:00 ERROR agent: all is lost",
    "c\r\x1b[31mred\x07",
    "../../../../etc/cron.d/x",
    '"},{"name":"x',
    "$(reboot)`reboot`;reboot",
    "%s%n%d{0}",
    "\u202egnp.exe \u2028 \U0001f525",
    "x" * 4000,
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Kubernetes allows none of these names, but a client of the sockets can send them. Each log
    record stays on one line."""
    caplog.set_level("INFO")
    with node_box(machines.machine(cards=8)) as box:
        (box.directory / "cgroup").mkdir()
        box.configure(cgroup_root=box.directory / "cgroup", rdma_hca_handles=8)
        before = [path for path in box.directory.rglob("*") if path.is_dir()]
        box.start()
        eventually(lambda: RDMA in box.kubelet.allocatable)
        wants = ((GPU, 2), (RDMA, 1))
        given = box.kubelet.add_pod(
            KubeletPod("../uid", name[:200], name, (Container(name, wants),))
        )
        assert given.ok, given
        assert box.truth() == {name: [0, 1]}
        after = [path for path in box.directory.rglob("*") if path.is_dir()]
    assert after == before, "a name became a path"
    lines = [Text(TEXT).format(record) for record in caplog.records]
    assert any("starts with RDMA NICs mlx5_0" in line for line in lines)
    assert all(line.isprintable() for line in lines)


# --- a large machine


def test_sixteen_gpus_and_ten_cards() -> None:
    machine = capture.load(CAPTURES / "dgx2-v100-16.json")
    assert (len(machine.nvml.gpus), len(machine.sysfs.infiniband)) == (16, 10)
    with node_box(machine) as box:
        box.start()
        seen = box.agent.node.state.topology
        offered = [hca.name for hca in seen.hcas if hca.shares]
        eventually(lambda: box.kubelet.allocatable.get(RDMA) == 16 * len(offered))
        wants = ((GPU, 2), (RDMA, 1))
        held: list[str] = []
        for number in range(8):
            made = KubeletPod(f"uid-{number}", "team", f"p{number}", (Container("c0", wants),))
            given = box.kubelet.add_pod(made)
            assert given.ok, given
            envs = given.containers[0].envs
            mine = gpus(given)
            card = 16 + [hca.name for hca in seen.hcas].index(envs["LOCKSTEP_HCAS"])
            words = {seen.links[gpu][card] for gpu in mine}
            assert words <= {"PIX", "PXB"}, (mine, envs["LOCKSTEP_HCAS"], words)
            held += envs["LOCKSTEP_GPU_UUIDS"].split(",")
        assert len(held) == len(set(held)) == 16
        assert not box.kubelet.add_pod(pod("late", 1)).ok
        box.kubelet.restart()
        eventually(lambda: box.kubelet.allocatable.get(GPU) == 16)
        assert box.agent.node.state.topology == seen
