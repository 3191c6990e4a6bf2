"""Waits for a condition by polling."""

import time
from collections.abc import Callable


def eventually(check: Callable[[], object], timeout_s: float = 60.0, what: str = "") -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, what or f"did not happen within {timeout_s} s"
        time.sleep(0.01)
