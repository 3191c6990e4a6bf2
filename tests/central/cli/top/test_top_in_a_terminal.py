"""`lockstep top` in a real terminal, with a real scheduler behind it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from tests.central.cli import test_scheduler_access
from tests.central.local_clusters import started
from tests.central.server.test_scheduler_process import reported, submit
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HOME, LAST = "\x1b[H", "q quit"  # how the drawing of a screen begins, and its last line
TOP = [sys.executable, "-m", "central", "top", "--interval", "0.3"]


@pytest.fixture(scope="module")
def box() -> Iterator[FaultyCluster]:
    nodes = [HollowNode("n", {"lockstep.dev/rack": "r1"}, CAPTURES / "dgx-a100-8.json")]
    with started(nodes) as made:
        made.wait("the agents", lambda: reported(made))
        yield made


@pytest.fixture
def environment(box: FaultyCluster) -> dict[str, str]:
    kept = {key: each for key, each in os.environ.items() if key not in ("COLUMNS", "LINES")}
    return {
        **kept,
        "TERM": "xterm-256color",
        "KUBECONFIG": str(box.kubeconfig),
        "LOCKSTEP_SERVER": box.server,
        "LOCKSTEP_CA": str(box.ca_file),
        "LOCKSTEP_TOKEN_FILE": str(box.token_file),
    }


class Terminal:
    """A terminal of 80 columns, and what the program drew last."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.program = subprocess.Popen(
            TOP, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.drawn = ""

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until(self, holds: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + 90
        while not holds(self.screen):
            assert time.monotonic() < deadline, self.drawn
            if select.select([self._ours], [], [], 0.2)[0]:
                self.drawn += os.read(self._ours, 65536).decode()
        return self.screen

    @property
    def screen(self) -> str:
        """The newest screen that has come whole, and what follows it."""
        before, _, newest = self.drawn.rpartition(HOME)
        return newest if LAST in newest else before.rpartition(HOME)[2]

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self._ours)
        os.close(self.theirs)


def test_it_follows_the_cluster_and_the_keys(
    box: FaultyCluster, environment: dict[str, str]
) -> None:
    terminal = Terminal(environment)
    try:
        terminal.until(lambda shown: "1 node, 8 GPUs, 0 used" in shown)
        assert "\x1b[?1049h" in terminal.drawn
        submit(box, "runs", 1, 6)
        terminal.until(lambda shown: "6 used, 2 free" in shown and "default/runs" in shown)
        submit(box, "waits", 1, 4)
        terminal.type(b"3")
        terminal.until(
            lambda shown: (
                "default/waits" in shown and "needs 1 pod" in shown and "default/runs" not in shown
            )
        )
        terminal.type(b"\r")
        shown = terminal.until(lambda shown: "default/waits: Pending" in shown)
        assert "place 1 of 1" in shown
        terminal.type(b"\x1b")
        terminal.until(lambda shown: "[3:pending]" in shown)
        terminal.type(b"q")
        terminal.until(lambda shown: "\x1b[?1049l" in shown)
        assert terminal.program.wait(20) == 0
        assert termios.tcgetattr(terminal.theirs) == terminal.before
    finally:
        terminal.close()


@pytest.fixture
def by_kubeconfig(
    box: FaultyCluster, environment: dict[str, str], tmp_path: Path
) -> dict[str, str]:
    """A user who has a kubeconfig and kubectl, which forwards to the scheduler until it is killed."""
    test_scheduler_access.create_what_is_installed(box)
    test_scheduler_access.write_kubectl(tmp_path, test_scheduler_access.talkative(box))
    named = test_scheduler_access.HIDDEN
    kept = {key: each for key, each in environment.items() if key not in named}
    return {**kept, "PATH": str(tmp_path)}


def test_a_broken_connection_and_an_old_token_are_renewed(
    box: FaultyCluster, by_kubeconfig: dict[str, str], tmp_path: Path
) -> None:
    """kubectl ends with the scheduler's pod, and a token is refused after an hour."""
    terminal = Terminal(by_kubeconfig)
    try:
        terminal.until(lambda shown: "1 node, 8 GPUs" in shown)
        terminal.type(b"3")
        ((first, _),) = test_scheduler_access.calls(tmp_path)
        psutil.Process(first).kill()
        submit(box, "seen-later", 1, 9)
        terminal.until(lambda shown: "default/seen-later" in shown)
        (_, (second, _)) = test_scheduler_access.calls(tmp_path)
        account = f"{test_scheduler_access.ACCOUNTS}/lockstep-central"
        box.client.request("DELETE", account)  # the token with it
        terminal.until(lambda shown: "refused" in shown or "does not exist" in shown)
        assert not psutil.pid_exists(second)
        box.create(test_scheduler_access.ACCOUNTS, {"metadata": {"name": "lockstep-central"}})
        submit(box, "last-of-all", 1, 9)
        terminal.until(lambda shown: "default/last-of-all" in shown)
        terminal.type(b"q")
        assert terminal.program.wait(20) == 0
        assert not any(psutil.pid_exists(pid) for pid, _ in test_scheduler_access.calls(tmp_path))
    finally:
        terminal.close()


def test_without_a_terminal_it_prints_once(box: FaultyCluster, environment: dict[str, str]) -> None:
    done = subprocess.run(TOP, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "1 node, 8 GPUs" in done.stdout
    assert "QUEUE" in done.stdout
    assert "\x1b" not in done.stdout


def test_no_scheduler_is_a_sentence(environment: dict[str, str]) -> None:
    nobody = {**environment, "LOCKSTEP_SERVER": "127.0.0.1:1"}
    done = subprocess.run(TOP, env=nobody, capture_output=True, text=True, timeout=90)
    assert done.returncode == 5
    assert done.stderr.startswith("lockstep: no scheduler answers at 127.0.0.1:1")
