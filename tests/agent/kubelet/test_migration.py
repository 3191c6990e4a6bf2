"""A node moves from another device plugin to this agent while its pods run: real sockets between a hollow kubelet, the
other plugin and a real agent. No new pod gets a GPU that they use, and the node says why."""

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.kubelet import checkpoint
from agent.kubelet.pod_resources import ObservedGrants
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.device_resource import ContainerDevices
from agent.service import Agent
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant
from tests.agent.kubelet.listed_devices import PodResources
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, gpus, node_box, pod
from tests.fakes.plugin import SharedGpus

SHARED = "nvidia.com/gpu.shared"
Answer = Callable[[list[str]], pb.ContainerAllocateResponse]


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box() as made:
        yield made


def shown(*names: str) -> pb.ContainerAllocateResponse:
    return pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(names)})


def by_uuid(ids: list[str]) -> pb.ContainerAllocateResponse:
    return shown(*sorted({each.partition("::")[0] for each in ids}))


def running(box: NodeBox, plugin: SharedGpus, count: int) -> None:
    """Pods old-0 ... of one device each, on GPUs that the kubelet chose; then the plugin is gone."""
    plugin.serve(box.kubelet)
    eventually(lambda: box.kubelet.allocatable.get(plugin.resource, 0) == len(plugin.names()))
    for number in range(count):
        one = Container("c0", ((plugin.resource, 1),))
        name = f"old-{number}"
        assert box.kubelet.add_pod(KubeletPod(f"uid-{name}", "team", name, (one,))).ok
    plugin.stop()
    eventually(lambda: box.kubelet.allocatable.get(plugin.resource, 0) == 0)


def used(box: NodeBox, resource: str) -> set[int]:
    """The GPUs in the ids that the kubelet has for the pods of the other plugin."""
    held = [each for one in box.kubelet.held().values() for each in one.get(resource, ())]
    return {int(each[4:12]) for each in held}


def whys(agent: Agent) -> dict[int, str]:
    return {gpu.index: gpu.why for gpu in agent.node.state.topology.gpus if not gpu.healthy}


@pytest.mark.parametrize("resource", [GPU, SHARED])
def test_the_first_new_pod_does_not_get_a_shared_gpu(box: NodeBox, resource: str) -> None:
    dice = random.Random(resource)
    shared = sorted(dice.sample(range(8), 3))
    ids = [f"{machines.uuid(gpu)}::{n}" for gpu in shared for n in range(4)]
    running(box, SharedGpus(resource, ids, by_uuid), 12)
    assert used(box, resource) == set(shared)
    box.agent.start()
    box.wait_for(5)
    found = whys(box.agent)
    assert list(found) == shared
    for why in found.values():
        assert why.startswith("held back: pod team/old-")
        assert why.endswith(f" of {resource} from another device plugin (and 3 more)")
    new = box.kubelet.add_pod(pod("new", 5))
    assert set(gpus(new)).isdisjoint(shared)
    assert not box.kubelet.add_pod(pod("newer", 1)).ok
    node = box.agent.node
    eventually(lambda: [grant.pod for grant in node.state.reported_grants()] == ["new"])
    for number in range(12):
        box.kubelet.end_pod(f"uid-old-{number}")
        box.kubelet.remove_pod(f"uid-old-{number}")
    box.wait_for(8)
    assert whys(box.agent) == {}
    assert set(gpus(box.kubelet.add_pod(pod("last", 3)))) == set(shared)


def test_hami_chooses_another_gpu_than_the_kubelet(box: NodeBox) -> None:
    ids = [f"{machines.uuid(gpu)}-{n}" for gpu in range(8) for n in range(10)]
    running(box, SharedGpus(GPU, ids, lambda _: shown(machines.uuid(6))), 5)
    box.agent.start()
    box.wait_for(7)
    assert list(whys(box.agent)) == [6]
    assert 6 not in gpus(box.kubelet.add_pod(pod("new", 7)))


def test_ids_without_a_gpu_hold_every_gpu_back(box: NodeBox) -> None:
    running(box, SharedGpus(GPU, ["slot-0", "slot-1"], lambda _: shown()), 1)
    box.agent.start()
    eventually(lambda: len(whys(box.agent)) == 8)
    assert "pod team/old-0 may use it: the agent finds no GPU for slot-" in whys(box.agent)[0]
    assert not box.kubelet.add_pod(pod("new", 1)).ok
    box.kubelet.end_pod("uid-old-0")
    box.kubelet.remove_pod("uid-old-0")
    box.wait_for(8)


def test_gpus_that_appear_later_are_held_back_from_the_start(box: NodeBox) -> None:
    """The driver is ready after the kubelet's records were read."""
    ids = [f"{machines.uuid(2)}::{n}" for n in range(4)]
    running(box, SharedGpus(GPU, ids, by_uuid), 2)
    machine = machines.machine()
    box.change(machines.machine(0))
    box.agent.start()
    eventually(lambda: box.agent.node.state.grants_known)
    box.change(machine)
    state = box.agent.node.wait(lambda state: bool(state.topology.gpus), 60)
    assert [gpu.index for gpu in state.topology.gpus if not gpu.healthy] == [2]


def test_a_list_that_fails_frees_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    node, client = AgentNode("n"), PodResources(tmp_path / "socket")
    node.set_topology(survey(machines.machine()))
    grants = ObservedGrants(node, client, host.pods)
    host.records(("a", SHARED, f"{machines.uuid(1)}::0", "x"))
    client.rows = None
    assert grants.list_now(1.0) is None
    assert node.state.held_back().keys() == {machines.uuid(1)}, "every entry, before the first list"
    client.rows = (listed("web", f"{machines.uuid(2)}::3"),)
    grants.list_now(1.0)
    assert node.state.held_back().keys() == {machines.uuid(2)}, "the other pod has ended"
    client.rows = None
    grants.list_now(1.0)
    assert node.state.held_back().keys() == {machines.uuid(2)}


# What the checkpoint alone has


class Host:
    """The kubelet's files on a node without a kubelet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods = UnlistedPods(folder, folder / "cgroup", folder / "proc")
        (folder / "kubelet.sock").touch()

    def records(self, *rows: tuple[str, str, str, str]) -> None:
        """rows: pod UID, resource, id, and the device that the plugin's answer shows."""
        entries = [
            {
                "PodUID": uid,
                "ContainerName": "c0",
                "ResourceName": resource,
                "DeviceIDs": {"-1": [device]},
                "AllocResp": base64.b64encode(shown(name).SerializeToString()).decode(),
            }
            for uid, resource, device, name in rows
        ]
        text = json.dumps({"Data": {"PodDeviceEntries": entries}})
        (self.folder / checkpoint.NAME).write_text(text)

    def runs(self, uid: str, runs: bool = True) -> None:
        folder = self.folder / f"cgroup/kubepods/pod{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.events").write_text(f"populated {int(runs)}\n")

    def others(self, *listed: ContainerDevices, known: bool = True) -> dict[str, tuple[str, ...]]:
        """What the holders' GPUs are called, by holder."""
        grants = [Grant("team", row.pod, "c0", *each) for row in listed for each in row.devices]
        self.pods.read(grants if known else None)
        return {one.who: one.visible for one in self.pods.others(listed if known else None)}


def listed(name: str, device: str) -> ContainerDevices:
    return ContainerDevices("team", name, "c0", others=((GPU, (device,)),))


ONE, TWO = f"{machines.uuid(0)}-1", f"{machines.uuid(0)}-2"


def test_the_answer_of_the_pod_that_runs_counts(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.records(
        ("a", GPU, ONE, "3"), ("b", GPU, TWO, "4"), ("c", GPU, ONE, "5"), ("d", GPU, ONE, "6")
    )
    host.runs("a", False)
    host.runs("c")
    host.runs("d", False)
    assert host.others() == {"pod c": ("5",)}
    assert host.others(listed("web", ONE)) == {"pod team/web": ("5",)}
    assert host.others(listed("web", "x-1")) == {"pod team/web": (), "pod c": ("5",)}
    assert host.others(known=False).keys() == {"pod b", "pod c"}, "no list: every entry"
    assert host.pods.allocations(None) == (), "nothing of this agent"


def test_what_a_kubelet_has_lost_is_remembered(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.records(("a", GPU, ONE, "3"), ("b", GPU, TWO, "4"))
    host.runs("a")
    host.runs("b", False)
    assert host.others().keys() == {"pod a"}
    (tmp_path / checkpoint.NAME).unlink()
    (tmp_path / "new").touch()
    (tmp_path / "new").replace(tmp_path / "kubelet.sock")
    assert host.others() == {"pod a": ()}
    assert host.pods.forgotten(()) == (), "its ids are not this agent's"
    host.runs("a", False)
    assert host.others() == {}


def test_processes_of_another_plugins_pods_are_no_strangers(tmp_path: Path) -> None:
    users = {machines.uuid(3): {41: "a"}, machines.uuid(5): {42: "b"}, machines.uuid(6): {43: "c"}}
    pods = UnlistedPods(tmp_path, tmp_path / "cgroup", tmp_path / "proc", lambda: users)
    host = Host(tmp_path)
    host.pods = pods
    for pid, uid in ((41, "a"), (42, "b"), (43, "c")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(
            f"0::/kubepods/pod{uid * 8}-0000-4000-8000-000000000000/x\n"
        )
        users[next(key for key, each in users.items() if pid in each)] = {
            pid: f"{uid * 8}-0000-4000-8000-000000000000"
        }
    a, b, _ = (f"{uid * 8}-0000-4000-8000-000000000000" for uid in "abc")
    host.records((a, SHARED, f"{machines.uuid(3)}::1", "x"), (b, GPU, ONE, machines.uuid(5)))
    host.others()
    assert [one.device_ids for one in pods.forgotten(())] == [(machines.uuid(6),)]
