"""The best victims where sorting finds them, without any search: each unit frees capacity for exactly one pod,
whichever others go. So it is with pods of one kind on full nodes.

Design: docs/design/evictions.md
"""

from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints


class SingleRowGangs(NamedTuple):
    """Units of different gangs, each on one row: its index, what the unit frees by resource, and its harm by part."""

    row: Ints
    frees: Ints
    harm: Ints


def best_gangs(free: Ints, request: Ints, missing: int, gangs: SingleRowGangs) -> Ints | None:
    """The indices of the best units, least harm first. None: the units depend on each other, or they are not enough.
    free: by row and resource.

    One resource limits each row, with all units gone as well as now, and now none of it is left over. What pods fit is
    a sum rounded down, so a set suffices for at least as many as its units do one by one. If all units together
    suffice for no more than that, no set does."""
    row, frees, harm = gangs
    if not len(row):
        return None
    without = free.copy()
    np.add.at(without, row, frees)
    each = free // request
    start = np.maximum(each.min(axis=1), 0)
    most = np.maximum((without // request).min(axis=1), 0)
    used = np.zeros(len(free), dtype=np.bool_)
    used[row] = True
    limiting = (each < most[:, None]) & used[:, None]
    count = limiting.sum(axis=1)
    limited, column = count == 1, limiting.argmax(axis=1)
    if (count > 1).any():
        return None
    have, ask = free[np.arange(len(free)), column], request[column]
    amount = np.where(limited[row], frees[np.arange(len(row)), column[row]], 0)
    left_over = (have > 0) & (have % ask > 0)
    if (left_over[row] & (amount % ask[row] > 0)).any():
        return None  # what is left over suffices for the first of them only
    gain = np.where(limited[row], (have[row] + amount) // ask[row], start[row])
    gain = np.maximum(gain, 0) - start[row]
    if gain.max() > 1 or (used & (start + np.bincount(row, gain, len(free)) != most)).any():
        return None
    useful = np.flatnonzero(gain)
    if len(useful) < missing:
        return None
    helps = np.flatnonzero(amount > 0)
    first = np.zeros(len(free), dtype=np.int64)  # unit of the row
    first[row[helps[::-1]]] = helps[::-1]
    keys = [harm[useful, part] for part in reversed(range(harm.shape[1]))]
    chosen: Ints = useful[np.lexsort((first[row[useful]], *keys))]
    return chosen[:missing]
