"""Queues below queues below queues, in trees that can never be built: the gangs of their queues wait with the reason,
and those of all others are scheduled in the same cycle."""

import pytest

from central.model import limits
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact, QueueGone, QueueSeen
from tests.central import factories
from tests.central.poison.world import CYCLE_S, World


def gang_in(queue: str) -> list[Fact]:
    name = f"of-{queue}"
    return [factories.gang(name, 1, queue=queue), factories.pod(f"{name}-0", gang=name, cpu=1)]


def reason(decisions: list[Decision], gang: str) -> str:
    """Empty where the gang is placed."""
    if any(isinstance(each, Bind) and each.name == f"{gang}-0" for each in decisions):
        return ""
    return next(
        each.reason
        for each in reversed(decisions)
        if isinstance(each, UpdateGangStatus) and each.gang == gang
    )


DEEPEST = limits.QUEUE_DEPTH - 1
TOO_DEEP = "it is more than 16 levels below root"
TREES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    # the parents, and what a gang of such a queue waits for
    "its own parent": (
        {"q": "q", "below": "q"},
        {
            "q": "queue q is invalid: spec.parent: the queue is its own parent",
            "below": "queue below: its parent queue q is invalid: spec.parent: the queue is its own parent",
        },
    ),
    "a circle of three": (
        {"a": "b", "b": "c", "c": "a", "below": "b", "beside": ""},
        {
            **{
                name: f"queue {name} is invalid: spec.parent: a, b, c form a cycle"
                for name in "abc"
            },
            "below": "queue below: its parent queue b is invalid: spec.parent: a, b, c form a cycle",
            "beside": "",
        },
    ),
    "a parent that is not there": (
        {"q": "gone", "below": "q", "lowest": "below"},
        {
            "q": "queue q is invalid: spec.parent: queue gone does not exist",
            "lowest": "queue lowest: its parent queue below: its parent queue q is invalid: "
            "spec.parent: queue gone does not exist",
        },
    ),
    "a chain of 10,000": (
        {f"q{i}": f"q{i - 1}" if i else "" for i in range(10_000)},
        {
            f"q{DEEPEST}": "",
            f"q{DEEPEST + 1}": f"queue q{DEEPEST + 1} is invalid: spec.parent: {TOO_DEEP}",
            "q9999": f"queue q9999 is invalid: spec.parent: {TOO_DEEP}",
        },
    ),
    "a circle of 1,000": (
        {f"q{i}": f"q{(i + 1) % 1000}" for i in range(1000)},
        {"q0": f"queue q0 is invalid: spec.parent: {TOO_DEEP}"},
    ),
}


@pytest.mark.parametrize("what", TREES)
def test_a_tree_that_cannot_be_built_holds_up_its_own_queues_alone(what: str) -> None:
    parents, reasons = TREES[what]
    world = World()
    facts: list[Fact] = [QueueSeen(name, parent=parent) for name, parent in parents.items()]
    for name in reasons:
        facts += gang_in(name)
    decisions, spent_s = world.cycle(*facts)  # in which another gang is placed
    assert spent_s < CYCLE_S
    assert {name: reason(decisions, f"of-{name}") for name in reasons} == reasons
    repaired = [QueueGone(name) for name in parents if name not in reasons]
    decisions, spent_s = world.cycle(*repaired, *(QueueSeen(name) for name in reasons))
    assert spent_s < CYCLE_S
    assert {reason(decisions, f"of-{name}") for name, why in reasons.items() if why} == {""}
