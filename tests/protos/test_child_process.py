"""A child ends with its parent, whatever ends that."""

import signal
import subprocess
import sys
import time

import psutil

from protos.common.child_process import start_bound, wait_or_kill
from tests.fakes.processes import runs, wait_gone

PARENT = """
import subprocess, sys, threading, time
from protos.common.child_process import start_bound
program = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
def start():
    child = start_bound([sys.executable, "-c", program + "; import time; time.sleep(600)"], stdout=subprocess.PIPE, stderr=sys.stderr)
    print(child.pid, child.stdout.readline().decode().strip(), flush=True)
    kept.append(child)
kept = []
starts = threading.Thread(target=start)
starts.start()
starts.join()
print("started", flush=True)
time.sleep(600)
"""


def test_a_killed_parent_takes_its_child_and_what_that_started_along() -> None:
    """The thread that started the child has ended before: that alone ends nothing."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert parent.stdout.readline() == b"started\n"
        pids += [each.pid for each in psutil.Process(parent.pid).children(recursive=True)]
        assert len(set(pids)) == 3  # child, grandchild, and the shell that waits
        assert all(map(runs, pids))
        parent.kill()
    wait_gone(pids)


def test_a_child_that_ended_leaves_no_shell() -> None:
    child = start_bound(["/bin/sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (shells := psutil.Process(child.pid).children()):
        time.sleep(0.001)
    child.terminate()
    wait_or_kill(child, 5.0)
    assert child.returncode == -signal.SIGTERM
    wait_gone([each.pid for each in shells])


def test_output_ends_with_the_child() -> None:
    """The shell that waits keeps none of it open, and the child reads nothing."""
    command = [sys.executable, "-c", "import sys; print(repr(sys.stdin.read())); sys.exit(3)"]
    child = start_bound(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert child.stdout is not None
    with child.stdout as output:
        assert output.read() == b"''\n"
    wait_or_kill(child, 5.0)
    assert child.returncode == 3
