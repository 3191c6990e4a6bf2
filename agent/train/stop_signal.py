"""SIGTERM as a question: a process that gets it finishes its step and saves."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType

_came = threading.Event()
_installed: set[int] = set()


def install(*, alone: bool = False) -> None:
    """Note SIGTERM instead of dying of it. Outside of the main thread nothing is changed, because only
    there Python allows it; a handler that the program set before is called, too. alone: it is not, because what it
    does must not happen in the middle of a step."""
    if (
        signal.SIGTERM in _installed and not alone
    ) or threading.current_thread() is not threading.main_thread():
        return
    before = None if alone else signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: FrameType | None) -> None:
        _came.set()
        if callable(before):
            before(number, frame)

    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, note)
        _installed.add(signal.SIGTERM)


def came() -> bool:
    return _came.is_set()


def wait(timeout_s: float) -> bool:
    return _came.wait(timeout_s)
