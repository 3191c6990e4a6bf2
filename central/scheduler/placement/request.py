"""The request for a placement: pods counted by pod spec, how close together, and which of them should share nodes.

Pods are counted and not listed, because equal pods are interchangeable for placement. Requests are hashable:
gangs with equal requests share one refusal.
"""

from dataclasses import dataclass, field, replace

from central.model.facts import PodSpec
from central.scheduler.inventory.pods import PodCounts
from protos.names import PARTS_OF_NODE


@dataclass(frozen=True, slots=True)
class RolePreferences:
    """Preferences of a gang for roles that share nodes (affinity) and for roles that do not (anti_affinity).

    pods: spec and number of pods to place, one entry per role. affinity, anti_affinity: pairs of indices
    into pods, the smaller first; a pair of equal indices refers to a role's own pods. existing_members:
    the gang's members that have a node already, as (row, role, count)."""

    pods: PodCounts
    affinity: tuple[tuple[int, int], ...] = ()
    anti_affinity: tuple[tuple[int, int], ...] = ()
    existing_members: tuple[tuple[int, int, int], ...] = ()

    @property
    def avoids_one_node(self) -> bool:
        """Returns whether placing all on one node would violate an anti-affinity."""
        return any(
            a != b or self.pods[a][1] > 1 or any(role == a for _, role, _ in self.existing_members)
            for a, b in self.anti_affinity
        )

    @property
    def has_absent_partner(self) -> bool:
        """Returns whether a role to be placed has affinity to a role without pods in this request."""
        return any(bool(self.pods[a][1]) != bool(self.pods[b][1]) for a, b in self.affinity)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Subgroups that share one domain of a level, a node or wider. number: tells the bundles of one request apart.
    existing_rows: of the members of these subgroups that run already."""

    number: int
    required: str
    existing_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SubgroupRequest:
    """A subgroup with a topology constraint of its own, inside the gang's. Fields as in PlacementRequest.

    copies: how many equal subgroups this stands for. roles: None, or all roles of the gang with the number
    of this subgroup's pods in each. bundles: those that it belongs to, the widest first; each is inside the one
    before."""

    groups: PodCounts
    required: str = ""
    existing_rows: tuple[int, ...] = ()
    existing_gpus: int = 0
    copies: int = 1
    roles: RolePreferences | None = None
    bundles: tuple[Bundle, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Pods that are placed together or not at all.

    groups: pods by spec, in the order of their assignments. required: the widest level that the pods may
    span (a label key, "node" or one of PARTS_OF_NODE; empty: any). existing_rows: rows where the gang has
    members already; the new pods join them if they fit. existing_gpus: the GPU mask of these members, if
    that is one row. preferred: a level that has to exist; every gang is as close as it can be. subgroups:
    empty, or the pods of groups divided. roles: None, or the pods of groups by role. spread: prefer the
    emptiest node to the fullest where one node takes all. balanced: equal parts in the fewest domains of each level.
    unit: what messages call the pods together with those that run. own_specs: of groups that stand for pods with
    another spec, which may be on fewer nodes here: the group's, and that of the pods. former_rows: nodes that the pods
    are moved to where nothing else tells nodes apart. failed_rows: nodes on which members failed, the last choice.
    Whether the request fits depends on neither.
    """

    groups: PodCounts
    required: str = ""
    existing_rows: tuple[int, ...] = ()
    existing_gpus: int = 0
    preferred: str = ""
    subgroups: tuple[SubgroupRequest, ...] = ()
    roles: RolePreferences | None = None
    spread: bool = False
    balanced: bool = False
    unit: str = "gang"
    own_specs: tuple[tuple[PodSpec, PodSpec], ...] = ()
    former_rows: tuple[int, ...] = field(default=(), compare=False)
    failed_rows: tuple[int, ...] = field(default=(), compare=False)

    @property
    def by_islands(self) -> bool:
        """Returns whether a reservation must keep particular GPUs of a node rather than a number of them. GPU shares
        are reserved by their sum."""
        levels = (self.required, *[subgroup.required for subgroup in self.subgroups])
        parts = [level for level in levels if level in PARTS_OF_NODE]
        return bool(parts) and not any(spec.share_containers for spec, _ in self.groups)

    def is_for_same_pods(self, other: "PlacementRequest") -> bool:
        """Returns whether the two requests are equal once own_specs have replaced the specs that stand for them."""
        return self == other or self._of_own_specs() == other._of_own_specs()

    def _of_own_specs(self) -> "PlacementRequest":
        own = dict(self.own_specs)
        groups = tuple((own.get(spec, spec), count) for spec, count in self.groups)
        return replace(self, groups=groups, own_specs=()) if own else self
