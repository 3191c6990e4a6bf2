"""Seats for equal pods among nodes: the fewest parts of each level, widest first, ranks in order, the rest
where it is tightest. cap: by row, how many more fit there."""

import numpy as np

from central.model.arrays import Ints
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot


def spread(snapshot: Snapshot, cap: Ints, rows: Ints, count: int, level: int) -> tuple[Ints, Ints]:
    """Seats for count equal pods among the rows, as rows and pods for each; the parts of one domain
    together.

    level: the index of the level that the rows are divided by first; past the last one: by node. Of the
    fewest parts that hold all none can be left out, so what is chosen below, among all of their parts
    together, is in each of them.
    """
    rows = rows[cap[rows] > 0]
    tree = snapshot.columns.domains
    for index in range(level, len(tree.levels)):
        rows = _fewest(snapshot, cap, rows, count, index)
    chosen, shares = _shares(cap[rows], snapshot.columns.name_rank()[rows], count)
    rows = rows[chosen]
    if level < len(tree.levels) and len(rows) > 1:
        indices = range(len(tree.levels) - 1, level - 1, -1)
        ranks = [np.append(tree.ranks(index), -1)[tree.of[index, rows]] for index in indices]
        order = np.lexsort((np.arange(len(rows)), *ranks))
        rows, shares = rows[order], shares[order]
    return rows, shares


def _fewest(snapshot: Snapshot, cap: Ints, rows: Ints, count: int, level: int) -> Ints:
    """The rows of the fewest domains of the level that hold all."""
    of = snapshot.columns.domains.of[level, rows]
    there = np.zeros(snapshot.columns.domains.count(level) + 1, dtype=np.bool_)
    there[of] = True  # those in no domain of the level stand last
    ids = np.flatnonzero(there)
    if len(ids) <= 1:
        return rows
    part = (np.cumsum(there) - 1)[of]
    room = np.bincount(part, weights=cap[rows]).astype(np.int64)
    rank = np.append(snapshot.columns.domains.ranks(level), -1)[ids]
    chosen, _ = _shares(room, rank, count)
    taken = np.zeros(len(ids), dtype=np.bool_)
    taken[chosen] = True
    kept: Ints = rows[taken[part]]
    return kept


def _shares(room: Ints, rank: Ints, count: int) -> tuple[Ints, Ints]:
    """Divides count over the parts, as indices and shares: the fewest parts, and of those that take
    the rest the tightest."""
    order = np.lexsort((rank, -room))
    filled = np.cumsum(room[order])
    whole = int(np.searchsorted(filled, count))
    if whole >= len(order):
        raise DoesNotFit("not enough capacity")
    rest = count - (int(filled[whole - 1]) if whole else 0)
    # Sorted by room: those with enough for the rest are in front, the tightest are the last of them.
    enough = int(np.searchsorted(-room[order], -rest, side="right"))
    tightest = int(np.searchsorted(-room[order], -room[order[enough - 1]], side="left"))
    last = order[max(whole, tightest)]
    shares = room[order[: whole + 1]].copy()
    shares[whole] = rest
    return np.append(order[:whole], last), shares
