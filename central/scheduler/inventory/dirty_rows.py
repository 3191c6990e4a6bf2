"""A log of the rows that changed. A reader keeps its position and recounts only the rows after it."""

KEPT = 100_000


class DirtyRows:
    def __init__(self) -> None:
        self._rows: list[int] = []
        self._from = 0  # number of entries dropped before the first

    def add(self, rows: list[int]) -> None:
        self._rows += rows
        if len(self._rows) > 2 * KEPT:
            del self._rows[:KEPT]
            self._from += KEPT

    def since(self, mark: int) -> tuple[int, list[int] | None]:
        """The new position, and the rows that changed since `mark`; None if the log does not reach back that
        far, so that the reader must recount all rows."""
        now = self._from + len(self._rows)
        if mark < self._from:
            return now, None
        return now, self._rows[mark - self._from :]

    def reset(self) -> None:
        """Makes every reader recount all rows."""
        self._from += len(self._rows) + 1
        self._rows.clear()
