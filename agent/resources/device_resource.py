"""What a device plugin offers to the kubelet: one DeviceResource per resource. Plugin speaks the protocol,
an DeviceResource knows its devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.node_state import NodeState
from agent.resources.gpu_allocation import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
)


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    healthy: bool
    numa: int = -1


class Refused(Exception):
    """A container must not start; the message is a sentence for its user."""


class DeviceResource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> str:
        """The name of its socket."""
        ...

    def devices(self, state: NodeState) -> tuple[Device, ...]: ...

    def preferred(
        self,
        question: DeviceRequest,
        state: NodeState,
        listed: Sequence[ContainerDevices] | None,
        asked: frozenset[ContainerKey],
    ) -> Choice:
        """See allocation.preferred."""
        ...

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        """What the container is told. Raises ValueError for a device that is not here."""
        ...

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        """The devices, for people: GPUs 0,1"""
        ...

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        """Before any process of the container runs. Raises Refused."""
        ...
