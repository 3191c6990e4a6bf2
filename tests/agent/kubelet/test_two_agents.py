"""Two agents on one node, for a moment or for good: real agents and real sockets beside a hollow kubelet of 1.37 and
one of before."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NoReturn

import grpc
import pytest

from agent.kubelet import registration
from agent.kubelet.node_owner import NAME, NodeOwner
from agent.resources.device_resource import Refused
from agent.service import Agent
from agent.settings import Settings
from central.standalone.device_manager import Endpoint
from central.standalone.hollow_kubelet import Container, KubeletPod
from central.standalone.local_cluster import free_port
from protos.names import GPU, GPU_SHARE
from protos.stubs import deviceplugin_pb2 as pb
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.kubelets import DeviceManager137, Kubelet137, OlderDeviceManager, OlderKubelet
from tests.fakes.nodebox import NodeBox, gpus, intent, node_box, pod
from tests.fakes.plugin import THING, Plugin

KUBELETS = pytest.mark.parametrize("kubelet", [Kubelet137, OlderKubelet])
ORDER = [5, 2, 7, 0, 3, 6, 1, 4]  # no choice of nearby GPUs is made in this order


def registered(agent: Agent) -> bool:
    """Whether the kubelet has the lists of this agent."""
    served = [each for each in agent._registrations if each.has_devices]
    return all(each.registered and each._plugin.streams["listed"] for each in served)


def shares(name: str) -> KubeletPod:
    return KubeletPod(f"uid-{name}", "team", name, (Container("c0", ((GPU_SHARE, 30),)),))


class Pair:
    """A box with a second agent, and the lowest count of allocatable GPUs."""

    def __init__(self, box: NodeBox, lowest: list[int]) -> None:
        self.box, self.lowest = box, lowest
        self.first = box.agent
        self.second = Agent(box.settings)
        self._names = iter(range(10_000))

    def join(self) -> None:
        self.second.start()
        eventually(lambda: len(self.sockets()) == 4)  # of both agents and both resources
        eventually(lambda: registered(self.second))

    def ends_second(self) -> None:
        """Returns when the kubelet calls the first."""
        self.second.stop()
        run = self.second.node.boot_id[:8]
        connected = self.box.kubelet._devices._connected  # type: ignore[attr-defined]  # of this fake
        eventually(lambda: not any(run in path.name for _, path in tuple(connected)))

    def sockets(self) -> list[str]:
        return sorted(each.name for each in self.box.kubelet.plugins.glob("lockstep-*.sock"))

    def is_admitted(self, name: str) -> bool:
        admitted = self.box.kubelet.add_pod(pod(name, 1)).ok
        self.box.kubelet.remove_pod(f"uid-{name}")
        return admitted

    def admit(self, *planners: Agent) -> None:
        """Twenty pods, one after another, each with a plan that only these agents know."""
        for number in range(20):
            name, gpu = f"p{next(self._names)}", ORDER[number % 8]
            for each in planners:
                each.node.set_intents((intent(name, [gpu]),), number + 1)
            assert gpus(self.box.kubelet.add_pod(pod(name, 1))) == [gpu]
            self.box.kubelet.remove_pod(f"uid-{name}")


@contextmanager
def pair(kubelet: type[HollowKubelet] = Kubelet137, /, **settings: object) -> Iterator[Pair]:
    lowest = [8]

    def changed(_: object, allocatable: dict[str, int]) -> None:
        lowest.append(allocatable.get(GPU, 8))

    with node_box(kubelet=kubelet, on_change=changed) as box:
        if settings:
            box.configure(**settings)
        box.start()
        lowest[:] = [8]
        made = Pair(box, lowest)
        try:
            yield made
        finally:
            made.second.stop()


@KUBELETS
def test_a_second_agent_changes_no_pods_devices(kubelet: type[HollowKubelet]) -> None:
    with pair(kubelet) as two:
        two.admit(two.first)
        two.join()
        two.admit(two.first)
        assert min(two.lowest) == 8


def test_the_first_ends_and_no_pod_is_refused() -> None:
    with pair() as two:
        two.join()
        two.first.stop()
        two.admit(two.second)
        assert min(two.lowest) == 8
        assert len(two.sockets()) == 2


def test_the_second_ends_and_no_pod_is_refused() -> None:
    with pair() as two:
        two.join()
        two.ends_second()
        two.admit(two.first)
        assert min(two.lowest) == 8


class CallsOnceMore(DeviceManager137):
    """Calls the plugin whose list ends first, before it turns to another plugin."""

    answered: list[int]

    def _ended(self, endpoint: Endpoint) -> None:
        free = [machines.uuid(gpu) for gpu in range(8)]
        if endpoint.resource == GPU and not self.answered:
            request = pb.PreferredAllocationRequest()
            request.container_requests.add(available_deviceIDs=free, allocation_size=2)
            answer = endpoint.stub.GetPreferredAllocation(request)
            self.answered.append(len(answer.container_responses[0].deviceIDs))
        super()._ended(endpoint)


def test_an_ending_agent_answers_until_the_kubelet_calls_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "SWITCH_S", 2.0)
    answered: list[int] = []

    class Manager(CallsOnceMore):
        pass

    class Kubelet(HollowKubelet):
        device_manager = Manager

    Manager.answered = answered

    with pair(Kubelet) as two:
        two.join()
        two.ends_second()
        assert answered == [2]
        two.admit(two.first)


def test_agents_that_come_and_go_leave_no_sockets() -> None:
    with pair() as two:
        for _ in range(4):
            two.second = Agent(two.box.settings)
            two.join()
            two.first.stop()
            two.admit(two.second)
            two.first = two.box.agent = two.second
        eventually(lambda: len(two.sockets()) == 2)
        assert min(two.lowest) == 8


@pytest.mark.parametrize("ends", ["first", "second"])
def test_a_kubelet_that_hangs_up_on_the_agent_that_is_left_gets_it_back(ends: str) -> None:
    with pair(OlderKubelet) as two:
        two.join()
        {"first": two.first, "second": two.second}[ends].stop()
        left = two.second if ends == "first" else two.first
        eventually(lambda: two.is_admitted("again"))
        two.admit(left)


class NeverLists(OlderDeviceManager):
    """Takes registrations of these resources, once each, and never calls ListAndWatch: it has hung up before."""

    once: ClassVar[set[str]] = set()

    def register(self, request: pb.RegisterRequest) -> None:
        if request.resource_name in self.once:
            self.once.remove(request.resource_name)
        else:
            super().register(request)


def test_an_agent_whose_new_registration_is_lost_registers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kubelet still reads the lists of the registration before."""
    monkeypatch.setattr(registration, "SILENT_S", 0.5)

    class Kubelet(HollowKubelet):
        device_manager = NeverLists

    with pair(Kubelet) as two:
        two.join()
        NeverLists.once.add(GPU)
        two.second.stop()
        eventually(lambda: two.is_admitted("again"))
        assert not NeverLists.once
        two.admit(two.first)


def test_the_second_says_who_serves_the_node_and_takes_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with pair() as two:
        two.join()
        me = socket.gethostname()
        run = two.first.node.boot_id[:8]
        assert f"another agent ({run} {me}) owns this node; this one passes" in caplog.text
        assert caplog.text.count("this agent owns the node") == 1
        two.first.stop()
        eventually(lambda: caplog.text.count("this agent owns the node") == 2)


def test_what_the_owner_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as two:
        two.join()

        def response(*_: object) -> NoReturn:
            raise ValueError("this node has no GPU for it")

        monkeypatch.setattr(two.first._registrations[0]._resource, "response", response)
        assert "this node has no GPU for it" in two.box.kubelet.add_pod(pod("a", 1)).message
        assert two.second.node.state.allocations == ()


def test_the_owner_prepares_the_start_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as two:
        two.join()
        started: list[object] = []
        terms = two.first._services.shares
        monkeypatch.setattr(terms, "pre_start", lambda ids, holder: started.append(holder))
        assert two.box.kubelet.add_pod(shares("a")).ok
        assert started == [("team", "a", "c0")]

        def refuse(*_: object) -> NoReturn:
            raise Refused("no limit for b")

        monkeypatch.setattr(terms, "pre_start", refuse)
        assert "no limit for b" in two.box.kubelet.add_pod(shares("b")).message


@pytest.mark.parametrize("first_to_register", ["owner", "second"])
def test_the_lists_of_the_owner_are_the_kubelets(
    first_to_register: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second agent has just started, and knows nothing of a hold-down."""
    with pair(survey_every_s=600) as two:
        if first_to_register == "second":
            whole = two.first._registrations[0]._resource
            monkeypatch.setattr(whole, "devices", lambda _: ())
            eventually(lambda: not two.first._registrations[0].registered)
            two.second.start()
            eventually(lambda: two.box.kubelet.allocatable[GPU] == 8)
            monkeypatch.undo()
        else:
            two.join()
        state = two.first.node.state
        sick = replace(state.topology.gpus[0], healthy=False, why="held")
        two.first.node.set_topology(replace(state.topology, gpus=(sick, *state.topology.gpus[1:])))
        eventually(lambda: two.box.kubelet.allocatable[GPU] == 7)
        assert gpus(two.box.kubelet.add_pod(pod("a", 7))) == [*range(1, 8)]


def test_only_the_owner_reports_and_both_know_the_plans(tmp_path: Path) -> None:
    fleet = FakeScheduler(tmp_path)
    fleet.start()
    reach = {"server": fleet.address, "ca_file": fleet.ca_file, "token_file": fleet.token_file}
    try:
        with pair(**reach) as two:
            fleet.plan(intent("a", [5]))
            two.join()
            eventually(lambda: two.second.node.state.intents == (intent("a", [5]),))
            first, second = two.first.node.boot_id, two.second.node.boot_id
            count = len(fleet.reports)
            eventually(lambda: len(fleet.reports) > count + 5)
            assert {each.boot_id for each in fleet.reports} == {first}
            two.first.stop()
            eventually(lambda: fleet.reports[-1].boot_id == second)
            assert gpus(two.box.kubelet.add_pod(pod("a", 1))) == [5]
    finally:
        fleet.stop()


def test_a_second_agent_waits_for_the_port_of_the_first() -> None:
    """Where both share the host's network."""
    with pair(metrics_listen=f"127.0.0.1:{free_port()}") as two:
        two.join()
        assert two.second._probes is None
        two.first.stop()
        eventually(lambda: two.second._probes)


# The kubelets that these tests are about


def things(name: str) -> KubeletPod:
    return KubeletPod(f"uid-{name}", "team", name, (Container("c0", ((THING, 1),)),))


def test_a_kubelet_of_1_37_never_forgets_a_path() -> None:
    with node_box(kubelet=Kubelet137) as box:
        first, second, third = Plugin(), Plugin(), Plugin()
        first.serve(box.kubelet)
        eventually(lambda: box.kubelet.allocatable.get(THING) == 4)
        for each in (second, third):
            (box.kubelet.plugins / "thing.sock").unlink(missing_ok=True)
            with pytest.raises(grpc.RpcError, match="device plugin already connected"):
                each.serve(box.kubelet)
            first.stop()
            each.stop()
        assert box.kubelet.allocatable[THING] == 4
        assert not box.kubelet.add_pod(things("a")).ok


def test_an_older_kubelet_hangs_up_on_the_plugin_that_is_left() -> None:
    with node_box(kubelet=OlderKubelet) as box:
        first, second = Plugin(), Plugin()
        first.serve(box.kubelet)
        second.endpoint = "other.sock"
        second.serve(box.kubelet)
        eventually(lambda: box.kubelet.allocatable.get(THING) == 4)
        first.stop()
        eventually(lambda: box.kubelet.allocatable[THING] == 0)
        assert not box.kubelet.add_pod(things("a")).ok
        second.stop()


# Names that are left over


def test_sockets_of_ended_agents_are_removed_and_others_kept(tmp_path: Path) -> None:
    with node_box() as box:
        plugins = box.kubelet.plugins
        dead = [plugins / "lockstep-gpu.sock", plugins / "lockstep-rail-7.0badcafe-2.sock"]
        other = [plugins / "other.sock", plugins / "lockstep-notes"]
        for path in (*dead, other[0]):
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(path))
        other[1].touch()
        with socket.socket(socket.AF_UNIX) as living:
            living.bind(str(plugins / "lockstep-gpu.1badcafe-1.sock"))
            living.listen()
            box.start()
            eventually(lambda: not any(each.exists() for each in dead))
            assert (plugins / "lockstep-gpu.1badcafe-1.sock").exists()
        assert all(each.exists() for each in other)


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"../../x y", b"*", b"a" * 100_000])
def test_a_lock_file_with_anything_in_it(content: bytes) -> None:
    with pair() as two:
        two.join()
        (two.box.kubelet.plugins / NAME).write_bytes(content)
        two.admit(two.second)
        two.first.stop()
        eventually(lambda: two.second._owner.is_this)
        two.admit(two.second)


def test_where_no_file_can_be_locked_each_agent_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    owner = NodeOwner(tmp_path / "nowhere", "a" * 8)
    assert owner.acquire()
    assert "lockstep-agent.lock: No such file or directory" in caplog.text
    (tmp_path / "nowhere").mkdir()
    assert owner.acquire()
    assert "this agent owns the node" in caplog.text
    assert not NodeOwner(tmp_path / "nowhere", "b" * 8).acquire()


# Processes


@contextmanager
def process(settings: Settings, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "agent", "run", "--node=n", "--report-every=0.2"]
    command += ["--kubelet-dir", str(settings.kubelet_dir), "--capture", str(settings.capture)]
    with log.open("w") as file:
        made = subprocess.Popen(command, stderr=file, env={**os.environ})
    try:
        yield made
    finally:
        made.kill()
        made.wait()


@pytest.mark.slow
def test_the_first_is_killed_and_no_pod_is_refused(tmp_path: Path) -> None:
    lowest: list[int] = []

    def changed(_: object, allocatable: dict[str, int]) -> None:
        lowest.append(allocatable.get(GPU, 8))

    with (
        node_box(kubelet=Kubelet137, on_change=changed) as box,
        process(box.settings, tmp_path / "log") as first,
    ):
        box.wait_for(8)
        lowest.clear()
        box.agent.start()
        eventually(lambda: registered(box.agent))
        assert not box.agent._owner.is_this
        first.send_signal(signal.SIGKILL)
        for number in range(20):
            name, gpu = f"p{number}", ORDER[number % 8]
            box.plan(intent(name, [gpu]))
            assert gpus(box.kubelet.add_pod(pod(name, 1))) == [gpu]
            box.kubelet.remove_pod(f"uid-{name}")
        first.wait()
        eventually(lambda: box.agent._owner.is_this)
        eventually(lambda: len([*box.kubelet.plugins.glob("lockstep-*.sock")]) == 2)
        assert min(lowest, default=8) == 8
