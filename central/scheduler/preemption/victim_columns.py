"""The arrays of the table of victims: one entry for each pod that holds capacity, one slot for each gang; and what
evictions cost, part by part.

Design: docs/design/evictions.md
"""

from collections.abc import Sequence

import numpy as np

from central.model.arrays import Floats, Ints
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.harm import LOST_MOST_S

# Columns of costs, compared from the left: priority, gangs broken and urgency, work lost, pods, capacity that they
# hold, run time, age, and the negative rank of the member. The last but one are as in harm.Harm.
PARTS = 8
UNKNOWN = -1.0  # no time


class _Ints:
    """A row of the table's numbers, up to the last one in use."""

    def __init__(self, row: int) -> None:
        self._row = row

    def __get__(self, table: "PodEntries | GangSlots", _: type) -> Ints:
        return table.ints[self._row, : table.used]


class _Times:
    """A row of the entries' times."""

    def __init__(self, row: int) -> None:
        self._row = row

    def __get__(self, table: "PodEntries", _: type) -> Floats:
        return table.times[self._row, : table.used]


class PodEntries:
    """Growing arrays with one entry for each pod."""

    # slot: of the gang. podclass: index in VictimTable.classes. rank: of equal members the highest goes. size: what its
    # requests are worth. urgency: as surplus_members.urgencies().
    # grace_s: how long it may take to end.
    row, slot, podclass, rank, size, state, urgency, grace_s = map(_Ints, range(8))
    began, checkpoint, created = map(_Times, range(3))

    def __init__(self) -> None:
        self.used = 0
        self.ints: Ints = np.zeros((8, 1024), dtype=np.int64)
        self.times: Floats = np.zeros((3, 1024), dtype=np.float64)
        self.pods: list[Pod | None] = []  # None: it has gone

    def append(self, pods: Sequence[Pod], ints: list[Ints], times: list[Floats]) -> None:
        """ints, times: the columns above, in their order."""
        end = self.used + len(pods)
        while end > self.ints.shape[1]:
            self.ints = np.concatenate([self.ints, np.zeros_like(self.ints)], axis=1)
            self.times = np.concatenate([self.times, np.zeros_like(self.times)], axis=1)
        self.ints[:, self.used : end], self.times[:, self.used : end] = ints, times
        self.pods += pods
        self.used = end

    def pods_of(self, entries: Ints) -> list[Pod]:
        """The pods of entries that have not gone."""
        pods = self.pods
        return [pod for entry in entries.tolist() if (pod := pods[entry]) is not None]

    def harm_of(self, chosen: Ints, now: float) -> Ints:
        """The parts of the harm of evicting each pod above its gang's minimum, without its priority."""
        began, checkpoint = self.began[chosen], self.checkpoint[chosen]
        ran = np.where(began == UNKNOWN, 0, np.maximum(now - began, 0)).astype(np.int64)
        since = np.maximum(now - checkpoint, 0).astype(np.int64)
        lost = np.where(checkpoint == UNKNOWN, ran, np.minimum(ran, since))
        size = self.size[chosen]
        found = np.zeros((len(chosen), PARTS), dtype=np.int64)
        work = size * (np.minimum(lost, LOST_MOST_S) + self.grace_s[chosen])
        found[:, 1] = self.urgency[chosen]
        found[:, 2], found[:, 3], found[:, 4], found[:, 5] = work, 1, size, ran
        found[:, 6] = np.maximum(now - self.created[chosen], 0)
        found[:, 7] = -self.rank[chosen]
        return found


class GangSlots:
    """Growing arrays with one slot for each gang."""

    # surplus: members above its minimum, of those that are not leaving. has_rules: 1 if it, its pods or its tasks say
    # who of it may leave. group: of gangs that are equal to the rules of who may evict whom. first, end: its entries.
    rank, surplus, has_rules, group, first, end = map(_Ints, range(6))

    def __init__(self) -> None:
        self.used = 0
        self.ints: Ints = np.zeros((6, 1024), dtype=np.int64)

    def extend(self, count: int) -> None:
        """Adds slots that are in no group and have no entries."""
        while self.used + count > self.ints.shape[1]:
            self.ints = np.concatenate([self.ints, np.zeros_like(self.ints)], axis=1)
        self.used += count
        self.group[self.used - count :] = -1

    def set(self, slots: Sequence[int], ints: Sequence[tuple[int, ...]]) -> None:
        """Sets all columns of the gangs in these slots."""
        if ints:
            self.ints[:, slots] = np.array(ints, dtype=np.int64).T
