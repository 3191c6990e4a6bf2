"""A framework's training loop as one turn, in a process of a launcher and on a laptop."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.train import Order, stop_signal
from agent.train.framework_turn import FrameworkTurn, copied
from tests.agent.train.worlds import Rank


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("LOCKSTEP_COORDINATOR", raising=False)
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    forget()


def forget() -> None:
    """As if SIGTERM had not come."""
    stop_signal._came.clear()
    stop_signal._installed.clear()


def order() -> Order:
    return Order(40, 4, seed=1, epochs=2)


def train(folder: Path, stop_after: int = 99) -> list[list[int]]:
    """A loop that fetches a batch ahead, as frameworks do, and saves only when it is told to."""
    turn = FrameworkTurn(order(), folder)
    turn.take_signals()
    found = turn.latest()
    step = int(Path(found, "step").read_text()) if found else 0
    source, taken = iter(turn.batches(iter)), []
    following = next(source, None)
    while following is not None:
        batch, following = following, next(source, None)
        step += 1
        taken.append(batch)
        turn.taken()
        if len(taken) == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        if turn.over(step):
            own = folder / f"own-{step}"
            own.mkdir(parents=True)
            (own / "step").write_text(str(step))
            turn.save(step, copied(str(own)))
            (own / "step").unlink()  # it keeps fewer than we do
            break
    if stop_signal.came():
        with pytest.raises(SystemExit, match="143"):
            turn.end()
    else:
        turn.end()
    return taken


def test_a_stopped_loop_goes_on_where_it_was(tmp_path: Path) -> None:
    want = [batch.ids for _, batch in order().steps(Rank(0, 1))]
    assert train(tmp_path, stop_after=13) == want[:13]
    forget()
    assert train(tmp_path) == want[13:]


def test_a_handler_of_the_framework_is_not_called() -> None:
    called = []
    signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    FrameworkTurn(order()).take_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop_signal.came()
    assert not called


def test_a_member_without_a_launcher_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_COORDINATOR", "https://127.0.0.1:1")
    monkeypatch.delenv("RANK")
    with pytest.raises(RuntimeError, match="lockstep-launch or torchrun"):
        FrameworkTurn(order()).latest()


def test_what_has_no_fixed_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="per-member:4"):
        FrameworkTurn(Order(40, "per-member:4"))


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_position_after_a_step_is_that_of_an_order_that_took_it(drop_last: bool) -> None:
    taken = Order(38, 4, seed=3, epochs=3, drop_last=drop_last)
    assert taken.state_after(0) == taken.state()
    for step, _ in taken.steps(Rank(0, 1)):
        assert (
            Order(38, 4, seed=3, epochs=3, drop_last=drop_last).state_after(step) == taken.state()
        )
    assert taken.step == taken.all_steps
