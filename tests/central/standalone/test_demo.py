"""The demo as a user runs it: one process from the shell, nothing else."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEMO = [sys.executable, "-u", "-m", "central", "demo"]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short: sockets will be in it."""
    with tempfile.TemporaryDirectory(prefix="ls-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory), "COLUMNS": "80"}


def test_the_main_job_is_shown(environment: dict[str, str], directory: Path) -> None:
    done = subprocess.run(DEMO, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert re.search(r"GPU0 +X +NV12", shown)
    assert "default/chat: Running: 2 of 2 pods placed in one island" in shown
    assert "default/train: Running: 4 of 4 pods placed on 4 nodes of rack r2" in shown
    assert "default/giant: Pending: needs 4 pods x 8 GPUs in one rack" in shown
    assert "│ h100-4  B B B B B B B B  │" in shown
    assert "\x1b[" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not list(directory.glob("lockstep-*"))


def test_kept_it_can_be_asked_and_ends_when_told(
    environment: dict[str, str], directory: Path
) -> None:
    log = directory / "demo.out"
    with log.open("wb") as output:
        demo = subprocess.Popen([*DEMO, "--keep"], env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 40
        while "Ctrl-C" not in log.read_text():
            assert demo.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        while "LOCKSTEP_TOKEN_FILE" not in log.read_text():
            time.sleep(0.01)
        exported = dict(re.findall(r"export (\w+)=(\S+)", log.read_text()))
        asked = subprocess.run(
            [sys.executable, "-m", "central", "explain", "default/giant"],
            env={**environment, **exported},
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert asked.returncode == 0, asked.stderr
        assert "needs 4 pods x 8 GPUs" in asked.stdout
    finally:
        demo.send_signal(signal.SIGTERM)
        code = demo.wait(15)
    assert code == 0, log.read_text()
    assert not list(directory.glob("lockstep-*"))


def test_interrupted_while_it_starts_it_leaves_nothing(
    environment: dict[str, str], directory: Path
) -> None:
    demo = subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    with demo.stdout as shown:
        while "hollow nodes" not in (line := shown.readline()):
            assert line, "it ended by itself"
        demo.send_signal(signal.SIGTERM)
        rest = shown.read()
    assert demo.wait(15) == 130
    assert "Stopped" in rest
    assert not list(directory.glob("lockstep-*"))


def test_a_taken_port_is_one_sentence(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for given in (str(port), "70000"):
            done = subprocess.run(
                [*DEMO, "--port", given],
                env=environment,
                capture_output=True,
                text=True,
                timeout=20,
            )
            assert done.returncode == 2
            assert done.stderr.count("\n") == 1
            assert given in done.stderr
