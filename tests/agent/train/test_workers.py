"""What a test has started ends with it."""

import os
from pathlib import Path

from tests.agent.train.workers import wait_for, workers

LAUNCHER = """
import json, os, subprocess, sys, time
if len(sys.argv) > 1:
    print(json.dumps({"pid": os.getpid()}), flush=True)
else:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
time.sleep(600)
"""


def _is_there(pid: int) -> bool:
    """Also false of a zombie."""
    try:
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return False


def test_children_of_a_killed_launcher_end_and_those_of_others_stay(tmp_path: Path) -> None:
    with (
        workers(tmp_path / "other", LAUNCHER) as others,
        workers(tmp_path / "team", LAUNCHER) as made,
    ):
        for group in (made, others):
            group.start("m0", dict(os.environ))
        wait_for(lambda: bool(made.said("m0") and others.said("m0")), "both have children")
        ours, theirs = made.said("m0")[0]["pid"], others.said("m0")[0]["pid"]
        made.kill("m0")
        assert _is_there(ours), "it has a session of its own"
        made.stop()
        assert not _is_there(ours)
        assert _is_there(theirs)
    assert not _is_there(theirs)
