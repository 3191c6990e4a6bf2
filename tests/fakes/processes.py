"""Waits for the end of processes, including those without a waiting parent."""

import time
from collections.abc import Iterable

import psutil


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_gone(pids: Iterable[int], patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while left := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
