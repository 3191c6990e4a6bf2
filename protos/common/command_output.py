"""Ends of a command that are no bugs: Ctrl-C, a package that is not installed, and a standard output that is closed or
full (`| head` that has ended, a full disk, a descriptor that was closed before the command began). None of them prints
a traceback."""

import errno
import os
import sys
from collections.abc import Callable

OWN = (
    "agent",
    "central",
    "protos",
    "lockstep_scheduler",
)  # a module of ours that is missing is a bug
INSTALL = "pip install lockstep-scheduler (in a checkout: pip install .) installs all that the commands need"
CANNOT_HOLD = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(program: str, command: Callable[[], int]) -> int:
    """Returns the command's exit code; 130 after Ctrl-C; 2 if a package is missing; 1 if its output was not taken.

    Stderr names a missing package, and a full disk."""
    _open_closed()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in OWN:
            raise
        sys.stderr.write(f"{program}: the Python package {package} is missing: {INSTALL}\n")
        return 2
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
