"""A reason about an object that is named and not known tells one that does not exist from one that a bug keeps out."""

from dataclasses import replace
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PrioritySeen, QueueSeen
from central.model.volumes import ClaimSeen
from central.scheduler import apply as apply_module
from central.scheduler.cycle import schedule_once
from tests.central import factories

BUG = "is set aside after a failure of the scheduler (a bug): KeyError: 'a handler'; tried again when it changes"
OTHER = QueueSeen("other")
GROUP = GangSeen("ns", "g", 1, priority_class="high")
CASES: list[tuple[Fact, list[Fact], str]] = [
    (QueueSeen("q"), [factories.pod("p", 1, queue="q"), OTHER], "queue q "),
    (GROUP, [factories.pod("p", 1, gang="g")], "PodGroup g "),
    (
        PrioritySeen("high", 5),
        [GROUP, factories.pod("p", 1, gang="g")],
        "spec.priorityClassName: PriorityClass high ",
    ),
    (ClaimSeen("ns", "data", "v"), [factories.pod("p", 1, claims=("data",))], "claim data "),
]


PLAIN = dict(apply_module.HANDLERS)


def raises(scheduler: Any, fact: Any) -> None:
    if fact != OTHER:
        raise KeyError("a handler")
    PLAIN[type(fact)](scheduler, fact)


@pytest.mark.parametrize(
    "after_another", [False, True], ids=["first of its kind", "suspected kind"]
)
@pytest.mark.parametrize(("poison", "others", "start"), CASES)
def test_an_object_that_is_set_aside_is_not_said_to_be_missing(
    poison: Any,
    others: list[Fact],
    start: str,
    after_another: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the one that names it was refused before. after_another: one of its kind failed lately, so that it fails
    on trial, and the state is not built again."""
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [factories.node("n"), *others], 0.0)
    assert " does not exist" in _reason(scheduler)
    with monkeypatch.context() as patch:
        patch.setitem(apply_module.HANDLERS, type(poison), raises)
        if after_another:
            schedule_once(scheduler, [replace(poison, name="unrelated")], 0.5)
        schedule_once(scheduler, [poison], 1.0)
        assert _reason(scheduler) == start + BUG
    schedule_once(scheduler, [], 400.0)
    assert not any(BUG in gang.attempt.reason for gang in scheduler.state.pending.waiting.values())


def _reason(scheduler: Any) -> str:
    [gang] = scheduler.state.pending.waiting.values()
    return str(gang.attempt.reason)
