"""Ends of a command that are no bugs: Ctrl-C, and a standard output that is closed or full (`| head` that has ended,
a full disk, a descriptor that was closed before the command began). None of them prints a traceback."""

import errno
import os
import sys
from collections.abc import Callable

CANNOT_HOLD = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(program: str, command: Callable[[], int]) -> int:
    """The command's exit code; 130 after Ctrl-C; 1 if its output was not taken, and a full disk is named on stderr."""
    _open_closed()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard()
        return 1
    except OSError as error:
        if error.errno not in CANNOT_HOLD or error.filename is not None:
            raise
        _discard()
        sys.stderr.write(f"{program}: standard output: {error.strerror}\n")
        return 1


def _open_closed() -> None:
    """Python has no stream for a closed descriptor, and a socket would get its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _discard() -> None:
    """Discards buffered output: Python would write it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
