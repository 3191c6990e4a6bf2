"""What processes of a launcher write of their steps, and what the launcher reads."""

import os
import sys
from pathlib import Path

import pytest

from agent.train import step_file
from agent.train.client import CoordinatorClient
from agent.train.generation_lease import GenerationLease
from agent.train.step_file import STEP_FILE, Progress, StepFile, parse, progress, write_step


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"4180\n", Progress(4180)),
        (b"4180", Progress(4180)),
        (b" 7 300 \n", Progress(7, 300)),
        (b"7 300 20000\n", Progress(7, 300, 20000)),
        (b"7 300 0", Progress(7, 300, 0)),
        (b"999999999999999", Progress(999999999999999)),
        (b"9999999999999999", None),
        (b"", None),
        (b"-3", None),
        (b"1.5", None),
        (b"1e3", None),
        (b"1 2 3 4500", Progress(1, 2, 3, 4.5)),
        (b"1 2 - 4500", Progress(1, 2, None, 4.5)),
        (b"1 - 3", None),
        (b"1 2 3 4 5", None),
        (b"step 4", None),
        (b"4\n5\n", None),
        (b"4 \0", None),
        ("٣".encode(), None),
        (b"7" + b" " * 249 + b"\n", Progress(7)),
        (b"7" + b" " * 300, None),
    ],
)
def test_a_line(line: bytes, found: Progress | None) -> None:
    assert parse(line) == found


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepFile:
    monkeypatch.setenv(STEP_FILE, "")
    return StepFile.begin(
        str(tmp_path), 3, GenerationLease(CoordinatorClient("http://127.0.0.1:1"))
    )


def as_rank(monkeypatch: pytest.MonkeyPatch, local_rank: int) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))


def test_nothing_is_known_before_a_process_says_it(steps: StepFile) -> None:
    assert steps.progress() is None
    Path(os.environ[STEP_FILE]).touch()
    assert steps.progress() is None, "a step was taken, its number is unknown"


def test_records_of_several_processes_add_up(
    steps: StepFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for local_rank, step in ((0, 8), (1, 9), (2, 7)):
        as_rank(monkeypatch, local_rank)
        write_step(step, 10 * step, 1000 - step)
    assert steps.progress() == Progress(9, 240, 991)


def test_of_several_processes_the_slowest_counts(
    steps: StepFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for local_rank, own_s in ((0, 1.25), (1, 3.5), (2, 0.0)):
        as_rank(monkeypatch, local_rank)
        write_step(9, 10, None, own_s)
    assert steps.progress() == Progress(9, 30, None, 3.5)


def test_a_shorter_line_leaves_nothing_of_a_longer_one(
    steps: StepFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0)
    write_step(10**14, 10**14, 10**14)
    assert steps.progress() == Progress(10**14, 10**14, 10**14)
    write_step(1)
    assert steps.progress() == Progress(1)


def test_another_generation_has_its_own_steps(
    steps: StepFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0)
    write_step(8)
    old = os.environ[STEP_FILE]
    lease = GenerationLease(CoordinatorClient("http://127.0.0.1:1"))
    newer = StepFile.begin(str(tmp_path), 30, lease)
    assert os.environ[STEP_FILE] != old
    assert newer.progress() is None
    assert (newer.generation, steps.generation) == (30, 3)
    write_step(2)
    assert (newer.progress(), steps.progress()) == (Progress(2), Progress(8))


def test_a_step_is_a_sign_of_life(steps: StepFile, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100, 10_000, 100))
    client = CoordinatorClient("http://127.0.0.1:1")
    client.answered_at = 0.0
    lease = GenerationLease(client, lambda: float(next(times)))
    monkeypatch.setattr(steps, "_lease", lease)
    assert not steps.cut_off(), "no process has taken a step"
    as_rank(monkeypatch, 1)
    write_step(1)
    assert lease.expired()
    steps.refresh()
    assert not lease._first, "seen"
    assert steps.cut_off(), "100 s without a step, and without an answer"


def test_what_is_no_number_is_said_once(steps: StepFile, capfd: pytest.CaptureFixture[str]) -> None:
    Path(os.environ[STEP_FILE]).write_text("epoch 3\n")
    assert [steps.progress(), steps.progress()] == [None, None]
    said = capfd.readouterr().err
    assert said.count("LOCKSTEP_STEP_FILE: b'epoch 3\\n' is not STEP [RECORDS [LEFT]]") == 1
    Path(os.environ[STEP_FILE]).write_text("5\n")
    assert steps.progress() == Progress(5), "it is read again"


def test_a_huge_file_and_many_files_are_bounded(steps: StepFile) -> None:
    file = Path(os.environ[STEP_FILE])
    with file.open("wb") as big:
        big.truncate(1 << 40)  # a hole: reading it all would never end
    assert steps.progress() is None
    file.write_text("5\n")
    for number in range(1500):
        Path(f"{file}.{number}").write_text("1 1\n")
    found = steps.progress()
    assert found is not None
    assert found.records <= step_file._MOST_FILES


def test_a_folder_that_is_gone_ends_nobody(
    steps: StepFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (tmp_path / "generation-3").iterdir():
        each.unlink()
    (tmp_path / "generation-3").rmdir()
    as_rank(monkeypatch, 0)
    write_step(5)
    assert steps.progress() is None
    steps.refresh()


def test_without_a_launcher_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STEP_FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    progress(4, records=5)
    assert list(tmp_path.iterdir()) == []


class Index:
    """As numpy's integers."""

    def __index__(self) -> int:
        return 12


def test_progress_of_a_script(steps: StepFile, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0)
    progress(4)
    assert steps.progress() == Progress(4)
    progress(Index(), records=96)  # type: ignore[arg-type]
    assert steps.progress() == Progress(12, 96)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((-1,), "step must be from 0 to 10\\^15, not -1"),
        ((10**15,), "step must be from 0"),
        ((1.5,), "step must be a whole number, not 1.5"),
        (("4",), "step must be a whole number, not '4'"),
        ((4, float("nan")), "records must be a whole number, not nan"),
        ((4, -2), "records must be from 0"),
    ],
)
def test_progress_that_is_none(steps: StepFile, arguments: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"progress: {sentence}"):
        progress(*arguments)
    assert steps.progress() is None, sys.argv
