"""Values of a pod at a bound and beyond it: the first are read, the others are refused with the field."""

from dataclasses import replace
from typing import Any

import pytest

from central.model import limits
from central.model.facts import PodSpec
from central.model.json_types import Json
from protos import names
from tests.central.kube.decode.pod_rows import (
    POD,
    PREFERRED,
    REQUIRED,
    SPEC,
    SPREAD,
    TERM,
    affinity,
    changed,
    container,
)
from tests.central.kube.raw_objects import reader

LARGEST = 2**31 - 1


def weighted(weight: Any) -> Json:
    return affinity("podAffinity", PREFERRED, [{"weight": weight, "podAffinityTerm": TERM}])


def near(key: Any) -> Json:
    return affinity("podAffinity", REQUIRED, [{**TERM, "topologyKey": key}])


def port(number: Any) -> list[Json]:
    return container(ports=[{"hostPort": number}])


def spread(**fields: Any) -> list[Json]:
    return [{**SPREAD, **fields}]


def many(count: int) -> Json:
    return {"requests": {f"example.com/r{number}": "1" for number in range(count)}}


BOUNDS = [
    ("spec/containers", port, (1, 65535), (65536, -1, "80", 80.0), "spec.containers.ports"),
    ("spec/affinity", weighted, (1, 100), (0, 101, -1, "7", True, None), f"spec.affinity.podAffinity.{PREFERRED}[0].weight"),
    ("spec/affinity", near, ("k", "k" * limits.TEXT), ("", "k" * (limits.TEXT + 1), 7, None), f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey"),
    *(
        ("spec/topologySpreadConstraints", lambda value, key=key: spread(**{key: value}), (1, LARGEST), refused, "spec.topologySpreadConstraints")
        for key, refused in (("maxSkew", (0, -1, LARGEST + 1, "1", None)), ("minDomains", (-1, LARGEST + 1, "1")))
    ),
    ("spec/containers", lambda count: [{"name": f"c{number}"} for number in range(count)], (1, limits.CONTAINERS), (limits.CONTAINERS + 1,), "spec.containers"),
    ("spec/initContainers", lambda count: [{"name": f"c{number}"} for number in range(count)], (1, limits.CONTAINERS), (limits.CONTAINERS + 1,), "spec.initContainers"),
    ("spec/containers", lambda count: container(resources=many(count)), (1, limits.RESOURCES), (limits.RESOURCES + 1,), "spec.containers.resources"),
    ("spec/containers", lambda count: container(ports=[{"hostPort": 1 + number} for number in range(count)]), (1, limits.PORTS), (limits.PORTS + 1,), "spec.containers"),
    ("spec/tolerations", lambda count: [{"key": str(number)} for number in range(count)], (1, limits.TOLERATIONS), (limits.TOLERATIONS + 1,), "spec.tolerations"),
    ("spec/topologySpreadConstraints", lambda count: [SPREAD] * count, (1, limits.TERMS), (limits.TERMS + 1,), "spec.topologySpreadConstraints"),
    *(
        ("spec/affinity", lambda count, kind=kind: affinity(kind, REQUIRED, [TERM] * count), (1, limits.TERMS), (limits.TERMS + 1,), f"spec.affinity.{kind}.{REQUIRED}")
        for kind in ("podAffinity", "podAntiAffinity")
    ),
    ("spec/affinity", lambda count: affinity("nodeAffinity", REQUIRED, {"nodeSelectorTerms": [{"matchFields": []}] * count}), (1, limits.TERMS), (limits.TERMS + 1,), "spec.affinity.nodeAffinity.nodeSelectorTerms"),
    ("spec/nodeSelector", lambda count: {str(number): "" for number in range(count)}, (1, limits.SELECTOR), (limits.SELECTOR + 1,), "spec.nodeSelector"),
    ("spec/volumes", lambda count: [{"name": "v"}] * count, (1, limits.VOLUMES), (limits.VOLUMES + 1,), "spec.volumes"),
    ("spec/containers", lambda share: container(resources={"requests": {names.GPU_SHARE: str(share)}}), (1, 100), (101,), names.GPU_SHARE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "make", "accepted", "refused", "field"),
    BOUNDS,
    ids=[f"{number} {bound[-1]}" for number, bound in enumerate(BOUNDS)],
)
def test_a_bound(path: str, make: Any, accepted: Any, refused: Any, field: str) -> None:
    for value in accepted:
        found = reader().pod(changed(POD, path, make(value)))
        assert not found.spec.unsupported, value
    for value in refused:
        found = reader().pod(changed(POD, path, make(value)))
        assert found.spec.unsupported.startswith(f"{field}: "), value
        assert dict(found.spec.requests)["pods"] == 1


@pytest.mark.parametrize("operator", ["Near", "", None, 7, ["In"], {}])
def test_an_operator_that_is_none(operator: Any) -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": operator}]}]
    found = affinity("nodeAffinity", REQUIRED, {"nodeSelectorTerms": terms})
    spec = reader().pod(changed(POD, "spec/affinity", found)).spec
    assert spec.unsupported == f'spec.affinity.nodeAffinity: "{operator}" is not an operator'


def test_of_too_many_resources_those_of_kubernetes_are_counted() -> None:
    """A pod that somebody has bound takes them from its node all the same."""
    own = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    asked = {**many(limits.RESOURCES)["requests"], **own}
    spec = reader().pod(changed(POD, "spec/containers", container(resources={"requests": asked}))).spec  # fmt: skip
    kept = dict(spec.requests)
    assert len(kept) == limits.RESOURCES
    assert set(own) | {"pods"} <= set(kept)
    others = sorted(name for name in asked if name not in own)
    assert sorted(set(kept) - set(own) - {"pods"}) == others[: limits.RESOURCES - 4]


RAIL = f"{names.RAIL}3"


def test_rails() -> None:
    """Of every pod: they are taken from the node's NICs. Only ours say whether they use the host's network."""
    asking = container(resources={"requests": {RAIL: "1", names.RAIL + "1": "2"}})
    rails = (("main", names.RAIL + "1"), ("main", RAIL))
    requests = ((names.RAIL + "1", 2), (RAIL, 1), ("pods", 1))
    raw = changed(POD, "spec/containers", asking)
    expected = PodSpec(requests, rail_containers=rails)
    assert reader().pod(raw).spec == expected
    on_host = changed(raw, "spec/hostNetwork", True)
    assert reader().pod(on_host).spec == replace(expected, on_host=True)
    other = changed(on_host, "spec/schedulerName", "default-scheduler")
    assert reader().pod(other).spec == expected


def test_an_empty_selector_of_a_spread_counts_no_pod() -> None:
    raw = changed(POD, "spec/topologySpreadConstraints", spread(labelSelector={}))
    rules = reader().pod(raw).spec.rules
    assert rules is not None
    assert rules.spread[0].peers.selectors[0].labels is None


def test_a_request_of_nothing_is_none() -> None:
    raw = changed(POD, "spec/containers", container(resources={"requests": {"cpu": "0"}}))
    assert reader().pod(raw).spec == PodSpec((("pods", 1),))
    assert SPEC.request("cpu") == 1000
