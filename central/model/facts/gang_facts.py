"""PodGroup objects."""

from dataclasses import dataclass

from central.model.facts.amounts import Amounts
from central.model.pod_rules import Expression


@dataclass(frozen=True, slots=True)
class SubGroups:
    """Members of a gang that stand in groups, each of which wants a closeness of its own."""

    name: str
    size: int = 1  # so many make a group whole
    least: int = 0  # so many groups must be whole before the gang starts
    labels: tuple[Expression, ...] = ()  # whose pods they are; empty: all
    keys: tuple[str, ...] = ()  # pods with the same values of these labels are one group
    required: str = ""  # as in GangSeen
    tier: int | None = None


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """Tasks of a gang whose pods want to share nodes, pair by pair, and those that don't; a task with
    itself: its pods among each other."""

    near: Pairs = ()
    apart: Pairs = ()


@dataclass(frozen=True, slots=True)
class GangSeen:
    """A PodGroup object."""

    namespace: str
    name: str
    min_member: int
    uid: str = ""
    task_min: tuple[tuple[str, int], ...] = ()  # of each role that has a minimum of its own
    queue: str = "default"
    priority: int = 0
    topology_required: str = ""  # a label key, "node" or "island"
    topology_preferred: str = ""
    required_tier: int | None = None  # the same by number: 0 a node, 1 the narrowest level
    preferred_tier: int | None = None
    created: float = 0.0
    error: str = ""  # why the object can't be used, naming the field; the gang waits with it
    phase: str = ""  # of its status, as it is in the API
    reason: str = ""
    priority_class: str = ""  # whose value goes before the pods' priorities
    subgroups: tuple[SubGroups, ...] = ()
    roles: Roles | None = None
    placement: str = ""
    min_resources: Amounts = ()  # of all its pods together, those that are still to come as well
    owner: str = ""  # its controller: job/sweep


@dataclass(frozen=True, slots=True)
class GangGone:
    namespace: str
    name: str
