"""The interface of a kind of device that the kubelet allocates, and the values that pass between the device plugin
and the kinds. kubelet/plugin.py translates them from and to gRPC."""

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from agent.node_state import NodeState
from protos.gpu_sharing import hundredths, key_of
from protos.names import REST_OF_POD

ContainerKey = tuple[str, str, str]  # namespace, pod, container
PodKey = tuple[str, str]  # namespace, pod
Held = tuple[tuple[str, tuple[str, ...]], ...]  # resource, sorted ids


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    healthy: bool
    numa: int = -1  # -1: unknown


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """A container in pod-resources with the devices that it holds."""

    namespace: str
    pod: str
    container: str
    devices: Held = ()
    others: Held = field(default=(), compare=False)  # may be another device plugin's

    @property
    def key(self) -> ContainerKey:
        return self.namespace, self.pod, self.container

    def ids(self, resource: str) -> tuple[str, ...]:
        return dict(self.devices).get(resource, ())


def with_rests(
    listed: tuple[ContainerDevices, ...], resource: str, state: NodeState
) -> tuple[ContainerDevices, ...]:
    """Adds a row for each pod in the list with a plan for what only its init containers use, which
    pod-resources does not list. The row has no devices before they have as many as planned."""
    pods, rows = {row.key[:2] for row in listed}, list(listed)
    held = {rest.pod: rest.device_ids for rest in state.rests() if rest.resource == resource}
    for plan in state.intents:
        key, ids = key_of(plan), held.get(plan.uid, ())
        if key[2] == REST_OF_POD and plan.resource == resource and key[:2] in pods:
            enough = len(ids) >= (hundredths(plan) or len(plan.device_ids))
            rows.append(ContainerDevices(*key, ((resource, ids),) if enough else ()))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One container's part of GetPreferredAllocation: `size` of the available devices, among them
    all of `must`."""

    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int
    listed: tuple[ContainerDevices, ...] | None = None  # None: pod-resources did not answer
    asked_before: frozenset[ContainerKey] = frozenset()  # candidates of earlier calls
    current: PodKey | None = None  # whose devices `must` has, if that pod is known

    def candidates(
        self, planned: Container[ContainerKey]
    ) -> tuple[frozenset[ContainerKey], ContainerKey | None]:
        """The containers with a plan that the request may be for, and the one that it is for, if
        that is certain. It is the first planned container of its pod, because the kubelet allocates
        a pod's containers in order, or an init container before it. One that an earlier call was
        made for and that still has no devices was not admitted, unless the request reuses devices
        of that pod's init containers."""
        first: dict[tuple[str, str], ContainerKey] = {}
        for row in self.listed or ():
            if row.key in planned:
                first.setdefault(row.key[:2], row.key)
        found = frozenset(first.values())
        if self.current in first:
            return found, first[self.current]
        meant = found if len(found) == 1 else found - self.asked_before
        return found, next(iter(meant)) if len(meant) == 1 else None


@dataclass(frozen=True, slots=True)
class Choice:
    device_ids: tuple[str, ...]
    why: str  # a clause for the log
    asked: frozenset[ContainerKey] = frozenset()  # containers that the request may be for
    key: ContainerKey | None = None  # of the one that it is for, if that is certain


@dataclass(frozen=True, slots=True)
class ContainerResponse:
    """One container's part of the answer to Allocate."""

    envs: Mapping[str, str]
    device_nodes: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()  # host path, container path, read only
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class Refused(Exception):
    """A container must not start; the message is a sentence for its user."""


class DeviceResource(ABC):
    """One extended resource and its devices."""

    name: str  # of the resource, such as nvidia.com/gpu
    endpoint: str  # begins the names of the device plugin's sockets
    # Whether pre_start() does anything. If it does, no container with these devices can start or
    # restart while the agent is away.
    pre_start_required = False

    @abstractmethod
    def devices(self, state: NodeState) -> tuple[Device, ...]:
        """Returns the devices for ListAndWatch."""

    @abstractmethod
    def preferred(self, request: DeviceRequest, state: NodeState) -> Choice:
        """The answer to GetPreferredAllocation; see gpu_allocation.preferred."""

    @abstractmethod
    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        """The answer to Allocate. Raises ValueError if a device is not on this node."""

    @abstractmethod
    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        """The devices in words for a log line: GPUs 0,1"""

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        """Runs before the container's first process. ids: sorted. holder is None if pod-resources does
        not name the container. Raises Refused."""
        return
