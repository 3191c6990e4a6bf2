"""The files between the agent and gpu-setup, and what an agent knows again from the checkpoint."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.allocations import Allocation
from agent.kubelet import checkpoint
from agent.node_state import NodeState
from agent.sharing import caps
from agent.sharing.caps import MemoryCap
from agent.sharing.responses import AllocateResponses, ShareSettings, allocated_shares, by_gpu
from agent.sharing.setup_requests import DesiredSetup, SetupCapabilities, SetupRequests
from protos.gpu_sharing import LEAST, MEMORY, SHARE
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant
from tests.fakes import machines

GPU_1 = machines.uuid(1)
WANTED = DesiredSetup(mps=True, slice="short", limit_mib=4096)


@pytest.fixture
def requests(tmp_path: Path) -> SetupRequests:
    return SetupRequests(tmp_path / "sharing")


def test_without_gpu_setup_nothing_is_ready(requests: SetupRequests) -> None:
    for asked in (requests.ready(GPU_1), requests.failure(GPU_1), requests.unavailable()):
        assert asked == f"`lockstep-agent gpu-setup` is not running for {requests.folder}"
    assert requests.capabilities().mps == requests.capabilities().slices == requests.unavailable()
    requests.make()
    (requests.folder / "keeper.lock").touch()  # of one that has ended
    assert "is not running" in requests.unavailable()


def test_a_request_is_ready_when_its_own_state_says_so(requests: SetupRequests) -> None:
    with requests.exclusive() as held:
        assert held
        assert requests.unavailable() == requests.failure(GPU_1) == ""
        assert requests.ready(GPU_1) == "setup in progress"  # nothing is requested
        requests.request(GPU_1, WANTED)
        assert requests.desired(GPU_1) == WANTED
        assert requests.ready(GPU_1) == "setup in progress"
        requests.set_state(GPU_1, WANTED, "")
        assert requests.ready(GPU_1) == requests.failure(GPU_1) == ""
        other = replace(WANTED, limit_mib=2048)
        requests.request(GPU_1, other)
        assert requests.ready(GPU_1) == "setup in progress"  # the state is of the former request
        requests.set_state(GPU_1, WANTED, "no MPS here")
        assert requests.ready(GPU_1) == "no MPS here"
        requests.set_state(GPU_1, other, "no such limit")
        assert requests.ready(GPU_1) == requests.failure(GPU_1) == "no such limit"
        requests.drop_state(GPU_1)
        assert requests.state(GPU_1) is None
        assert requests.ready(GPU_1) == "setup in progress"
    assert "is not running" in requests.ready(GPU_1)


def test_one_gpu_setup_runs_for_a_folder(requests: SetupRequests) -> None:
    with requests.exclusive() as first, requests.exclusive() as second:
        assert (first, second) == (True, False)
        assert requests.unavailable() == ""  # the second has not taken it away
    with requests.exclusive() as again:
        assert again
    assert requests.shm.stat().st_mode & 0o7777 == 0o1777


def test_capabilities_are_published(requests: SetupRequests) -> None:
    with requests.exclusive():
        assert requests.capabilities().mps == "gpu-setup is starting"
        assert requests.capabilities().slices == "gpu-setup is starting"
        requests.publish(SetupCapabilities("", "too old"))
        assert requests.capabilities() == SetupCapabilities("", "too old")
        (requests.folder / "keeper.json").write_text("{")
        assert requests.capabilities().mps == "gpu-setup is starting"


def test_requests_are_listed_until_they_are_forgotten(requests: SetupRequests) -> None:
    assert requests.all_desired() == {}
    requests.request(GPU_1, WANTED)
    requests.request("GPU-2", DesiredSetup())
    (requests.desired_folder / "GPU-3.json").write_text('{"mps": tr')
    assert requests.all_desired() == {GPU_1: WANTED, "GPU-2": DesiredSetup()}
    requests.forget(GPU_1)
    requests.forget(GPU_1)
    assert requests.all_desired() == {"GPU-2": DesiredSetup()}


def test_an_equal_request_writes_nothing(requests: SetupRequests) -> None:
    requests.request(GPU_1, WANTED)
    file = requests.desired_folder / f"{GPU_1}.json"
    before = file.stat().st_ino
    requests.request(GPU_1, WANTED)
    assert file.stat().st_ino == before
    requests.set_state(GPU_1, WANTED, "")
    state = requests.state_folder / f"{GPU_1}.json"
    before = state.stat().st_ino
    requests.set_state(GPU_1, WANTED, "")
    assert state.stat().st_ino == before
    requests.set_state(GPU_1, WANTED, "no")
    assert state.stat().st_ino != before


def test_fields_of_another_version_are_ignored(requests: SetupRequests) -> None:
    requests.request(GPU_1, WANTED)
    file = requests.desired_folder / f"{GPU_1}.json"
    file.write_text(json.dumps({"mps": True, "colour": "red"}))
    assert requests.desired(GPU_1) == DesiredSetup(mps=True)


# What containers with shares were given


def ids(first: int, gpu: int = 1) -> tuple[str, ...]:
    return tuple(share_id(machines.uuid(gpu), number) for number in (first, first + 1))


def entry(resource: str, devices: tuple[str, ...], **envs: str) -> dict[str, object]:
    answer = pb.ContainerAllocateResponse(envs=envs).SerializeToString()
    return {
        "PodUID": "u",
        "ContainerName": "c0",
        "ResourceName": resource,
        "DeviceIDs": {"0": list(devices[:1]), "1": list(devices[1:]), "2": None},
        "AllocResp": base64.b64encode(answer).decode(),
    }


def write(directory: Path, *entries: dict[str, object]) -> None:
    text = json.dumps({"Data": {"PodDeviceEntries": entries}})
    (directory / checkpoint.NAME).write_text(text)


ENVS = {
    "LOCKSTEP_GPU_ENFORCEMENT": "kernel",
    "LOCKSTEP_GPU_MEMORY": "4096",
    "LOCKSTEP_GPU_TIMESLICE": "long",
}
SETTINGS = ShareSettings("kernel", 4096, "long")


def grant(devices: tuple[str, ...], resource: str = GPU_SHARE) -> Grant:
    return Grant("team", "a", "c0", resource, devices)


def test_after_a_restart_the_checkpoint_has_the_settings(tmp_path: Path) -> None:
    write(tmp_path, entry(GPU_SHARE, ids(0), **ENVS), entry(GPU, ids(2), **ENVS))
    responses = AllocateResponses(tmp_path)
    assert responses.get(ids(0)) == SETTINGS
    assert responses.get(ids(2)) == ShareSettings()
    state = NodeState(grants=(grant(ids(0)), grant(ids(4))))
    fresh = AllocateResponses(tmp_path)
    assert fresh.current(state) == {ids(0): SETTINGS, ids(4): ShareSettings()}


def test_what_was_recorded_counts_before_the_checkpoint_and_goes_with_its_container(
    tmp_path: Path,
) -> None:
    write(tmp_path, entry(GPU_SHARE, ids(0), **ENVS))
    responses = AllocateResponses(tmp_path)
    responses.record(ids(0), ShareSettings("mps", 7))
    assert responses.get(ids(0)) == ShareSettings("mps", 7)
    assert responses.current(NodeState(grants=(grant(ids(0)),))) == {
        ids(0): ShareSettings("mps", 7)
    }
    assert responses.current(NodeState()) == {}
    assert responses.get(ids(0)) == SETTINGS  # another container's
    (tmp_path / checkpoint.NAME).write_text("{")
    assert AllocateResponses(tmp_path).get(ids(0)) == ShareSettings()


@pytest.mark.parametrize("cap", ["", "much", "-1", "1.5"])
def test_a_cap_that_is_no_number_is_none(tmp_path: Path, cap: str) -> None:
    write(tmp_path, entry(GPU_SHARE, ids(0), LOCKSTEP_GPU_MEMORY=cap))
    assert AllocateResponses(tmp_path).get(ids(0)) == ShareSettings()


def test_shares_are_allocated_in_three_ways() -> None:
    state = NodeState(
        grants=(grant(ids(0)), grant(ids(2), GPU)),
        allocations=(Allocation(GPU_SHARE, ids(4)),),
        unlisted=(Allocation(GPU_SHARE, tuple(reversed(ids(6)))), Allocation(GPU, ids(8))),
    )
    assert allocated_shares(state) == {ids(0), ids(4), ids(6)}
    rows = {ids(2): SETTINGS, ids(0): ShareSettings("mps"), ids(0, gpu=2): ShareSettings("none")}
    assert by_gpu(rows) == {
        machines.uuid(1): [ShareSettings("mps"), SETTINGS],
        machines.uuid(2): [ShareSettings("none")],
    }


# Which cap a container has


def plan(
    pod: str, cap: int, *, gpu: int = 1, count: int = 2, least: int = 0, resource: str = GPU_SHARE
) -> Grant:
    limits = ((LEAST, least), (MEMORY, cap), (SHARE, count))
    return Grant("team", pod, "c0", resource, (machines.uuid(gpu),), limits)


def key(pod: str) -> tuple[str, str, str]:
    return "team", pod, "c0"


def test_the_cap_of_a_container_is_that_of_its_plan() -> None:
    plans = [plan("a", 1, resource=GPU), plan("b", 2), plan("a", 3, least=1)]
    assert caps.for_container(plans, key("a")) == MemoryCap(3, 1)
    assert caps.for_container(plans, key("c")) is None


@pytest.mark.parametrize(
    ("plans", "meant", "served", "expected"),
    [
        ([plan("a", 1), plan("b", 2)], [], [], {1, 2}),
        ([plan("a", 1), plan("b", 1)], [], [], {1}),
        ([plan("a", 1), plan("b", 2)], [key("b")], [], {2}),
        ([plan("a", 1), plan("b", 2)], [key("a"), key("b")], [], {1, 2}),  # still ambiguous
        ([plan("a", 1), plan("b", 2)], [], [key("a")], {2}),
        ([plan("a", 1), plan("b", 2)], [key("a")], [key("a")], {2}),  # a has its shares
        ([plan("a", 1), plan("b", 2, gpu=2)], [], [], {1}),
        ([plan("a", 1), plan("b", 2, count=3)], [], [], {1}),
        ([plan("a", 1), plan("b", 2, resource=GPU)], [], [], {1}),
        ([plan("b", 2, resource=GPU)], [key("b")], [], set()),
        # The kubelet could not give it the planned GPU.
        ([plan("a", 1), plan("b", 2, gpu=2)], [key("b")], [], {2}),
    ],
)
def test_the_caps_that_an_allocate_may_be_for(
    plans: list[Grant],
    meant: list[tuple[str, str, str]],
    served: list[tuple[str, str, str]],
    expected: set[int],
) -> None:
    found = caps.candidates(plans, GPU_1, 2, meant, served)
    assert {each.cap for each in found} == expected


# The checkpoint itself


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ('{"Data": {"PodDeviceEntries": null}}', []),
        ('{"Data": {"PodDeviceEntries": [%s]}}', [("b", "a")]),
        ("", None),
        ("[]", None),
        ('{"Data": null}', None),
        ('{"Data": {"PodDeviceEntries": 7}}', None),
        ('{"Data": {"PodDeviceEntries": [7, %s]}}', [("b", "a")]),
        ('{"Data": {"PodDeviceEntries": [%s, {"PodUID": "u"}]}}', [("b", "a")]),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_a_checkpoint_is_read_or_refused(
    tmp_path: Path, text: str, devices: list[tuple[str, ...]] | None, old: bool
) -> None:
    one: dict[str, object] = entry(GPU, ("b", "a"))
    if old:  # before Kubernetes 1.20
        one["DeviceIDs"] = ["b", "a"]
    (tmp_path / checkpoint.NAME).write_text(text.replace("%s", json.dumps(one)))
    if devices is None:
        with pytest.raises(OSError, match="is not a device checkpoint"):
            checkpoint.read(tmp_path)
    else:
        found = checkpoint.read(tmp_path)
        assert [each.device_ids for each in found] == [tuple(sorted(ids)) for ids in devices]


def test_an_absent_checkpoint_is_empty_and_an_unreadable_one_an_error(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path) == ()
    (tmp_path / checkpoint.NAME).mkdir()
    with pytest.raises(OSError, match="cannot read"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize("answer", ["%", base64.b64encode(b"\xff").decode(), ""])
def test_an_answer_that_cannot_be_decoded_is_empty(answer: str) -> None:
    one = checkpoint.Entry("u", "c0", GPU, (), answer)
    assert (one.envs(), one.annotations()) == ({}, {})


def test_the_answer_of_an_entry_is_decoded() -> None:
    made = pb.ContainerAllocateResponse(envs={"A": "1"}, annotations={"b": "2"})
    text = base64.b64encode(made.SerializeToString()).decode()
    one = checkpoint.Entry("u", "c0", GPU, (), text)
    assert (one.envs(), one.annotations()) == ({"A": "1"}, {"b": "2"})
