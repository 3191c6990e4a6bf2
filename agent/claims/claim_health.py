"""The health of the devices of claims, which the kubelet shows in the status of their pods."""

import time
from collections.abc import Callable, Iterator

import grpc

from agent.node import AgentNode
from agent.node_state import NodeState
from protos import slicing
from protos.claim_devices import device_name
from protos.printing import brief
from protos.stubs import drahealth_pb2 as pb
from protos.topology import Gpu, Slice

EVERY_S = (
    10.0  # between lists without a change; after 30 s the kubelet takes the health for unknown
)
MESSAGE = 1024  # characters


class ClaimHealth:
    def __init__(self, node: AgentNode) -> None:
        self._node = node

    def watch(
        self, request: pb.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.NodeWatchResourcesResponse]:
        context.add_callback(self._node.wake)
        while context.is_active():
            state = self._node.state
            yield pb.NodeWatchResourcesResponse(devices=self._devices(state, int(time.time())))
            self._node.wait(_changed(state, context), EVERY_S)

    def _devices(self, state: NodeState, now: int) -> Iterator[pb.DeviceHealth]:
        found: list[Gpu | Slice] = [gpu for gpu in state.topology.gpus if not gpu.mig]
        for each in (*found, *(part for _, part in slicing.of(state.topology))):
            if name := device_name(each.uuid):
                yield pb.DeviceHealth(
                    device=pb.DeviceIdentifier(pool_name=self._node.name, device_name=name),
                    health=pb.HEALTHY if each.healthy else pb.UNHEALTHY,
                    last_updated_time=now,
                    message="" if each.healthy else brief(each.why, MESSAGE),
                )


def _changed(old: NodeState, context: grpc.ServicerContext) -> Callable[[NodeState], bool]:
    return lambda now: now.topology is not old.topology or not context.is_active()
