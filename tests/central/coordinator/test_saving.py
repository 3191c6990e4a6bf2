"""What is stored, what is stored again, and who hears that it is: with a store whose answers are set."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

import pytest

from central.controllers.training.stored_state import StoredState
from central.coordinator import saving as saving_module
from central.coordinator.saving import Saving
from central.coordinator.state_store import CannotStore, Fenced
from central.model.json_types import Json, ReadOnlyJson


class Members:
    mark = (1, 1)


class State:
    """Changes are handed over once."""

    run = 7

    def __init__(self) -> None:
        self.membership = Members()
        self.changed: dict[str, Json] = {}
        self.whole: list[bool] = []

    def changes(self, now: float, *, whole: bool) -> dict[str, Json]:
        assert abs(now - time.monotonic()) < 5.0
        self.whole.append(whole)
        found, self.changed = self.changed, {}
        return found

    def unsaved(self) -> bool:
        return bool(self.changed)


class Store:
    durable, before_telling, apart_s, writes_all = True, True, 0.0, False

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)  # then all is well
        self.asked: list[dict[str, ReadOnlyJson]] = []
        self.stored: dict[str, ReadOnlyJson] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.closed = False

    def load(self) -> dict[str, ReadOnlyJson]:
        return {}

    def save(self, run: int, sections: Mapping[str, ReadOnlyJson]) -> None:
        assert run == State.run
        self.asked.append(dict(sections))
        self.meanwhile()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.stored.update(sections)

    def close(self) -> None:
        self.closed = True


class Box:
    def __init__(self, *answers: Exception | None) -> None:
        self.state, self.store = State(), Store(*answers)
        self.saving = Saving(cast("StoredState", self.state), self.store)
        self.running: asyncio.Task[None] | None = None

    def change(self, **sections: int) -> None:
        self.state.changed.update({name: {"n": value} for name, value in sections.items()})

    def start(self) -> None:
        self.running = asyncio.create_task(self.saving.run())


def played(story: Callable[[Box], Coroutine[Any, Any, None]], *answers: Exception | None) -> Box:
    async def play() -> Box:
        box = Box(*answers)
        try:
            await asyncio.wait_for(story(box), 20)
        finally:
            if box.running is not None:
                box.running.cancel()
            box.saving.close()
        return box

    return asyncio.run(play())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving_module, "_RETRY_S", (0.01, 0.02, 0.03))
    monkeypatch.setattr(saving_module, "_QUIET_S", 60.0)


def test_who_waits_hears_of_the_write_with_its_change() -> None:
    async def story(box: Box) -> None:
        box.start()
        for number in range(5):
            box.change(a=number)
            assert await box.saving.saved(5.0)
            assert box.store.stored["a"] == {"n": number}
        box.change(b=1)
        heard = await asyncio.gather(*(box.saving.saved(5.0) for _ in range(10)))
        assert heard == [True] * 10
        assert box.saving.writes == 6, "one write is for all that wait"
        assert await box.saving.saved(5.0)
        assert box.saving.writes == 6, "nothing has changed"

    box = played(story)
    assert box.store.closed
    assert set(box.state.whole) == {False}


def test_what_is_not_stored_stays_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def story(box: Box) -> None:
        assert (box.saving.not_durable_since, box.saving.trouble) == (None, "")
        box.change(a=1, b=1)
        assert not await box.saving.first_write()
        since = box.saving.not_durable_since
        assert since is not None
        assert (box.saving.trouble, box.saving.stored_mark) == ("full", (-1, -1))
        box.change(b=2, c=2)
        assert not await box.saving.first_write()
        assert (box.saving.not_durable_since, box.saving.trouble) == (since, "fuller")
        assert await box.saving.first_write()
        assert box.store.stored == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 2}}
        assert (box.saving.not_durable_since, box.saving.trouble) == (None, "")
        assert (box.saving.writes, box.saving.stored_mark) == (1, (1, 1))
        box.change(d=3)
        assert await box.saving.first_write()
        assert box.store.asked[-1] == {"d": {"n": 3}}, "what was stored is not written again"

    played(story, CannotStore("full"), CannotStore("fuller"))
    assert caplog.messages == ["state is not stored, retrying: full"], "once, until it is stored"


def test_who_waits_for_a_write_that_fails_hears_it_and_it_goes_on() -> None:
    async def story(box: Box) -> None:
        box.start()
        box.change(a=1)
        heard = [await box.saving.saved(5.0) for _ in range(4)]
        assert heard == [False, False, False, True]
        assert box.store.stored == {"a": {"n": 1}}
        assert len(box.store.asked) == 4

    played(story, *[CannotStore("full")] * 3)


def test_a_coordinator_that_is_replaced_stores_no_more() -> None:
    async def story(box: Box) -> None:
        box.start()
        box.change(a=1)
        assert not await box.saving.saved(5.0)
        assert await box.saving.fenced == "another one has begun"
        assert box.saving.trouble == "another one has begun"
        assert box.running is not None
        await asyncio.wait_for(box.running, 5.0)
        assert not await box.saving.first_write()
        assert not await box.saving.saved(0.05)

    box = played(story, Fenced("another one has begun"), Fenced("again"))
    assert box.saving.trouble == "another one has begun"
    assert box.store.stored == {}


def test_the_mark_that_is_stored_is_that_of_its_write() -> None:
    """Not of what members did meanwhile."""

    async def story(box: Box) -> None:
        def meanwhile() -> None:
            box.state.membership.mark = (2, 2)

        box.store.meanwhile = meanwhile
        box.change(a=1)
        assert await box.saving.first_write()
        assert box.saving.stored_mark == (1, 1)
        assert await box.saving.first_write()
        assert box.saving.stored_mark == (2, 2), "nothing else was left to store"

    played(story)


def test_nobody_waits_for_ever() -> None:
    async def story(box: Box) -> None:
        began = time.monotonic()
        assert not await box.saving.saved(0.05), "nobody writes"
        assert time.monotonic() - began < 5.0
        box.store.durable = False
        assert await box.saving.saved(0.0), "where nothing is durable there is nothing to wait for"

    played(story)


def test_what_nobody_waits_for_is_written_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving_module, "_QUIET_S", 0.1)

    early: list[bool] = []

    async def story(box: Box) -> None:
        box.store.writes_all = True
        box.start()
        box.change(a=1)
        await asyncio.sleep(0.0)
        assert box.store.stored == {}
        early.append(box.saving.durable)
        while not box.store.stored:
            await asyncio.sleep(0.01)
        while not box.saving.durable:
            await asyncio.sleep(0.01)
        assert (box.saving.durable, box.saving.before_telling) == (True, True)

    assert set(played(story).state.whole) == {True}
    assert early == [False], "what is not stored is not called durable"


def test_writes_are_apart_as_the_store_asks() -> None:
    async def story(box: Box) -> None:
        box.store.apart_s = 0.15
        box.start()
        times = []
        for number in range(3):
            box.change(a=number)
            assert await box.saving.saved(5.0)
            times.append(time.monotonic())
        assert times[1] - times[0] >= 0.14
        assert times[2] - times[1] >= 0.14

    played(story)
