"""Divides equal pods among the nodes of a domain: the fewest blocks, then the fewest racks, then the fewest
nodes.

At each level the domains with the most capacity are taken until they hold all pods; the last one is the
tightest that takes the rest. The level below starts again among all children of the chosen domains. Because
the number of domains is minimal, none of them can stay empty below.

Design: docs/design/0007-fewest-domains.md
"""

import numpy as np

from central.model.arrays import Ints
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot


def fill_fewest(
    snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int
) -> tuple[Ints, Ints]:
    """Rows, and the number of pods for each; rows of one domain follow each other.

    capacity: by row, how many more pods fit. level: the index of the widest level whose domains should be
    few; past the last one, only nodes count. Raises DoesNotFit if the rows cannot hold count pods."""
    rows = rows[capacity[rows] > 0]
    tree = snapshot.columns.domains
    for index in range(level, len(tree.levels)):
        rows = _fewest_domains(snapshot, capacity, rows, count, index)
    ranks = (snapshot.columns.name_rank()[rows], snapshot.columns.gpus.count[rows])
    chosen, counts = _split(capacity[rows], ranks, count)
    rows = rows[chosen]
    if level < len(tree.levels) and len(rows) > 1:
        indices = range(len(tree.levels) - 1, level - 1, -1)
        names = [np.append(tree.ranks(index), -1)[tree.of[index, rows]] for index in indices]
        order = np.lexsort((np.arange(len(rows)), *names))
        rows, counts = rows[order], counts[order]
    return rows, counts


def _fewest_domains(snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int) -> Ints:
    """The rows of the fewest domains of the level that hold all pods."""
    of = snapshot.columns.domains.of[level, rows]
    used = np.zeros(snapshot.columns.domains.count(level) + 1, dtype=np.bool_)
    used[of] = True  # -1: rows without a domain of the level count as one domain, the last
    ids = np.flatnonzero(used)
    if len(ids) <= 1:
        return rows
    domain = (np.cumsum(used) - 1)[of]
    capacity = np.bincount(domain, weights=capacity[rows]).astype(np.int64)
    tree, known = snapshot.columns.domains, ids[ids < snapshot.columns.domains.count(level)]
    _, fullest = snapshot.domain_gpus.refresh().order_of_domains(level, known, 0)
    none = [-1] * (len(ids) - len(known))
    ranks = (np.append(tree.ranks(level)[known], none), np.append(fullest, none))
    chosen, _ = _split(capacity, ranks, count)
    taken = np.zeros(len(ids), dtype=np.bool_)
    taken[chosen] = True
    kept: Ints = rows[taken[domain]]
    return kept


def _split(capacity: Ints, ranks: tuple[Ints, Ints], count: int) -> tuple[Ints, Ints]:
    """Divides count pods over domains, as indices and numbers: the fewest domains, and the tightest of
    those that can take the rest. ranks: among equals, the domains with the least last rank come first.

    Example: capacities 8, 8, 4, 3, 2 and count 11. The first domain takes 8. The remaining 3 pods fit
    the second (8), the third (4) and the fourth (3) domain; the fourth is the tightest."""
    order = np.lexsort((*ranks, -capacity))
    filled = np.cumsum(capacity[order])
    whole = int(np.searchsorted(filled, count))
    if whole >= len(order):
        raise DoesNotFit("not enough capacity")
    rest = count - (int(filled[whole - 1]) if whole else 0)
    # By falling capacity, domains with enough for the rest come first, and the tightest of them last.
    enough = int(np.searchsorted(-capacity[order], -rest, side="right"))
    tightest = int(np.searchsorted(-capacity[order], -capacity[order[enough - 1]], side="left"))
    last = order[max(whole, tightest)]
    counts = capacity[order[: whole + 1]].copy()
    counts[whole] = rest
    return np.append(order[:whole], last), counts
