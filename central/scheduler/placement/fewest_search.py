"""The exact choice of domains, where taking the largest ones first is not certainly the best: the fewest blocks can
be other blocks than the largest, and then need fewer racks.

Every opened domain costs an amount by its level, so large that no number of domains of a narrower level
outweighs it. The cheapest way to hold p pods, for each p, is combined domain by domain from the narrowest level to the
widest (a knapsack on the tree). A search that would be too large leaves out the nodes, and then counts the domains of
the network tree only.

Design: docs/design/placement.md
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from central.model.arrays import Ints

CELLS = 150_000  # choices of single domains times numbers of pods
NEVER = 1 << 61


def cheapest(paths: Ints, capacity: Ints, ties: Ints, count: int) -> Ints | None:
    """The domains of the narrowest level to open, so that the least number of domains is opened at the widest level,
    then at the next, and so on; then those with the least sum of ties. None if the search is too large.

    paths: by level (widest first) and row, the row's domain. capacity: by row, not zero; together at least count.
    ties: by domain of the narrowest level."""
    for with_nodes in (True, False):
        search = _Search(paths, capacity, count, with_nodes=with_nodes)
        if search.cells() <= CELLS and search.set_costs(ties):
            return np.array(sorted(search.run()), dtype=np.int64)
    return None


class _Choices(Protocol):
    """Of one domain: ways to hold pods, by rising number and cost."""

    pods: Ints
    costs: Ints

    def opened(self, choice: int) -> Iterator[int]:
        """The domains of the narrowest level that are opened by the choice."""


class _Leaf:
    """A domain of the narrowest level."""

    def __init__(self, domain: int, pods: Ints, costs: Ints) -> None:
        self._domain, self.pods, self.costs = domain, pods, costs

    def opened(self, choice: int) -> Iterator[int]:
        yield self._domain


class _Parent:
    """Any choice of each child, or none of it."""

    def __init__(self, children: Sequence[_Choices], count: int, opening: int) -> None:
        self._children = children
        pods = np.arange(count + 1)
        least = np.full(count + 1, NEVER, dtype=np.int64)
        least[0] = 0
        self._took: list[Ints] = []  # by child and number of pods: the choice, or -1
        for child in children:
            # What the others need for the rest, and the cost of this choice. More pods than needed do no harm.
            rest = np.maximum(pods - child.pods[:, None], 0)
            costs = least[rest] + child.costs[:, None]
            took = costs.argmin(axis=0)
            cost = costs[took, pods]
            took[cost >= least] = -1
            least = np.minimum(cost, least)
            self._took.append(took)
        most = int(np.flatnonzero(least < NEVER)[-1])
        steps = np.flatnonzero(least[1:most] < least[2 : most + 1]) + 1
        self.pods: Ints = np.append(steps, most)
        self.costs: Ints = least[self.pods] + opening

    def opened(self, choice: int) -> Iterator[int]:
        left = int(self.pods[choice])
        for child, took in zip(reversed(self._children), reversed(self._took), strict=True):
            if (taken := int(took[left])) >= 0:
                left = max(0, left - int(child.pods[taken]))
                yield from child.opened(taken)


class _Search:
    def __init__(self, paths: Ints, capacity: Ints, count: int, *, with_nodes: bool) -> None:
        self._count, self._with_nodes = count, with_nodes
        order = np.lexsort((-capacity, *paths[::-1]))
        self._paths = paths[:, order]
        self._capacity = np.minimum(capacity[order], count)
        self._sizes = [len(np.unique(of)) for of in self._paths] + [len(order)]
        self._cost = [0] * len(self._sizes)  # of opening a domain, by level, nodes last
        self._ties = np.zeros(0, dtype=np.int64)

    def cells(self) -> int:
        inner = self._sizes[-1] if self._with_nodes else self._sizes[-2]
        choices = inner + sum(self._sizes[:-2]) * min(self._count, inner)
        return choices * (self._count + 1)

    def set_costs(self, ties: Ints) -> bool:
        """Returns whether the costs of all domains together are numbers that can be compared."""
        self._ties = ties
        cost = 1 + int(ties.sum())
        for level in range(len(self._paths), -1, -1):
            if level == len(self._paths) and not self._with_nodes:
                continue
            self._cost[level] = cost
            cost *= min(self._sizes[level], self._count) + 1
        return cost < NEVER

    def run(self) -> Iterator[int]:
        whole = self._best_of(0, 0, len(self._capacity), 0)
        return whole.opened(len(whole.pods) - 1)

    def _best_of(self, level: int, start: int, end: int, opening: int) -> _Parent:
        """The choices among the sorted rows from start to end, of one domain that costs that much to open."""
        of = self._paths[level, start:end]
        cuts = [start, *(np.flatnonzero(np.diff(of)) + 1 + start).tolist(), end]
        children: list[_Choices] = []
        for a, b in pairwise(cuts):
            if level == len(self._paths) - 1:
                children.append(self._leaf(a, b))
            else:
                children.append(self._best_of(level + 1, a, b, self._cost[level]))
        return _Parent(children, self._count, opening)

    def _leaf(self, start: int, end: int) -> _Leaf:
        domain = int(self._paths[-1, start])
        filled = np.minimum(np.cumsum(self._capacity[start:end]), self._count)
        opening = self._cost[len(self._paths) - 1] + int(self._ties[domain])
        if not self._with_nodes:
            return _Leaf(domain, filled[-1:], np.array([opening], dtype=np.int64))
        needed = int(np.searchsorted(filled, filled[-1])) + 1
        nodes = np.arange(1, needed + 1)
        return _Leaf(domain, filled[:needed], opening + nodes * self._cost[-1])
