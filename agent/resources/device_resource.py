"""What a kind of device must implement so that the kubelet can allocate it, and the values that
pass between the device plugin and the kinds. kubelet/plugin.py translates them from and to gRPC."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.node_state import NodeState

ContainerKey = tuple[str, str, str]  # namespace, pod, container


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    healthy: bool
    numa: int = -1  # -1: unknown


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One container's part of GetPreferredAllocation: `size` of the available devices, among them
    all of `must`."""

    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Choice:
    device_ids: tuple[str, ...]
    why: str  # a clause for the log
    asked: frozenset[ContainerKey] = frozenset()  # containers that the request may be for


@dataclass(frozen=True, slots=True)
class ContainerResponse:
    """One container's part of the answer to Allocate."""

    envs: Mapping[str, str]
    device_nodes: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()  # host path, container path, read only
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """A container in pod-resources with the devices that it holds."""

    namespace: str
    pod: str
    container: str
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()  # resource, sorted ids

    @property
    def key(self) -> ContainerKey:
        return self.namespace, self.pod, self.container

    def ids(self, resource: str) -> tuple[str, ...]:
        return dict(self.devices).get(resource, ())


class Refused(Exception):
    """A container must not start; the message is a sentence for its user."""


class DeviceResource(Protocol):
    """One extended resource and its devices."""

    @property
    def name(self) -> str:
        """The resource's name, such as nvidia.com/gpu."""
        ...

    @property
    def endpoint(self) -> str:
        """File name of the device plugin's socket."""
        ...

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        """What ListAndWatch sends."""
        ...

    def preferred(
        self,
        request: DeviceRequest,
        state: NodeState,
        listed: Sequence[ContainerDevices] | None,
        asked: frozenset[ContainerKey],
    ) -> Choice:
        """The answer to GetPreferredAllocation; see gpu_allocation.preferred."""
        ...

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        """The answer to Allocate. Raises ValueError if a device is not on this node."""
        ...

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        """The devices in words for a log line: GPUs 0,1"""
        ...

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        """Runs before the container's first process. holder is None if pod-resources does not name
        the container. Raises Refused."""
        ...


def next_in_admission(
    listed: Iterable[ContainerKey], planned: Container[ContainerKey]
) -> frozenset[ContainerKey]:
    """The first planned container of each pod: the kubelet allocates a pod's containers in
    order."""
    first: dict[tuple[str, str], ContainerKey] = {}
    for key in listed:
        if key in planned:
            first.setdefault(key[:2], key)
    return frozenset(first.values())
