"""Free amounts of all nodes together, kept up to date: only rows that changed are counted again."""

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory.columns import Columns


class FreeTotals:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._mark = -1
        self._free: Ints = np.zeros((0, 0), dtype=np.int64)  # by row, as counted last
        self._gpus: Ints = np.zeros(0, dtype=np.int64)
        self._sums, self._gpu_sum = self._gpus, 0
        self.rows_counted = 0  # so far

    def now(self) -> tuple[int, ...]:
        """The free amounts by column, as allocatable says, and the GPUs that are free and healthy."""
        columns = self._columns
        mark, dirty = columns.dirty.since(self._mark)
        self._mark = -1  # if counting fails, all is counted again
        if dirty is None or self._free.shape != columns.free.shape:
            self._free, self._gpus = columns.free.copy(), columns.gpus.count.copy()
            self._sums, self._gpu_sum = self._free.sum(axis=0), int(self._gpus.sum())
            self.rows_counted += len(self._free)
        elif dirty:
            rows = np.array(sorted(set(dirty)), dtype=np.int64)
            free, gpus = columns.free[rows], columns.gpus.count[rows]
            self._sums = self._sums + (free - self._free[rows]).sum(axis=0)
            self._gpu_sum += int((gpus - self._gpus[rows]).sum())
            self._free[rows], self._gpus[rows] = free, gpus
            self.rows_counted += len(rows)
        self._mark = mark
        return (*self._sums.tolist(), self._gpu_sum)
