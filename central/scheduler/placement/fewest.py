"""Divides equal pods among the nodes of a domain: the fewest blocks, then the fewest racks, then the fewest
nodes.

At each level the domains with the most capacity are taken until they hold all pods; the last one is the
tightest that takes the rest. The level below starts again among all children of the chosen domains. Because
the number of domains is minimal, none of them can stay empty below. Where this is not certainly the best, the
domains are searched (fewest_search.py).

Design: docs/design/placement.md
"""

from collections.abc import Sequence

import numpy as np

from central.model.arrays import Ints
from central.scheduler.placement import fewest_search
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot

SEARCH_UNITS = 400  # of work, for the exact search
SEARCH_DOMAIN_UNITS = 8  # ... for each domain of the narrowest level
FULLNESS = 256  # steps in which the fullness of domains is compared


def fill_fewest(
    snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int
) -> tuple[Ints, Ints]:
    """Rows, and the number of pods for each; rows of one domain follow each other.

    capacity: by row, how many more pods fit. level: the index of the widest level whose domains should be
    few; past the last one, only nodes count. Raises DoesNotFit if the rows cannot hold count pods."""
    rows = usable(capacity, rows, count)
    tree = snapshot.columns.domains
    if level < len(tree.levels):
        rows = _fewest_domains(snapshot, capacity, rows, count, level)
    ranks = (snapshot.columns.name_rank()[rows], snapshot.columns.gpus.count[rows])
    chosen, counts = _split(capacity[rows], ranks, count)
    rows = rows[chosen]
    if level < len(tree.levels) and len(rows) > 1:
        indices = range(len(tree.levels) - 1, level - 1, -1)
        names = [np.append(tree.ranks(index), -1)[tree.of[index, rows]] for index in indices]
        order = np.lexsort((np.arange(len(rows)), *names))
        rows, counts = rows[order], counts[order]
    return rows, counts


def usable(capacity: Ints, rows: Ints, count: int) -> Ints:
    """The rows with capacity. Raises DoesNotFit if they cannot hold count pods."""
    rows = rows[capacity[rows] > 0]
    if capacity[rows].sum() < count:
        raise DoesNotFit("not enough capacity")
    return rows


def _fewest_domains(snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int) -> Ints:
    """The rows of the domains of the narrowest level to which the pods go. level: the widest one whose domains should
    be few."""
    levels, found = range(level, len(snapshot.columns.domains.levels)), rows
    for each in levels:
        found = _fewest_of_level(snapshot, capacity, found, count, each)
    of = snapshot.columns.domains.of[list(levels)][:, rows]
    known = of if of.min(initial=0) >= 0 else _paths(of)  # the tree knows domains by their paths
    at = np.searchsorted(rows, found)  # rows are sorted
    sizes = _sizes(known[:, at], capacity[found], count)
    if _are_least(sizes, known, capacity[rows], count):
        return found
    paths = _paths(of)
    ties = _ties(snapshot, paths[-1], rows, capacity)
    # The caller that goes on asks it.
    snapshot.meter.count(SEARCH_UNITS + SEARCH_DOMAIN_UNITS * len(ties))
    opened = fewest_search.cheapest(paths, capacity[rows], ties, count)
    if opened is not None:
        searched = np.isin(paths[-1], opened)
        if _sizes(paths[:, searched], capacity[rows[searched]], count) <= sizes:
            return rows[searched]
    return found


def _fewest_of_level(
    snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int
) -> Ints:
    """The rows of the fewest domains of the level that hold all pods."""
    there = domains_of(snapshot, capacity, rows, level)
    if there is None:
        return rows
    of, held, *ranks = there
    chosen, _ = _split(held, (ranks[0], ranks[1]), count)
    taken = np.zeros(len(held), dtype=np.bool_)
    taken[chosen] = True
    kept: Ints = rows[taken[of]]
    return kept


def domains_of(
    snapshot: Snapshot, capacity: Ints, rows: Ints, level: int
) -> tuple[Ints, Ints, Ints, Ints] | None:
    """The domains of the level that the rows are in, where those in no domain are in one together, the last. Returns by
    row the number of its domain; and by domain how many pods fit, and its ranks by name and by free GPUs. None: all
    rows are in the same domain. capacity: by row, how many more pods fit."""
    tree = snapshot.columns.domains
    of, every = tree.of[level, rows], tree.count(level)
    used = np.zeros(every + 1, dtype=np.bool_)
    used[of] = True  # -1: the last
    ids = np.flatnonzero(used)
    if len(ids) <= 1:
        return None
    domain = (np.cumsum(used) - 1)[of]
    held = np.bincount(domain, weights=capacity[rows]).astype(np.int64)
    known = ids[ids < every]
    fullest = snapshot.domain_gpus.refresh().order_of_domains(level, known, 0)
    none = [-1] * (len(ids) - len(known))
    return domain, held, np.append(tree.ranks(level)[known], none), np.append(fullest, none)


def _paths(of: Ints) -> Ints:
    """Returns by level and row the row's domain as a dense number, where the rows of one wider domain that have no
    label of the level are one domain. of: by level and row, the domain; -1: no label."""
    of, path = of.copy(), np.zeros(of.shape[1], dtype=np.int64)
    for index, of_level in enumerate(of):
        _, path = np.unique(path * (int(of_level.max()) + 2) + of_level + 1, return_inverse=True)
        of[index] = path
    return of


def _sizes(paths: Ints, capacity: Ints, count: int) -> list[int]:
    """Returns how many domains the pods take of each level, the widest first, nodes as the last. paths, capacity: of
    the rows that the pods go to."""
    return [int(np.count_nonzero(np.bincount(of))) for of in paths] + [
        nodes_needed(capacity, count)
    ]


def _are_least(sizes: Sequence[int], paths: Ints, capacity: Ints, count: int) -> bool:
    """Returns whether the sizes are, for each level by itself, the fewest domains that hold the pods. paths, capacity:
    of all rows."""
    if sizes[-1] != nodes_needed(capacity, count):
        return False
    return all(
        size == 1 or size == nodes_needed(np.bincount(of, capacity).astype(np.int64), count)
        for size, of in zip(sizes, paths, strict=False)
    )


def nodes_needed(capacity: Ints, count: int) -> int:
    """Returns how many of the capacities, the largest first, hold count pods. Together they must hold them."""
    most = int(capacity.max(initial=0))
    if most > COUNTED_CAPACITY:
        return int(np.searchsorted(np.cumsum(-np.sort(-capacity)), count)) + 1
    needed, left = 0, count
    of_size = np.bincount(capacity).tolist()
    for size in range(most, 0, -1):
        taken = min(of_size[size], -(-left // size))
        needed, left = needed + taken, left - taken * size
        if left <= 0:
            break
    return needed


def _ties(snapshot: Snapshot, domain: Ints, rows: Ints, capacity: Ints) -> Ints:
    """Returns the key of each domain among equals, of which the least should be used: its capacity, then its free
    GPUs."""
    held = np.bincount(domain, weights=capacity[rows]).astype(np.int64)
    free = np.bincount(domain, weights=snapshot.columns.gpus.count[rows])
    most = max(float(free.max()), 1.0)
    ties: Ints = held * FULLNESS + (free * (FULLNESS - 1) / most).astype(np.int64)
    return ties


def _split(capacity: Ints, ranks: tuple[Ints, Ints], count: int) -> tuple[Ints, Ints]:
    """Divides count pods over domains that hold them together, as indices and numbers: the fewest domains, and
    the tightest of those that can take the rest. ranks: among equals, the domains with the least last rank come first.

    Example: capacities 8, 8, 4, 3, 2 and count 11. The first domain takes 8. The remaining 3 pods fit
    the second (8), the third (4) and the fourth (3) domain; the fourth is the tightest."""
    order = np.lexsort((*ranks, -capacity))
    falling = -capacity[order]
    filled = -falling.cumsum()
    whole = int(filled.searchsorted(count))
    rest = count - (int(filled[whole - 1]) if whole else 0)
    # By falling capacity, domains with enough for the rest come first, and the tightest of them last.
    enough = int(falling.searchsorted(-rest, side="right"))
    tightest = int(falling.searchsorted(falling[enough - 1], side="left"))
    counts, chosen = capacity[order[: whole + 1]], order[: whole + 1].copy()
    counts[whole], chosen[whole] = rest, order[max(whole, tightest)]
    return chosen, counts


COUNTED_CAPACITY = 64  # up to this capacity per child, children are counted and not sorted


def fewest_children(capacity: Ints, parent: Ints, parents: int, count: int) -> Ints:
    """Returns by parent how many of its children, those with the most capacity first, together hold count pods.
    Meaningless for parents whose capacity is below count.

    Example: a rack with nodes of capacity 4, 4, 2 and 1, and count 9. One pass goes over the sizes from
    the largest to 1 instead of over sorted nodes:

        size 4: two such nodes; ceil(9 / 4) = 3 would be needed, so both are taken; 1 pod is left
        size 2: one such node; ceil(1 / 2) = 1 is needed, so it is taken; 0 are left
        size 1: nothing is left; the answer is 3

    That is exact because children of equal capacity are interchangeable, so their number per size, which
    bincount yields for all parents at once, is all that sorting could tell. It takes as many array
    operations as there are sizes; above COUNTED_CAPACITY sorting is cheaper.
    """
    most = min(int(capacity.max(initial=0)), count)
    if most <= 1:
        return np.full(parents, count, dtype=np.int64)
    rows = np.flatnonzero((capacity > 0) & (parent >= 0))
    if most <= COUNTED_CAPACITY:
        key = parent[rows] * (most + 1) + np.minimum(capacity[rows], most)
        of_size = np.bincount(key, minlength=parents * (most + 1)).reshape(parents, most + 1)
        left = np.full(parents, count, dtype=np.int64)
        needed = np.zeros(parents, dtype=np.int64)
        for size in range(most, 0, -1):
            taken = np.minimum(of_size[:, size], -(-left // size))
            needed += taken
            left = np.maximum(left - taken * size, 0)
        return needed
    order = rows[np.lexsort((-capacity[rows], parent[rows]))]
    filled = np.cumsum(capacity[order])
    first = np.searchsorted(parent[order], np.arange(parents))
    before = np.concatenate(([0], filled))[first]
    return np.searchsorted(filled, before + count) - first + 1
