"""Facts about PodGroup objects."""

from dataclasses import dataclass

from central.model.amounts import Amounts
from central.model.device_claims import PodDeviceClaim
from central.model.past_turns import PastTurns
from central.model.pod_rules import Expression


@dataclass(frozen=True, slots=True)
class SubGroupLayer:
    """Subgroups of one policy with equal values of these labels share one domain."""

    keys: tuple[str, ...]  # the first of the policy's keys; empty: all its subgroups
    required: str  # the level: a label key, or "node"
    of: str = (
        ""  # the CompositePodGroup, whose policies share the domain; empty: those of one policy
    )


@dataclass(frozen=True, slots=True)
class SubGroups:
    """A subgroup policy: members of a gang form groups, each with a topology constraint of its own."""

    name: str
    size: int = 1  # pods of a complete group
    least: int = 0  # complete groups that the gang needs to start
    labels: tuple[Expression, ...] = ()  # selects the pods; empty: all
    keys: tuple[str, ...] = ()  # pods with equal values of these labels form a group
    required: str = ""  # as in GangSeen
    tier: int | None = None
    layers: tuple[SubGroupLayer, ...] = ()  # around the groups, the widest first
    # The CompositePodGroups around the groups, the widest first, each with how many of the groups right below it start
    # together. They decide instead of `least`.
    within: tuple[tuple[str, int], ...] = ()


MOVE_AFTER_S = 300.0
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """Task-topology affinity and anti-affinity as pairs of tasks. A pair of equal tasks concerns the pods of
    that task."""

    near: Pairs = ()
    apart: Pairs = ()


@dataclass(frozen=True, slots=True)
class LaterRole:
    """Pods that their controller creates when others of the gang run or have ended. From the first of them on, the gang
    has their minimum as well, and needs no lost pods of the roles before them any more."""

    role: str  # empty: all pods beyond the gang's own minimum, of a gang without roles
    least: int  # pods that start together
    after: tuple[str, ...] = ()  # roles right before it


@dataclass(frozen=True, slots=True)
class GangSeen:
    """A PodGroup object, or a CompositePodGroup, whose min_member counts groups; 0: they start one by one."""

    namespace: str
    name: str
    min_member: int
    uid: str = ""
    task_min: tuple[tuple[str, int], ...] = ()  # minAvailable of roles that have one
    queue: str = "default"
    priority: int = 0
    topology_required: str = ""  # a label key, "node" or "island"
    topology_preferred: str = ""
    required_tier: int | None = None  # the same by tier: 0 is a node, 1 the narrowest level
    preferred_tier: int | None = None
    created: float = 0.0
    error: str = ""  # the invalid field and why; the gang stays pending with it
    phase: str = ""  # of its status, as it is in the API
    reason: str = ""
    succeeded: int = 0  # of its status: members, also those whose pods were deleted
    priority_class: str = ""  # takes precedence over the pods' priorities
    subgroups: tuple[SubGroups, ...] = ()
    roles: Roles | None = None
    placement: str = ""
    min_resources: Amounts = ()  # of all its pods, those not created yet included
    owner: str = ""  # its controller: job/sweep
    preemptable: bool | None = None  # false: its pods are never evicted, unless they say otherwise
    evicted_whole: bool = False  # its surplus is evicted with the rest of it, never alone
    declared: bool = False  # by a controller's object: there is no PodGroup to write to
    later: tuple[LaterRole, ...] = ()
    each_replica: bool = False  # declared, for the gangs name/0, name/1, ...: each replica is one
    device_claims: tuple[
        PodDeviceClaim, ...
    ] = ()  # that its pods share, in a PodGroup of scheduling.k8s.io
    native_version: str = ""  # of scheduling.k8s.io; "": a PodGroup of scheduling.volcano.sh
    parent: str = ""  # the gang of the CompositePodGroup that it is in
    preempts: bool = True  # as in PodSeen, for all its pods
    move_after_s: float = (
        MOVE_AFTER_S  # how long it may run below its minimum before it moves whole
    )
    start_within_s: float | None = None  # as in PodSeen, for all its pods
    time_limit_s: float | None = None  # how long a run of the gang may last
    past_turns: PastTurns | None = None  # as its status says; None: it shared no time


@dataclass(frozen=True, slots=True)
class GangGone:
    namespace: str
    name: str
