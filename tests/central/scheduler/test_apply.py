"""The table of facts and handlers is complete, and answers reach whoever asked."""

from typing import get_args

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import SetStatus
from central.model.facts import Answered, BudgetSeen, Fact, HyperNodeSeen, QueueSeen
from central.scheduler import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories


def fact_types(union: object) -> set[object]:
    members = get_args(union)
    return set().union(*map(fact_types, members)) if members else {union}


def test_every_type_of_fact_has_a_handler_and_no_handler_is_left_over() -> None:
    assert apply.HANDLERS.keys() == fact_types(Fact)


def statuses(made: Scheduler, now: float, *facts: Fact) -> list[str]:
    decided = schedule_once(made, facts, now)
    return [each.name for each in decided if isinstance(each, SetStatus)]


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("Queue", QueueSeen("q", uid="uid")), ("HyperNode", HyperNodeSeen("h", 1, uid="uid"))],
)
def test_a_status_is_written_again_if_it_was_refused_and_not_if_it_was_stored(
    kind: str, seen: QueueSeen | HyperNodeSeen
) -> None:
    made = new_scheduler(factories.LEVELS)
    assert statuses(made, 0.0, factories.node("n"), seen) == [seen.name]
    assert statuses(made, 20.0) == [], "its answer is awaited"
    refused = Answered("SetStatus", kind, "", seen.name, why="try again", code=503)
    assert statuses(made, 21.0, refused) == []
    assert statuses(made, 30.9) == []
    assert statuses(made, 31.1) == [seen.name]
    assert statuses(made, 32.0, Answered("SetStatus", kind, "", seen.name)) == []
    assert statuses(made, 99.0) == []


def test_gangs_are_tried_again_when_a_budget_allows_more_and_when_queues_change() -> None:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("n"), factories.budget("a", 1)], 0.0)
    made.budgets.blocked_a_request = True
    for fact, again in (
        (BudgetSeen("ns", "keep-a", factories.budget("a", 1).selector, 0), False),
        (BudgetSeen("ns", "keep-a", factories.budget("a", 1).selector, 2), True),
        (QueueSeen("q"), True),
        (QueueSeen("q"), False),
        (QueueSeen("q", weight=3), True),
    ):
        before, made.state.pending.all_changed = made.state.pending.wakeups.total(), False
        apply.apply(made, fact)
        assert (made.state.pending.wakeups.total() > before) == again, fact
        assert made.state.pending.all_changed == (again and isinstance(fact, QueueSeen))
