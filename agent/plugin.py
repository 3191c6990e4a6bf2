"""The kubelet's questions about devices, v1beta1. Thin: translates, asks allocation and node,
translates back. No answer takes longer than about a second: the kubelet waits without a limit."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc

from agent import allocation
from agent.node import Node, State
from agent.podresources import Admissions, PodResources, Truth
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc
from protos.topology import NodeTopology

log = logging.getLogger(__name__)

LIST_S = 0.5
WHO_S = 3.0  # of the 30 that PreStartContainer has

OPTIONS = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


class Plugin(rpc.DevicePluginServicer):
    def __init__(
        self,
        node: Node,
        resources: PodResources,
        admissions: Admissions,
        truth: Truth,
        device_nodes: Callable[[Sequence[str]], tuple[str, ...]],
    ) -> None:
        self._node, self._resources = node, resources
        self._admissions, self._truth = admissions, truth
        self._device_nodes = device_nodes
        self._asked: frozenset[allocation.Key] = frozenset()
        self._count = threading.Lock()
        self.streams = 0  # ListAndWatch calls that are open
        self.closing = threading.Event()

    def GetDevicePluginOptions(
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        return OPTIONS

    def ListAndWatch(
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        with self._count:
            self.streams += 1
        try:
            if not context.add_callback(self._node.wake):
                return
            told: pb.ListAndWatchResponse | None = None
            state = self._node.state
            while context.is_active() and not self.closing.is_set():
                now = devices(state.topology)
                if now != told:
                    yield now
                    told = now
                state = self._node.wait(self._news(state, context), timeout_s=60)
        finally:
            with self._count:
                self.streams -= 1

    def _news(self, old: State, context: grpc.ServicerContext) -> Callable[[State], bool]:
        return lambda state: (
            state.topology is not old.topology or self.closing.is_set() or not context.is_active()
        )

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        self._admissions.begin()
        listed: tuple[allocation.Listed, ...] | None
        try:
            listed = self._resources.list(LIST_S)
        except OSError as error:
            log.warning("choosing without knowing for whom: %s", error)
            listed = None
        state = self._node.state
        answer = pb.PreferredAllocationResponse()
        for wanted in request.container_requests:
            question = allocation.Question(
                tuple(wanted.available_deviceIDs),
                tuple(wanted.must_include_deviceIDs),
                wanted.allocation_size,
            )
            choice = allocation.preferred(
                question, state.topology, state.intents, listed, self._asked
            )
            self._asked = choice.asked
            log.info(
                "prefer %d of %d GPUs: %s (%s)",
                wanted.allocation_size,
                len(wanted.available_deviceIDs),
                _indices(state.topology, choice.device_ids),
                choice.why,
            )
            answer.container_responses.add(deviceIDs=choice.device_ids)
        return answer

    def Allocate(
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        answer = pb.AllocateResponse()
        with self._admissions.allocating():
            try:
                for container in request.container_requests:
                    answer.container_responses.append(self._response(container.devices_ids))
            except ValueError as error:
                log.warning("allocate: refused: %s", error)
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._truth.stale()
        return answer

    def _response(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        topology = self._node.state.topology
        given = allocation.response(ids, topology, self._device_nodes(sorted(ids)))
        log.info("allocate GPUs %s", _indices(topology, tuple(ids)))
        return pb.ContainerAllocateResponse(
            envs=given.envs,
            devices=[
                pb.DeviceSpec(container_path=path, host_path=path, permissions="rw")
                for path in given.device_nodes
            ],
            mounts=[
                pb.Mount(host_path=host, container_path=inside, read_only=read_only)
                for host, inside, read_only in given.mounts
            ],
            annotations=given.annotations,
        )

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        ids = tuple(request.devices_ids)
        holder = self._truth.holder(ids, WHO_S)
        gpus = _indices(self._node.state.topology, ids)
        if holder is None:
            log.warning("a container starts with GPUs %s; pod-resources does not say which", gpus)
        else:
            log.info("%s/%s, container %s, starts with GPUs %s", *holder, gpus)
        return pb.PreStartContainerResponse()


def devices(topology: NodeTopology) -> pb.ListAndWatchResponse:
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID=gpu.uuid,
                health="Healthy" if gpu.healthy else "Unhealthy",
                topology=(
                    pb.TopologyInfo(nodes=[pb.NUMANode(ID=gpu.numa)]) if gpu.numa >= 0 else None
                ),
            )
            for gpu in topology.gpus
        ]
    )


def _indices(topology: NodeTopology, ids: tuple[str, ...]) -> str:
    return ",".join(str(gpu.index) for gpu in topology.gpus if gpu.uuid in ids)
