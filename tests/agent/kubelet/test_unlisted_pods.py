"""Which devices are held back for pods that pod-resources does not list: the checkpoint, the cgroups
and the processes are files, and every rule has a test of its own."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import cgroups
from agent.allocations import Allocation
from agent.kubelet import checkpoint
from agent.kubelet.pod_resources import ObservedGrants
from agent.kubelet.unlisted_pods import SERVERS, UnlistedPods
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.device_resource import ContainerDevices
from protos import slicing
from protos.names import GPU, GPU_SHARE, RDMA, REST_OF_POD
from protos.nearest import share_id
from protos.topology import Grant
from tests.agent.kubelet.listed_devices import PodResources
from tests.fakes import machines

A, B = "8f1c2d3e-0000-4000-8000-00000000000a", "8f1c2d3e-0000-4000-8000-00000000000b"
Row = tuple[str, str, str, tuple[str, ...]]  # pod UID, container, resource, device ids


def uuids(*gpus: int) -> tuple[str, ...]:
    return tuple(map(machines.uuid, gpus))


def row(uid: str, *gpus: int, container: str = "c0", resource: str = GPU) -> Row:
    return uid, container, resource, uuids(*gpus)


def grant(pod: str, *gpus: int, container: str = "c0", resource: str = GPU) -> Grant:
    return Grant("team", pod, container, resource, uuids(*gpus))


class Host:
    """The files of a node. `users`: processes on each GPU, as the driver lists them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.users: dict[str, dict[int, str]] = {}
        self.pods = UnlistedPods(
            directory, directory / "cgroup", directory / "proc", lambda: self.users
        )
        self.new_kubelet()

    def new_kubelet(self) -> None:
        """Another socket: the kubelet has restarted."""
        socket = self.directory / "kubelet.sock"
        other = self.directory / "kubelet.new"
        other.touch()  # while the old one is there: another inode
        other.replace(socket)

    def records(self, *rows: Row) -> None:
        made = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {"-1": ids},
            }
            for uid, container, resource, ids in rows
        ]
        text = json.dumps({"Data": {"PodDeviceEntries": made}})
        (self.directory / checkpoint.NAME).write_text(text)

    def runs(self, uid: str, runs: bool = True) -> None:
        folder = self.directory / f"cgroup/kubepods/burstable/pod{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.events").write_text(f"populated {int(runs)}\nfrozen 0\n")

    def process(self, uid: str, pid: int, gpu: int, command: str = "python3") -> None:
        folder = self.directory / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/abc\n")
        (folder / "comm").write_text(f"{command}\n")
        self.users.setdefault(machines.uuid(gpu), {})[pid] = uid

    def forgotten(self, *listed: Grant) -> dict[str, str]:
        """What is held back, and why, by device."""
        self.pods.read(listed)
        found = self.pods.forgotten(listed)
        return {each: one.why for one in found for each in one.device_ids}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


# What the checkpoint has and pod-resources does not


def test_of_the_checkpoint_only_running_pods_count_beside_a_list(host: Host) -> None:
    host.records(row(A, 0), row(B, 1))
    host.runs(A)
    host.runs(B, False)
    both = (Allocation(GPU, uuids(0), uid=A), Allocation(GPU, uuids(1), uid=B))
    assert host.pods.allocations(()) == both[:1]
    assert host.pods.allocations((grant("a", 0),)) == ()
    assert host.pods.allocations(None) == both  # no list: every entry


def test_a_pod_counts_that_is_alive_and_has_no_process_yet(host: Host) -> None:
    host.records(row(A, 0, container="i0"), row(A, 1), row(B, 2))
    mine = Allocation(GPU, uuids(0), uid=A)
    assert host.pods.allocations((grant("a", 1),)) == ()
    assert host.pods.allocations((grant("a", 1),), {A}) == (mine,)
    assert host.pods.allocations((), {A}) == (mine, Allocation(GPU, uuids(1), uid=A))


def test_an_entry_is_listed_only_with_its_container_its_resource_and_its_devices(
    host: Host,
) -> None:
    host.records(row(A, 0))
    host.runs(A)
    expected = (Allocation(GPU, uuids(0), uid=A),)
    for other in (grant("a", 0, container="c1"), grant("a", 0, resource=GPU_SHARE), grant("a", 1)):
        assert host.pods.allocations((other,)) == expected


def test_resources_of_other_plugins_do_not_count(host: Host) -> None:
    host.records((A, "c0", "example.com/fpga", ("f0",)))
    assert host.pods.allocations(None) == ()


def test_the_record_of_an_allocation_is_found_by_resource_and_devices(host: Host) -> None:
    host.records(row(A, 0, 1), row(B, 2))
    found = host.pods.recorded(Allocation(GPU, uuids(2)))
    assert found is not None
    assert found.uid == B
    assert host.pods.recorded(Allocation(GPU_SHARE, uuids(2))) is None
    assert host.pods.recorded(Allocation(GPU, uuids(0))) is None
    (host.directory / checkpoint.NAME).write_text("{")
    assert host.pods.recorded(Allocation(GPU, uuids(2))) is None


# What a former kubelet had


def loses_checkpoint(host: Host, *kept: Row) -> None:
    host.records(*kept)
    host.new_kubelet()


def test_what_a_kubelet_lost_is_held_back_while_its_pod_runs(host: Host) -> None:
    host.records(row(A, 0))
    host.runs(A)
    assert host.forgotten(grant("a", 0)) == {}
    loses_checkpoint(host)
    why = "pod team/a uses it, but the kubelet does not list that any more"
    assert host.forgotten() == {machines.uuid(0): why}
    assert host.forgotten() == {machines.uuid(0): why}
    host.runs(A, False)
    assert host.forgotten() == {}
    host.runs(A)
    assert host.forgotten() == {}  # it has ended


def test_a_pod_that_was_never_listed_is_named_by_its_uid(host: Host) -> None:
    host.records(row(A, 0))
    host.runs(A)
    host.forgotten()
    loses_checkpoint(host)
    assert A in host.forgotten()[machines.uuid(0)]


@pytest.mark.parametrize("again", ["listed", "recorded"])
def test_what_the_new_kubelet_knows_again_is_not_held_back(host: Host, again: str) -> None:
    host.records(row(A, 0), row(B, 1))
    host.runs(A)
    host.runs(B)
    host.forgotten(grant("a", 0), grant("b", 1))
    loses_checkpoint(host, *([row(A, 0)] if again == "recorded" else []))
    listed = [grant("a", 0)] if again == "listed" else []
    assert host.forgotten(*listed).keys() == {machines.uuid(1)}


def test_without_a_restart_a_lost_entry_of_a_running_pod_is_remembered(host: Host) -> None:
    """The file may vanish before the kubelet restarts."""
    host.records(row(A, 0), row(B, 1))
    host.runs(A)
    host.runs(B, False)
    host.forgotten(grant("a", 0), grant("b", 1))
    host.records()
    assert host.forgotten() == {}
    host.new_kubelet()
    assert host.forgotten().keys() == {machines.uuid(0)}


def test_two_restarts_forget_nothing(host: Host) -> None:
    host.records(row(A, 0))
    host.runs(A)
    host.forgotten(grant("a", 0))
    loses_checkpoint(host, row(B, 1))
    host.runs(B)
    host.forgotten(grant("b", 1))
    loses_checkpoint(host)
    assert host.forgotten().keys() == {machines.uuid(0), machines.uuid(1)}


def test_an_absent_kubelet_is_no_new_one(host: Host) -> None:
    host.records(row(A, 0))
    host.runs(A)
    host.forgotten(grant("a", 0))
    (host.directory / "kubelet.sock").unlink()
    host.records()
    assert host.forgotten() == {}


# What the driver lists


def test_a_process_of_an_unknown_pod_holds_its_gpu_back(host: Host) -> None:
    host.process(A, 41, 3)
    why = f"process 41 of pod {A} uses it, but the kubelet does not list that any more"
    assert host.forgotten() == {machines.uuid(3): why}


def test_a_process_of_another_pod_than_the_one_recorded_holds_it_back(host: Host) -> None:
    host.records(row(A, 3))
    host.runs(A)
    host.process(A, 41, 3)
    assert host.forgotten() == {}
    host.process(B, 42, 3)
    assert f"process 42 of pod {B}" in host.forgotten()[machines.uuid(3)]


def test_a_pod_owns_no_process_on_another_gpu_than_its_own(host: Host) -> None:
    host.records(row(A, 3), row(B, 5))
    host.runs(A)
    host.runs(B)
    host.process(B, 42, 3)
    assert f"process 42 of pod {B}" in host.forgotten()[machines.uuid(3)]


def test_a_slice_with_a_process_is_held_back_as_a_slice(host: Host) -> None:
    host.process(A, 41, 3)
    host.users = {"MIG-1": host.users[machines.uuid(3)]}
    host.pods.read(())
    (found,) = host.pods.forgotten(())
    assert slicing.is_slice(found.resource)
    host.users = {machines.uuid(3): host.users["MIG-1"]}
    (found,) = host.pods.forgotten(())
    assert found.resource == GPU


def test_a_listed_gpu_is_not_held_back_for_a_process(host: Host) -> None:
    """pod-resources has it, the checkpoint does not yet: the owner is not known by its UID."""
    host.process(A, 41, 3)
    assert host.forgotten(grant("a", 3)) == {}


def test_a_gpu_that_is_held_back_already_has_one_reason(host: Host) -> None:
    host.records(row(A, 3))
    host.runs(A)
    host.forgotten(grant("a", 3))
    loses_checkpoint(host)
    host.process(A, 41, 3)
    host.pods.read(())
    (found,) = host.pods.forgotten(())
    assert "pod team/a" in found.why


def test_shares_that_are_recorded_own_the_processes_on_their_gpu(host: Host) -> None:
    ids = tuple(share_id(machines.uuid(3), number) for number in range(5))
    host.records((A, "c0", GPU_SHARE, ids))
    host.process(A, 41, 3)
    assert host.forgotten() == {}
    host.process(B, 42, 3)
    assert host.forgotten().keys() == {machines.uuid(3)}


def test_a_process_that_has_ended_or_serves_others_holds_nothing_back(host: Host) -> None:
    for number, command in enumerate(SERVERS):
        host.process(A, 50 + number, number, command)
    host.process(A, 60, 6)
    (host.directory / "proc/60/cgroup").unlink()  # ended
    host.process(A, 61, 7)
    (host.directory / "proc/61/cgroup").write_text(f"0::/kubepods/pod{B}/abc\n")  # a new one
    assert host.forgotten() == {}


# Processes of a pod, by its cgroups


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        ({"cgroup.events": "populated 1\nfrozen 0\n"}, True),
        ({"cgroup.events": "populated 0\nfrozen 0\n"}, False),
        ({"cgroup.procs": "", "c/cgroup.procs": "17\n"}, True),  # cgroup v1
        ({"cgroup.procs": "", "c/cgroup.procs": ""}, False),
        ({}, True),  # it does not say
    ],
)
@pytest.mark.parametrize("group", ["", "memory", "pids"])
def test_a_pod_runs_while_one_of_its_cgroups_has_a_process(
    tmp_path: Path, group: str, files: dict[str, str], runs: bool
) -> None:
    folder = tmp_path / group / f"kubepods/pod{A}"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    assert cgroups.pod_runs(tmp_path, A) == runs
    assert not cgroups.pod_runs(tmp_path, B)
    assert not cgroups.pod_runs(tmp_path, f"../pod{A}")


def test_one_empty_cgroup_says_nothing_of_the_others(tmp_path: Path) -> None:
    for base, count in (("memory", ""), ("pids", "17\n")):
        folder = tmp_path / base / f"kubepods/pod{A}"
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(count)
    assert cgroups.pod_runs(tmp_path, A)


# The grants as pod-resources lists them


class Watched:
    """The grants of a node whose files are those of `host`."""

    def __init__(self, host: Host) -> None:
        self.node = AgentNode("node")
        self.node.set_topology(survey(machines.machine()))
        self.client = PodResources(host.directory / "pod-resources.sock")
        self.grants = ObservedGrants(self.node, self.client, host.pods)

    def lists(self, **pods: tuple[int, ...]) -> None:
        self.client.rows = tuple(
            ContainerDevices("team", name, "c0", ((GPU, uuids(*held)),))
            for name, held in pods.items()
        )

    def taken(self) -> set[int]:
        return {int(each[4:12]) for each in self.node.state.taken(GPU)}


@pytest.fixture
def watched(host: Host) -> Watched:
    return Watched(host)


def test_a_holder_that_is_listed_late_is_found(watched: Watched) -> None:
    watched.lists(a=(0,))

    def later(time_s: float) -> tuple[ContainerDevices, ...]:
        rows = watched.client.rows or ()
        watched.lists(a=(0,), b=(1,))
        return rows

    watched.client.list = later  # type: ignore[method-assign]
    assert watched.grants.holder(GPU, uuids(1), 1.0) == ("team", "b", "c0")


def test_init_containers_are_reported_by_uid(host: Host, watched: Watched) -> None:
    host.records(row(A, 0, 1, container="i0"), row(A, 1), row(B, 2, container="i0"))
    rest = (Grant("", A, REST_OF_POD, GPU, uuids(0)),)
    generation = watched.node.state.generation

    def lists(**pods: tuple[int, ...]) -> bool:
        """Whether the report has changed."""
        nonlocal generation
        watched.lists(**pods)
        watched.grants.list_now(1.0)
        before, generation = generation, watched.node.state.generation
        return before != generation

    assert lists(a=(1,))
    assert not watched.node.state.rests()
    host.runs(A)
    assert lists(a=(1,))
    assert watched.node.state.rests() == rest
    assert watched.node.state.reported_grants() == (grant("a", 1), *rest)
    assert not lists(a=(1,))
    planned = Grant("team", "b", REST_OF_POD, GPU, uuids(3), uid=B)
    watched.node.set_intents((planned,), 1)
    assert not lists(a=(1,))  # its pod is not listed
    assert lists(a=(1,), b=())
    assert watched.node.state.rests() == (*rest, Grant("", B, REST_OF_POD, GPU, uuids(2)))
    assert watched.taken() == {0, 1, 2}
    host.runs(A, False)
    assert lists(b=())
    assert watched.node.state.rests() == (Grant("", B, REST_OF_POD, GPU, uuids(2)),)


def test_without_a_list_nothing_is_reported_by_uid(host: Host, watched: Watched) -> None:
    host.records(row(A, 0))
    watched.client.rows = None
    assert watched.grants.list_now(1.0) is None
    assert (watched.taken(), watched.node.state.reported_grants()) == ({0}, ())


def test_nics_and_slices_of_init_containers_are_not_reported(host: Host, watched: Watched) -> None:
    host.records(row(A, 0, resource=RDMA), (A, "c0", "nvidia.com/mig-1g.5gb", ("MIG-0",)))
    host.runs(A)
    watched.lists()
    watched.grants.list_now(1.0)
    assert len(watched.node.state.unlisted) == 2
    assert not watched.node.state.reported_grants()


def test_a_list_that_fails_frees_nothing(host: Host, watched: Watched) -> None:
    host.records(row(A, 0), row(B, 1))
    host.runs(A)
    host.runs(B)
    watched.lists(a=(0,))
    watched.grants.list_now(1.0)
    assert watched.taken() == {0, 1}
    watched.client.rows = None
    host.records(row(B, 1))
    assert watched.grants.list_now(1.0) is None
    assert watched.taken() == {0, 1}


def test_until_the_first_list_every_entry_is_taken(host: Host, watched: Watched) -> None:
    host.records(row(A, 0))
    host.runs(A, False)
    watched.client.rows = None
    watched.grants.list_now(1.0)
    assert watched.taken() == {0}
    watched.lists()
    watched.grants.list_now(1.0)
    assert watched.taken() == set()


@pytest.mark.parametrize(
    ("offered", "prepare", "kept"),
    [
        ((0,), lambda host: None, False),  # neither listed nor recorded, and offered again
        ((1,), lambda host: None, True),  # not offered
        ((0,), lambda host: (host.records(row(A, 0)), host.runs(A)), True),
        ((0,), lambda host: (host.records(row(A, 0)), host.runs(A, False)), False),
    ],
)
def test_when_the_kubelet_has_given_an_allocation_up(
    host: Host,
    watched: Watched,
    offered: tuple[int, ...],
    prepare: Callable[[Host], object],
    kept: bool,
) -> None:
    watched.node.record_allocation(GPU, uuids(0), 1e18)
    prepare(host)
    watched.grants.list_now(1.0, uuids(*offered))
    assert bool(watched.node.state.allocations) == kept


def test_a_forgotten_gpu_is_unhealthy_and_taken(host: Host, watched: Watched) -> None:
    host.records(row(A, 0))
    host.runs(A)
    watched.lists(a=(0,))
    watched.grants.list_now(1.0)
    loses_checkpoint(host)
    watched.lists()
    watched.grants.list_now(1.0)
    assert watched.taken() == {0}
    assert [gpu.index for gpu in watched.node.state.topology.gpus if not gpu.healthy] == [0]


def test_the_holder_has_exactly_these_devices(watched: Watched) -> None:
    watched.lists(a=(0, 1), b=(2,))
    assert watched.grants.holder(GPU, tuple(reversed(uuids(0, 1))), 1.0) == ("team", "a", "c0")
    assert watched.grants.holder(GPU, uuids(2), 1.0) == ("team", "b", "c0")
    assert watched.grants.holder(GPU, uuids(0), 1.0) is None
    assert watched.grants.holder(GPU_SHARE, uuids(2), 1.0) is None
    watched.client.rows = None
    assert watched.grants.holder(GPU, uuids(2), 1.0) is None


@pytest.mark.parametrize(
    ("held", "wanted", "asked"),
    [
        (GPU, GPU_SHARE, True),
        (GPU_SHARE, GPU, True),
        (GPU, GPU, False),
        (GPU_SHARE, GPU_SHARE, False),
    ],
)
def test_a_plan_for_a_gpu_in_another_use_lists_at_once(
    watched: Watched, held: str, wanted: str, asked: bool
) -> None:
    ids = uuids(0) if held == GPU else (share_id(machines.uuid(0), 1),)
    watched.client.rows = (ContainerDevices("team", "a", "c0", ((held, ids),)),)
    watched.grants.list_now(1.0)
    before = watched.client.calls
    watched.grants.look_for((grant("b", 3, resource=wanted), grant("b", 0, resource=wanted)))
    assert watched.client.calls - before == asked
