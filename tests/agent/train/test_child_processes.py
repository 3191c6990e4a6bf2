"""The processes of one member, without a coordinator."""

import os
import sys

import psutil

from agent.train.child_processes import ChildProcesses


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
