"""A pod's affinity, anti-affinity, topology spread and host ports as rules. Raises FieldError.

Rules depend on the pod's namespace and labels, so equal specs may have different rules.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from central.kube.decode import fields, podspec
from central.kube.decode.fields import INT32_MAX, FieldError
from central.model import limits
from central.model.json_types import Json
from central.model.pod_rules import (
    Apart,
    Expression,
    Near,
    Nearer,
    Peers,
    Port,
    Requirement,
    Rules,
    Selector,
    Spread,
)

Some = TypeVar("Some")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_ANY_ADDRESS = ("", "0.0.0.0")


def rule_sources(spec: Json, ours: bool) -> list[Json]:
    """The parts of the spec that rules are made from; most pods have none. Of pods that another scheduler
    places, only anti-affinity and ports matter, because they keep our pods away."""
    parts: list[Json] = []
    if affinity := spec.get("affinity"):
        for kind in ("podAffinity", "podAntiAffinity") if ours else ("podAntiAffinity",):
            parts += _affinity_terms(affinity, kind, REQUIRED)
        if ours:
            for kind in ("podAffinity", "podAntiAffinity"):
                terms = _affinity_terms(affinity, kind, PREFERRED)
                parts += (term["podAffinityTerm"] for term in terms)
            parts += _affinity_terms(affinity, "nodeAffinity", PREFERRED)
    if ours:
        parts += fields.entries(spec, "topologySpreadConstraints", "spec", limits.TERMS)
    parts += ({"ports": each["ports"]} for each in _containers_with_ports(spec))
    return parts


def _spreads(spec: Json, namespace: str, labels: Json, *, hard: bool) -> tuple[Spread, ...]:
    return tuple(
        _spread(part, namespace, labels)
        for part in fields.entries(spec, "topologySpreadConstraints", "spec", limits.TERMS)
        if (part.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule") == hard
    )


def label_keys(parts: Iterable[Json]) -> list[str]:
    """The labels of the pod itself that the parts refer to."""
    return [
        key
        for part in parts
        for field in ("matchLabelKeys", "mismatchLabelKeys")
        for key in part.get(field) or ()
    ]


def decode_pod_rules(spec: Json, ours: bool, namespace: str, labels: Json) -> Rules | None:
    affinity = spec.get("affinity") or {}
    near = _terms(affinity, "podAffinity", namespace, labels) if ours else []
    apart = _terms(affinity, "podAntiAffinity", namespace, labels)
    rules = Rules(
        near=Near(Peers(tuple(s for s, _ in near)), _unique(key for _, key in near))
        if near
        else None,
        apart=_unique(Apart(Peers((selector,)), key) for selector, key in apart),
        spread=_spreads(spec, namespace, labels, hard=True) if ours else (),
        ports=_unique(_ports(spec)),
        nodes=_preferred_nodes(affinity) if ours else (),
        nearer=_nearer(affinity, namespace, labels) if ours else (),
        even=_spreads(spec, namespace, labels, hard=False) if ours else (),
    )
    return None if rules == Rules() else rules


def _preferred_nodes(affinity: Json) -> tuple[tuple[int, tuple[Requirement, ...]], ...]:
    found = []
    for index, term in enumerate(_affinity_terms(affinity, "nodeAffinity", PREFERRED)):
        field = f"spec.affinity.nodeAffinity.{PREFERRED}[{index}]"
        weight = _weight(term, field)
        selected = podspec.node_terms({"nodeSelectorTerms": [term["preference"]]})
        found += [(weight, node_term) for node_term in selected]
    return tuple(found)


def _nearer(affinity: Json, namespace: str, labels: Json) -> tuple[Nearer, ...]:
    found = []
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for index, term in enumerate(_affinity_terms(affinity, kind, PREFERRED)):
            field = f"spec.affinity.{kind}.{PREFERRED}[{index}]"
            selector, key = _term(term["podAffinityTerm"], namespace, labels, field)
            found.append(Nearer(Peers((selector,)), key, sign * _weight(term, field)))
    return tuple(found)


def _weight(term: Json, field: str) -> int:
    weight = term.get("weight")
    if type(weight) is not int or not 1 <= weight <= 100:
        raise FieldError(f"{field}.weight: {weight!r} is not a whole number from 1 to 100")
    return weight


def _affinity_terms(affinity: Json, kind: str, when: str) -> list[Json]:
    part = affinity.get(kind) or {}
    return fields.entries(part, when, f"spec.affinity.{kind}", limits.TERMS)


def _unique(values: Iterable[Some]) -> tuple[Some, ...]:
    return tuple(dict.fromkeys(values))


def _terms(affinity: Json, kind: str, namespace: str, labels: Json) -> list[tuple[Selector, str]]:
    return [
        _term(term, namespace, labels, f"spec.affinity.{kind}.{REQUIRED}[{index}]")
        for index, term in enumerate(_affinity_terms(affinity, kind, REQUIRED))
    ]


def _term(term: Json, namespace: str, labels: Json, field: str) -> tuple[Selector, str]:
    named = tuple(sorted(fields.strings(term, "namespaces", field, limits.VALUES)))
    chosen = term.get("namespaceSelector")
    if not named and chosen is None:
        named = (namespace,)
    selector = Selector(
        named,
        _labels(term, labels, field),
        None if chosen is None else label_expressions(chosen, f"{field}.namespaceSelector"),
    )
    return selector, _key(term, field)


def _spread(part: Json, namespace: str, labels: Json) -> Spread:
    field = "spec.topologySpreadConstraints"
    skew, domains = part.get("maxSkew", 1), part.get("minDomains") or 1
    if not all(type(one) is int and 1 <= one <= INT32_MAX for one in (skew, domains)):
        raise FieldError(f"{field}: maxSkew and minDomains must be whole numbers from 1")
    # An empty selector counts no pod (kube-scheduler, pkg/scheduler/framework/plugins/podtopologyspread/common.go).
    selector = Selector((namespace,), _labels(part, labels, field) or None)
    return Spread(
        Peers((selector,), leaving=False),
        _key(part, field),
        skew,
        domains,
        affinity=part.get("nodeAffinityPolicy", "Honor") == "Honor",
        taints=part.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _key(part: Json, field: str) -> str:
    key = part.get("topologyKey")
    if type(key) is not str or not 0 < len(key) <= limits.TEXT:
        raise FieldError(f"{field}.topologyKey: {key!r} is not a label key")
    return key


def _labels(part: Json, labels: Json, field: str) -> tuple[Expression, ...] | None:
    """Returns the selector's expressions; None, which matches no pod, without a selector."""
    if part.get("labelSelector") is None:
        return None
    own = [
        Expression(key, operator, (labels[key],))
        for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in fields.entries(part, keys, field, limits.EXPRESSIONS)
        if key in labels
    ]
    return _unique((*label_expressions(part["labelSelector"], f"{field}.labelSelector"), *own))


def label_expressions(selector: Json, field: str) -> tuple[Expression, ...]:
    found = [
        Expression(key, "In", (value,))
        for key, value in sorted(
            fields.labels(selector, "matchLabels", field, limits.SELECTOR).items()
        )
    ]
    for expression in fields.entries(selector, "matchExpressions", field, limits.EXPRESSIONS):
        if fields.text(expression, "operator") not in _OPERATORS:
            raise FieldError(f'{field}: "{expression.get("operator")}" is not an operator')
        values = fields.strings(expression, "values", field, limits.VALUES)
        found.append(Expression(fields.text(expression, "key"), expression["operator"], values))
    return tuple(found)


def _containers_with_ports(spec: Json) -> list[Json]:
    """Containers with ports on the node. Of init containers only sidecars keep theirs."""
    on_host = spec.get("hostNetwork")
    sidecars = (
        container
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    )
    return [
        container
        for container in (*(spec.get("containers") or ()), *sidecars)
        if (ports := container.get("ports"))
        and (on_host or any(port.get("hostPort") for port in ports))
    ]


def _ports(spec: Json) -> Iterator[Port]:
    containers = _containers_with_ports(spec)
    if (count := sum(len(container["ports"]) for container in containers)) > limits.PORTS:
        raise FieldError(f"spec.containers: {count} ports; at most {limits.PORTS} are accepted")
    for container in containers:
        for port in container["ports"]:
            number = port.get("hostPort") or (spec.get("hostNetwork") and port["containerPort"])
            if number:
                address = port.get("hostIP") or ""
                if type(number) is not int or not 0 < number < 65536:
                    raise FieldError(f"spec.containers.ports: {number!r} is not a port")
                yield Port(
                    port.get("protocol") or "TCP",
                    number,
                    "" if address in _ANY_ADDRESS else address,
                )
