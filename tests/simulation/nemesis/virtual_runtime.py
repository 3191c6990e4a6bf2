"""Threads on virtual time, of which one runs at a time. Which one is next is drawn from a seed, so that a run
can be repeated.

    kernel = Kernel(seed)
    process = kernel.process("a")
    process.runtime.thread(main, "main").start()
    kernel.run(until_s=60.0)

A thread gives way only where it waits: for a flag, a mailbox, the end of a thread, or time. Processes can be
paused and killed there.

Each step hands over to a real thread and back, which takes two turns of the machine's scheduler. On a busy
machine a story of three seconds of processor time took twenty minutes: so all of them stay on one processor, and the
limit of a run is on processor time."""

import heapq
import itertools
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

EPOCH = 1_800_000_000.0  # Unix time at virtual second 0
STEPS_MOST = 300_000  # at one time
PROCESSOR_S = 300.0  # of one kernel, at most; a story takes 2 to 5


class Killed(BaseException):
    """Ends a thread of a process that was killed."""


def _closed() -> threading.Lock:
    """A lock to hand over by: without the Python code of a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@contextmanager
def one_processor(number: int) -> Iterator[None]:
    """Keeps this thread, and those that it starts, on one of its processors, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[number % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class _Task:
    def __init__(self, process: "Process", target: Callable[[], None], name: str) -> None:
        self.process, self.name = process, name
        self.over = VirtualFlag(process.kernel)
        self.blocked = False
        self.epoch = 0  # of its waits; a timer of an earlier one means nothing
        self.signalled = False
        self.started = False
        self._target = target
        self.go = _closed()
        self.thread = threading.Thread(target=self._body, name=name, daemon=True)

    def _body(self) -> None:
        self.go.acquire()
        try:
            if not self.process.killed:
                self._target()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the kernel reports it
            self.process.kernel.crashes.append((self.name, error))
        self.over.set()
        self.process.kernel.main.release()


class Kernel:
    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.dice = random.Random(seed)
        self.jitter = random.Random(seed)  # of the program
        self.crashes: list[tuple[str, BaseException]] = []
        self.main = _closed()
        self.current: _Task | None = None
        self.steps = 0
        self._began_s = time.process_time()
        self._ready: list[_Task] = []
        self._processes: list[Process] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def process(self, name: str) -> "Process":
        self._processes.append(Process(self, name))
        return self._processes[-1]

    def end(self) -> None:
        """Ends every thread."""
        for process in self._processes:
            process.kill()
        self.crashes.clear()
        while self._ready:
            self._step(self._ready.pop())

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Calls it at this time, outside of every thread."""
        heapq.heappush(self._timers, (max(when, self.now), next(self._count), do))

    def run(self, until_s: float) -> None:
        """Raises AssertionError if a thread has ended with an exception."""
        steps = 0
        while True:
            while self._ready:
                steps += 1
                assert steps < STEPS_MOST, f"time stands still; ready: {self._ready[0].name}"
                self._step(self._draw())
            if not self._timers or self._timers[0][0] > until_s:
                self.now = max(self.now, until_s)
                return
            at, _, do = heapq.heappop(self._timers)
            if at > self.now:
                self.now, steps = at, 0
            spent_s = time.process_time() - self._began_s
            assert spent_s < PROCESSOR_S, f"{spent_s:.0f} s of processor time at {self.now:.0f} s"
            do()

    def _draw(self) -> _Task:
        at = self.dice.randrange(len(self._ready))
        self._ready[at], self._ready[-1] = self._ready[-1], self._ready[at]
        return self._ready.pop()

    def _step(self, task: _Task) -> None:
        if task.process.paused and not task.process.killed:
            task.process.frozen.append(task)
            return
        self.steps += 1
        self.current = task
        if not task.started:
            task.started = True
            task.thread.start()
        task.go.release()
        self.main.acquire()
        self.current = None
        if self.crashes:
            name, error = self.crashes[0]
            raise AssertionError(f"thread {name} ended: {type(error).__name__}: {error}") from error

    def ready(self, task: _Task) -> None:
        self._ready.append(task)

    def block(self, waiters: "list[_Task] | None", timeout: float | None) -> bool:
        """Until the task is woken up; False: the timeout was over before."""
        task = self.current
        assert task is not None, "only threads of the kernel may wait"
        if task.process.killed:
            raise Killed
        if waiters is not None:
            waiters.append(task)
        task.blocked, task.epoch = True, task.epoch + 1
        if timeout is not None:
            epoch = task.epoch
            self.at(self.now + max(timeout, 0.0), lambda: self._expire(task, epoch))
        self.main.release()
        task.go.acquire()
        if waiters is not None and task in waiters:
            waiters.remove(task)
        if task.process.killed:
            raise Killed
        return task.signalled

    def wake(self, task: _Task, *, signalled: bool) -> None:
        if task.blocked:
            task.blocked, task.signalled = False, signalled
            self._ready.append(task)

    def _expire(self, task: _Task, epoch: int) -> None:
        if task.epoch == epoch:
            self.wake(task, signalled=False)


class Process:
    """Threads that are paused and killed together."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.killed = self.paused = False
        self.frozen: list[_Task] = []
        self.tasks: list[_Task] = []
        self.runtime = VirtualRuntime(self)

    def play(self, main: Callable[[], None], until_s: float) -> list[str]:
        """Runs main as its first thread, alone on the kernel, which then ends. Returns the threads that still live."""
        self.runtime.thread(main, "main").start()
        try:
            self.kernel.run(until_s)
            return [task.name for task in self.tasks if not task.over.is_set()]
        finally:
            self.kernel.end()

    def pause(self, seconds: float) -> None:
        self.paused = True
        self.kernel.at(self.kernel.now + seconds, self._resume)

    def _resume(self) -> None:
        self.paused = False
        for task in self.frozen:
            self.kernel.ready(task)
        self.frozen = []

    def kill(self) -> None:
        self.killed = True
        self._resume()
        for task in self.tasks:
            self.kernel.wake(task, signalled=False)


class VirtualFlag:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._set = kernel, False
        self._waiters: list[_Task] = []

    def set(self) -> None:
        self._set = True
        for task in list(self._waiters):
            self._kernel.wake(task, signalled=True)

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set and (timeout is None or timeout > 0):
            self._kernel.block(self._waiters, timeout)
        return self._set


class VirtualMailbox:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._items: deque[Any] = deque()
        self._waiters: list[_Task] = []

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiters:
            self._kernel.wake(self._waiters[0], signalled=True)
            self._waiters.pop(0)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self._kernel.now + timeout
        while not self._items:
            left = None if deadline is None else deadline - self._kernel.now
            if not block or (left is not None and left <= 0):
                raise Empty
            self._kernel.block(self._waiters, left)
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class VirtualThread:
    def __init__(self, task: _Task) -> None:
        self._task = task
        self._begun = False

    def start(self) -> None:
        self._begun = True
        self._task.process.tasks.append(self._task)
        self._task.process.kernel.ready(self._task)

    def join(self, timeout: float | None = None) -> None:
        self._task.over.wait(timeout)

    def is_alive(self) -> bool:
        return self._begun and not self._task.over.is_set()


class VirtualRuntime:
    """The Runtime of one process."""

    def __init__(self, process: Process) -> None:
        self._process, self._kernel = process, process.kernel

    def monotonic(self) -> float:
        return self._kernel.now

    def time(self) -> float:
        return EPOCH + self._kernel.now

    def sleep(self, seconds: float) -> None:
        self._kernel.block(None, seconds)

    def uniform(self, low: float, high: float) -> float:
        return self._kernel.jitter.uniform(low, high)

    def flag(self) -> VirtualFlag:
        return VirtualFlag(self._kernel)

    def mailbox(self) -> VirtualMailbox:
        return VirtualMailbox(self._kernel)

    def thread(self, target: Callable[[], None], name: str) -> VirtualThread:
        return VirtualThread(_Task(self._process, target, f"{self._process.name}/{name}"))
