"""Closeness of the pods of a controller's role, and of those of each replica of a role: the annotation
lockstep.dev/role-topology on the controller's object, such as "workers=lockstep.dev/block; workers/each=node". Both
at once are replicas inside a layer.

Design: docs/design/subgroups.md
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from central.kube.decode import fields
from central.kube.decode.fields import FieldError
from central.kube.decode.subgroup_layers import check_layer
from central.model import limits
from central.model.facts import SubGroupLayer, SubGroups
from central.model.json_types import Json
from central.model.pod_rules import Expression
from protos.names import ROLE_TOPOLOGY

EACH = "each"


class Replicas(NamedTuple):
    """The replicas of a role that consists of equal ones."""

    size: int  # pods of each
    number: int  # of them
    label: str  # of pods: equal in one replica


def role_subgroups(
    annotations: Json,
    roles: Mapping[str, int],
    replicas: Mapping[str, Replicas],
    role_label: str,
    levels: Collection[str],
) -> tuple[SubGroups, ...]:
    """roles: pods that start together, by role. Raises FieldError."""
    text = fields.text(annotations, ROLE_TOPOLOGY, limits.TASK_TEXT)
    whole: dict[str, SubGroups] = {}
    inner: dict[str, SubGroups] = {}
    named: dict[str, None] = {}  # roles, in order
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, _, level = (each.strip() for each in part.partition("="))
        role, _, each = name.partition("/")
        if each not in ("", EACH) or not level:
            raise _error(f'"{part}" is neither ROLE=LEVEL nor ROLE/{EACH}=LEVEL')
        if level not in levels:
            raise _error(f'"{level}" is not one of {", ".join(sorted(levels))}')
        if not roles.get(role):
            known = ", ".join(sorted(filter(None, roles))) or f"/{EACH}"
            raise _error(f'"{role}" is not a role that starts with the gang; there is {known}')
        named[role] = None
        found = inner if each else whole
        if role in found:
            raise _error(f'"{name}" has two levels')
        found[role] = (
            _of_each(role, level, roles, replicas, role_label)
            if each
            else _whole(role, level, roles, role_label)
        )
    return tuple(_nested(role, inner.get(role), whole.get(role)) for role in named)


def _nested(role: str, inner: SubGroups | None, whole: SubGroups | None) -> SubGroups:
    """Replicas inside what holds for all of the role."""
    if inner is None or whole is None:
        found = inner or whole
        assert found is not None
        return found
    fields.parsed(f'annotation {ROLE_TOPOLOGY}: "{role}"', check_layer, whole.required)
    return replace(inner, layers=(SubGroupLayer((), whole.required),))


def _whole(role: str, level: str, roles: Mapping[str, int], label: str) -> SubGroups:
    if not label:
        raise _error("pods of this kind have no roles; lockstep.dev/topology-required is for all")
    return SubGroups(role, roles[role], 1, _is(label, role), (label,), level)


def _of_each(
    role: str, level: str, roles: Mapping[str, int], replicas: Mapping[str, Replicas], label: str
) -> SubGroups:
    of = replicas.get(role)
    if of is None:
        raise _error(f'"{role}" has no replicas of several pods that its labels tell apart')
    if of.size * of.number > roles[role]:
        raise _error(f'the replicas of "{role or EACH}" do not all start with the gang')
    return SubGroups(role or EACH, of.size, of.number, _is(label, role), (of.label,), level)


def _is(label: str, role: str) -> tuple[Expression, ...]:
    return (Expression(label, "In", (role,)),) if label else ()


def _error(why: str) -> FieldError:
    return FieldError(f"annotation {ROLE_TOPOLOGY}: {why}")
