"""Reads how much memory containers may lock. They inherit the limit of the container runtime's
process.

RDMA registers memory by locking it, and a program whose registration fails falls back to TCP
silently."""

import re
from functools import lru_cache
from pathlib import Path

RUNTIMES = ("containerd", "crio", "dockerd")  # names in /proc/PID/comm
LIMIT = re.compile(r"^Max locked memory\s+(\d+|unlimited)\s", re.MULTILINE)
UNLIMITED, UNKNOWN = -1, 0


def read(proc: Path) -> int:
    """In bytes; UNLIMITED, or UNKNOWN if no runtime is found."""
    pid = _runtime(proc)
    if pid and _text(proc / pid / "comm") not in RUNTIMES:  # the pid was reused
        _runtime.cache_clear()
        pid = _runtime(proc)
    found = LIMIT.search(_text(proc / pid / "limits")) if pid else None
    if found is None:
        return UNKNOWN
    return UNLIMITED if found[1] == "unlimited" else int(found[1])


@lru_cache(maxsize=4)
def _runtime(proc: Path) -> str:
    """The pid of the first runtime found, cached; empty if there is none."""
    try:
        running = {_text(each / "comm"): each.name for each in proc.glob("[0-9]*")}
    except OSError:
        return ""
    return next((running[name] for name in RUNTIMES if name in running), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
