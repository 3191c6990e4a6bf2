"""`lockstep replay --bisect` finds which objects make a recorded journal fail, with bugs that are put into the
scheduler."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from central.cli.bisect_journal import SmallestJournal, first_failure, smallest
from central.cli.main import main
from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueSeen
from central.scheduler import refusal_reasons
from central.scheduler.cycle import schedule_once
from central.scheduler.queues import quota
from central.scheduler.scheduler import Scheduler
from central.server.journal import Journal
from central.server.replay import lines_of
from tests.central import factories
from tests.central.scheduler.small_cluster import job

QUEUES = [QueueSeen(name) for name in ("default", "other", "third")]
ARRIVALS: list[list[Fact]] = [
    [factories.node(name) for name in "abc"],
    [factories.report("a"), *QUEUES],
    *(job(f"train-{number}", 2, queue="default", created=number) for number in range(6)),
    [],
    job("poison", 2, 8, queue="other", created=9.0),
    job("late", 1, queue="default", created=10.0),
]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A journal of cycles that did not fail: the bug comes later."""
    file, scheduler = tmp_path / "day.journal", new_scheduler(factories.LEVELS)
    journal = Journal(file, scheduler)
    journal.learn(0.0, ARRIVALS[0])
    schedule_once(scheduler, ARRIVALS[0], 0.0)
    for number, facts in enumerate(ARRIVALS[1:], 1):
        journal.turn(float(number), facts)
        journal.decided(schedule_once(scheduler, facts, float(number)))
    journal.close()
    return file


def refused(request: quota.StartRequest) -> str:
    """Fails on one gang while a queue of another name is there."""
    if request.gang.name == "poison" and "third" in request.queues.by_name:
        raise KeyError("a policy")
    return ""


def refreshed(scheduler: Scheduler, now: float) -> None:
    """Fails on two gangs together, so that no single one is set aside and the process ends."""
    gangs = scheduler.state.gangs
    if {("ns", "train-2", True), ("ns", "poison", True)} <= gangs.keys():
        raise ZeroDivisionError


def test_a_gang_that_was_set_aside_is_found_with_what_it_needs(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quota, "QUEUE_POLICIES", (refused,))
    small = recorded.with_name("small.journal")
    assert main(["replay", "--bisect", str(recorded), "--to", str(small)]) == 0
    error, count, *facts = capsys.readouterr().out.splitlines()
    assert error == "KeyError: 'a policy' (in refused)"
    assert count.startswith("3 facts in 2 cycles are enough for it (found in ")
    assert sorted(line.split(maxsplit=1)[1] for line in facts) == [
        "GangSeen ns/poison",
        "QueueSeen other",
        "QueueSeen third",
    ]
    assert len(lines_of(str(small))) == 1 + 2, (
        "the header, a line for the queues and one for the gang"
    )
    failure = first_failure(str(small))
    assert failure is not None
    assert repr(failure.error) == "KeyError('a policy')"


def test_objects_that_end_the_process_together_are_found(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_reasons, "refresh", refreshed)
    found = SmallestJournal(str(recorded))
    assert {
        getattr(fact, "gang", "") or getattr(fact, "name", "") for _, fact in found.facts()
    } == {"train-2", "poison"}
    assert found.describe().startswith("ZeroDivisionError (in refreshed)\n2 facts in 2 cycles")


def test_what_was_found_is_shown_though_it_cannot_be_written(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quota, "QUEUE_POLICIES", (refused,))
    nowhere = recorded.with_name("no-folder") / "small.journal"
    assert main(["replay", "--bisect", str(recorded), "--to", str(nowhere)]) == 2
    shown = capsys.readouterr()
    assert "GangSeen ns/poison" in shown.out
    assert shown.err == f"lockstep: --to {nowhere}: No such file or directory\n"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--to", "x"], "--to needs --bisect, whose facts it writes"),
        (["--bisect", "--decisions-only"], "--bisect compares nothing: leave out --decisions-only"),
    ],
)
def test_flags_that_do_not_go_together(
    flags: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *flags, "no.journal"]) == 2
    assert capsys.readouterr().err == f"lockstep: {why}\n"


def test_a_journal_without_a_failure_has_nothing_to_find(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--bisect", str(recorded)]) == 2
    assert capsys.readouterr().err == f"lockstep: {recorded}: no cycle of it fails\n"


@pytest.mark.parametrize("count", range(1, 7))
def test_any_set_that_is_needed_is_found(count: int) -> None:
    items = list(range(12))
    for needed in itertools.combinations(items, count):
        assert smallest(items, {*needed}.issubset) == list(needed)


def test_the_rest_fails_and_no_longer_without_any_single_item() -> None:
    """Whatever rule decides."""
    draw = random.Random(0)
    for _ in range(200):
        rules = [{*draw.sample(range(15), draw.randint(1, 4))} for _ in range(3)]

        def fails(some: Sequence[int], rules: list[set[int]] = rules) -> bool:
            return any(rule <= {*some} for rule in rules)

        found = smallest(list(range(15)), fails)
        assert fails(found)
        assert not any(fails([*found[:at], *found[at + 1 :]]) for at in range(len(found)))
    assert smallest([1, 2], lambda _: True) == []
