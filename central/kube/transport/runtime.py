"""The operating system as the program's parts see it: clocks, chance, threads, and ways to wait.

Every part that waits takes a Runtime, and reads no other clock (tests/architecture), so that a test can run the whole
program on virtual time, one thread at a time. RUNTIME is the operating system's.

Design: docs/design/simulation.md
"""

import random
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol


class Flag(Protocol):
    """The interface of threading.Event."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Mailbox(Protocol):
    """The interface of queue.SimpleQueue: get() raises queue.Empty after the timeout."""

    def put(self, item: Any) -> None: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...
    def get_nowait(self) -> Any: ...
    def empty(self) -> bool: ...
    def qsize(self) -> int: ...


class JoinableThread(Protocol):
    """The interface of threading.Thread."""

    def start(self) -> None: ...
    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Runtime(Protocol):
    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...
    def uniform(self, low: float, high: float) -> float: ...
    def flag(self) -> Flag: ...
    def mailbox(self) -> Mailbox: ...
    def thread(self, target: Callable[[], None], name: str) -> JoinableThread: ...


class OsRuntime:
    """The operating system's clocks and threads."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)

    def flag(self) -> Flag:
        return threading.Event()

    def mailbox(self) -> Mailbox:
        return SimpleQueue()

    def thread(self, target: Callable[[], None], name: str) -> JoinableThread:
        return threading.Thread(target=target, name=name, daemon=True)


RUNTIME = OsRuntime()
