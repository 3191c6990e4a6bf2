"""Which rows of the snapshot changed, in order: whoever keeps something by row remembers how far it has read
and counts only what came after."""

KEPT = 100_000


class DirtyRows:
    def __init__(self) -> None:
        self._rows: list[int] = []
        self._from = 0  # how many were forgotten before the first of them

    def note(self, rows: list[int]) -> None:
        self._rows += rows
        if len(self._rows) > 2 * KEPT:
            del self._rows[:KEPT]
            self._from += KEPT

    def since(self, mark: int) -> tuple[int, list[int] | None]:
        """The new mark, and the rows changed since the old one; None: too many to tell."""
        now = self._from + len(self._rows)
        if mark < self._from:
            return now, None
        return now, self._rows[mark - self._from :]

    def reset(self) -> None:
        """Everybody counts everything anew."""
        self._from += len(self._rows) + 1
        self._rows.clear()
