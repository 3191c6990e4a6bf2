"""The arrays of the table of victims: one entry for each pod that holds capacity, one slot for each gang.

Design: docs/design/evictions.md
"""

from collections.abc import Sequence

import numpy as np

from central.model.arrays import Floats, Ints
from central.scheduler.inventory.pods import Pod


class PodEntries:
    """Growing arrays with one entry for each pod."""

    def __init__(self) -> None:
        self.used = 0
        self.ints: Ints = np.zeros((6, 1024), dtype=np.int64)
        self.times: Floats = np.zeros((3, 1024), dtype=np.float64)
        self.pods: list[Pod | None] = []  # None: it has gone

    def append(self, pods: Sequence[Pod], ints: list[Ints], times: list[Floats]) -> None:
        """ints, times: the columns below, in their order."""
        end = self.used + len(pods)
        while end > self.ints.shape[1]:
            self.ints = np.concatenate([self.ints, np.zeros_like(self.ints)], axis=1)
            self.times = np.concatenate([self.times, np.zeros_like(self.times)], axis=1)
        self.ints[:, self.used : end], self.times[:, self.used : end] = ints, times
        self.pods += pods
        self.used = end

    def pods_of(self, entries: Ints) -> list[Pod]:
        """Of entries that have not gone."""
        pods = self.pods
        return [pod for entry in entries.tolist() if (pod := pods[entry]) is not None]

    # By entry. slot: of the gang. podclass: index in VictimTable.classes. rank: of equal members the
    # highest goes. size: what its requests are worth.
    @property
    def row(self) -> Ints:
        return self.ints[0, : self.used]

    @property
    def slot(self) -> Ints:
        return self.ints[1, : self.used]

    @property
    def podclass(self) -> Ints:
        return self.ints[2, : self.used]

    @property
    def rank(self) -> Ints:
        return self.ints[3, : self.used]

    @property
    def size(self) -> Ints:
        return self.ints[4, : self.used]

    @property
    def state(self) -> Ints:
        return self.ints[5, : self.used]

    @property
    def began(self) -> Floats:
        return self.times[0, : self.used]

    @property
    def checkpoint(self) -> Floats:
        return self.times[1, : self.used]

    @property
    def created(self) -> Floats:
        return self.times[2, : self.used]


class GangSlots:
    """Growing arrays with one slot for each gang."""

    def __init__(self) -> None:
        self.used = 0
        self._ints: Ints = np.zeros((6, 1024), dtype=np.int64)

    def extend(self, count: int) -> None:
        """By so many slots, in no group and without entries."""
        while self.used + count > self._ints.shape[1]:
            self._ints = np.concatenate([self._ints, np.zeros_like(self._ints)], axis=1)
        self.used += count
        self.group[self.used - count :] = -1

    def set(self, slots: Sequence[int], ints: Sequence[tuple[int, ...]]) -> None:
        """All that is kept of the gangs in these slots, in the order below."""
        if ints:
            self._ints[:, slots] = np.array(ints, dtype=np.int64).T

    # By slot. surplus: members above its minimum, of those that are not leaving. group: of gangs that are equal to
    # the rules of who may evict whom. first, end: its entries.
    @property
    def priority(self) -> Ints:
        return self._ints[0, : self.used]

    @property
    def surplus(self) -> Ints:
        return self._ints[1, : self.used]

    @property
    def has_rules(self) -> Ints:
        """1: it, its pods or its tasks say who of it may leave."""
        return self._ints[2, : self.used]

    @property
    def group(self) -> Ints:
        return self._ints[3, : self.used]

    @property
    def first(self) -> Ints:
        return self._ints[4, : self.used]

    @property
    def end(self) -> Ints:
        return self._ints[5, : self.used]
