"""Which priority a pod of a simulation has: its own, its class's, or that of the default class."""

from typing import Any

import pytest

from central.simulator.documents import BadInput
from central.simulator.priorities import PriorityClasses

LOWER, NEVER = "PreemptLowerPriority", "Never"


def classes() -> PriorityClasses:
    made = PriorityClasses()
    made.add("high", {"value": 100}, BadInput)
    made.add("calm", {"value": -5, "preemptionPolicy": NEVER}, BadInput)
    return made


def applied(made: PriorityClasses, **spec: Any) -> tuple[Any, Any]:
    made.apply(spec, BadInput)
    return spec.get("priority"), spec.get("preemptionPolicy")


def test_the_class_of_a_pod() -> None:
    made = classes()
    assert applied(made, priorityClassName="high") == (100, LOWER)
    assert applied(made, priorityClassName="calm") == (-5, NEVER)
    assert applied(made, priorityClassName="system-node-critical") == (2_000_001_000, LOWER)
    assert applied(made, priorityClassName="system-cluster-critical") == (2_000_000_000, LOWER)
    assert applied(made) == (None, None)
    assert applied(made, priority=7) == (7, None)
    assert applied(made, priorityClassName="high", priority=7, preemptionPolicy=NEVER) == (7, NEVER)


def test_the_default_class_is_for_pods_that_name_none() -> None:
    made = classes()
    made.add("usual", {"value": 3, "globalDefault": True, "preemptionPolicy": NEVER}, BadInput)
    assert applied(made) == (3, NEVER)
    assert applied(made, priority=7) == (7, NEVER)
    assert applied(made, priorityClassName="high") == (100, LOWER)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"priorityClassName": "none"},
            "spec.priorityClassName: no PriorityClass none in the input",
        ),
        ({"priority": "7"}, "spec.priority: '7' is not a whole number"),
        ({"priority": True}, "spec.priority: True is not a whole number"),
    ],
)
def test_what_is_refused(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        applied(classes(), **spec)


@pytest.mark.parametrize("value", [None, "7", True, 1.5])
def test_a_value_that_is_no_whole_number(value: object) -> None:
    with pytest.raises(BadInput, match=r"value: .* is not a whole number"):
        PriorityClasses().add("c", {"value": value}, BadInput)
