"""Access and limits of a Queue, from its spec or from the annotation."""

import json
from typing import Any

import pytest

from central.kube.decode.policy_decoder import decode_queue
from central.model.facts import QueueAccess
from central.model.pod_rules import Expression
from protos.names import GPU, QUEUE_POLICY

FIELDS: dict[str, Any] = {
    "access": {
        "namespaces": ["x"],
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "users": ["system:serviceaccount:x:trainer"],
        "groups": ["system:serviceaccounts:y"],
    },
    "borrowingLimit": {GPU: 4},
    "lendingLimit": {GPU: "2"},
    "maxRunningGangs": 0,
    "perNamespace": {"maxRunningGangs": 3, "resources": {"cpu": "500m"}},
    "perUser": {"maxRunningGangs": 2, "resources": {GPU: 8}},
    "minRuntime": "10m",
    "quantum": "5m",
    "idleTimeout": "1h",
    "shareBy": "namespace",
    "strictPriority": 2,
}


def queue(spec: dict[str, Any], annotation: str = "") -> dict[str, Any]:
    meta = {
        "name": "q",
        "uid": "u",
        "annotations": {QUEUE_POLICY: annotation} if annotation else {},
    }
    return {"metadata": meta, "spec": spec}


@pytest.mark.parametrize("annotated", [False, True])
def test_fields_of_the_spec_or_of_the_annotation(*, annotated: bool) -> None:
    raw = queue({}, json.dumps(FIELDS)) if annotated else queue(FIELDS)
    seen = decode_queue(raw)
    assert not seen.error
    assert seen.access == QueueAccess(
        ("x",),
        (Expression("team", "In", ("a",)),),
        ("system:serviceaccount:x:trainer",),
        ("system:serviceaccounts:y",),
    )
    assert (seen.borrowing_limit, seen.lending_limit) == (((GPU, 4),), ((GPU, 2),))
    assert (seen.running_gangs, seen.namespace_gangs) == (0, 3)
    assert seen.namespace_amounts == (("cpu", 500),)
    assert (seen.user_gangs, seen.user_amounts) == (2, ((GPU, 8),))
    assert (seen.min_runtime_s, seen.quantum_s, seen.strict_priority) == (600.0, 300.0, 2)
    assert seen.idle_s == 3600.0
    assert seen.by_namespace


def test_without_them_the_queue_is_open_and_unlimited() -> None:
    seen = decode_queue(queue({"weight": 1}))
    assert (seen.access, seen.running_gangs, seen.namespace_gangs) == (None, None, None)
    assert (seen.min_runtime_s, seen.quantum_s, seen.strict_priority) == (None, None, 0)


@pytest.mark.parametrize(
    ("spec", "annotation", "names"),
    [
        ({"access": {"namespace": ["x"]}}, "", "unknown field namespace"),
        ({"minRuntime": "long"}, "", 'spec.minRuntime: "long" is not a duration'),
        ({"idleTimeout": "-1s"}, "", 'spec.idleTimeout: "-1s" is not a duration'),
        ({"quantum": "short"}, "", 'spec.quantum: "short" is not a duration'),
        ({"shareBy": "user"}, "", "spec.shareBy: 'user' is not"),
        ({"shareBy": True}, "", "spec.shareBy: True is not"),
        ({"access": []}, "", "spec.access: [0 entries] is not an object"),
        ({"access": {"namespaces": "x"}}, "", "spec.access.namespaces"),
        ({"access": {"namespaceSelector": {"matchLabel": {}}}}, "", "unknown field matchLabel"),
        ({"maxRunningGangs": -1}, "", "spec.maxRunningGangs"),
        ({"perNamespace": {"gpus": 3}}, "", "unknown field gpus"),
        ({"perUser": {"gpus": 3}}, "", "spec.perUser: unknown field gpus"),
        ({"perUser": {"maxRunningGangs": -1}}, "", "spec.perUser.maxRunningGangs"),
        ({"borrowingLimit": {GPU: "many"}}, "", "spec.borrowingLimit"),
        ({}, "{", "not JSON"),
        ({}, "[" * 1000, "not JSON"),
        ({}, "[1]", "not an object"),
        ({}, '{"acces": {}}', "unknown field acces"),
        ({"maxRunningGangs": 1}, '{"access": {}}', "use one of the two"),
    ],
)
def test_a_rule_that_cannot_be_read_disables_the_queue(
    spec: dict[str, Any], annotation: str, names: str
) -> None:
    assert names in decode_queue(queue(spec, annotation)).error
