"""How close pods want to be, as annotations and networkTopology say it.

Tiers of a networkTopology, without HyperNodes: tier 1 is the narrowest level of the tree (a rack),
2 the next wider, and so on; 0 is one node. A tier wider than the tree asks for nothing.
"""

from collections.abc import Sequence

from central.kube.errors import text_field
from central.model.json_types import Json
from protos import names


class TopologyConstraints:
    """The levels that this centre knows."""

    def __init__(self, levels: Sequence[str]) -> None:
        """levels: the tree's node label keys, widest first."""
        every = (*levels, names.NODE, names.NUMA, names.ISLAND)
        self.known = frozenset(every)
        self._choices = ", ".join(every)

    def from_annotations(self, annotations: Json) -> tuple[str, str, str]:
        """The closeness that annotations require and prefer, and what is wrong with them."""
        required = text_field(annotations, names.TOPOLOGY_REQUIRED)
        preferred = text_field(annotations, names.TOPOLOGY_PREFERRED)
        for key, value in (
            (names.TOPOLOGY_REQUIRED, required),
            (names.TOPOLOGY_PREFERRED, preferred),
        ):
            if value and value not in self.known:
                return "", "", f'annotation {key}: "{value}" is not one of {self._choices}'
        return required, preferred, ""

    def from_network_topology(self, wish: Json, field: str) -> tuple[str, int | None, str]:
        """The level that should hold the gang, by name or by tier, and what is wrong."""
        mode = wish.get("mode") or "hard"
        tier, name = wish.get("highestTierAllowed"), wish.get("highestTierName") or ""
        if mode not in {"hard", "soft"}:
            return "", None, f'{field}.mode: "{mode}" is neither hard nor soft'
        if tier is not None and (isinstance(tier, bool) or not isinstance(tier, int) or tier < 0):
            return "", None, f"{field}.highestTierAllowed: {tier!r} is not a whole number"
        if tier is None and name and name not in self.known:
            return "", None, f'{field}.highestTierName: "{name}" is not one of {self._choices}'
        return (name if tier is None else ""), tier, ""


def placement(annotations: Json) -> tuple[str, str]:
    """pack or spread, and what is wrong with it."""
    told = text_field(annotations, names.PLACEMENT)
    if told in {"", names.PACK, names.SPREAD}:
        return told, ""
    return "", f'annotation {names.PLACEMENT}: "{told}" is neither {names.PACK} nor {names.SPREAD}'
