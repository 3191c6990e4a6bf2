"""The best victims where sorting finds them, without any search. Two common cases:

- One pod is missing, and the least harmful unit of all suffices for it by itself. Every other choice has a unit that
  does at least as much harm.
- Each unit frees capacity for exactly one pod, whichever others go: pods of one kind on full nodes.

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
    """The indices of the best units, least harm first. None: the units depend on each other, or they are not enough. free: by
    row and resource.

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
    if missing == 1 and (alone := _least_harmful_gang(free, request, gangs, most)) is not None:
        return np.array([alone], dtype=np.int64)
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


def _least_harmful_gang(free: Ints, request: Ints, gangs: SingleRowGangs, most: Ints) -> int | None:
    """The least harmful unit, of those that free what their rows have too little of. None: it suffices for no pod by
    itself. most: pods by row without all."""
    row, frees, harm = gangs
    short = free // request < most[:, None]
    useful = np.flatnonzero((short[row] & (frees > 0)).any(axis=1))
    if not len(useful):
        return None
    keys = [harm[useful, part] for part in reversed(range(harm.shape[1]))]
    useful = useful[np.lexsort((row[useful], *keys))]
    useful = useful[(harm[useful] == harm[useful[0]]).all(axis=1)]
    before = free[row[useful]]
    now, then = (have // request for have in (before, before + frees[useful]))
    enough = np.maximum(then.min(axis=1), 0) > np.maximum(now.min(axis=1), 0)
    return int(useful[enough.argmax()]) if enough.any() else None
