"""Members check their pairs before their processes start, with real launchers and a real coordinator. Where this
Python has no PyTorch, plain sockets stand in for NCCL."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.train import launch, pair_check
from agent.train.generation import LIVE, Generation, MemberSeen
from agent.train.launch import TRY_AGAIN
from tests.agent.train.coordinators import RunningCoordinator, coordinator, free_port
from tests.agent.train.test_launch import Members
from tests.agent.train.torch_training import NAMED

# Stands for hardware: what a process of the check receives comes in small pieces, late ("slow") or never ("dead");
# or the check does not run at all ("crash").
HARDWARE = """
import _socket, os, socket, sys, threading, time
fault = os.environ.get("FAULT")
if fault and any("pair_check" in each for each in sys.orig_argv):
    if fault == "crash":
        os._exit(3)

    def recv(self, count, *flags):
        if fault == "dead":
            threading.Event().wait()
        time.sleep(0.01)
        return _socket.socket.recv(self, min(count, 1 << 16), *flags)
    socket.socket.recv = recv
"""


class Checked(Members):
    """Members of which one has a fault."""

    def __init__(self, running: RunningCoordinator, folder: Path, stack: ExitStack) -> None:
        super().__init__(running, folder)
        self._stack = stack
        (running.folder / "sitecustomize.py").write_text(HARDWARE)

    def begin(self, member: int, *, fault: str = "", nproc: int = 1) -> None:
        command = [sys.executable, "-m", "lockstep_train.launch", f"--nproc={nproc}", "--"]
        command += [sys.executable, str(self.folder / "child.py"), str(self.folder)]
        environment = self.running.environment(member, FAULT=fault)
        self.launchers[member] = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True
        )

    def status(self) -> Any:
        return self.running.get("/v1/status")


def members(folder: Path, stack: ExitStack, *flags: str) -> Checked:
    (folder / "notes").mkdir()
    running = stack.enter_context(coordinator(folder, "--gather=2", *flags))
    made = Checked(running, folder / "notes", stack)
    stack.callback(end, made)
    return made


def end(made: Members) -> None:
    for launcher in made.launchers.values():
        launcher.send_signal(signal.SIGTERM)
    for launcher in made.launchers.values():
        launcher.communicate(timeout=60)


slow = pytest.mark.slow


@slow
@pytest.mark.timeout(240)
def test_healthy_members_start_after_their_check(tmp_path: Path, stack: ExitStack) -> None:
    made = members(tmp_path, stack, "--preflight=60", "--most=3", "--least=3")
    for member in range(3):
        made.begin(member, nproc=2)
    assert len({each["LOCKSTEP_GENERATION"] for each in made.noted(6)}) == 1
    assert made.status()["pairs"] == {"why": "", "members": []}


@slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", ["slow", "dead"])
def test_a_weak_member_is_named_and_replaced_before_anybody_trains(
    tmp_path: Path, stack: ExitStack, fault: str
) -> None:
    """Its processes never start; those of the others do, without it."""
    within_s = 60 if fault == "slow" else 8
    made = members(tmp_path, stack, f"--preflight={within_s}", "--most=4", "--least=3")
    for member in range(4):
        made.begin(member, fault=fault if member == 2 else "")
    noted = made.noted(3)
    assert {each["LOCKSTEP_MEMBER"] for each in noted} == {"0", "1", "3"}
    assert not [*made.folder.glob("*-m2-*")]
    status = made.status()
    assert status["pairs"]["members"] == [2]
    assert ("times as long" if fault == "slow" else "do not reach") in status["pairs"]["why"]
    assert status["failures"][-1]["code"] == 76
    launcher = made.launchers.pop(2)
    launcher.send_signal(signal.SIGTERM)  # the scheduler deletes its pod
    _, errors = launcher.communicate(timeout=60)
    assert "its pairs failed the check, so another pod takes its place" in errors
    assert launcher.returncode in (TRY_AGAIN, launch.TERMINATED)
    made.begin(2)
    assert {each["LOCKSTEP_MEMBER"] for each in made.noted(4)} == {"0", "1", "2", "3"}


@slow
@pytest.mark.timeout(240)
def test_a_check_that_cannot_be_made_stops_nobody(tmp_path: Path, stack: ExitStack) -> None:
    made = members(tmp_path, stack, "--preflight=60", "--most=2", "--least=2")
    for member in range(2):
        made.begin(member, fault="crash")
    made.noted(2)
    assert made.status()["pairs"] == {"why": "", "members": []}


@slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(not os.environ.get(NAMED), reason=f"needs {NAMED}")
def test_pytorch_reduces_in_pairs(tmp_path: Path) -> None:
    """By gloo."""
    found, processes, port = generation(3), [], str(free_port())
    for rank in range(3):
        environment = {
            **os.environ,
            "GROUP_RANK": str(rank),
            "GROUP_WORLD_SIZE": "3",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": "1",
        }
        command = [os.environ[NAMED], "-m", "agent.train.pair_check", f"{tmp_path}/{rank}-", "[]"]
        processes.append(subprocess.Popen(command, env=environment))
    assert [process.wait(200) for process in processes] == [0] * 3
    for rank in range(3):
        report = pair_check.report([tmp_path / f"{rank}-0"], found)
        assert sorted(report["seconds"]) == sorted({"10", "11", "12"} - {str(10 + rank)})
        assert report["failed"] == []


def generation(size: int) -> Generation:
    seen = (MemberSeen(10 + rank, 1, rank, "127.0.0.1", "", rank) for rank in range(size))
    return Generation(1, LIVE, tuple(seen))


@pytest.mark.parametrize("size", range(2, 12))
def test_each_meets_all_others_once(size: int) -> None:
    turns = range(size - 1 + size % 2)
    met = []
    for turn in turns:
        for rank in range(size):
            other = pair_check.partner(rank, turn, size)
            assert other != rank
            if other >= 0:
                assert pair_check.partner(other, turn, size) == rank
                met.append((rank, other))
    assert sorted(met) == sorted((a, b) for a in range(size) for b in range(size) if a != b)


def test_a_report_has_the_slowest_process_and_what_did_not_end(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("try 1\ntook 1 0.5\ntry 2\nwrong 2\ntry 3\n")
    (tmp_path / "1").write_text("try 1\ntook 1 0.7\n")
    files = [tmp_path / name for name in ("0", "1", "absent")]
    report = pair_check.report(files, generation(4))
    assert report == {"seconds": {"11": 0.7}, "failed": [12, 13]}
    assert json.dumps(report)


@pytest.mark.parametrize("part", ["t", "took", "took 2", "took 2 0.", "wrong 2"])
def test_a_line_that_was_not_ended_does_not_count(tmp_path: Path, part: str) -> None:
    """The disk of the node is full, or the process was killed within a line."""
    (tmp_path / "0").write_text(f"try 1\ntook 1 0.5\ntry 2\n{part}")
    report = pair_check.report([tmp_path / "0"], generation(4))
    assert report == {"seconds": {"11": 0.5}, "failed": [12]}
