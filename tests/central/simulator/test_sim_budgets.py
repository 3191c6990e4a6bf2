"""PodDisruptionBudgets of simulations: which pods they cover, and how many may be evicted, by the rule as Kubernetes
has it."""

from math import ceil
from typing import Any

import pytest

from central.model.facts import BudgetGone, BudgetSeen
from central.model.json_types import Json
from central.simulator.sim_budgets import BudgetStatuses, DisruptionBudget


class Wrong(Exception):
    pass


def read(**spec: Any) -> DisruptionBudget:
    return DisruptionBudget.read("ns", "b", {"spec": spec}, Wrong)  # type: ignore[arg-type]


def may_leave(least: Any, most: Any, expected: int, healthy: int) -> int:
    """disruptionsAllowed: healthy pods above what must stay. Percentages are of the expected pods, rounded up."""

    def amount(value: Any) -> int:
        return ceil(expected * int(value[:-1]) / 100) if isinstance(value, str) else int(value)

    must_stay = amount(least) if least is not None else expected - amount(most)
    return max(0, healthy - must_stay)


NO_AMOUNTS: list[Any] = [-1, True, 1.5, "1", "x%", "-1%", "%", []]
AMOUNTS = (0, 1, 3, 100, "0%", "1%", "34%", "50%", "100%")


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("field", ["minAvailable", "maxUnavailable"])
def test_how_many_may_be_evicted(field: str, amount: Any) -> None:
    budget = read(**{field: amount}, selector={})
    given = {"least": None, "most": None, "least" if field == "minAvailable" else "most": amount}
    for expected in range(8):
        for healthy in range(expected + 1):
            budget.pods = {str(number) for number in range(expected)}
            budget.running = {str(number) for number in range(healthy)}
            allowed = may_leave(**given, expected=expected, healthy=healthy)
            assert budget.allowed() == allowed
            budget.there = True
            assert budget.allows() == (allowed > 0)
            budget.there = False
            assert budget.allows(), "a budget without an object forbids nothing"


@pytest.mark.parametrize(
    ("selector", "labels", "covered"),
    [
        ({}, {}, True),
        (None, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b", "c": "d"}}, {"a": "b"}, False),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        *(
            ({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}, labels, covered)
            for operator, values, labels, covered in (
                ("In", ["b", "c"], {"a": "c"}, True),
                ("In", ["b"], {"a": "c"}, False),
                ("In", ["b"], {}, False),
                ("NotIn", ["b"], {"a": "c"}, True),
                ("NotIn", ["b"], {}, True),
                ("NotIn", ["b"], {"a": "b"}, False),
                ("Exists", None, {"a": "x"}, True),
                ("Exists", None, {"b": "x"}, False),
                ("DoesNotExist", None, {"b": "x"}, True),
                ("DoesNotExist", None, {"a": "x"}, False),
            )
        ),
        (
            {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
            {"a": "b"},
            False,
        ),
    ],
    ids=str,
)  # fmt: skip
def test_which_pods_it_covers(selector: Json | None, labels: dict[str, str], covered: bool) -> None:
    budget = read(minAvailable=1, **({} if selector is None else {"selector": selector}))
    assert budget.covers("ns", labels) == covered
    assert not budget.covers("other", labels)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({}, "spec: missing"),
        ({"spec": []}, "spec: missing"),
        ({"spec": {}}, "spec: exactly one of minAvailable and maxUnavailable is required"),
        (
            {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
            "spec: exactly one of minAvailable and maxUnavailable is required",
        ),
        *(
            ({"spec": {"minAvailable": value}}, f"spec.minAvailable: {value!r} is neither a whole number nor a percentage")
            for value in NO_AMOUNTS
        ),
        ({"spec": {"maxUnavailable": "x"}}, "spec.maxUnavailable: 'x' is neither"),
        ({"spec": {"minAvailable": 1, "selector": 7}}, "spec.selector: invalid"),
        ({"spec": {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "a"}]}}}, "spec.selector: invalid"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_with_a_budget(raw: Json, sentence: str) -> None:
    with pytest.raises(Wrong) as error:
        DisruptionBudget.read("ns", "b", raw, Wrong)  # type: ignore[arg-type]
    assert str(error.value).startswith(sentence)


def test_the_status_follows_its_pods() -> None:
    budget = read(minAvailable=1, selector={})
    statuses = BudgetStatuses([budget])
    assert [*statuses.changes()] == []
    statuses.add(BudgetSeen("ns", "b", (), 0))
    assert budget.there
    assert [*statuses.changes()] == []
    budget.pods, budget.running = {"1", "2", "3"}, {"1", "2", "3"}
    assert [*statuses.changes()] == [BudgetSeen("ns", "b", (), 2)]
    assert [*statuses.changes()] == [], "once"
    budget.running = {"1"}
    assert [*statuses.changes()] == [BudgetSeen("ns", "b", (), 0)]
    statuses.remove(BudgetGone("ns", "b"))
    budget.running = {"1", "2"}
    assert ([*statuses.changes()], budget.there) == ([], False)
