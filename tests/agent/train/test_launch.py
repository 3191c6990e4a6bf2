"""lockstep-launch with real processes and a real coordinator."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.train import launch
from agent.train.bundle import bundle
from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.fakes.processes import wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WITHIN_S = 60.0
# Notes its environment in a file of its own, then waits for the word in the file "end".
CHILD = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
if sys.argv[2:] == ["stubborn"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
name = "g{LOCKSTEP_GENERATION}-m{LOCKSTEP_MEMBER}-l{LOCAL_RANK}".format(**os.environ)
new = folder / (name + ".new")
new.write_text(json.dumps({**os.environ, "PID": os.getpid()}))
new.rename(folder / (name + ".json"))
while not (folder / "end").exists():
    time.sleep(0.05)
word = (folder / "end").read_text()
print("the last line", word, file=sys.stderr)
sys.exit(int(word))
"""


class Members:
    """Launchers of several members, and what their processes noted."""

    def __init__(self, running: RunningCoordinator, folder: Path) -> None:
        self.running, self.folder = running, folder
        self.launchers: dict[int, subprocess.Popen[str]] = {}
        (folder / "child.py").write_text(CHILD)

    def start(self, member: int, *flags: str, child: tuple[str, ...] = ()) -> None:
        command = [sys.executable, "-m", "lockstep_train.launch", *flags, "--", sys.executable]
        command += [str(self.folder / "child.py"), str(self.folder), *child]
        self.launchers[member] = subprocess.Popen(
            command, env=self.running.environment(member), stderr=subprocess.PIPE, text=True
        )

    def noted(self, size: int) -> list[dict[str, Any]]:
        """What the processes of the newest generation of that size noted, by rank; waits until it is whole."""
        found: dict[int, dict[str, Any]] = {}

        def whole() -> bool:
            found.clear()
            every = [json.loads(each.read_text()) for each in self.folder.glob("g*.json")]
            every = [each for each in every if each["WORLD_SIZE"] == str(size)]
            newest = max((int(each["LOCKSTEP_GENERATION"]) for each in every), default=0)
            for each in every:
                if each["LOCKSTEP_GENERATION"] == str(newest):
                    found[int(each["RANK"])] = each
            return len(found) == size

        wait_for(whole, f"{size} processes")
        return [found[rank] for rank in range(size)]

    def exit_code(self, member: int) -> tuple[int, str]:
        launcher = self.launchers[member]
        _, errors = launcher.communicate(timeout=WITHIN_S)
        return launcher.returncode, errors

    def end(self, code: int) -> None:
        (self.folder / "end.new").write_text(str(code))
        (self.folder / "end.new").rename(self.folder / "end")


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {WITHIN_S:.0f} s"
        time.sleep(0.05)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    (tmp_path / "notes").mkdir()
    with coordinator(tmp_path) as running:
        made = Members(running, tmp_path / "notes")
        yield made
        for launcher in made.launchers.values():
            launcher.kill()
            launcher.communicate()
        for note in (tmp_path / "notes").glob("g*.json"):
            pid = json.loads(note.read_text())["PID"]
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


def test_processes_start_again_with_each_size(members: Members) -> None:
    members.start(0, "--nproc=2")
    first = members.noted(2)
    assert [each["LOCAL_RANK"] for each in first] == ["0", "1"]
    members.start(1, "--nproc=2")
    second = members.noted(4)
    assert [each["LOCKSTEP_MEMBER"] for each in second] == ["0", "0", "1", "1"]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in second}) == 1
    assert {each["LOCAL_WORLD_SIZE"] for each in second} == {"2"}
    assert second[0]["MASTER_PORT"] != first[0]["MASTER_PORT"]
    assert not any(psutil.pid_exists(each["PID"]) for each in first), (
        "processes of two generations at once"
    )
    members.launchers[1].send_signal(signal.SIGTERM)
    assert members.exit_code(1)[0] == launch.TERMINATED
    for note in members.folder.glob("g1-*.json"):
        note.unlink()
    third = members.noted(2)
    assert int(third[0]["LOCKSTEP_GENERATION"]) > int(second[0]["LOCKSTEP_GENERATION"])
    members.end(0)
    assert members.exit_code(0)[0] == 0


def test_a_failure_is_the_members_exit_code_and_is_reported(members: Members) -> None:
    members.start(0)
    members.noted(1)
    members.end(7)
    code, errors = members.exit_code(0)
    assert code == 7
    assert "the last line 7" in errors
    assert "ended with code 7" in errors


def test_a_process_that_ignores_sigterm_is_killed(members: Members) -> None:
    members.start(0, "--stop-wait=1", child=("stubborn",))
    (before,) = members.noted(1)
    members.start(1, "--stop-wait=1")
    members.noted(2)
    assert not psutil.pid_exists(before["PID"])


def test_a_killed_launcher_takes_its_processes_along(members: Members) -> None:
    """Those that ignore SIGTERM, too."""
    members.start(0, "--nproc=2", "--stop-wait=1", child=("stubborn",))
    killed = [each["PID"] for each in members.noted(2)]
    assert len(killed) == 2
    members.launchers[0].kill()
    wait_gone(killed)


def test_the_bundle_is_the_launcher_and_the_package(members: Members, tmp_path: Path) -> None:
    file = tmp_path / "lockstep-launch"
    file.write_bytes(bundle())
    assert bundle() == file.read_bytes()
    environment = members.running.environment(0, PYTHONPATH=str(file))
    script = "import lockstep_train as lt, os; print(lt.Order, os.environ['RANK'])"
    command = [sys.executable, str(file), "--", sys.executable, "-c", script]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "<class 'lockstep_train.order.Order'> 0\n"), (
        run.stderr
    )
