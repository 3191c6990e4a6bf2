"""Waits that a signal always ends."""

from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")

LOOK_S = 0.5  # how late a handler may run


def next_item(queue: "SimpleQueue[Item]") -> Item:
    """queue.get() of the main thread, for queues that a signal handler fills.

    Python runs handlers in the main thread, between two instructions. A blocked get() returns for a signal only if
    the kernel delivers it to this very thread while it sleeps: a signal that comes just before get() blocks, or that
    another thread receives, would be noticed after the next item, thus never. So get() sleeps in slices.
    """
    while True:
        try:
            return queue.get(timeout=LOOK_S)
        except Empty:
            continue
