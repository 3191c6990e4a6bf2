"""A pool of threads for work that is due now or later, and a rate limiter."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger(__name__)

WorkItem = Callable[[], None]


class WorkerPool:
    """Work items that are due later occupy no worker."""

    def __init__(self, name: str, workers: int) -> None:
        self._ready: SimpleQueue[WorkItem | None] = SimpleQueue()
        self._later: list[tuple[float, int, WorkItem]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._ending = False
        self._workers = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True)
            for index in range(workers)
        ]
        self._timer = threading.Thread(target=self._move_due, name=f"{name}-later", daemon=True)
        for thread in (*self._workers, self._timer):
            thread.start()

    @property
    def has_backlog(self) -> bool:
        """Whether items that are due wait for a worker."""
        return not self._ready.empty()

    def put(self, item: WorkItem) -> None:
        self._ready.put(item)

    def put_later(self, item: WorkItem, delay_s: float) -> None:
        with self._changed:
            heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._count), item))
            self._changed.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Items that run may finish within the timeout; the others are dropped."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        for _ in self._workers:
            self._ready.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in (*self._workers, self._timer):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (item := self._ready.get()) is not None and not self._ending:
            try:
                item()
            except Exception:
                log.exception("unhandled exception in a worker (bug)")

    def _move_due(self) -> None:
        with self._changed:
            while not self._ending:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._ready.put(heapq.heappop(self._later)[2])
                self._changed.wait(self._later[0][0] - now if self._later else None)


class RateLimiter:
    """At most per_s uses per second, after an initial burst."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._step_s = 1.0 / per_s
        self._ahead_s = burst * self._step_s
        self._next = 0.0
        self._lock = threading.Lock()

    def wait_s(self) -> float:
        """Reserves the next use and returns how long to wait for it."""
        now = time.monotonic()
        with self._lock:
            self._next = max(self._next, now - self._ahead_s) + self._step_s
            return max(0.0, self._next - now)
