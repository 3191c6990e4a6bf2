"""The order of the records in an epoch: a pure function of epoch, seed and position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from .permutation import Permutation

_RECORDS, _SHARDS, _WINDOW = 0, 1, 2  # keep the keys of the permutations apart


class RecordSequence:
    """Record numbers 0..length-1, permuted for each epoch, or in their own order without shuffle."""

    def __init__(self, length: int, seed: int, *, shuffle: bool = True) -> None:
        if length < 1:
            raise ValueError(f"length={length}: an Order needs at least one record")
        self.length, self.seed, self.shuffle = length, seed, shuffle
        self._permutation = lru_cache(maxsize=2)(self._make)

    def span(self, epoch: int, start: int, stop: int) -> list[Any]:
        """Returns the records at positions start..stop-1 of the epoch."""
        if not self.shuffle:
            return list(range(start, stop))
        return list(self._permutation(epoch).span(start, stop))

    def _make(self, epoch: int) -> Permutation:
        return Permutation(self.length, _RECORDS, self.seed, epoch)


def first_twice(names: Sequence[str]) -> str | None:
    """The first one that was there before; None: they differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


class ShardSequence:
    """Records as (shard name, offset in it): the shards are permuted, then the records inside windows
    of consecutive positions, so that a process reads few shards at a time.

    Memory: one number per shard."""

    def __init__(self, shards: Sequence[tuple[str, int]], seed: int, window: int) -> None:
        for name, records in shards:
            if records < 0:
                raise ValueError(f'shards: "{name}" has {records} records; must be 0 or more')
        if (twice := first_twice([name for name, _ in shards])) is not None:
            raise ValueError(f'shards: "{twice}" is given twice; its records would be seen twice')
        if window < 1:
            raise ValueError(f"window={window}: must be at least 1 record")
        self.shards, self.seed, self.window = tuple(shards), seed, window
        self.length = sum(records for _, records in shards)
        if self.length < 1:
            raise ValueError("shards: an Order needs at least one record")
        self._epoch = lru_cache(maxsize=2)(self._make_epoch)
        self._window = lru_cache(maxsize=4)(self._make_window)

    def span(self, epoch: int, start: int, stop: int) -> list[Any]:
        """Returns the records at positions start..stop-1 of the epoch."""
        found: list[Any] = []
        while start < stop:
            number, offset = divmod(start, self.window)
            permutation = self._window(epoch, number)
            most = min(permutation.length, offset + stop - start)
            base = number * self.window
            inside = permutation.span(offset, most)
            found += [self._locate(epoch, base + position) for position in inside]
            start += most - offset
        return found

    def _locate(self, epoch: int, position: int) -> tuple[str, int]:
        order, ends = self._epoch(epoch)
        place = bisect_right(ends, position)
        before = ends[place - 1] if place else 0
        return self.shards[order[place]][0], position - before

    def _make_epoch(self, epoch: int) -> tuple[list[int], list[int]]:
        count = len(self.shards)
        order = Permutation(count, _SHARDS, self.seed, epoch).span(0, count)
        return order, list(accumulate(self.shards[number][1] for number in order))

    def _make_window(self, epoch: int, number: int) -> Permutation:
        length = min(self.window, self.length - number * self.window)
        return Permutation(length, _WINDOW, self.seed, epoch, number)
