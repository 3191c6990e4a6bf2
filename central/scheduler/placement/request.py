"""What is to be placed: kinds of pods with their numbers, and how close they want to be."""

from dataclasses import dataclass

from central.model.facts import PodSpec
from protos.names import ISLAND, NUMA

Groups = tuple[tuple[PodSpec, int], ...]


@dataclass(frozen=True, slots=True)
class RolePreferences:
    """All that is in a want's groups, role by role, and which roles (by their places here, the smaller
    first; one with itself: among each other) want to share nodes, or not to. there: members that have
    a place already, as row, role and number."""

    roles: Groups
    near: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    there: tuple[tuple[int, int, int], ...] = ()

    @property
    def splits(self) -> bool:
        """Whether one node for all would be against a wish."""
        return any(
            a != b or self.roles[a][1] > 1 or any(role == a for _, role, _ in self.there)
            for a, b in self.apart
        )

    @property
    def elsewhere(self) -> bool:
        """Whether somebody wants to be near who is not among these."""
        return any(bool(self.roles[a][1]) != bool(self.roles[b][1]) for a, b in self.near)


@dataclass(frozen=True, slots=True)
class SubgroupRequest:
    """Members of a gang that want a closeness of their own, inside that of the gang; fields as in
    Want. times: so many parts that are alike, one after the other. crew: None, or all roles of the gang,
    with how many of each are in the part."""

    groups: Groups
    required: str = ""
    anchors: tuple[int, ...] = ()
    anchor_gpus: int = 0
    times: int = 1
    crew: RolePreferences | None = None


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What is to be placed at once: kinds of pods with their numbers, in the order they should sit.

    required: the widest level that may be crossed (a label key, "node", "island"; empty: none).
    anchors: rows where members of the gang already are; the rest joins them if it can.
    anchor_gpus: the GPUs that they hold, where it is one row.
    preferred: a level; where one domain of it is too small, the fewest of them.
    parts: empty, or all that is in groups, divided. crew: None, or all that is in groups, by role.
    spread: where one node takes all, the emptiest rather than the fullest.
    """

    groups: Groups
    required: str = ""
    anchors: tuple[int, ...] = ()
    anchor_gpus: int = 0
    preferred: str = ""
    parts: tuple[SubgroupRequest, ...] = ()
    crew: RolePreferences | None = None
    spread: bool = False

    @property
    def by_islands(self) -> bool:
        """Whether it matters which GPUs of a node are kept for it, not only how many. What is left of
        shared ones is kept by the sum."""
        if any(spec.share_containers for spec, _ in self.groups):
            return False
        levels = {self.required, *(part.required for part in self.parts)}
        return not levels.isdisjoint((ISLAND, NUMA))
