"""How much memory containers may lock: what their runtime was started with, which they inherit. Network cards
register memory by locking it, and a program that is refused falls back to TCP without a word."""

import re
from functools import lru_cache
from pathlib import Path

RUNTIMES = ("containerd", "crio", "dockerd")  # as /proc/PID/comm has them
LIMIT = re.compile(r"^Max locked memory\s+(\d+|unlimited)\s", re.MULTILINE)
UNLIMITED, UNKNOWN = -1, 0


def read(proc: Path) -> int:
    """Bytes; UNLIMITED, or UNKNOWN where no runtime is seen."""
    pid = _runtime(proc)
    if pid and _text(proc / pid / "comm") not in RUNTIMES:  # it is another process by now
        _runtime.cache_clear()
        pid = _runtime(proc)
    found = LIMIT.search(_text(proc / pid / "limits")) if pid else None
    if found is None:
        return UNKNOWN
    return UNLIMITED if found[1] == "unlimited" else int(found[1])


@lru_cache(maxsize=4)
def _runtime(proc: Path) -> str:
    """Its number; looked for once, among all processes."""
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
