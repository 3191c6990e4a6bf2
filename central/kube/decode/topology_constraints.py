"""Closeness of a gang's pods, from annotations and from spec.networkTopology.

Without HyperNodes, tier 0 is one node, tier 1 the narrowest level of the network tree (a rack), tier 2 the
next wider one, and so on. A tier above the widest level constrains nothing. highestTierName is a level, or the
spec.tierName of a HyperNode, which only the scheduler can tell.
"""

from collections.abc import Sequence

from central.kube.decode import fields
from central.kube.decode.fields import INT32_MAX, FieldError
from central.model import limits
from central.model.json_types import Json
from protos import names

_PLACEMENTS = (names.PACK, names.SPREAD, names.BALANCE)


class TopologyConstraints:
    """Reads constraints against the levels that this cluster's network tree has."""

    def __init__(self, levels: Sequence[str]) -> None:
        """levels: the tree's node label keys, widest first."""
        known = (*levels, names.NODE, *reversed(names.PARTS_OF_NODE))
        self.levels = frozenset(known)
        self._labels = tuple(levels)
        self._choices = ", ".join(known)

    def from_annotations(self, annotations: Json) -> tuple[str, str]:
        """The required and the preferred level; "" for none. Raises FieldError."""
        required = fields.text(annotations, names.TOPOLOGY_REQUIRED)
        preferred = fields.text(annotations, names.TOPOLOGY_PREFERRED)
        for key, level in (
            (names.TOPOLOGY_REQUIRED, required),
            (names.TOPOLOGY_PREFERRED, preferred),
        ):
            if level and level not in self.levels:
                raise FieldError(f'annotation {key}: "{level}" is not one of {self._choices}')
        return required, preferred

    def check_label(self, key: str, field: str) -> None:
        """Checks the node label of a constraint. Raises FieldError if the network tree has no such level."""
        if key not in self._labels:
            known = ", ".join(self._labels)
            raise FieldError(f'{field}: "{key}" is not a label of the network tree ({known})')

    def from_network_topology(self, constraint: Json, field: str) -> tuple[str, int | None]:
        """The level by name or by tier; a tier goes before a name. Raises FieldError."""
        mode = constraint.get("mode") or "hard"
        tier, name = (
            constraint.get("highestTierAllowed"),
            fields.text(constraint, "highestTierName", limits.NAME),
        )
        fields.choice(f"{field}.mode", mode, "hard", "soft")
        if tier is not None and (type(tier) is not int or not 0 <= tier <= INT32_MAX):
            raise FieldError(f"{field}.highestTierAllowed: {tier!r} is not a whole number")
        return (name if tier is None else ""), tier


def placement_policy(annotations: Json) -> str:
    """pack, spread, balance, or "" where the annotation is missing. Raises FieldError."""
    policy = fields.text(annotations, names.PLACEMENT)
    return fields.choice(f"annotation {names.PLACEMENT}", policy, "", *_PLACEMENTS)


def highest_tier(annotations: Json) -> int | None:
    """The widest tier that a gang may span, from Volcano's annotations; None for no limit. Raises
    FieldError."""
    mode, tier = annotations.get(names.TOPOLOGY_MODE), annotations.get(names.TOPOLOGY_TIER)
    if mode is not None:
        fields.choice(f"annotation {names.TOPOLOGY_MODE}", mode, "hard", "soft")
    if tier is None:
        return None
    digits = str(tier)
    if len(digits) > 4 or not (digits.isascii() and digits.isdigit()):
        raise FieldError(f'annotation {names.TOPOLOGY_TIER}: "{tier}" is not a whole number')
    return None if mode == "soft" else int(digits)
