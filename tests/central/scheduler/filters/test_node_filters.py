"""The filters, as Kubernetes words them."""

from functools import partial

import pytest

from central.model.facts import Taint, Toleration
from central.model.pod_rules import Requirement
from central.model.selectors import matches, tolerates
from central.scheduler.filters import node_filters
from tests.central import factories

NODE = factories.node(
    "a", labels={"disk": "ssd", "gen": "7"}, taints=(Taint("gpu", "h100", "NoSchedule"),)
)
refusal = partial(node_filters.refusal, now=0.0)
TOLERANT = (Toleration("gpu", "Exists", "", ""),)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Exists", "", ""), True),
        (Toleration("gpu", "Equal", "h100", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "a100", ""), False),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Equal", "h100", ""), False),
        (Toleration("other", "Exists", "", ""), False),
    ],
)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, NODE.taints[0]) == tolerated


@pytest.mark.parametrize(
    ("key", "operator", "values", "matched"),
    [
        ("disk", "In", ("ssd", "nvme"), True),
        ("disk", "In", ("hdd",), False),
        ("none", "In", ("x",), False),
        ("disk", "NotIn", ("hdd",), True),
        ("none", "NotIn", ("x",), True),
        ("disk", "NotIn", ("ssd",), False),
        ("disk", "Exists", (), True),
        ("none", "Exists", (), False),
        ("none", "DoesNotExist", (), True),
        ("gen", "Gt", ("6",), True),
        ("gen", "Gt", ("7",), False),
        ("gen", "Lt", ("8",), True),
        ("disk", "Lt", ("8",), False),
        ("gen", "Gt", (), False),
        ("gen", "Like", ("7",), False),
    ],
)
def test_expressions(key: str, operator: str, values: tuple[str, ...], matched: bool) -> None:
    assert matches(Requirement(key, operator, values), NODE) == matched


def test_fields_are_the_nodes_name() -> None:
    assert matches(Requirement("metadata.name", "In", ("a",), field=True), NODE)
    assert not matches(Requirement("metadata.name", "In", ("b",), field=True), NODE)


def test_refusals() -> None:
    assert refusal(factories.spec(1), NODE) == "taint gpu"
    assert not refusal(factories.spec(1, tolerations=TOLERANT), NODE)
    selecting = factories.spec(1, tolerations=TOLERANT, node_selector=(("disk", "hdd"),))
    assert refusal(selecting, NODE) == "node selector disk=hdd"
    terms = ((Requirement("disk", "In", ("hdd",)),), (Requirement("gen", "Exists", ()),))
    assert not refusal(factories.spec(1, tolerations=TOLERANT, node_terms=terms), NODE)
    assert (
        refusal(factories.spec(1, tolerations=TOLERANT, node_terms=((),)), NODE) == "node affinity"
    )
    unmet = (terms[0], (Requirement("gen", "NotIn", ("7",)), Requirement("arm", "Exists", ())))
    refused = refusal(factories.spec(1, tolerations=TOLERANT, node_terms=unmet), NODE)
    assert refused == "node affinity disk=hdd or gen!=7,arm"
    assert refusal(factories.spec(), factories.node("b", ready=False)) == "not ready"
    cordoned = factories.node("b", unschedulable=True)
    assert refusal(factories.spec(), cordoned) == "cordoned"
    everywhere = factories.spec(tolerations=(Toleration("", "Exists", "", ""),))
    assert not refusal(everywhere, cordoned)
    prefer = factories.node("c", taints=(Taint("x", "", "PreferNoSchedule"),))
    assert not refusal(factories.spec(), prefer)


def test_a_taint_is_named_with_its_value_where_another_one_is_tolerated() -> None:
    node = factories.node("a", taints=(Taint("team", "vision", "NoSchedule"),))
    other = Toleration("team", "Equal", "speech", "")
    assert refusal(factories.spec(tolerations=(other,)), node) == "taint team=vision"
    assert refusal(factories.spec(), node) == "taint team"


def test_a_reason_names_few_of_many_labels() -> None:
    names = tuple(f"key-{number:02}" for number in range(40))
    selector = tuple((name, "x") for name in names)
    refused = refusal(factories.spec(1, tolerations=TOLERANT, node_selector=selector), NODE)
    assert refused == "node selector key-00=x, key-01=x, key-02=x and 37 more"
    term = tuple(Requirement(name, "In", names) for name in names)
    spec = factories.spec(1, tolerations=TOLERANT, node_terms=(term,) * 9)
    assert len(refusal(spec, NODE)) < 300


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_pods_off_unless_they_tolerate_its_effect(effect: str) -> None:
    node = factories.node("a", taints=(Taint("gpu", "yes", effect),))
    assert refusal(factories.spec(1), node) == "taint gpu"
    for tolerated in ("NoSchedule", "NoExecute", ""):
        tolerations = (Toleration("gpu", "Exists", "", tolerated),)
        refused = refusal(factories.spec(1, tolerations=tolerations), node)
        assert bool(refused) == (tolerated not in (effect, ""))
