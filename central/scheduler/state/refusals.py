"""The refusals of the pending gangs, in the order in which the gangs got their first one.

Thousands of gangs share a refusal and get the next one together, so it is in a column of the pending gangs; the
order alone is kept by key.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from central.model.arrays import Ints
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.pending_columns import PendingColumns

Refusal = TypeVar("Refusal")


class Refusals(Mapping[GangKey, Refusal], Generic[Refusal]):
    def __init__(self, columns: PendingColumns) -> None:
        self._columns = columns
        self._rows: dict[GangKey, int] = {}

    def give(self, gang: Gang, refusal: Refusal) -> None:
        """A gang that has one keeps its place in the order."""
        self._columns.refusal[gang.attempt.row] = refusal
        self._list(gang.attempt.row)

    def give_all(self, rows: Ints, refusal: Refusal) -> None:
        """The same for the gangs of all these rows; those that have none yet have to be listed (list_new)."""
        self._columns.refusal[rows] = refusal

    def list_new(self, rows: Ints) -> None:
        """Puts those of these gangs last that got a refusal and had none before, in the order of the rows."""
        for row in rows[~self._columns.listed[rows]].tolist():
            if self._columns.refusal[row] is not None:
                self._list(row)

    def pop(self, key: GangKey) -> Refusal | None:
        """Removes and returns the gang's refusal. None: it has none."""
        row = self._rows.pop(key, None)
        if row is None:
            return None
        refusal: Refusal = self._columns.refusal[row]
        self._columns.refusal[row], self._columns.listed[row] = None, False
        return refusal

    def _list(self, row: int) -> None:
        self._rows[self._columns.at(row).key] = row
        self._columns.listed[row] = True

    def __getitem__(self, key: GangKey) -> Refusal:
        refusal: Refusal = self._columns.refusal[self._rows[key]]
        return refusal

    def __iter__(self) -> Iterator[GangKey]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
