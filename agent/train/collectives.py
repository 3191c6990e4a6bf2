"""Ends collectives that wait for a lost member, in the processes of the others.

NCCL has an abort. That of gloo does not free a collective that waits, but the end of its connections does: these are
the sockets opened since the turn began for which an event loop of C++ waits, and those of the turn's store.

Design: docs/design/training.md"""

from __future__ import annotations

import contextlib
import gc
import json
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
                if copy.family == socket.AF_UNIX:
                    continue  # it has no port, and leads to no other member
                ports = {copy.getpeername()[1], copy.getsockname()[1]}
                if number in waited_for or leader_port in ports:
                    copy.shutdown(socket.SHUT_RDWR)
                    count += 1
    return count


def entered() -> tuple[int, str]:
    """Returns how many collectives of the default group this process has begun (-1: unknown), and the first of any
    group that has not ended, as PyTorch's flight recorder has it ("": none, or unknown)."""
    group: Any = process_group()
    count, found = -1, ""
    with contextlib.suppress(AttributeError, RuntimeError, ValueError, KeyError, TypeError):
        default = group.distributed_c10d._get_default_group()
        count = int(default._get_sequence_number_for_group())
        recorder = sys.modules["torch._C._distributed_c10d"]
        kind = "nccl" if "nccl" in str(group.get_backend()) else "fr"
        for each in json.loads(getattr(recorder, f"_dump_{kind}_trace_json")())["entries"]:
            if not each["retired"]:
                name = str(each["profiling_name"]).rpartition(":")[2]
                return count, f"{name} {each['collective_seq_id']} of {each['process_group'][1]}"
    return count, found


def leave() -> None:
    """Destroys the process group, if there is one."""
    if (group := process_group()) is not None:
        with contextlib.suppress(RuntimeError):
            group.destroy_process_group()


def forget_meshes() -> None:
    """Clears what PyTorch has stored about DTensors by their meshes. Two meshes of the same ranks count as equal there,
    but this process may have had another rank in the one before: its parts would be those of that rank."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("torch.distributed.tensor"):
            for each in [*vars(module).values()]:
                clear = getattr(each, "cache_clear", None)
                if callable(clear) and not isinstance(each, type):
                    clear()
    tensor: Any = sys.modules.get("torch.distributed.tensor")
    with contextlib.suppress(AttributeError):
        tensor.DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache.cache_clear()
        sys.modules["torch._C"]._clear_DTensor_sharding_propagator_cache()


def _open() -> dict[int, str]:
    found = {}
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found[int(entry.name)] = str(entry.readlink())
    return found


def _waited_for() -> set[int]:
    """Returns the descriptors that event loops outside of Python wait for.

    Only selectors are held meanwhile, not all objects: the last reference to a process group would be dropped here, and
    its end waits for the collectives that this thread is to end."""
    kind = selectors.EpollSelector
    ours = {each.fileno() for each in gc.get_referrers(kind) if isinstance(each, kind)}
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
