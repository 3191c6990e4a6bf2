"""lockstep-launch without a coordinator: the command runs once, until it ends or the member's files say that it
leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence

from . import member_files, stop_signal
from .child_processes import ChildProcesses

TERMINATED = 143  # 128 + SIGTERM, as a shell says it
_LOOK_S = 0.1


def run(command: Sequence[str], stop_wait_s: float) -> int:
    """The exit code of the member: 0 if it leaves by plan, so that its container is not started again."""
    children = ChildProcesses(command, [{}])
    try:
        while True:
            if member_files.leaves():
                return 0
            if stop_signal.came():
                return TERMINATED
            if children.all_done():
                return 0
            code = children.failed_code()
            if code is not None:
                return code
            time.sleep(_LOOK_S)
    finally:
        children.stop(stop_wait_s)
