"""Matches node selector terms and tolerations as Kubernetes does."""

import re
from collections.abc import Mapping

from central.model.facts import NodeSeen, Taint, Toleration
from central.model.pod_rules import NodeTerms, Requirement

SOFT = "PreferNoSchedule"


def inside(places: tuple[NodeTerms, ...], node: NodeSeen) -> bool:
    """Returns whether the node meets all of the node affinities."""
    return all(meets(terms, node) for terms in places)


def meets(terms: NodeTerms, node: NodeSeen) -> bool:
    return any(term and all(matches(requirement, node) for requirement in term) for term in terms)


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def matches(requirement: Requirement, node: NodeSeen) -> bool:
    """Returns whether the node meets one requirement of a node selector term."""
    return holds(requirement, value_of(requirement.key, node, field=requirement.field))


def value_of(key: str, node: NodeSeen, *, field: bool) -> str | None:
    """Returns the value of the node's label, or of its field "metadata.name"; None: there is none."""
    labels: Mapping[str, str] = {"metadata.name": node.name} if field else node.labels
    return labels.get(key)


def holds(requirement: Requirement, value: str | None) -> bool:
    """Returns whether the value meets the requirement. Gt and Lt compare integers; other values meet neither."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str) -> bool:
    bound = requirement.values[0] if requirement.values else ""
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(bound)):
        return False
    return int(value) > int(bound) if requirement.operator == "Gt" else int(value) < int(bound)


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")  # of 64 bits, as Go's ParseInt reads them
