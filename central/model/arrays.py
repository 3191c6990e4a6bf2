"""Types of the arrays in which the scheduler counts, and how a change of one row or of many is read."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


UNLIMITED = 2**40


Floats = npt.NDArray[np.float64]


Bools = npt.NDArray[np.bool_]


def by_row(row: int | Ints, change: int | Ints) -> Iterator[tuple[int, int]]:
    """Yields each row with its change. row: one, or many different ones; change: of each, or the same for all."""
    if isinstance(row, np.ndarray):
        changes = np.broadcast_to(np.asarray(change), row.shape)
        yield from zip(row.tolist(), changes.tolist(), strict=True)
    else:
        yield int(row), int(change)
