"""Calls of a kubelet to the device plugins with hostile fields, over the real sockets: each is answered or refused with
a sentence, in bounded time, no device is allocated twice, and the next pod gets its devices."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from agent.sockets import CHANNEL
from protos.names import GPU, GPU_SHARE, RDMA
from protos.stubs import deviceplugin_pb2 as pb
from tests.agent.hostile.reported import accepted
from tests.central.poison.by_field.message_walk import changed
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, gpus, node_box, pod

CALL_S = 20.0  # of processor time
PATIENCE_S = 120.0
ENDPOINTS = {
    GPU: ("lockstep-gpu", machines.uuid(3)),
    GPU_SHARE: ("lockstep-gpu-share", f"{machines.uuid(2)}::7"),
    RDMA: ("lockstep-rdma", "mlx5_0::1"),
}
# What a program that refuses says; UNKNOWN is an exception that nobody expected.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


@pytest.fixture(scope="module")
def box() -> Iterator[NodeBox]:
    machine = machines.machine(8, cards=2)
    with node_box(machine) as made:
        made.configure(share_gpus="all", gpu_memory="none", rdma_devices=("all",))
        made.start()
        eventually(lambda: ENDPOINTS.keys() <= made.kubelet.allocatable.keys(), PATIENCE_S)
        yield made


def allocate(device: str) -> pb.AllocateRequest:
    return pb.AllocateRequest(
        container_requests=[pb.ContainerAllocateRequest(devices_ids=[device])]
    )


def prefer(device: str) -> pb.PreferredAllocationRequest:
    one = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=[device, f"{device}1"],
        must_include_deviceIDs=[device],
        allocation_size=2,
    )
    return pb.PreferredAllocationRequest(container_requests=[one])


def start(device: str) -> pb.PreStartContainerRequest:
    return pb.PreStartContainerRequest(devices_ids=[device])


METHODS: dict[str, Callable[[str], Message]] = {
    "Allocate": allocate,
    "GetPreferredAllocation": prefer,
    "PreStartContainer": start,
}


@contextmanager
def caller(box: NodeBox, socket: str, method: str) -> Iterator[Callable[[bytes], str]]:
    address = f"unix:{box.socket(socket)}"
    with grpc.insecure_channel(address, options=CHANNEL) as channel:
        raw: Callable[..., bytes] = channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")

        def call(data: bytes) -> str:
            """Why it was refused; empty if it was not."""
            try:
                raw(data, timeout=60)
            except grpc.RpcError as error:
                return _refusal(error)
            return ""

        yield call


def _refusal(error: Any) -> str:
    what = str(error.details())
    no_message = error.code() == grpc.StatusCode.INTERNAL and "deserializ" in what
    assert error.code() in REFUSALS or no_message, f"{error.code()}: {what}"
    return what


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("resource", ENDPOINTS)
def test_every_field_of_a_call(box: NodeBox, resource: str, method: str) -> None:
    socket, device = ENDPOINTS[resource]
    refused = 0
    with caller(box, socket, method) as call:
        for one in changed(lambda: METHODS[method](device)):
            began = time.process_time()
            why = call(one.data)
            assert time.process_time() - began < CALL_S, one.where
            assert why.isprintable(), f"{one.where}: {why!r}"
            assert len(why) < 1000, f"{one.where}: {len(why)} characters"
            refused += bool(why)
            _forget(box)
    assert refused > 2 or method != "Allocate"
    accepted(box.agent.node, method)


@pytest.mark.parametrize("method", ["Allocate", "GetPreferredAllocation"])
def test_a_call_for_more_containers_than_a_pod_has(box: NodeBox, method: str) -> None:
    socket, device = ENDPOINTS[RDMA]
    one = METHODS[method](device)
    with caller(box, socket, method) as call:
        assert call((one.SerializeToString()) * 257) == "257 containers; a call may have 256"
        assert "containers; a call" not in call(one.SerializeToString() * 256)
        _forget(box)


def _forget(box: NodeBox) -> None:
    """What was allocated to no pod, as the agent does after ten seconds."""
    node = box.agent.node
    with node._changed:
        node._become(replace(node.state, allocations=()))


@pytest.mark.parametrize("resource", ENDPOINTS)
def test_a_million_devices(box: NodeBox, resource: str) -> None:
    socket, _ = ENDPOINTS[resource]
    one = pb.ContainerAllocateRequest(devices_ids=[f"{n:x}" for n in range(500_000)])
    for size in (1, 2):
        data = pb.AllocateRequest(container_requests=[one] * size).SerializeToString()
        with caller(box, socket, "Allocate") as call:
            began = time.process_time()
            assert call(data)
            assert time.process_time() - began < CALL_S
    assert not box.agent.node.state.allocations


def test_devices_are_allocated_as_before(box: NodeBox) -> None:
    """Runs last: the pods have what the hostile calls asked for."""
    _forget(box)
    assert gpus(box.kubelet.add_pod(pod("a", 8))) == list(range(8))
    box.kubelet.remove_pod("uid-a")
