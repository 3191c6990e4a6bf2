"""Processor time that a piece of code takes, on a machine where other tests run at the same time."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class OwnTime:
    """The seconds are 0 until the block ends."""

    seconds: float = 0.0


@contextmanager
def own_time() -> Iterator[OwnTime]:
    """Measures the block in this thread. Threads that other tests left do not count, nor does garbage collection, whose
    time depends on how many objects the tests before it keep."""
    spent = OwnTime()
    collecting = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield spent
    finally:
        spent.seconds = time.thread_time() - began
        if collecting:
            gc.enable()
