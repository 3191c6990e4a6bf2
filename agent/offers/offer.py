"""What a device plugin offers to the kubelet: one Offer per resource. Plugin speaks the protocol,
an Offer knows its devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.node import State
from agent.offers.allocation import Choice, Holding, Key, Question, Response


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    healthy: bool
    numa: int = -1


class Refused(Exception):
    """A container must not start; the message is a sentence for its user."""


class Offer(Protocol):
    @property
    def resource(self) -> str: ...

    @property
    def endpoint(self) -> str:
        """The name of its socket."""
        ...

    def devices(self, state: State) -> tuple[Device, ...]: ...

    def preferred(
        self,
        question: Question,
        state: State,
        listed: Sequence[Holding] | None,
        asked: frozenset[Key],
    ) -> Choice:
        """See allocation.preferred."""
        ...

    def response(self, ids: Sequence[str], state: State) -> Response:
        """What the container is told. Raises ValueError for a device that is not here."""
        ...

    def words(self, ids: Sequence[str], state: State) -> str:
        """The devices, for people: GPUs 0,1"""
        ...

    def starting(self, ids: Sequence[str], holder: Key | None) -> None:
        """Before any process of the container runs. Raises Refused."""
        ...
