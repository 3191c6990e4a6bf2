"""A sample of the golden journals, which `make golden` replays all, and what a replay shows of a change.

Decisions that change on purpose are recorded anew: see docs/contributing.md, "Decisions that change".
"""

import lzma
import re
from pathlib import Path

import pytest

from central.scheduler import cycle
from central.scheduler.queues import order
from central.scheduler.state.gangs import Gang, GangKey
from central.server import replay
from tests.golden import play, stories
from tests.golden.recorder import recording

MOST_BYTES = 15 << 20  # of the repository
GROUPS = [file for file in play.FILES if file.name.endswith("-00.journal.xz")]
# Long days are busy days, with more of each.
SAMPLE = [
    pytest.param(file, marks=[pytest.mark.nightly] if file.name.startswith("long-") else [])
    for file in GROUPS
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("file", SAMPLE, ids=lambda file: file.name.partition(".")[0])
def test_the_first_file_of_each_group_decides_the_same(file: Path) -> None:
    assert play.difference(file) == ""


def test_there_are_journals_of_each_group() -> None:
    assert {file.name.partition("-")[0] for file in GROUPS} == {*stories.groups()}
    assert sum(file.stat().st_size for file in play.FILES) < MOST_BYTES


def swapped(gang: Gang) -> tuple[int, int, float, GangKey]:
    """As order.rank(), but for one sign."""
    minus_priority, *rest = RANK(gang)
    return (-minus_priority, *rest)  # type: ignore[return-value]  # mypy loses the types of a starred tuple


RANK = order.rank
SHOWN = re.compile(
    r"x.journal: decisions differ: day of claims 0: cycle \d+ \(line (?P<line>\d+), now [\d.]+, \d+ facts\), "
    r"decision \d+:\n  then: (?P<then>.+)\n  now:  (?P<now>.+)"
)


def recorded(folder: Path, number: int) -> Path:
    story = stories.groups()["claims"][number]
    with recording(story.name, stories.MODULES) as recorder:
        story.play()
    file = folder / "x.journal"
    file.write_bytes(b"".join(recorder.journals()))
    return file


def test_a_swapped_comparison_is_shown_at_the_first_cycle_that_decides_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = recorded(tmp_path, 0)
    cycles = replay.replay(str(file)).cycles
    monkeypatch.setattr(order, "rank", swapped)
    shown = SHOWN.fullmatch(play.difference(file))
    assert shown is not None
    assert shown["then"] != shown["now"]
    line = int(shown["line"])
    before = tmp_path / "before.journal"
    before.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[: line - 1]))
    assert 0 < replay.replay(str(before)).cycles < cycles


def test_journals_of_one_file_are_told_apart(tmp_path: Path) -> None:
    text = recorded(tmp_path, 0).read_bytes() + recorded(tmp_path, 1).read_bytes()
    head, bind, tail = text.rpartition(b'["Bind",')
    file = tmp_path / "both.journal.xz"
    file.write_bytes(lzma.compress(text))
    assert play.difference(file, wording=True) == ""
    file.write_bytes(lzma.compress(head + bind + tail.replace(b'"node":"n', b'"node":"x', 1)))
    assert "both.journal.xz: decisions differ: day of claims 1: cycle " in play.difference(file)


def test_a_cycle_that_raises_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*of: object) -> None:
        raise MemoryError

    file = recorded(tmp_path, 0)
    monkeypatch.setattr(cycle, "schedule_once", fails)
    assert "MemoryError" in play.difference(file)
