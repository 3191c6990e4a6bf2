"""An exception in the middle of a change of the snapshot is never taken for one of a search, which drafts undo."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.scheduler import containment, refusal_reasons
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.pods import Pod
from central.scheduler.reservation.release_forecast import ReleasablePods
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.work_meter import WorkLimitReached
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job

APART = factories.pod("p", 1, rules=factories.apart("x", factories.HOST), labels=(("app", "x"),))
RUNS = factories.pod("runs", 2, node="a", phase="Running")


@pytest.fixture
def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node("a"), factories.node("b"), factories.report("a"), RUNS]
    schedule_once(made, facts, 0.0)
    return made


def take(scheduler: Scheduler) -> None:
    Draft(scheduler.state.snapshot).take(0, factories.pod("p", 1).spec, 1)


def take_all(scheduler: Scheduler) -> None:
    rows = np.array([0, 1])
    Draft(scheduler.state.snapshot).take_all(factories.pod("p", 1).spec, rows, rows * 0 + 1)


def undo(scheduler: Scheduler) -> None:
    draft = Draft(scheduler.state.snapshot)
    draft.take(0, factories.pod("p", 1).spec, 1)
    draft.undo()


def look_without(scheduler: Scheduler) -> None:
    pods: list[Pod] = list(scheduler.state.pods.values())
    with ReleasablePods(scheduler.state, pods).without(np.arange(len(pods))):
        pass


def withhold(scheduler: Scheduler) -> None:
    if not scheduler.reservations:
        schedule_once(scheduler, job("reserves", 2, gpus=8), 1.0)
    withheld = WithheldCapacity(scheduler.state.snapshot)
    withheld.set([*scheduler.reservations.values()])
    withheld.set([])


@pytest.mark.parametrize(
    ("change", "step", "call"),
    [
        (take, (Columns, "recount"), 1),
        (take_all, (Columns, "recount_many"), 1),
        (undo, (Columns, "recount"), 2),
        (look_without, (Columns, "shift"), 1),
        (look_without, (Columns, "shift"), 2),
        (withhold, (Columns, "shift"), 1),
    ],
)
def test_a_change_that_raises(
    change: Callable[[Scheduler], None],
    step: tuple[type, str],
    call: int,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot, real, calls = scheduler.state.snapshot, getattr(*step), []
    with containment.ContainedSearch(snapshot):
        change(scheduler)
    assert not snapshot.is_half_changed

    def fails(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise ZeroDivisionError
        return real(*args, **more)

    monkeypatch.setattr(*step, fails)
    with pytest.raises(ZeroDivisionError), containment.ContainedSearch(snapshot):
        change(scheduler)
    assert snapshot.is_half_changed


def test_a_search_that_raises_between_changes(scheduler: Scheduler) -> None:
    draft = Draft(scheduler.state.snapshot)

    def fails(error: Exception) -> None:
        with draft.all_or_nothing():
            draft.take(0, APART.spec, 1)
            raise error

    with (
        pytest.raises(containment.SearchFailed),
        containment.ContainedSearch(scheduler.state.snapshot),
    ):
        fails(KeyError("a bug"))
    for answer in (DoesNotFit("an answer"), WorkLimitReached(), MemoryError()):
        with pytest.raises(type(answer)), containment.ContainedSearch(scheduler.state.snapshot):
            fails(answer)
    check_invariants(scheduler)


def test_assignments_that_are_taken_again_in_part_are_undone(scheduler: Scheduler) -> None:
    draft, spec = Draft(scheduler.state.snapshot), factories.pod("p", 1).spec
    for row in (0, 1):
        draft.take(row, spec, 1)
    assignments = draft.assignments.copy()
    draft.undo()

    def fails() -> None:
        with draft.all_or_nothing():
            draft.retake([*assignments, "not an assignment"])  # type: ignore[list-item]

    with (
        pytest.raises(containment.SearchFailed),
        containment.ContainedSearch(scheduler.state.snapshot),
    ):
        fails()
    check_invariants(scheduler)


def test_the_state_is_built_again_when_a_reason_fails_in_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Capacity is withheld while the reasons of refused gangs are computed again."""
    scheduler = new_scheduler(factories.LEVELS)
    runs = factories.pod("runs", 1, node="a", phase="Running", runs_for_s=900.0, started=0.0)
    schedule_once(scheduler, [factories.node("a", gpus=2), runs, *job("next", 1, gpus=2)], 0.0)
    assert scheduler.reservations
    refresh = refusal_reasons.refresh

    def failing(*args: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(WithheldCapacity, "_withhold", lambda *_: 1 / 0)
            refresh(*args)

    with monkeypatch.context() as patch:
        patch.setattr(refusal_reasons, "refresh", failing)
        schedule_once(scheduler, [*job("small", 1, gpus=1)], 1.0)
    check_invariants(scheduler)
    assert scheduler.state.pending.wakeups["state rebuilt"]
    assert not scheduler.state.snapshot.is_half_changed
