"""Calls into a library that may hang, with a timeout. Each call runs in a thread of its own, one at
a time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

Result = TypeVar("Result")


class TimedOut(Exception):
    """The call did not return in time; the message is a sentence. Its thread keeps waiting."""


class WithTimeout:
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: Future[Any] | None = None

    def call(self, function: Callable[[], Result], timeout_s: float) -> Result:
        """Raises TimedOut, or what the function raises. While an earlier call hangs, no new one
        starts: call() waits for the earlier one first, whose return shows that the library works
        again."""
        with self._lock:
            earlier = self._running
            if earlier is not None and not earlier.done():
                self._wait(earlier, timeout_s)
            future: Future[Result] = Future()
            self._running = future
            # A daemon thread: a call that hangs in the kernel must not keep the process from ending.
            threading.Thread(
                target=_run, args=(future, function), name="timeout-call", daemon=True
            ).start()
            self._wait(future, timeout_s)
        return future.result()

    def _wait(self, future: "Future[Any]", timeout_s: float) -> None:
        try:
            future.exception(timeout_s)
        except FutureTimeout:
            raise TimedOut(f"{self._name} has not answered for {timeout_s:g} s") from None


def _run(future: "Future[Any]", function: Callable[[], Any]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001  call() raises it again
        future.set_exception(error)
