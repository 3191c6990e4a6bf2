"""Child processes that end with the process that started them, and the end of one that was asked to end."""

import subprocess
from collections.abc import Sequence
from typing import IO

# A shell of the session waits at a pipe that ends with the parent, whatever ends it, and then kills the session's
# process group, itself included: no process id is kept, which another process could have by then. PR_SET_PDEATHSIG is
# Linux alone, and its signal comes when the thread ends that started the child.
_WITH_PARENT = """exec 3<&0
/bin/sh -c 'trap "" HUP INT TERM; read _; kill -KILL 0' <&3 >/dev/null 2>&1 3<&- &
exec "$@" </dev/null 3<&-"""


def start_bound(
    command: Sequence[str], *, stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Starts a program, by its path, in a session of its own, away from the terminal's Ctrl-C. It and what it starts in
    its process group end with this process, also by SIGKILL. Its standard input is empty."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WITH_PARENT, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def wait_or_kill(process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Waits until the process has ended, and kills it if it has not after patience_s; with it what is bound to it."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
