"""People's questions: the Desk service, answered from the loop's books for any authenticated user."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from central.identity import Review
from protos.topology import NodeTopology


@dataclass(frozen=True, slots=True)
class Holder:
    namespace: str
    pod: str
    gpus: int  # mask
    confirmed: bool  # pod-resources says so too


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    domains: tuple[str, ...] = ()  # widest first; empty: no such label
    topology: NodeTopology | None = None  # no agent has reported
    holders: tuple[Holder, ...] = ()
    gpus_allocatable: int = 0
    gpus_used: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    name: str
    node: str = ""
    gpus: int = 0  # mask
    confirmed: bool = False
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    namespace: str
    name: str
    phase: str
    reason: str
    pods: tuple[PodView, ...] = ()
    min_member: int = 0
    queue: str = ""
    closest: str = ""


class Books(Protocol):
    """The loop's answers; called from a worker thread, may block until the turn ends."""

    @property
    def levels(self) -> tuple[str, ...]: ...

    def node_views(self, node: str) -> Sequence[NodeView]:
        """Of one node (none: unknown), or of all for an empty name."""

    def explain(self, namespace: str, name: str) -> Explanation | None: ...


class Desk:
    def __init__(self, books: Books, review: Review) -> None:
        raise NotImplementedError
