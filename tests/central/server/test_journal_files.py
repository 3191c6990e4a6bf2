"""The files of a journal: their lines, their rotation, and disks that are full."""

import io
import os
from pathlib import Path
from typing import IO, Any, cast

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import EmitWarning
from central.model.facts import Fact, PodGone
from central.scheduler.scheduler import Scheduler
from central.server import codec, journal
from central.server.journal import Journal
from central.server.version import version
from tests.central import factories
from tests.central.server.test_journal import FULL, lines


def test_each_entry_is_a_line(tmp_path: Path) -> None:
    file, scheduler = tmp_path / "x.journal", new_scheduler(("rack",))
    facts: list[Fact] = [PodGone("u")]
    gone = [["PodGone", {"uid": "u"}]]
    warning = EmitWarning(*["x"] * len(EmitWarning.__match_args__))
    kept = Journal(file, scheduler)
    kept.learn(1.5, [])
    kept.learn(1.5, facts)
    kept.turn(2.0, [])
    kept.decided([])
    kept.turn(3.0, facts)
    kept.cut(4)
    kept.interrupted(5)
    kept.decided([warning])
    kept.close()
    kept.close()
    kept.turn(4.0, facts)
    head, *rest = lines(file)
    assert (head["journal"], head["version"]) == (2, version())
    assert head["settings"] == journal.settings(scheduler)
    assert head["settings"]["levels"] == ["rack"]
    assert rest[:-1] == [
        {"learn": [1.5, gone]},
        {"turn": [2.0, []]},
        {"turn": [3.0, gone]},
        {"cut": 4},
        {"interrupted": 5},
    ]
    assert codec.untagged(rest[-1]["decided"]) == [warning]


def run(file: Path, *cycles: float) -> str:
    """A run with these cycles. Returns what it wrote."""
    kept = Journal(file, new_scheduler())
    for now in cycles:
        kept.turn(now, [])
    kept.close()
    return file.read_text()


def test_the_file_of_the_last_run_survives_two_starts(tmp_path: Path) -> None:
    file, older, oldest = (tmp_path / name for name in ("x.journal", "x.journal.1", "x.journal.2"))
    first, second = run(file, 1.0), run(file, 2.0)
    assert older.read_text() == first
    third = run(file, 3.0)
    assert [each.read_text() for each in (file, older, oldest)] == [third, second, first]
    assert len({first, second, third}) == 3
    run(file, 4.0)
    assert [each.read_text() for each in (older, oldest)] == [third, second]
    assert len(list(tmp_path.iterdir())) == 3


def test_the_last_run_stays_while_this_one_is_rotated(tmp_path: Path) -> None:
    file, older, oldest = (tmp_path / name for name in ("x.journal", "x.journal.1", "x.journal.2"))
    first = run(file, 1.0)
    kept = Journal(file, new_scheduler(), most_bytes=1)
    for number in range(5):
        inode = file.stat().st_ino
        while file.stat().st_ino == inode:
            kept.turn(2.0 + number, [])
        assert oldest.read_text() == first
        assert older.stat().st_ino == inode
    kept.close()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_start_that_records_nothing_replaces_no_older_file(tmp_path: Path) -> None:
    file = tmp_path / "x.journal"
    first = run(file, 1.0)
    for _ in range(3):
        run(file)
    file.write_text("")
    run(file)
    assert (tmp_path / "x.journal.1").read_text() == first
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_is_rotated_above_its_size_and_never_soon_after_a_checkpoint(tmp_path: Path) -> None:
    file, older = tmp_path / "x.journal", tmp_path / "x.journal.1"
    scheduler = new_scheduler()
    Journal(file, scheduler).close()
    begun, line = file.stat().st_size, len(b'{"turn":[1.0,[]]}\n')
    most = begun + 3 * line
    kept = Journal(file, scheduler, most)
    for _ in range(4):
        kept.turn(1.0, [])
    assert file.stat().st_size == most + line
    assert not older.exists(), "a file of the very size is not above it"
    kept.turn(1.0, [])
    assert older.stat().st_size == most + line
    assert list(lines(file)[1]) == ["checkpoint"]
    most = max(most, 2 * (file.stat().st_size - line))
    last = older.stat().st_ino
    while older.stat().st_ino == last:
        kept.turn(1.0, [])
    assert most < older.stat().st_size <= most + line
    kept.close()


def test_a_file_that_cannot_be_rotated_ends_the_journal_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    kept = Journal(folder / "x.journal", new_scheduler(), 10)
    folder.rename(tmp_path / "away")
    for now in (1.0, 2.0):
        kept.turn(now, [])
    kept.decided([])
    kept.close()
    [record] = caplog.records
    assert record.message == (
        f"journal {folder}/x.journal: No such file or directory; recording stopped"
    )


class Elsewhere(Journal):
    """Its file is this one."""

    def __init__(self, file: IO[bytes], scheduler: Scheduler, most_bytes: int = 1 << 20) -> None:
        self._given = file
        super().__init__("x", scheduler, most_bytes)

    def _open(self) -> IO[bytes]:
        return self._given


def test_a_full_disk_ends_the_journal_only(caplog: pytest.LogCaptureFixture) -> None:
    with FULL.open("wb", buffering=0) as file:
        kept = Elsewhere(file, new_scheduler())
        kept.turn(0.0, [factories.node("a")])
        kept.turn(1.0, [])
        kept.decided([])
    assert [record.message for record in caplog.records] == [
        "journal x: No space left on device; recording stopped"
    ]


class Short(io.BytesIO):
    """Takes the beginning of a line, as a disk does that becomes full."""

    written: list[bytes]

    def write(self, data: Any) -> int:
        self.written.append(data[:7])
        return 7


def test_a_line_that_was_written_in_part_is_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    file, written = Short(), list[bytes]()
    file.written = written
    kept = Elsewhere(file, new_scheduler())
    kept.turn(0.0, [])
    kept.turn(1.0, [])
    assert written == [b'{"turn"']
    assert "No space left on device; recording stopped" in caplog.text


def test_a_device_keeps_its_name() -> None:
    with pytest.raises(OSError, match="No space left"):
        Journal(FULL, new_scheduler())
    assert FULL.is_char_device()
    Journal(os.devnull, new_scheduler()).close()
    assert Path(os.devnull).is_char_device()


def test_a_bug_in_recording_ends_the_journal_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a state that cannot be written. What was recorded stays in its place."""
    file, scheduler = tmp_path / "x.journal", new_scheduler()
    kept = Journal(file, scheduler, most_bytes=1)
    scheduler.queue_statuses.stale = cast("bool", object())
    kept.turn(1.0, [])
    kept.turn(2.0, [])
    assert [*tmp_path.iterdir()] == [file]
    assert len(lines(file)) == 1
    [record] = caplog.records
    assert record.message.startswith(f"journal {file}: a bug (")
    assert record.exc_info
    unwritable = Journal(file, new_scheduler())
    unwritable.decided(
        [EmitWarning(*cast("list[str]", [object()] * len(EmitWarning.__match_args__)))]
    )
    unwritable.turn(3.0, [])
    assert len(lines(file)) == 1
