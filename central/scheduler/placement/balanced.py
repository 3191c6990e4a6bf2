"""Divides equal pods evenly among the fewest domains: of the widest level at which the gang takes several, then inside
each of them of the next level, down to the nodes.

Design: docs/design/placement.md
"""

from collections.abc import Iterator

import numpy as np

from central.model.arrays import Ints
from central.scheduler.placement.fewest import domains_of, fewest_children, nodes_needed, usable
from central.scheduler.snapshot.snapshot import Snapshot


def fill_balanced(
    snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int
) -> tuple[Ints, Ints]:
    """Divides count pods evenly among the rows. Returns rows, and the number of pods for each; rows of one domain
    follow each other. Parameters as in fill_fewest(). Raises DoesNotFit if the rows cannot hold count pods."""
    rows = usable(capacity, rows, count)
    chosen, numbers = zip(*_divided(snapshot, capacity, rows, count, level), strict=True)
    return np.concatenate(chosen), np.concatenate(numbers)


def parts(held: Ints, ranks: tuple[Ints, ...], count: int) -> tuple[Ints, Ints]:
    """The fewest domains that hold count pods, as indices, and the most even numbers of pods for them.

    held: by domain, how many pods fit. ranks: among domains that do for even parts, those with the least last rank
    come first, as for numpy.lexsort(). Together they hold the pods."""
    size = nodes_needed(held, count)
    least, larger = divmod(count, size)
    order = np.lexsort((*ranks, held))
    most = order[held[order] > least][:larger]
    rest = order[held[order] >= least]
    rest = rest[~np.isin(rest, most)][: size - larger]
    if len(most) == larger and len(rest) == size - larger:
        return np.append(most, rest), np.repeat([least + 1, least], [larger, size - larger])
    largest = np.lexsort((*ranks, -held))[:size][::-1]
    numbers = np.zeros(size, dtype=np.int64)
    for index, domain in enumerate(largest.tolist()):  # the smallest first
        numbers[index] = min(int(held[domain]), count // (size - index))
        count -= int(numbers[index])
    return largest, numbers


def unevenness(held: Ints, count: int) -> int:
    """The difference between the largest and the smallest part."""
    _, numbers = parts(held[held > 0], (), count)
    return int(numbers.max() - numbers.min())


def _divided(
    snapshot: Snapshot, capacity: Ints, rows: Ints, count: int, level: int
) -> Iterator[tuple[Ints, Ints]]:
    """Divides among the rows of one domain of the level above. Yields rows, and numbers of pods for them."""
    tree = snapshot.columns.domains
    if level >= len(tree.levels):
        ranks = (snapshot.columns.name_rank()[rows], snapshot.columns.gpus.count[rows])
        chosen, numbers = parts(capacity[rows], ranks, count)
        order = np.argsort(chosen, kind="stable")
        yield rows[chosen[order]], numbers[order]
        return
    there = domains_of(snapshot, capacity, rows, level)
    if there is None:
        yield from _divided(snapshot, capacity, rows, count, level + 1)
        return
    of, held, names, fullest = there
    share = -(-count // nodes_needed(held, count))
    nodes = fewest_children(capacity[rows], of, len(held), share)
    chosen, numbers = parts(held, (names, fullest, nodes), count)
    for index in np.argsort(names[chosen], kind="stable").tolist():
        inside = rows[of == chosen[index]]
        yield from _divided(snapshot, capacity, inside, int(numbers[index]), level + 1)
