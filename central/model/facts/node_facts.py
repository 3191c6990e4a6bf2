"""Facts about nodes from the API server and from agents, and about HyperNodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from central.model.amounts import Resources
from central.model.facts.pod_facts import Taint
from protos.topology import ClaimPlan, Grant, MemoryOver, NodeTopology, RdmaUse


@dataclass(frozen=True, slots=True)
class NodeSeen:
    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    features: tuple[str, ...] = ()  # that its kubelet declares, of those that pods may need
    # From the agent's report:
    # the highest RDMA limits that a pod can have on one NIC; None: the agent sets no limits
    rdma_most: tuple[tuple[str, int], ...] | None = None
    rdma_exclusive: bool = False  # NICs open only in the host's network namespace
    memory_level: str = "none"  # strongest enforcement of GPU memory caps
    gpus: tuple[tuple[str, int], ...] = ()  # the distinct (model, memory in bytes)
    told: tuple[tuple[str, str], ...] = ()  # network levels; labels take precedence

    def levels(self) -> Mapping[str, str]:
        """The node's domain by network level."""
        return {**dict(self.told), **self.labels} if self.told else self.labels


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class NodeReported:
    """An agent's report. Within a boot id, a higher generation is newer."""

    node: str
    boot: str
    generation: int
    topology: NodeTopology
    grants: tuple[Grant, ...] = ()  # observed devices, from pod-resources
    version: str = ""  # of the agent
    claims: str = ""  # how it serves device claims: beside its device plugin, or only; empty: not
    prepared: tuple[ClaimPlan, ...] = ()  # claims for which the kubelet has asked it


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """Pods use more GPU memory than their caps, as an agent reports."""

    node: str
    pods: tuple[MemoryOver, ...]


@dataclass(frozen=True, slots=True)
class GpusIdle:
    """Pods whose GPUs have been idle for a while: namespace, name, seconds; as an agent's figures say."""

    node: str
    pods: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, slots=True)
class RdmaUsed:
    """RDMA usage of pods by NIC, as an agent reports."""

    node: str
    pods: tuple[RdmaUse, ...]


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """The agent has not reported for longer than its timeout."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeOffers:
    """An agent's report whether the kubelet has the node's devices. It has none while the agent or the kubelet
    restarts."""

    node: str
    offered: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a HyperNode: nodes or other HyperNodes, by one of three selectors."""

    kind: str  # Node or HyperNode
    exact: str = ""
    pattern: str = ""  # matches whole names
    labels: tuple[tuple[str, str], ...] = ()  # of nodes only


@dataclass(frozen=True, slots=True)
class HyperNodeSeen:
    """A HyperNode object: a network domain. Nodes of a lower tier are closer."""

    name: str
    tier: int
    members: tuple[Member, ...] = ()
    error: str = ""  # the invalid field and why
    uid: str = ""
    tier_name: str = ""


@dataclass(frozen=True, slots=True)
class HyperNodeGone:
    name: str
