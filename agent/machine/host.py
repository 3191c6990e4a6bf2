"""Reads raw facts from the operating system. Only this file imports psutil."""

import platform
import socket
from pathlib import Path

import psutil

from agent.machine import memlock
from agent.machine.facts import HostFacts


def read(proc_root: str | Path = "/proc") -> HostFacts:
    """In a container, boot id, CPUs and memory are the host's; the name is that of the UTS
    namespace."""
    return HostFacts(
        hostname=socket.gethostname(),
        boot_id=_boot_id(Path(proc_root)),
        kernel=platform.release(),
        cpus=psutil.cpu_count(logical=True) or 0,
        memory_bytes=psutil.virtual_memory().total,
        memlock=memlock.read(Path(proc_root)),
    )


def _boot_id(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
