"""Questions to a library that may hang: each is asked by a thread of its own, one at a time, and
whoever asks waits no longer than it wants to."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLong
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Hanging(Exception):
    """No answer in time; the message is a sentence. The question stays with the library."""


class Patience:
    def __init__(self, whom: str) -> None:
        self._whom = whom
        self._lock = threading.Lock()
        self._asked: Future[Any] | None = None

    def ask(self, question: Callable[[], Answer], at_most_s: float) -> Answer:
        """What the question raises is raised. While an older one hangs, no new one is asked: its
        late answer is of no use, but it says that the library is back."""
        with self._lock:
            older = self._asked
            if older is not None and not older.done():
                self._wait(older, at_most_s)
            mine: Future[Answer] = Future()
            self._asked = mine
            # A daemon: what hangs in the kernel must not keep the process from ending.
            threading.Thread(target=_answer, args=(mine, question), name="ask", daemon=True).start()
            self._wait(mine, at_most_s)
        return mine.result()

    def _wait(self, asked: "Future[Any]", at_most_s: float) -> None:
        try:
            asked.exception(at_most_s)
        except TooLong:
            raise Hanging(f"{self._whom} has not answered for {at_most_s:g} s") from None


def _answer(asked: "Future[Any]", question: Callable[[], Any]) -> None:
    try:
        asked.set_result(question())
    except BaseException as error:  # noqa: BLE001  it is raised to whoever asked
        asked.set_exception(error)
