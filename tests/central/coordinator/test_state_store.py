"""The file in which a coordinator's state is stored: what comes back, whose it is, and what cannot be read."""

import sqlite3
import zlib
from pathlib import Path

import pytest

from central.controllers.training.stored_state import UnreadableState
from central.coordinator import state_store
from central.coordinator.state_store import CannotStore, Fenced, FileStore, NoStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a" / "b" / "state.db"


def test_what_is_saved_is_there_in_the_next_run(file: Path) -> None:
    store = FileStore(str(file))
    assert store.load() == {}
    store.save(1, {"tasks": {"q": [1, 2]}, "members": {"a": None}})
    store.save(1, {"tasks": {"q": [3]}})
    assert store.load() == {"tasks": {"q": [3]}, "members": {"a": None}}
    store.close()
    store.close()
    assert store.load() == {"tasks": {"q": [3]}, "members": {"a": None}}, "it is opened again"
    assert FileStore(str(file)).load() == store.load()


def test_of_two_coordinators_the_later_one_writes(file: Path) -> None:
    first, second = FileStore(str(file)), FileStore(str(file))
    first.save(5, {"a": {"v": 1}})
    second.save(5, {"a": {"v": 2}})
    second.save(6, {"a": {"v": 3}})
    with pytest.raises(Fenced, match=f"{file} is used by a coordinator that started later"):
        first.save(5, {"a": {"v": 4}, "b": {"v": 5}})
    assert first.load() == {"a": {"v": 3}}, "nothing of it"
    first.save(7, {"a": {"v": 6}})
    assert second.load() == {"a": {"v": 6}}


def test_a_file_that_another_process_holds(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "_TIMEOUT_S", 0.01)
    store = FileStore(str(file))
    store.save(1, {"a": {"v": 1}})
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CannotStore, match="locked"):
        store.save(1, {"a": {"v": 2}})
    other.execute("ROLLBACK")
    other.close()
    store.save(1, {"a": {"v": 3}})
    assert store.load() == {"a": {"v": 3}}


def test_what_is_no_store(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 4096)
    with pytest.raises(UnreadableState, match="not a database; move the file away"):
        FileStore(str(file)).load()
    with pytest.raises(CannotStore, match="not a database"):
        FileStore(str(file)).save(1, {})
    with pytest.raises(CannotStore):
        FileStore(str(file.parent)).load()
    with pytest.raises(CannotStore):
        FileStore(str(file / "below")).load()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"no zlib at all", "section a: "),
        (zlib.compress(b"{"), "section a: "),
        (zlib.compress(b"[1]")[:-2], "section a is cut off"),
        (zlib.compress(b'"' + b"x" * 99 + b'"'), "above 100 bytes"),
    ],
)
def test_a_section_that_cannot_be_read(
    file: Path, body: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_store, "MOST_SECTION", 100)
    store = FileStore(str(file))
    store.save(1, {"a": {"v": "x" * 90}})
    assert store.load() == {"a": {"v": "x" * 90}}
    with sqlite3.connect(file) as other:
        other.execute("UPDATE section SET body = ?", (body,))
    other.close()
    with pytest.raises(UnreadableState, match=says):
        store.load()


def test_without_a_store_nothing_is_kept() -> None:
    store = NoStore()
    store.save(1, {"a": {"v": 1}})
    assert store.load() == {}
    store.close()
    assert (store.durable, FileStore("x").durable) == (False, True)
