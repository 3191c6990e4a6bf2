"""What a pod's spec asks of the pods beside it -> rules. Pure; raises Unreadable with the field.

Rules speak of namespaces and of the pod's own labels, so equal specs may make unlike rules.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from central.core.rules import Apart, Expression, Near, Peers, Port, Rules, Selector, Spread
from central.kube.errors import Unreadable

Json = dict[str, Any]
Some = TypeVar("Some")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_ANY_ADDRESS = ("", "0.0.0.0")


def asks(spec: Json, ours: bool) -> list[Json]:
    """The parts of the spec that make rules, unread; most pods have none. Of pods that others place
    only what keeps ours away matters: whom they avoid, and their ports."""
    parts: list[Json] = []
    if affinity := spec.get("affinity"):
        for kind in ("podAffinity", "podAntiAffinity") if ours else ("podAntiAffinity",):
            parts += (affinity.get(kind) or {}).get(REQUIRED) or ()
    if ours:
        parts += hard_spread(spec)
    parts += _containers_with_ports(spec)
    return parts


def hard_spread(spec: Json) -> list[Json]:
    return [
        spread
        for spread in spec.get("topologySpreadConstraints") or ()
        if spread.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]


def label_keys(parts: Iterable[Json]) -> list[str]:
    """The pod's own labels that the parts refer to."""
    return [
        key
        for part in parts
        for field in ("matchLabelKeys", "mismatchLabelKeys")
        for key in part.get(field) or ()
    ]


def read(spec: Json, ours: bool, namespace: str, labels: Json) -> Rules | None:
    affinity = spec.get("affinity") or {}
    near = _terms(affinity, "podAffinity", namespace, labels) if ours else []
    apart = _terms(affinity, "podAntiAffinity", namespace, labels)
    rules = Rules(
        near=Near(Peers(tuple(s for s, _ in near)), _unique(key for _, key in near))
        if near
        else None,
        apart=_unique(Apart(Peers((selector,)), key) for selector, key in apart),
        spread=tuple(_spread(part, namespace, labels) for part in hard_spread(spec))
        if ours
        else (),
        ports=_unique(_ports(spec)),
    )
    return None if rules == Rules() else rules


def _unique(values: Iterable[Some]) -> tuple[Some, ...]:
    return tuple(dict.fromkeys(values))


def _terms(affinity: Json, kind: str, namespace: str, labels: Json) -> list[tuple[Selector, str]]:
    found = []
    for place, term in enumerate((affinity.get(kind) or {}).get(REQUIRED) or ()):
        field = f"spec.affinity.{kind}.{REQUIRED}[{place}]"
        named = tuple(sorted(term.get("namespaces") or ()))
        chosen = term.get("namespaceSelector")
        if not named and chosen is None:
            named = (namespace,)
        selector = Selector(
            named,
            _labels(term, labels, field),
            None if chosen is None else expressions(chosen, f"{field}.namespaceSelector"),
        )
        found.append((selector, _key(term, field)))
    return found


def _spread(part: Json, namespace: str, labels: Json) -> Spread:
    field = "spec.topologySpreadConstraints"
    skew, domains = part.get("maxSkew", 1), part.get("minDomains") or 1
    if type(skew) is not int or type(domains) is not int:
        raise Unreadable(f"{field}: maxSkew and minDomains must be whole numbers")
    selector = Selector((namespace,), _labels(part, labels, field))
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
    if type(key) is not str or not key:
        raise Unreadable(f"{field}.topologyKey: {key!r} is not a label key")
    return key


def _labels(part: Json, labels: Json, field: str) -> tuple[Expression, ...] | None:
    """Without a selector nobody is meant."""
    if part.get("labelSelector") is None:
        return None
    own = [
        Expression(key, operator, (labels[key],))
        for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in part.get(keys) or ()
        if key in labels
    ]
    return _unique((*expressions(part["labelSelector"], f"{field}.labelSelector"), *own))


def expressions(selector: Json, field: str) -> tuple[Expression, ...]:
    found = [
        Expression(key, "In", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    for expression in selector.get("matchExpressions") or ():
        if expression.get("operator") not in _OPERATORS:
            raise Unreadable(f'{field}: "{expression.get("operator")}" is not an operator')
        values = tuple(expression.get("values") or ())
        found.append(Expression(expression["key"], expression["operator"], values))
    return tuple(found)


def _containers_with_ports(spec: Json) -> list[Json]:
    """Those whose ports are the node's. Of init containers only sidecars keep theirs."""
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
    for container in _containers_with_ports(spec):
        for port in container["ports"]:
            number = port.get("hostPort") or (spec.get("hostNetwork") and port["containerPort"])
            if number:
                address = port.get("hostIP") or ""
                yield Port(
                    port.get("protocol") or "TCP",
                    int(number),
                    "" if address in _ANY_ADDRESS else address,
                )
