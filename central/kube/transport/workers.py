"""A pool of threads for work that is due now or later, and a rate limiter."""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from central.kube.transport.runtime import RUNTIME, Mailbox, Runtime

log = logging.getLogger(__name__)

WorkItem = Callable[[], None]


class WorkerPool:
    """Work items that are due later occupy no worker."""

    def __init__(self, name: str, workers: int, runtime: Runtime = RUNTIME) -> None:
        self._runtime = runtime
        self._ready: Mailbox = runtime.mailbox()
        self._later: list[tuple[float, int, WorkItem]] = []
        self._count = itertools.count()
        self._lock = threading.Lock()  # of _later; nothing waits while it holds it
        self._changed = runtime.flag()
        self._ending = False
        self._workers = [runtime.thread(self._work, f"{name}-{index}") for index in range(workers)]
        self._timer = runtime.thread(self._move_due, f"{name}-later")
        for thread in (*self._workers, self._timer):
            thread.start()

    @property
    def has_backlog(self) -> bool:
        """Returns whether due items wait for a worker."""
        return not self._ready.empty()

    def put(self, item: WorkItem) -> None:
        self._ready.put(item)

    def put_later(self, item: WorkItem, delay_s: float) -> None:
        with self._lock:
            due_at = self._runtime.monotonic() + delay_s
            heapq.heappush(self._later, (due_at, next(self._count), item))
        self._changed.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Items that run may finish within the timeout; the others are dropped."""
        self._ending = True
        self._changed.set()
        for _ in self._workers:
            self._ready.put(None)
        deadline = self._runtime.monotonic() + timeout_s
        for thread in (*self._workers, self._timer):
            thread.join(max(0.0, deadline - self._runtime.monotonic()))

    def _work(self) -> None:
        while (item := self._ready.get()) is not None and not self._ending:
            try:
                item()
            except Exception:
                log.exception("unhandled exception in a worker (bug)")

    def _move_due(self) -> None:
        while not self._ending:
            self._changed.clear()
            self._changed.wait(self._next_due_s())

    def _next_due_s(self) -> float | None:
        """Hands over what is due. Returns how long the next item still waits; None: there is none."""
        with self._lock:
            now = self._runtime.monotonic()
            while self._later and self._later[0][0] <= now:
                self._ready.put(heapq.heappop(self._later)[2])
            return self._later[0][0] - now if self._later else None


class RateLimiter:
    """A limit of per_s uses per second, after an initial burst."""

    def __init__(self, per_s: float, burst: int, runtime: Runtime = RUNTIME) -> None:
        self._step_s = 1.0 / per_s
        self._ahead_s = burst * self._step_s
        self._next = 0.0
        self._lock = threading.Lock()
        self._runtime = runtime

    def wait_s(self) -> float:
        """Reserves the next use and returns how long to wait for it."""
        now = self._runtime.monotonic()
        with self._lock:
            self._next = max(self._next, now - self._ahead_s) + self._step_s
            return max(0.0, self._next - now)
