"""The device plugin API v1beta1: translates between gRPC and a DeviceResource. The kubelet sets no
timeout on GetPreferredAllocation and Allocate, so their answers are bounded to a few seconds
here.

Design: docs/design/kubelet.md
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from agent.kubelet.latency import Latency
from agent.kubelet.node_owner import NodeOwner, is_passed_on
from agent.kubelet.pod_resources import ANSWER_S, ObservedGrants, Rejected
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.resources.device_resource import (
    ContainerKey,
    Device,
    DeviceRequest,
    DeviceResource,
    PodKey,
    Refused,
    with_rests,
)
from protos.printing import brief
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc

log = logging.getLogger(__name__)

# for pod-resources while the kubelet rejects calls of it; the kubelet admits no other pod meanwhile
REJECTED_S = 10.0
SENTENCE = 700  # characters of a refusal, which becomes an event of the pod, and of a log line
CONTAINERS_MOST = 256  # of one call; a kubelet asks for one


class DevicePlugin(rpc.DevicePluginServicer):
    def __init__(
        self,
        resource: DeviceResource,
        node: AgentNode,
        grants: ObservedGrants,
        owner: NodeOwner | None = None,
        *,
        numa_hints: bool = True,
    ) -> None:
        """numa_hints: whether the kubelet's topology manager learns the devices' NUMA nodes."""
        self.resource, self._owner, self._numa_hints = resource, owner, numa_hints
        self.options = pb.DevicePluginOptions(
            pre_start_required=resource.pre_start_required, get_preferred_allocation_available=True
        )
        self._node, self.grants = node, grants
        self._reused: frozenset[str] = frozenset()  # devices that the pod in admission may have
        self._current: PodKey | None = None  # the pod in admission, if known
        self._asked: frozenset[ContainerKey] = frozenset()
        self._counting = threading.Lock()
        # ListAndWatch calls: open, listed, dropped (by the kubelet), others (of other agents, ended)
        self.streams = Counter[str]()  # of this registration
        self._lists_open = set[grpc.ServicerContext]()  # calls of ListAndWatch
        self.took = Latency()  # of Allocate

    def GetDevicePluginOptions(
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        return self.options

    def ListAndWatch(
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        streams, others = self.streams, is_passed_on(context)
        listed = False
        self._lists_open.add(context)
        self._count(streams, open=not others)
        try:
            for now in self._lists(context):
                yield now
                if not listed and not others:
                    listed = True
                    self._count(streams, listed=1)
        finally:
            self._lists_open.discard(context)
            if others:
                self._count(streams, others=1)
            else:
                self._count(streams, open=-1, listed=-listed, dropped=1)

    def end_lists(self) -> None:
        """Ends all calls of ListAndWatch, also those that the owner answers. The kubelet then calls another plugin."""
        for context in tuple(self._lists_open):
            context.cancel()

    def _count(self, streams: Counter[str], **changes: int) -> None:
        with self._counting:
            streams.update(changes)
        self._node.wake()  # the registration and the reporter

    def _lists(self, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        """Each list that differs from the one before: of the node's owner while it answers, else of this agent."""
        context.add_callback(self._node.wake)
        owner = self._owner
        sent: pb.ListAndWatchResponse | None = None
        while context.is_active():
            for sent in owner.lists(self.resource.endpoint, context) if owner else ():
                yield sent
            state = self._node.state
            now = listing(self.resource.devices(state), numa_hints=self._numa_hints)
            if now != sent and context.is_active():
                yield now
                sent = now
            alone = owner is None or owner.is_this
            self._node.wait(self._changed(state, context), timeout_s=60 if alone else 1)

    def _changed(
        self, old: NodeState, context: grpc.ServicerContext
    ) -> Callable[[NodeState], bool]:
        return lambda state: not same_devices(state, old) or not context.is_active()

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        given: pb.PreferredAllocationResponse | None = self._passed_on(
            "GetPreferredAllocation", request, context
        )
        if given is not None:
            return given
        asked = request.container_requests
        _check_count(asked, context)
        must = {each for one in asked for each in one.must_include_deviceIDs}
        offered = {each for one in asked for each in one.available_deviceIDs} - must
        try:
            listed = self.grants.list_now(_time_left(context), offered)
        except Rejected as rejected:
            listed, why = None, brief(f"cannot tell which pod asks: {rejected}", SENTENCE)
            if self._node.state.intents:  # else no pod needs to be known
                log.warning(why)
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        current = self._current if must and must <= self._reused else None
        self._reused = frozenset(must)
        if listed is None:
            log.warning("pod-resources unavailable; choosing devices without pod identity")
        state = self._node.state
        rows = None if listed is None else with_rests(listed, self.resource.name, state)
        taken = state.taken(self.resource.name).keys() - must
        answer = pb.PreferredAllocationResponse()
        for each in asked:
            wanted = DeviceRequest(
                tuple(one for one in each.available_deviceIDs if one not in taken),
                tuple(each.must_include_deviceIDs),
                each.allocation_size,
                rows,
                self._asked,
                current,
            )
            choice = self.resource.preferred(wanted, state)
            self._asked = choice.asked
            self._current = choice.key[:2] if choice.key else None
            log.info(
                "prefer %d of %d: %s (%s)",
                each.allocation_size,
                len(each.available_deviceIDs),
                brief(self.resource.describe(choice.device_ids, state), SENTENCE),
                choice.why,
            )
            answer.container_responses.add(deviceIDs=choice.device_ids)
        return answer

    def Allocate(
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        given: pb.AllocateResponse | None = self._passed_on("Allocate", request, context)
        if given is not None:
            return given
        began = time.monotonic()
        _check_count(request.container_requests, context)
        answer = pb.AllocateResponse()
        try:
            for container in request.container_requests:
                time_s = _time_left(context)
                answer.container_responses.append(self._response(container.devices_ids, time_s))
        except (ValueError, Rejected) as error:
            why = brief(str(error), SENTENCE)
            log.warning("refused Allocate: %s", why)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        self.grants.stale()
        self.took.add(time.monotonic() - began)
        return answer

    def _response(self, ids: Sequence[str], time_s: float) -> pb.ContainerAllocateResponse:
        if not ids:
            raise ValueError(f"no device of {self.resource.name} is named")
        state = self._node.state
        listed = {each for grant in state.grants for each in grant.device_ids}
        if not (state.taken(self.resource.name).keys() - (self._reused - listed)).isdisjoint(ids):
            self.grants.list_now(time_s)  # the pod that had them may have ended
        self._node.record_allocation(self.resource.name, tuple(ids), time.monotonic(), self._reused)
        state = self._node.state
        try:
            given = self.resource.response(ids, state)
        except ValueError:
            self._node.forget_allocation(self.resource.name, tuple(ids))
            raise
        self._reused |= set(ids)
        log.info("allocate %s", brief(self.resource.describe(ids, state), SENTENCE))
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
            cdi_devices=[pb.CDIDevice(name=name) for name in given.cdi_devices],
        )

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        given: pb.PreStartContainerResponse | None = self._passed_on(
            "PreStartContainer", request, context
        )
        if given is not None:
            return given
        ids = tuple(sorted(request.devices_ids))  # the kubelet sends a set's order
        if not ids:
            why = f"no device of {self.resource.name} is named"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        held = brief(self.resource.describe(ids, self._node.state), SENTENCE)
        try:
            holder = self.grants.holder(self.resource.name, ids, _time_left(context))
            if holder is None:
                log.warning("a container starts with %s; pod-resources does not list it yet", held)
            else:
                log.info("%s/%s, container %s, starts with %s", *holder, held)
            self.resource.pre_start(ids, holder)
        except (Refused, Rejected) as refused:
            why = brief(str(refused), SENTENCE)
            log.warning("refused to start a container with %s: %s", held, why)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        return pb.PreStartContainerResponse()

    def _passed_on(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        endpoint = self.resource.endpoint
        return self._owner.ask(endpoint, method, request, context) if self._owner else None


def same_devices(state: NodeState, old: NodeState) -> bool:
    """Returns whether the devices of all resources are the same in both states."""
    return (
        state.topology is old.topology
        and state.grants is old.grants
        and state.allocations is old.allocations
        and state.unlisted is old.unlisted
        and state.forgotten is old.forgotten
        and state.orphaned is old.orphaned
        and state.claims is old.claims
        and state.prepared is old.prepared
    )


def listing(devices: Sequence[Device], *, numa_hints: bool = True) -> pb.ListAndWatchResponse:
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID=device.id,
                health="Healthy" if device.healthy else "Unhealthy",
                topology=(
                    pb.TopologyInfo(nodes=[pb.NUMANode(ID=device.numa)])
                    if numa_hints and device.numa >= 0
                    else None
                ),
            )
            for device in devices
        ]
    )


def _time_left(context: grpc.ServicerContext) -> float:
    """Returns the seconds that a read of pod-resources may take: less than the kubelet's timeout, if it sets one."""
    return max(0.1, min(REJECTED_S, context.time_remaining() - ANSWER_S))


def _check_count(containers: Sequence[object], context: grpc.ServicerContext) -> None:
    """Refuses a call with too many containers: allocated and held devices are compared container by container."""
    if len(containers) > CONTAINERS_MOST:
        why = f"{len(containers)} containers; a call may have {CONTAINERS_MOST}"
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
