"""Whether the kubelet learns the NUMA nodes of devices. If it does, a topology manager policy restricts what a plan can
choose; tests/e2e/test_kubelet_managers.py shows what comes of it."""

import grpc
import pytest

from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box

KINDS = ("gpu", "gpu-share", "rdma")


def listed(box: NodeBox, kind: str) -> set[int]:
    """The NUMA nodes in the first list of a plugin."""
    (socket,) = box.kubelet.plugins.glob(f"lockstep-{kind}.*.sock")
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = rpc.DevicePluginStub(channel).ListAndWatch(pb.Empty())
        devices = next(iter(call)).devices
        call.cancel()
    assert devices
    return {node.ID for device in devices for node in device.topology.nodes}


@pytest.mark.parametrize(
    ("hints", "server", "told"),
    [
        ("auto", "", True),
        ("auto", "localhost:1", False),
        ("always", "localhost:1", True),
        ("never", "", False),
    ],
)
def test_lists_have_numa_nodes_where_no_plans_are_or_somebody_wants_them(
    hints: str, server: str, told: bool
) -> None:
    with node_box(machines.machine(numa=True, cards=8)) as box:
        box.configure(numa_hints=hints, server=server)
        box.start()
        eventually(lambda: len(box.kubelet.capacity) == len(KINDS))
        for kind in KINDS:
            assert listed(box, kind) == ({0, 1} if told else set())
