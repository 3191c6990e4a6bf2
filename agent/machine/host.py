"""Reads raw facts from the operating system. Only this file imports psutil."""

import platform
import re
import socket
from functools import lru_cache
from pathlib import Path

import psutil

from agent.bounded_files import text_or_empty as _text
from agent.machine.facts import HostFacts

RUNTIMES = ("containerd", "crio", "dockerd")  # names in /proc/PID/comm
LIMIT = re.compile(r"^Max locked memory\s+([0-9]{1,20}|unlimited)\s", re.MULTILINE)
UNLIMITED, UNKNOWN = -1, 0


def read(proc_root: str | Path = "/proc") -> HostFacts:
    """Reads the host's facts. In a container, boot id, CPUs and memory are the host's; the name is that of the UTS
    namespace."""
    return HostFacts(
        hostname=socket.gethostname(),
        boot_id=_text(Path(proc_root, "sys/kernel/random/boot_id")),
        kernel=platform.release(),
        cpus=psutil.cpu_count(logical=True) or 0,
        memory_bytes=psutil.virtual_memory().total,
        memlock=memlock(Path(proc_root)),
    )


def memlock(proc: Path) -> int:
    """Returns how many bytes containers may lock: the limit of the container runtime's process, which they inherit;
    UNLIMITED, or UNKNOWN if no runtime is found. RDMA registers memory by locking it, and a program whose
    registration fails falls back to TCP silently."""
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
