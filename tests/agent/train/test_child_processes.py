"""The processes of one member, without a coordinator."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from agent.train.child_processes import ChildProcesses
from tests.agent.train.workers import wait_for


def test_no_shell_is_needed() -> None:
    """Some images for training have none."""
    before = psutil.Process().children()
    children = ChildProcesses([sys.executable, "-c", "import time; time.sleep(600)"], [{}, {}])
    try:
        started = [each for each in psutil.Process().children() if each not in before]
        programs = [each.exe() for each in started]
    finally:
        children.stop(5.0)
    python = os.path.realpath(sys.executable)
    assert programs == [python] * 3  # the third ends the others when this process ends
    assert not any(each.is_running() for each in started)


# Ends by itself when its save has ended; until then it knows no SIGTERM.
SAVES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1], "ready").touch()
while not pathlib.Path(sys.argv[1], "saved").exists():
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("looks", "code"), [(20, None), (10_000, 137)])
def test_a_save_under_way_is_waited_for(tmp_path: Path, looks: int, code: int | None) -> None:
    """The time to stop begins when it has ended; a save that does not end is given up."""
    children = ChildProcesses([sys.executable, "-c", SAVES, str(tmp_path)], [{}])
    wait_for((tmp_path / "ready").exists, "it runs")
    looked: list[int] = []

    def saves() -> bool:
        looked.append(1)
        if len(looked) == looks:
            (tmp_path / "saved").touch()
        return len(looked) <= looks

    children.stop(0.5, saves, 60.0 if code is None else 1.0)
    assert children.failed_code() == code
    assert code is not None or len(looked) >= looks, "half a second has fewer looks"
