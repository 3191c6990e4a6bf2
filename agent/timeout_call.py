"""Questions to a library that may hang: each is asked by a thread of its own, one at a time, and
whoever asks waits no longer than it wants to."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from typing import Any, TypeVar

Result = TypeVar("Result")


class TimedOut(Exception):
    """No answer in time; the message is a sentence. The question stays with the library."""


class WithTimeout:
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._asked: Future[Any] | None = None

    def call(self, question: Callable[[], Result], at_most_s: float) -> Result:
        """What the question raises is raised. While an older one hangs, no new one is asked: its
        late answer is of no use, but it says that the library is back."""
        with self._lock:
            older = self._asked
            if older is not None and not older.done():
                self._wait(older, at_most_s)
            mine: Future[Result] = Future()
            self._asked = mine
            # A daemon: what hangs in the kernel must not keep the process from ending.
            threading.Thread(
                target=_answer, args=(mine, question), name="timeout-call", daemon=True
            ).start()
            self._wait(mine, at_most_s)
        return mine.result()

    def _wait(self, asked: "Future[Any]", at_most_s: float) -> None:
        try:
            asked.exception(at_most_s)
        except TooLong:
            raise TimedOut(f"{self._name} has not answered for {at_most_s:g} s") from None


def _answer(asked: "Future[Any]", question: Callable[[], Any]) -> None:
    try:
        asked.set_result(question())
    except BaseException as error:  # noqa: BLE001  it is raised to whoever asked
        asked.set_exception(error)
