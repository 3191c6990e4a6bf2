"""Saves that are under way when a member is lost: given up, without an end of what they wait for."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agent.train import undo
from agent.train.checkpoints import Checkpoints, Part
from tests.agent.train.test_checkpoint_record import Recorded, save

pytestmark = pytest.mark.timeout(60)
LONG_S = 20.0  # for threads that end at once


class BreaksTurn(Recorded):
    """Never has all parts; a member is lost when it is asked for the third time."""

    asked = 0

    def completed(self, name: str, data: Mapping[str, Any]) -> bool:
        self.asked += 1
        if self.asked == 3:
            undo.break_turn()
        return False


class SlowRecord(Recorded):
    def __init__(self) -> None:
        super().__init__()
        self.begun, self.answers = threading.Event(), threading.Event()

    def written(self, name: str, part: Part) -> None:
        self.begun.set()
        self.answers.wait()


@pytest.fixture(autouse=True)
def whole_turn() -> Iterator[None]:
    undo.begin_turn()
    yield
    undo.begin_turn()


@pytest.fixture
def future() -> Iterator[Future[None]]:
    """Waits for a rank that is lost. Ends after the test, so that no thread outlives it."""
    made = Future[None]()
    yield made
    if not made.done():
        made.set_result(None)


def begin(made: Checkpoints, future: Future[None], step: int = 2) -> threading.Thread:
    """Begins an asynchronous save. Returns its thread."""

    def write(path: str) -> Future[None]:
        Path(path).write_text("half")
        return future

    made.save(step, 1, write, rank=0, parts=1, data={})
    (thread,) = made._running
    return thread


def ends(call: Callable[[], object]) -> None:
    """Asserts that the call returns."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_the_next_turn_waits_for_no_save_of_the_one_before(
    tmp_path: Path, future: Future[None]
) -> None:
    record = Recorded()
    made = Checkpoints(str(tmp_path), record)
    save(made, 1)
    thread = begin(made, future)
    assert made.give_up()
    ends(made.wait)
    thread.join(LONG_S)
    assert not thread.is_alive(), "it would keep the process from its end"
    assert [name for name, _ in record.parts] == ["ckpt-1-1"]
    found = made.latest()
    assert found is not None
    assert found.step == 1
    assert not made.give_up(), "none is under way"


def test_a_save_that_ends_after_it_was_given_up_does_not_count(
    tmp_path: Path, future: Future[None]
) -> None:
    record = Recorded()
    made = Checkpoints(str(tmp_path), record)
    thread = begin(made, future)
    made.give_up()
    future.set_result(None)
    thread.join(LONG_S)
    assert not record.parts
    assert made.latest() is None
    made.wait()  # raises nothing


@pytest.mark.parametrize("is_written", [False, True])
def test_who_waits_for_a_save_learns_that_the_turn_is_broken(
    tmp_path: Path, future: Future[None], *, is_written: bool
) -> None:
    """Also while a part that is written is told."""
    record = SlowRecord()
    made = Checkpoints(str(tmp_path), record)
    thread = begin(made, future)
    if is_written:
        future.set_result(None)
        assert record.begun.wait(LONG_S)
    failed: list[RuntimeError] = []

    def wait() -> None:
        try:
            made.wait()
        except RuntimeError as error:
            failed.append(error)

    threading.Timer(0.3, undo.break_turn).start()
    ends(wait)
    assert "a member was lost" in str(failed[0])
    record.answers.set()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_rank_0_does_not_wait_for_the_part_of_a_lost_member(tmp_path: Path) -> None:
    record = BreaksTurn()
    made = Checkpoints(str(tmp_path), record)
    failed: list[RuntimeError] = []

    def write() -> None:
        try:
            save(made, 1, rank=0, parts=2)
        except RuntimeError as error:
            failed.append(error)

    ends(write)
    assert "a member was lost" in str(failed[0])
    assert record.asked == 3
    assert made.latest() is None
