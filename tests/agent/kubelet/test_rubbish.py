"""A kubelet that sends rubbish, and one that lists more than any node has."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from agent.kubelet.pod_resources import PodResourcesClient
from agent.report_size import GRANTS
from agent.sockets import CHANNEL
from protos.names import GPU
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from protos.stubs import podresources_pb2, podresources_pb2_grpc
from tests.fakes import machines
from tests.fakes.nodebox import NodeBox, gpus, node_box, pod

KNOWN = [machines.uuid(n) for n in range(8)]


@pytest.fixture(scope="module")
def box() -> Iterator[NodeBox]:
    with node_box() as made:
        made.start()
        yield made


@contextmanager
def plugin(box: NodeBox) -> Iterator[rpc.DevicePluginStub]:
    with grpc.insecure_channel(f"unix:{box.socket()}", options=CHANNEL) as channel:
        yield rpc.DevicePluginStub(channel)


def refused(stub: rpc.DevicePluginStub, ids: list[str]) -> None:
    request = pb.ContainerAllocateRequest(devices_ids=ids)
    with pytest.raises(grpc.RpcError) as error:
        stub.Allocate(pb.AllocateRequest(container_requests=[request]), timeout=20)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_refused_devices_leave_no_trace(box: NodeBox) -> None:
    with plugin(box) as stub:
        for number in range(200):
            refused(stub, [f"GPU-{number}", KNOWN[number % 8]])
    assert not box.agent.node.state.allocations
    assert gpus(box.kubelet.add_pod(pod("a", 8))) == list(range(8))
    box.kubelet.remove_pod("uid-a")


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 9, 2**31 - 1])
@pytest.mark.parametrize("offered", [[], KNOWN, KNOWN * 2, [f"GPU-{n}" for n in range(20_000)]])
def test_any_preference_is_answered(box: NodeBox, size: int, offered: list[str]) -> None:
    request = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=offered, must_include_deviceIDs=offered[:3], allocation_size=size
    )
    with plugin(box) as stub:
        answer = stub.GetPreferredAllocation(
            pb.PreferredAllocationRequest(container_requests=[request] * 2), timeout=30
        )
    assert len(answer.container_responses) == 2
    for each in answer.container_responses:
        assert set(each.deviceIDs) <= set(offered)


def test_bytes_that_are_no_message(box: NodeBox) -> None:
    with grpc.insecure_channel(f"unix:{box.socket()}", options=CHANNEL) as channel:
        for method in ("Allocate", "GetPreferredAllocation", "PreStartContainer", "None"):
            call: Callable[..., bytes] = channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")
            with pytest.raises(grpc.RpcError):
                call(b"\xff" * 1000, timeout=20)
    assert box.agent.node.state.topology.gpus[0].healthy


class Lister(podresources_pb2_grpc.PodResourcesListerServicer):
    def List(  # noqa: N802  # gRPC's name
        self, request: podresources_pb2.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> podresources_pb2.ListPodResourcesResponse:
        answer = podresources_pb2.ListPodResourcesResponse()
        for number in range(GRANTS):
            one = answer.pod_resources.add(name=f"p{number}", namespace="team")
            held = one.containers.add(name="main")
            held.devices.add(resource_name=GPU, device_ids=[f"GPU-{number}"])
            held.devices.add(resource_name="example.com/other", device_ids=["x"] * 10)
        return answer


def test_a_list_of_16000_pods(box: NodeBox) -> None:
    socket = box.directory / "next" / "list.sock"
    server = grpc.server(ThreadPoolExecutor(1))
    podresources_pb2_grpc.add_PodResourcesListerServicer_to_server(Lister(), server)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    client = PodResourcesClient(socket)
    try:
        listed = client.list(60)
    finally:
        client.close()
        server.stop(0)
    assert len(listed) == GRANTS
    assert {each.devices[0][0] for each in listed} == {GPU}
