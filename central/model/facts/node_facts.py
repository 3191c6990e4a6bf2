"""Nodes, as the API server and their agents tell of them, and the network tree."""

from collections.abc import Mapping
from dataclasses import dataclass

from central.model.facts.amounts import Resources
from central.model.facts.pod_facts import Taint
from protos.topology import Grant, MemoryOver, NodeTopology, RdmaUse


@dataclass(frozen=True, slots=True)
class NodeSeen:
    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    # What a pod's RDMA limits may be at most, as its agent says; None: nobody sets any there.
    rdma_most: tuple[tuple[str, int], ...] | None = None
    rdma_exclusive: bool = False  # its network cards open in the host's network namespace only
    memory_level: str = "none"  # how caps of GPU memory hold there at best, as its agent says
    gpus: tuple[
        tuple[str, int], ...
    ] = ()  # model and memory of its kinds of GPU, as its agent says
    told: tuple[tuple[str, str], ...] = ()  # levels that its agent tells; its own labels go before

    def levels(self) -> Mapping[str, str]:
        """By level: where in the network it is."""
        return {**dict(self.told), **self.labels} if self.told else self.labels


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class NodeReported:
    """An agent's report: the hardware, newest first by (boot, generation)."""

    node: str
    boot: str
    generation: int
    topology: NodeTopology
    grants: tuple[Grant, ...] = ()  # the truth, from pod-resources
    version: str = ""  # of the agent


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """An agent says that pods have more of their GPUs' memory than they may."""

    node: str
    pods: tuple[MemoryOver, ...]


@dataclass(frozen=True, slots=True)
class RdmaUsed:
    """An agent says what pods use of network cards now."""

    node: str
    pods: tuple[RdmaUse, ...]


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """The agent has not been heard for too long."""

    node: str


@dataclass(frozen=True, slots=True)
class Member:
    """Of a HyperNode: nodes or other HyperNodes, by one of three selectors."""

    kind: str  # Node or HyperNode
    exact: str = ""
    pattern: str = ""  # matches whole names
    labels: tuple[tuple[str, str], ...] = ()  # of nodes only


@dataclass(frozen=True, slots=True)
class HyperNodeSeen:
    """A domain of the network; the lower the tier, the closer its nodes."""

    name: str
    tier: int
    members: tuple[Member, ...] = ()
    error: str = ""  # why the object can't be used, naming the field
    uid: str = ""


@dataclass(frozen=True, slots=True)
class HyperNodeGone:
    name: str
