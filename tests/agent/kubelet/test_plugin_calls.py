"""What each call of the device plugin API does to the node's state, without sockets: the plugin, the
node and the grants are real, pod-resources is a list and the checkpoint is absent."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NoReturn, cast

import grpc
import pytest

from agent.allocations import Allocation, Forgotten
from agent.kubelet import checkpoint
from agent.kubelet.plugin import DevicePlugin, listing, same_devices
from agent.kubelet.pod_resources import ObservedGrants
from agent.kubelet.unlisted_pods import UnlistedPods
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.device_resource import (
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    Device,
    Refused,
)
from agent.resources.whole_gpu import WholeGpuResource
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant, NodeTopology
from tests.agent.kubelet.listed_devices import PodResources
from tests.fakes import machines
from tests.fakes.nodebox import intent

TOPOLOGY = survey(machines.machine(bridged=True))


def uuids(*gpus: int) -> tuple[str, ...]:
    return tuple(map(machines.uuid, gpus))


class Gpus(WholeGpuResource):
    """`started`: what pre_start() was called for; `refusal`: why it refuses."""

    refusal = ""
    answer: ContainerResponse | None = None  # in place of that of a whole GPU
    pre_start_required = True

    def __init__(self) -> None:
        injection = Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)
        super().__init__(lambda _: (), injection)
        self.started: list[tuple[tuple[str, ...], ContainerKey | None]] = []

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        return self.answer or super().response(ids, state)

    def pre_start(self, ids: object, holder: ContainerKey | None) -> None:
        self.started.append((tuple(cast("tuple[str, ...]", ids)), holder))
        if self.refusal:
            raise Refused(self.refusal)


class Aborted(Exception):
    pass


class Context:
    """Of a call that ends when `gone` is set."""

    def __init__(self) -> None:
        self.gone, self.code = threading.Event(), grpc.StatusCode.OK

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.code = code
        raise Aborted(details)

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callback = callback
        return not self.gone.is_set()

    def cancel(self) -> None:
        self.gone.set()
        self._callback()

    def is_active(self) -> bool:
        return not self.gone.is_set()

    def time_remaining(self) -> float:
        return inf

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


class Node(AgentNode):
    woken = 0

    def wake(self) -> None:
        self.woken += 1
        super().wake()


class Box:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node = Node("node")
        self.node.set_topology(TOPOLOGY)
        self.client = PodResources(directory / "kubelet.sock")
        unlisted = UnlistedPods(directory, directory / "cgroup", directory / "proc")
        self.grants = ObservedGrants(self.node, self.client, unlisted)
        self.gpus = Gpus()
        self.plugin = DevicePlugin(self.gpus, self.node, self.grants)
        self.context = Context()

    def lists(self, **pods: tuple[int, ...]) -> None:
        """pod-resources lists these pods of one container, and the GPUs that each has."""
        self.client.rows = tuple(
            ContainerDevices("team", name, "c0", ((GPU, uuids(*held)),) if held else ())
            for name, held in pods.items()
        )

    def prefer(self, size: int, offered: tuple[int, ...], must: tuple[int, ...] = ()) -> set[int]:
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=uuids(*offered),
            must_include_deviceIDs=uuids(*must),
            allocation_size=size,
        )
        request = pb.PreferredAllocationRequest(container_requests=[one])
        answer = self.plugin.GetPreferredAllocation(request, self._context)
        return {int(each[4:12]) for each in answer.container_responses[0].deviceIDs}

    def allocate(self, *gpus: int) -> pb.ContainerAllocateResponse:
        one = pb.ContainerAllocateRequest(devices_ids=uuids(*gpus))
        request = pb.AllocateRequest(container_requests=[one])
        return self.plugin.Allocate(request, self._context).container_responses[0]

    def starts(self, *gpus: int) -> pb.PreStartContainerResponse:
        request = pb.PreStartContainerRequest(devices_ids=uuids(*gpus))
        return self.plugin.PreStartContainer(request, self._context)

    def watch(self) -> Iterator[pb.ListAndWatchResponse]:
        return iter(self.plugin.ListAndWatch(pb.Empty(), self._context))

    @property
    def _context(self) -> grpc.ServicerContext:
        return cast("grpc.ServicerContext", self.context)

    def writes_checkpoint(self, *entries: tuple[str, tuple[int, ...]]) -> None:
        """entries: pod UIDs and GPUs."""
        made = [
            {
                "PodUID": uid,
                "ContainerName": "c0",
                "ResourceName": GPU,
                "DeviceIDs": {"-1": uuids(*gpus)},
                "AllocResp": base64.b64encode(b"").decode(),
            }
            for uid, gpus in entries
        ]
        text = json.dumps({"Data": {"PodDeviceEntries": made}, "Checksum": 0})
        (self.directory / checkpoint.NAME).write_text(text)

    def runs(self, uid: str) -> None:
        folder = self.directory / f"cgroup/kubepods/burstable/pod{uid}"
        folder.mkdir(parents=True)
        (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


ALL = tuple(range(8))
UID = "8f1c2d3e-0000-4000-8000-000000000001"


@pytest.mark.parametrize("required", [True, False])
def test_the_kubelet_asks_for_preferences_and_before_a_start(
    tmp_path: Path, required: bool
) -> None:
    made = Box(tmp_path)
    made.gpus.pre_start_required = required
    plugin = DevicePlugin(made.gpus, made.node, made.grants)
    options = plugin.GetDevicePluginOptions(pb.Empty(), cast("grpc.ServicerContext", None))
    assert options.get_preferred_allocation_available
    assert options.pre_start_required == required


# The preference


def test_what_a_pod_holds_is_not_preferred_though_the_kubelet_offers_it(box: Box) -> None:
    box.lists(a=(0, 1), b=())
    assert box.prefer(2, ALL) == {2, 3}


def test_what_only_the_checkpoint_has_is_not_preferred(box: Box) -> None:
    box.writes_checkpoint((UID, (0, 1)))
    box.runs(UID)
    box.lists(b=())
    assert box.prefer(2, ALL) == {2, 3}


def test_what_was_just_allocated_is_not_preferred(box: Box) -> None:
    box.lists(a=(), b=())
    box.allocate(0, 1)
    box.writes_checkpoint((UID, (0, 1)))
    box.runs(UID)
    assert box.prefer(2, ALL) == {2, 3}


def test_what_the_kubelet_has_given_up_is_preferred_again(box: Box) -> None:
    box.lists(a=())
    box.allocate(0, 1)
    assert box.prefer(2, ALL) == {0, 1}


def test_what_an_init_container_had_counts_as_available(box: Box) -> None:
    """GPU 1, beside that of the init container, is planned for shares: there is another one."""
    plan = Grant("team", "shared", "c0", GPU_SHARE, uuids(1))
    box.node.set_intents((plan,), 1)
    box.lists(a=())
    assert box.prefer(1, (0, 1, 2)) == {0}
    box.allocate(0)
    assert box.prefer(2, (0, 1, 2), must=(0,)) == {0, 2}


def test_without_pod_resources_the_preference_leaves_out_what_it_listed_before(box: Box) -> None:
    box.lists(a=(0, 1))
    box.prefer(1, ALL)
    box.client.rows = None
    assert box.prefer(2, ALL) == {2, 3}


def test_a_reused_gpu_tells_that_the_pod_is_still_the_same(box: Box) -> None:
    """Both pods have plans and no GPUs: only the call before told which one is in admission."""
    box.node.set_intents((intent("a", (4, 6)), intent("b", (5, 7))), 1)
    box.lists(a=())
    (init,) = box.prefer(1, ALL)
    assert init == 4
    box.allocate(init)
    box.lists(b=(), a=())
    assert box.prefer(2, ALL, must=(init,)) == {4, 6}


def test_gpus_that_were_not_given_before_tell_nothing_of_the_pod(box: Box) -> None:
    box.node.set_intents((intent("a", (4, 6)), intent("b", (5, 7))), 1)
    box.lists(a=())
    box.prefer(1, ALL)
    box.lists(b=(), a=())
    assert box.prefer(2, ALL, must=(5,)) == {5, 7}  # b is the only one not asked for yet


def test_a_pod_that_reuses_nothing_is_another_one(box: Box) -> None:
    box.node.set_intents((intent("a", (4, 6)), intent("b", (5, 7))), 1)
    box.lists(a=())
    assert box.prefer(2, ALL) == {4, 6}
    box.lists(a=(), b=())  # a was not admitted
    assert box.prefer(2, ALL) == {5, 7}


def test_what_is_reused_is_not_given_up(box: Box) -> None:
    """The kubelet offers it because it must be included, and its record comes with the pod's."""
    box.lists(a=())
    box.allocate(0)
    box.prefer(2, (0, 1, 2), must=(0,))
    assert [each.device_ids for each in box.node.state.allocations] == [uuids(0)]


# Allocate


def test_a_gpu_whose_pod_has_ended_meanwhile_is_allocated(box: Box) -> None:
    box.lists(a=(0,))
    box.prefer(1, ALL)
    box.lists()
    assert box.allocate(0).envs["LOCKSTEP_GPUS"] == "0"


def test_a_gpu_of_a_running_pod_is_refused(box: Box) -> None:
    box.lists(a=(0,))
    box.prefer(1, ALL)
    with pytest.raises(Aborted, match="is taken: pod team/a"):
        box.allocate(0)
    assert box.context.code == grpc.StatusCode.INVALID_ARGUMENT
    assert not box.node.state.allocations


def test_pod_resources_is_not_asked_for_a_free_gpu(box: Box) -> None:
    """A kubelet that has not recorded an Allocate yet may forget it while it answers List."""
    box.allocate(0)
    box.allocate(1)
    assert box.client.calls == 0


def test_a_gpu_is_not_allocated_twice_to_pods_that_nothing_lists(box: Box) -> None:
    box.lists()
    box.prefer(1, ALL)
    box.allocate(0)
    box.prefer(1, (1, 2))  # another pod: what the former one had is not reused
    with pytest.raises(Aborted, match="just admitted"):
        box.allocate(0)


def test_containers_of_one_pod_may_reuse_what_the_init_container_had(box: Box) -> None:
    box.allocate(0)
    assert box.allocate(0, 1).envs["LOCKSTEP_GPUS"] == "0,1"
    assert box.client.calls == 0


def test_the_whole_answer_reaches_the_kubelet(box: Box) -> None:
    box.gpus.answer = ContainerResponse(
        {"A": "1"},
        ("/dev/nvidia0",),
        (("/host", "/inside", True), ("/host2", "/inside2", False)),
        {"lockstep.dev/gpus": "0"},
        ("lockstep.dev/gpu=0",),
    )
    assert box.allocate(0) == pb.ContainerAllocateResponse(
        envs={"A": "1"},
        devices=[
            pb.DeviceSpec(container_path="/dev/nvidia0", host_path="/dev/nvidia0", permissions="rw")
        ],
        mounts=[
            pb.Mount(host_path="/host", container_path="/inside", read_only=True),
            pb.Mount(host_path="/host2", container_path="/inside2", read_only=False),
        ],
        annotations={"lockstep.dev/gpus": "0"},
        cdi_devices=[pb.CDIDevice(name="lockstep.dev/gpu=0")],
    )


def test_an_unknown_gpu_is_refused_and_takes_nothing(box: Box) -> None:
    with pytest.raises(Aborted, match="this node has no GPU"):
        box.allocate(0, 99)
    assert not box.node.state.allocations
    assert box.plugin.took.buckets()[-1] == ("+Inf", 0.0)


def test_allocate_is_measured_and_makes_the_grants_stale(box: Box) -> None:
    box.lists(a=(0,))
    box.allocate(0)
    assert box.plugin.took.buckets()[-1] == ("+Inf", 1.0)
    assert 0 <= box.plugin.took.total_s < 60
    for _ in range(2):
        assert box.grants.holder(GPU, uuids(0), 1.0) == ("team", "a", "c0")
    assert box.client.calls == 1  # the first one has seen the Allocate


# PreStartContainer


def test_the_container_that_starts_is_named(box: Box) -> None:
    box.lists(a=(0, 1))
    assert box.starts(1, 0) == pb.PreStartContainerResponse()
    # The kubelet sends a set's order. What was recorded of these devices is known by the sorted ones.
    assert box.gpus.started == [(uuids(0, 1), ("team", "a", "c0"))]


def test_a_container_that_is_not_listed_starts_without_a_name(box: Box) -> None:
    box.lists(a=(0, 1))
    box.starts(2)
    assert box.gpus.started == [(uuids(2), None)]


def test_a_container_that_must_not_start_is_refused(box: Box) -> None:
    box.gpus.refusal = "no limit for a"
    with pytest.raises(Aborted, match="no limit for a"):
        box.starts(0)
    assert box.context.code == grpc.StatusCode.FAILED_PRECONDITION


# ListAndWatch


def test_every_stream_is_counted_until_it_ends(box: Box) -> None:
    first, second = box.watch(), box.watch()
    assert len(next(first).devices) == 8
    next(second)
    assert box.plugin.streams["open"] == 2
    first.close()  # type: ignore[attr-defined]  # a generator
    assert box.plugin.streams["open"] == 1
    box.context.gone.set()
    assert list(second) == []
    assert (box.plugin.streams["open"], box.plugin.streams["listed"]) == (0, 0)


def test_a_stream_is_listed_once_its_first_list_was_taken(box: Box) -> None:
    stream = box.watch()
    next(stream)
    assert box.plugin.streams["listed"] == 0
    broken = replace(TOPOLOGY.gpus[0], healthy=False)
    box.node.set_topology(replace(TOPOLOGY, gpus=(broken, *TOPOLOGY.gpus[1:])))
    assert [each.health for each in next(stream).devices] == ["Unhealthy", *["Healthy"] * 7]
    assert box.plugin.streams["listed"] == 1
    assert box.node.woken == 2  # the registration when it began, and the reporter
    box.plugin.end_lists()
    assert list(stream) == []
    assert box.plugin.streams["listed"] == 0


def test_a_list_without_a_change_is_not_sent_again(box: Box) -> None:
    stream = box.watch()
    next(stream)
    box.node.set_grants((GRANT,))  # a whole GPU: the list is the same
    timer = threading.Timer(0.1, box.context.cancel)
    timer.start()
    assert list(stream) == []
    timer.join()


def test_a_call_that_has_ended_is_not_answered(box: Box) -> None:
    box.context.gone.set()
    assert list(box.watch()) == []
    assert box.plugin.streams["open"] == 0


GRANT = Grant("team", "a", "c0", GPU, uuids(0))
PARTS = {
    "topology": NodeTopology(),
    "grants": (GRANT,),
    "allocations": (Allocation(GPU, uuids(0)),),
    "unlisted": (Allocation(GPU, uuids(0)),),
    "forgotten": (Forgotten(GPU, uuids(0), "it runs"),),
    "orphaned": {"MIG-1": ("GPU-1", 1, 0)},
}


@pytest.mark.parametrize("part", PARTS)
def test_a_change_of_any_part_that_holds_devices_is_seen(part: str) -> None:
    old = NodeState()
    assert same_devices(replace(old), old)
    assert not same_devices(replace(old, **{part: PARTS[part]}), old)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "healthy"),
    [
        (
            lambda node: node.set_unlisted(
                (Allocation(GPU_SHARE, (share_id(machines.uuid(0), 1),)),)
            ),
            7,
        ),
        (lambda node: node.record_allocation(GPU_SHARE, (share_id(machines.uuid(0), 1),), 0.0), 7),
        (lambda node: node.set_unlisted((), (Forgotten(GPU, uuids(0, 1), "it runs"),)), 6),
        (lambda node: node.set_grants((replace(GRANT, resource=GPU_SHARE),)), 7),
    ],
)
def test_a_change_of_what_is_held_is_sent_at_once(
    box: Box, change: Callable[[AgentNode], None], healthy: int
) -> None:
    stream = box.watch()
    next(stream)
    timer = threading.Timer(0.1, change, (box.node,))
    timer.start()
    sent = next(stream)
    timer.join()
    assert sum(each.health == "Healthy" for each in sent.devices) == healthy


def test_a_numa_node_is_sent_where_it_is_known() -> None:
    sent = listing([Device("a", True, 0), Device("b", True, 1), Device("c", False, -1)])
    assert [[node.ID for node in each.topology.nodes] for each in sent.devices] == [[0], [1], []]
    assert [each.ID for each in sent.devices] == ["a", "b", "c"]
    assert [each.HasField("topology") for each in sent.devices] == [True, True, False]
    assert [each.health for each in sent.devices] == ["Healthy", "Healthy", "Unhealthy"]
