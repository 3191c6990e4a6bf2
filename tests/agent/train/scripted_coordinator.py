"""A coordinator whose answers a test sets, in the place of its client: no connection, no time."""

import queue
from collections.abc import Callable, Mapping
from typing import Any

from agent.train.client import Answer, CoordinatorClient

Post = tuple[str, dict[str, Any]]


class ScriptedCoordinator(CoordinatorClient):
    """`says()` answers the watch's next poll; `posted` has what was sent, and `on_post` answers it."""

    def __init__(self) -> None:
        super().__init__("http://coordinator:1")
        self.posted: list[Post] = []
        self.polled: list[dict[str, Any]] = []
        self.waits_s: list[float | None] = []  # of requests that are repeated
        self.on_post: Callable[[str, Mapping[str, Any]], Answer | Exception] = lambda *_: {}
        self._polls: queue.SimpleQueue[Answer | Exception | None] = queue.SimpleQueue()

    def says(self, *answers: Answer | Exception | None) -> None:
        for each in answers:
            self._polls.put(each)

    def get(self, path: str, query: Mapping[str, Any], timeout_s: float = 0) -> Answer | None:
        self.polled.append({"path": path, "timeout_s": timeout_s, **query})
        return _given(self._polls.get())

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = 0) -> Answer:
        self.posted.append((path, dict(body)))
        return _given(self.on_post(path, body)) or {}

    def insist(self, path: str, body: Mapping[str, Any], within_s: float | None = None) -> Answer:
        self.waits_s.append(within_s)
        return self.post(path, body)


def _given(answer: Answer | Exception | None) -> Answer | None:
    if isinstance(answer, Exception):
        raise answer
    return answer
