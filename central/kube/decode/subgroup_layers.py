"""Layers around the subgroups of a PodGroup: the annotation lockstep.dev/subgroup-topology, such as
"tp=lockstep.dev/block; tp/stage=lockstep.dev/rack". POLICY=LEVEL is the domain of all subgroups of a policy, and
POLICY/LABEL=LEVEL that of those which agree in the policy's matchLabelKeys up to LABEL.

Design: docs/design/subgroups.md
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from central.kube.decode import fields
from central.kube.decode.fields import FieldError
from central.model import limits
from central.model.facts import SubGroupLayer, SubGroups
from central.model.json_types import Json
from protos.names import PARTS_OF_NODE, SUBGROUP_TOPOLOGY


def with_layers(
    policies: Sequence[SubGroups], annotations: Json, levels: Collection[str]
) -> tuple[SubGroups, ...]:
    """The policies with the layers that the annotation says. Raises FieldError."""
    text = fields.text(annotations, SUBGROUP_TOPOLOGY, limits.TASK_TEXT)
    found: dict[str, dict[int, str]] = {}  # by policy: levels by the number of keys
    known = {policy.name: policy for policy in policies}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, _, level = (each.strip() for each in part.partition("="))
        name, slash, label = name.partition("/")
        if not level or (slash and not label):
            raise _error(f'"{part}" is neither POLICY=LEVEL nor POLICY/LABEL=LEVEL')
        if name not in known:
            choices = ", ".join(sorted(known)) or "none"
            raise _error(f'"{name}" is not a policy of spec.subGroupPolicy; there is {choices}')
        if level not in levels:
            raise _error(f'"{level}" is not one of {", ".join(sorted(levels))}')
        fields.parsed(f'annotation {SUBGROUP_TOPOLOGY}: "{part}"', check_layer, level)
        depth = _depth(known[name], label)
        if found.setdefault(name, {}).setdefault(depth, level) != level:
            raise _error(f'"{name}{slash}{label}" has two levels')
    return tuple(
        replace(policy, layers=_layers(policy, found.get(policy.name, {}))) for policy in policies
    )


def check_layer(level: str) -> None:
    """Raises ValueError for a level inside a node."""
    if level in PARTS_OF_NODE:
        raise ValueError(f"{level} is not a level around subgroups; node or a wider one is")


def _depth(policy: SubGroups, label: str) -> int:
    """Returns the number of keys that are equal in the subgroups of the layer."""
    if not label:
        return 0
    outer = policy.keys[:-1]
    if label not in outer:
        choices = ", ".join(outer) or "none"
        raise _error(
            f'"{label}" is not among the matchLabelKeys of {policy.name} but the last one; there is {choices}'
        )
    return outer.index(label) + 1


def _layers(policy: SubGroups, by_depth: dict[int, str]) -> tuple[SubGroupLayer, ...]:
    return tuple(
        SubGroupLayer(policy.keys[:depth], level) for depth, level in sorted(by_depth.items())
    )


def _error(why: str) -> FieldError:
    return FieldError(f"annotation {SUBGROUP_TOPOLOGY}: {why}")
