"""The counts that reasons have made in the table of victims at one time, so that equal ones are made once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KEPT = 1_000


class CountsInReasons:
    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], Any] = {}
        self.reads = True  # whether the table is read again before
        self._stamp: tuple[object, ...] = ()

    def begin(self, stamp: tuple[object, ...]) -> None:
        """stamp: counts of another one are out of date."""
        if stamp != self._stamp or len(self.known) > KEPT:
            self.known, self._stamp = {}, stamp

    @contextmanager
    def as_read(self) -> Iterator[None]:
        """Counts what the table has, for a question between two cycles: reading more would change the order of slots,
        which decides between equal victims."""
        self.reads = False
        try:
            yield
        finally:
            self.reads = True
