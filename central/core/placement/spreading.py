"""Seats for equal pods among nodes: the fewest parts of each level, ranks in order, the rest where it
is tightest. cap: by row, how many more fit there."""

import numpy as np

from central.core.fleet.domains import Ints
from central.core.fleet.draft import DoesNotFit
from central.core.fleet.snapshot import Snapshot


def spread(snapshot: Snapshot, cap: Ints, rows: Ints, count: int, level: int) -> tuple[Ints, Ints]:
    """Seats for count equal pods among the rows, as rows and pods for each: the parts of one domain
    together, the roomiest parts filled, the rest in the part with the least room that takes it.

    level: the index of the level that the rows are divided by first; past the last one: by node.
    """
    rows = rows[cap[rows] > 0]
    if level >= len(snapshot.domains.levels):
        chosen, shares = _shares(cap[rows], snapshot.name_rank()[rows], count)
        return rows[chosen], shares
    of = snapshot.domains.of[level, rows]
    there = np.zeros(snapshot.domains.count(level) + 1, dtype=np.bool_)
    there[of] = True  # those in no domain of the level stand last
    ids = np.flatnonzero(there)
    if len(ids) == 1:
        return spread(snapshot, cap, rows, count, level + 1)
    part = (np.cumsum(there) - 1)[of]
    room = np.bincount(part, weights=cap[rows]).astype(np.int64)
    rank = np.append(snapshot.domains.ranks(level), -1)[ids]
    chosen, shares = _shares(room, rank, count)
    if shares[-1] == room[chosen[-1]]:
        return _whole(snapshot, cap, (rows, part), chosen, level)
    last = spread(snapshot, cap, rows[part == chosen[-1]], int(shares[-1]), level + 1)
    if len(chosen) == 1:
        return last
    whole = _whole(snapshot, cap, (rows, part), chosen[:-1], level)
    return np.concatenate([whole[0], last[0]]), np.concatenate([whole[1], last[1]])


def _whole(
    snapshot: Snapshot, cap: Ints, divided: tuple[Ints, Ints], parts: Ints, level: int
) -> tuple[Ints, Ints]:
    """All the room of these parts, part by part, and inside them domain by domain.

    divided: rows, and the part that each is in."""
    rows, part = divided
    place = np.full(int(part.max()) + 1, -1, dtype=np.int64)
    place[parts] = np.arange(len(parts))
    inside = place[part] >= 0
    rows, turn = rows[inside], place[part[inside]]
    inner = snapshot.domains.of[level + 1 :, rows]
    rows = rows[np.lexsort((snapshot.name_rank()[rows], *inner[::-1], turn))]
    return rows, cap[rows]


def _shares(room: Ints, rank: Ints, count: int) -> tuple[Ints, Ints]:
    """Divides count over the parts, as indices and shares: the fewest parts, and of those that take
    the rest the tightest."""
    order = np.lexsort((rank, -room))
    filled = np.cumsum(room[order])
    whole = int(np.searchsorted(filled, count))
    if whole >= len(order):
        raise DoesNotFit("not enough room")
    rest = count - (int(filled[whole - 1]) if whole else 0)
    # Sorted by room: those with enough for the rest are in front, the tightest are the last of them.
    enough = int(np.searchsorted(-room[order], -rest, side="right"))
    tightest = int(np.searchsorted(-room[order], -room[order[enough - 1]], side="left"))
    last = order[max(whole, tightest)]
    shares = room[order[: whole + 1]].copy()
    shares[whole] = rest
    return np.append(order[:whole], last), shares
