"""Allocate without a question for the preference before, as a kubelet calls it where NUMA alignment leaves no
choice. The agent lists pods seldom here, so that what it knows comes from the call itself."""

from collections.abc import Iterator

import grpc
import pytest

from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box, pod


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box() as made:
        made.configure(report_every_s=600)
        made.start()
        yield made


def allocate(box: NodeBox, *ids: str) -> str:
    """Why it is refused; empty: it is not."""
    with grpc.insecure_channel(f"unix:{box.socket()}") as channel:
        request = pb.ContainerAllocateRequest(devices_ids=ids)
        try:
            rpc.DevicePluginStub(channel).Allocate(
                pb.AllocateRequest(container_requests=[request]), timeout=30
            )
        except grpc.RpcError as error:
            return str(error.details())
    return ""


def test_what_was_allocated_is_listed_soon(box: NodeBox) -> None:
    assert box.kubelet.add_pod(pod("a", 8)).ok
    eventually(lambda: box.truth() == {"a": [*range(8)]}, 60)


def test_devices_of_an_ended_pod_are_allocated_again_and_again(box: NodeBox) -> None:
    """A topology manager policy leaves no choice, so the kubelet never asks for one."""
    ids = [machines.uuid(number) for number in range(8)]
    assert box.kubelet.add_pod(pod("a", 8)).ok
    eventually(lambda: box.truth() == {"a": [*range(8)]})
    box.kubelet.remove_pod("uid-a")
    for _ in range(3):
        assert allocate(box, *ids) == ""


def test_a_refused_allocation_takes_nothing(box: NodeBox) -> None:
    assert allocate(box, machines.uuid(3), "GPU-of-another-node")
    assert allocate(box, machines.uuid(3)) == ""
