"""Ends collectives that wait for a lost member, in the processes of the others.

NCCL has an abort. That of gloo does not free a collective that waits, but the end of its connections does: these are the
sockets opened since the turn began for which an event loop of C++ waits, and those of the turn's store.

Design: docs/design/training.md"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import socket
import sys
from pathlib import Path
from typing import Any

from . import undo
from .agreement import process_group


def sockets() -> dict[int, str]:
    """Returns the name of each open socket by its descriptor. No two sockets have had the same name."""
    return {number: name for number, name in _open().items() if name.startswith("socket:")}


def abort(before: frozenset[str], leader_port: int) -> int:
    """Ends what waits in a collective. Returns how many connections were shut down.

    before: names of the sockets that were open when the turn began"""
    undo.break_turn()
    _abort_devices()
    waited_for, count = _waited_for(), 0
    for number, name in sockets().items():
        if name not in before:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
                ports = {copy.getpeername()[1], copy.getsockname()[1]}
                if number in waited_for or leader_port in ports:
                    copy.shutdown(socket.SHUT_RDWR)
                    count += 1
    return count


def leave() -> None:
    """Destroys the process group, if there is one."""
    if (group := process_group()) is not None:
        with contextlib.suppress(RuntimeError):
            group.destroy_process_group()


def _open() -> dict[int, str]:
    found = {}
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found[int(entry.name)] = str(entry.readlink())
    return found


def _waited_for() -> set[int]:
    """Returns the descriptors that event loops outside of Python wait for."""
    ours = {each.fileno() for each in gc.get_objects() if isinstance(each, selectors.EpollSelector)}
    found = set()
    for number, name in _open().items():
        if name.endswith("[eventpoll]") and number not in ours:
            with contextlib.suppress(OSError), Path(f"/proc/self/fdinfo/{number}").open() as lines:
                found |= {int(line.split()[1]) for line in lines if line.startswith("tfd:")}
    return found


def _abort_devices() -> None:
    """Aborts NCCL, as far as this PyTorch has a function for it."""
    group: Any = process_group()
    if group is None or "nccl" not in str(group.get_backend()):
        return
    abort_group = getattr(
        sys.modules["torch.distributed.distributed_c10d"], "_abort_process_group", None
    )
    if abort_group is not None:
        with contextlib.suppress(RuntimeError, AssertionError):
            abort_group()
