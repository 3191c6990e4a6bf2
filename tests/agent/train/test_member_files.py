"""A member that reads in its files that it leaves, without a coordinator."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.train import job, member_files, stop_signal
from agent.train.sources import NoChange
from agent.train.world import World
from tests.fakes.eventually import eventually

WITHIN_S = 30.0
# Says that it runs, and what signal ended it.
CHILD = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(*_):
    (folder / "ended").write_text("SIGTERM")
    sys.exit(int(sys.argv[2]))
signal.signal(signal.SIGTERM, end)
(folder / "runs").write_text("")
while not (folder / "end").exists():
    time.sleep(0.05)
sys.exit(int((folder / "end").read_text()))
"""


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"true", True),
        (b"true\n", True),
        (b"", False),
        (b"false", False),
        (b"truest", False),
        (b"\xff\xfe" * 5_000_000, False),
    ],
)
def test_the_file_says_whether_it_leaves(tmp_path: Path, content: bytes, found: bool) -> None:
    (tmp_path / "leaving").write_bytes(content)
    environ = {"LOCKSTEP_FILES": str(tmp_path)}
    assert member_files.leaves(environ) is found
    with_coordinator = {**environ, "LOCKSTEP_COORDINATOR": "https://c:28700"}
    assert member_files.leaves(with_coordinator) is False


def test_without_files_nobody_leaves(tmp_path: Path) -> None:
    assert member_files.leaves({}) is False
    assert member_files.leaves({"LOCKSTEP_FILES": str(tmp_path)}) is False
    (tmp_path / "leaving").mkdir()
    assert member_files.leaves({"LOCKSTEP_FILES": str(tmp_path)}) is False


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LOCKSTEP_COORDINATOR", raising=False)
    monkeypatch.setenv("LOCKSTEP_FILES", str(tmp_path))
    return tmp_path


def test_a_training_loop_ends_after_the_step(folder: Path) -> None:
    world = World(NoChange())
    assert not world.over(1)
    (folder / "leaving").write_text("true")
    assert world.over(2)


def test_a_script_may_ask(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    installed = set(stop_signal._installed)
    try:
        assert job.stopping() is False
        (folder / "leaving").write_text("true")
        assert job.stopping() is True
    finally:
        signal.signal(signal.SIGTERM, before)
        stop_signal._installed.clear()
        stop_signal._installed.update(installed)


def launched(folder: Path, *flags: str, code: int = 0) -> "subprocess.Popen[bytes]":
    (folder / "child.py").write_text(CHILD)
    command = [sys.executable, "-m", "lockstep_train.launch", *flags, "--", sys.executable]
    child = subprocess.Popen(
        [*command, str(folder / "child.py"), str(folder), str(code)], env=dict(os.environ)
    )
    eventually((folder / "runs").exists, WITHIN_S)
    return child


@pytest.mark.parametrize("code", [0, 3])
def test_the_launcher_ends_its_process_and_is_done(folder: Path, code: int) -> None:
    """Whatever the process ends with: its container must not be started again."""
    launcher = launched(folder, code=code)
    (folder / "leaving").write_text("true")
    assert launcher.wait(WITHIN_S) == 0
    assert (folder / "ended").read_text() == "SIGTERM"


@pytest.mark.parametrize("code", [0, 7])
def test_the_launcher_passes_the_exit_code_on(folder: Path, code: int) -> None:
    launcher = launched(folder)
    (folder / "end").write_text(str(code))
    assert launcher.wait(WITHIN_S) == code


def test_the_launcher_passes_sigterm_on(folder: Path) -> None:
    launcher = launched(folder)
    launcher.terminate()
    assert launcher.wait(WITHIN_S) == 143
    assert (folder / "ended").read_text() == "SIGTERM"
