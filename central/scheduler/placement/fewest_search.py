"""The exact choice of domains, where taking the largest ones first is not certainly the best: the fewest blocks can
be other blocks than the largest, and then need fewer racks.

Every opened domain costs an amount by its level, so large that no number of domains of a narrower level
outweighs it. The cheapest way to hold p pods, for each p, is combined domain by domain from the narrowest level to the
widest (a knapsack on the tree). A search that would be too large leaves out the nodes, and then counts the domains of
the network tree only.

Design: docs/design/placement.md
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints

CELLS = 150_000  # choices of single domains times numbers of pods
NEVER = 1 << 61


def cheapest(paths: Ints, capacity: Ints, ties: Ints, count: int) -> Ints | None:
    """The domains of the narrowest level to open, so that the least number of domains is opened at the widest level,
    then at the next, and so on; then those with the least sum of ties. None if the search is too large.

    paths: by level (widest first) and row, the row's domain. capacity: by row, not zero; together at least count.
    ties: by domain of the narrowest level."""
    order = np.lexsort((-capacity, *paths[::-1]))
    sizes = [len(np.unique(of)) for of in paths] + [len(order)]
    tree = _Tree(paths[:, order], np.minimum(capacity[order], count), ties, [], count)
    for with_nodes in (True, False):
        inner = sizes[-1] if with_nodes else sizes[-2]
        choices = inner + sum(sizes[:-2]) * min(count, inner)
        costs = _costs_of_opening(sizes[: len(paths) + with_nodes], ties, count)
        if choices * (count + 1) <= CELLS and costs is not None:
            whole = _choices(tree._replace(opening=costs), 0, 0, len(order), 0)
            mask = whole.opened[-1]
            return np.array([at for at in range(len(ties)) if mask >> at & 1], dtype=np.int64)
    return None


def _costs_of_opening(sizes: Sequence[int], ties: Ints, count: int) -> list[int] | None:
    """Returns the costs by level, so that one outweighs all of the narrower ones. None: their sum is no number that can
    be compared."""
    cost, found = 1 + int(ties.sum()), list[int]()
    for size in reversed(sizes):
        found.insert(0, cost)
        cost *= min(size, count) + 1
    return found if cost < NEVER else None


class _Tree(NamedTuple):
    """The arguments of cheapest(), rows in the order of the tree, and the cost of opening a domain by level; nodes
    last, if they count."""

    paths: Ints
    capacity: Ints
    ties: Ints
    opening: list[int]
    pods: int


class _Choices(NamedTuple):
    """Ways of one domain to hold pods, by rising number and cost. opened: domains of the narrowest level, one bit
    each."""

    pods: Ints
    costs: Ints
    opened: np.ndarray[tuple[int], np.dtype[np.object_]]


def _choices(tree: _Tree, level: int, start: int, end: int, opening: int) -> _Choices:
    """Combines the domains of the level among the rows from start to end, which are of one domain that costs that much
    to open: any choice of each, or none of it."""
    pods = np.arange(tree.pods + 1)
    least = np.where(pods, NEVER, 0)
    opened = np.zeros(len(pods), dtype=np.object_)
    cuts = np.flatnonzero(np.diff(tree.paths[level, start:end])) + 1 + start
    for a, b in pairwise((start, *cuts.tolist(), end)):
        if level == len(tree.paths) - 1:
            inner = _leaf(tree, a, b)
        else:
            inner = _choices(tree, level + 1, a, b, tree.opening[level])
        # What the others need for the rest, and the cost of this choice. More pods than needed do no harm.
        rest = np.maximum(pods - inner.pods[:, None], 0)
        costs = least[rest] + inner.costs[:, None]
        took = costs.argmin(axis=0)
        better = costs[took, pods] < least
        opened[better] = (opened[rest[took, pods]] | inner.opened[took])[better]
        least = np.minimum(costs[took, pods], least)
    most = int(np.flatnonzero(least < NEVER)[-1])
    at = np.append(np.flatnonzero(least[1:most] < least[2 : most + 1]) + 1, most)
    return _Choices(at, least[at] + opening, opened[at])


def _leaf(tree: _Tree, start: int, end: int) -> _Choices:
    """A domain of the narrowest level: its largest nodes, or all of them at once where nodes do not count."""
    domain, levels = int(tree.paths[-1, start]), len(tree.paths)
    filled = np.minimum(np.cumsum(tree.capacity[start:end]), tree.pods)
    needed = int(np.searchsorted(filled, filled[-1])) + 1
    nodes = np.arange(1, needed + 1)
    costs = tree.opening[levels - 1] + int(tree.ties[domain]) + nodes * tree.opening[-1]
    if len(tree.opening) == levels:
        nodes, costs = nodes[-1:], np.array([tree.opening[-1] + int(tree.ties[domain])])
    opened = np.full(len(nodes), 1 << domain, dtype=np.object_)
    return _Choices(filled[nodes - 1], costs, opened)
