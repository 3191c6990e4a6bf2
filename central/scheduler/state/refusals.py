"""What the pending gangs were refused, in the order in which they got their first refusal.

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
    def __init__(self) -> None:
        self._gangs: dict[GangKey, Gang] = {}

    def give(self, gang: Gang, refusal: Refusal) -> None:
        """A gang that has one keeps its place in the order."""
        gang.attempt.refusal = refusal
        if not gang.attempt.listed:
            self._list(gang)

    def give_all(self, columns: PendingColumns, rows: Ints, refusal: Refusal) -> None:
        """The same for the gangs of all these rows; those that have none yet have to be listed (list_new)."""
        columns.attempts.refusal[rows] = refusal

    def list_new(self, columns: PendingColumns, rows: Ints) -> None:
        """Those of these gangs that got a refusal and had none come last, in the order of the rows."""
        for row in rows[~columns.attempts.listed[rows]].tolist():
            if columns.attempts.refusal[row] is not None:
                self._list(columns.at(row))

    def pop(self, key: GangKey) -> Refusal | None:
        """None: the gang has no refusal."""
        gang = self._gangs.pop(key, None)
        if gang is None:
            return None
        refusal: Refusal = gang.attempt.refusal
        gang.attempt.refusal, gang.attempt.listed = None, False
        return refusal

    def _list(self, gang: Gang) -> None:
        before = self._gangs.get(gang.key)
        if before is not None:  # another gang of this name, which has gone
            before.attempt.listed = False
        self._gangs[gang.key] = gang
        gang.attempt.listed = True

    def check(self) -> None:
        for key, gang in self._gangs.items():
            assert gang.key == key, f"{gang.name} is listed as {key}"
            assert gang.attempt.listed, f"{gang.name} is listed twice"
            assert gang.attempt.refusal is not None, f"{gang.name} is listed without a refusal"

    def __getitem__(self, key: GangKey) -> Refusal:
        refusal: Refusal = self._gangs[key].attempt.refusal
        return refusal

    def __iter__(self) -> Iterator[GangKey]:
        return iter(self._gangs)

    def __len__(self) -> int:
        return len(self._gangs)
