"""A standby's copy of the leader's history: page by page, again and again, and what the next leader makes of it."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from central.server.history import history_copier, history_pages
from central.server.history.allocations import HELD, Allocation
from central.server.history.history_copier import (
    HistoryCopier,
    LeaderHistory,
    NoAnswer,
    NothingToCopy,
)
from central.server.history.history_pages import HistoryPages, of_message, to_message
from central.server.history.history_store import COLUMNS, HistoryLocked, HistoryStore
from protos.stubs import fleet_pb2 as pb
from tests.central.server.history.test_history_store import ENTRY, MIB

HOUR = 3_600_000


class Replica:
    def __init__(self, file: Path, mib: int = 16) -> None:
        self.store = HistoryStore(str(file), mib * MIB, time.time)
        self.pages = HistoryPages(self.store)

    def rows(self) -> list[tuple[object, ...]]:
        with self.store.readable() as db:
            return list(db.execute(f"SELECT {COLUMNS} FROM allocations ORDER BY uid, began"))

    def pictures(self) -> list[tuple[int, bytes]]:
        with self.store.readable() as db:
            return list(db.execute("SELECT at, body FROM pictures ORDER BY at"))

    def copy_of(self, other: "Replica") -> HistoryCopier:
        made = HistoryCopier(self.store, lambda: nullcontext(other.pages))
        made.copy()
        return made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Replica, Replica]]:
    made = Replica(tmp_path / "leader.db"), Replica(tmp_path / "standby.db")
    yield made
    for each in made:
        each.store.close()


def ended(uid: str, began: int, end: int, **other: object) -> Allocation:
    return replace(ENTRY, uid=uid, began=began, ended=end, **other)  # type: ignore[arg-type]  # a test's shorthand


def test_messages_keep_every_field() -> None:
    for entry in (ENTRY, ended("u", 5, 9, cause="preemption", lost_from=7, kind=HELD)):
        assert of_message(to_message(entry)) == entry


def test_a_first_copy_and_further_ones(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(history_pages, "PAGE_BYTES", 1000)
    leader, standby = pair
    leader.store.record([ended(f"u{at}", at, at + 5) for at in range(50)], 1.0)
    leader.store.record([replace(ENTRY, uid="going-on", began=3)], 1.0)
    for minute in range(1, 20):
        leader.store.add_picture(60 * minute, b"s", b"p" * 400 + bytes([minute]))
    copier = standby.copy_of(leader)
    assert standby.rows() == leader.rows()
    assert standby.pictures() == leader.pictures()
    assert len(standby.pictures()) == 19
    now = round(time.time() * 1000)
    leader.store.record([ended("going-on", 3, now), replace(ENTRY, uid="new", began=now)], 2.0)
    leader.store.add_picture(1200, b"s", b"later")
    copier.copy()
    assert standby.rows() == leader.rows()
    assert standby.pictures() == leader.pictures()
    assert copier.rounds == 2
    assert abs(standby.store.alive() - now) < 60_000


def test_what_ended_while_nobody_copied(pair: tuple[Replica, Replica]) -> None:
    """The former leader has an allocation open of which the leader knows nothing, and one that ended long ago."""
    leader, standby = pair
    standby.store.record([replace(ENTRY, uid="lost"), replace(ENTRY, uid="same")], 10_000.0)
    leader.store.record([replace(ENTRY, uid="same", model="B200")], 20_000.0)
    leader.store.record([replace(ENTRY, uid="held", kind=HELD, began=15_000_000)], 20_000.0)
    standby.copy_of(leader)
    found = {row[0]: (row[6], row[9]) for row in standby.rows()}
    assert found == {"lost": ("H100", 10_000_000), "same": ("B200", None), "held": ("H100", None)}


def test_one_pod_has_one_interval_whoever_led(pair: tuple[Replica, Replica]) -> None:
    """The standby believed that it goes on since another time."""
    leader, standby = pair
    standby.store.record([replace(ENTRY, began=1000)], 5.0)
    leader.store.record([replace(ENTRY, began=2000)], 6.0)
    copier = standby.copy_of(leader)
    assert [row[8:10] for row in standby.rows()] == [(2000, None)]
    now = round(time.time() * 1000)
    leader.store.record([ended("u", 2000, now)], 7.0)
    copier.copy()
    assert [row[8:10] for row in standby.rows()] == [(2000, now)]


def test_a_copy_that_is_interrupted_goes_on(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "ROWS_AT_ONCE", 10)
    leader, standby = pair
    leader.store.record([ended(f"u{at:02}", at, at + 5) for at in range(50)], 1.0)

    class Broken:
        calls = 0

        def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage:
            Broken.calls += 1
            if Broken.calls == 3:
                raise NoAnswer("gone")
            return leader.pages.allocations(after_row, ended_since)

        def pictures(self, after: int) -> pb.PicturePage:
            return leader.pages.pictures(after)

    copier = HistoryCopier(standby.store, lambda: nullcontext(Broken()))
    with pytest.raises(NoAnswer):
        copier.copy()
    assert len(standby.rows()) == 20
    assert copier.lag
    copier.copy()
    assert standby.rows() == leader.rows()
    assert not copier.lag


def test_readiness_waits_for_the_copy_but_not_for_ever(tmp_path: Path) -> None:
    now = 0.0
    store = HistoryStore(str(tmp_path / "h.db"), MIB, time.time)

    def leader(error: Exception) -> Callable[[], AbstractContextManager[LeaderHistory]]:
        def link() -> AbstractContextManager[LeaderHistory]:
            raise error

        return link

    away = HistoryCopier(store, leader(NoAnswer("away")), clock=lambda: now)
    away._contained()
    assert "is being copied" in away.lag
    now = history_copier.PATIENCE_S + 1
    assert not away.lag
    none = HistoryCopier(store, leader(NothingToCopy("keeps none")), clock=lambda: now)
    assert none.lag
    none._contained()
    assert not none.lag
    store.close()


LOCKING = """
import sys, time
from central.server.history.history_store import HistoryLocked, HistoryStore
try:
    HistoryStore(sys.argv[1], 16 << 20, time.time)
except HistoryLocked as error:
    print(error)
"""


def test_two_writers_are_impossible(tmp_path: Path) -> None:
    """Of two processes and of one; the lock of a process that is gone is free."""
    file = tmp_path / "h.db"
    first = HistoryStore(str(file), MIB, time.time)
    with pytest.raises(HistoryLocked, match=r"another process writes it \(h.db.lock\)"):
        HistoryStore(str(file), MIB, time.time)
    command = [sys.executable, "-c", LOCKING, str(file)]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert "another process writes it" in done.stdout, done.stderr
    first.close()
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert (done.stdout, done.returncode) == ("", 0)
    HistoryStore(str(file), MIB, time.time).close()


def test_a_picture_that_is_too_large_is_left_out(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "PICTURE_BYTES", 1000)
    leader, standby = pair
    for at, size in ((60, 10), (120, 2000), (180, 10)):
        leader.store.add_picture(at, b"s", b"p" * size)
    standby.copy_of(leader)
    assert [at for at, _ in standby.pictures()] == [60, 180]


def test_a_smaller_file_keeps_the_newest(tmp_path: Path) -> None:
    leader, standby = Replica(tmp_path / "a.db"), Replica(tmp_path / "b.db", mib=1)
    for minute in range(1, 41):
        leader.store.add_picture(60 * minute, b"s", os.urandom(50_000))
    standby.copy_of(leader)
    assert 0 < len(standby.pictures()) < 40
    assert standby.pictures()[-1] == leader.pictures()[-1]
    leader.store.close()
    standby.store.close()


def test_a_stop_waits_for_no_answer_and_nothing_is_written_after_it(
    pair: tuple[Replica, Replica],
) -> None:
    leader, standby = pair
    leader.store.record([replace(ENTRY, uid="one")], 1.0)
    asked, answer = threading.Event(), threading.Event()

    class Hanging:
        def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage:
            asked.set()
            answer.wait(60)
            return leader.pages.allocations(after_row, ended_since)

        def pictures(self, after: int) -> pb.PicturePage:
            return leader.pages.pictures(after)

    copier = HistoryCopier(standby.store, lambda: nullcontext(Hanging()))
    copier.start()
    assert asked.wait(60)
    copier.stop()  # returns although the leader has not answered
    answer.set()
    copier._thread.join(60)
    assert not copier._thread.is_alive()
    assert standby.rows() == []
