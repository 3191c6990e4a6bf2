"""Which domains of a level can take a gang whole, best first.

Best is the domain that needs the fewest children (racks of a block, nodes of a rack), then the one that the
pods prefer, then the one for which the fewest whole domains are broken, then the one with the least capacity
left, then the one with the fewest free GPUs in it and around it, then the first by name. So large empty domains
stay whole for the gangs that need them. All of it works on capacities counted per domain: the cost does not
depend on the size of the gang.

Design: docs/design/placement.md
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.hypernode_tree import LEVEL as TIER
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.balanced import unevenness
from central.scheduler.placement.fewest import fewest_children
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE

ANYWHERE = "cluster"
TRIED_DOMAINS = 16  # of a level, for gangs of unlike pods: each costs a tentative placement


# By row, the least first; and rows within so much of the least are equal to it, which is read after the first.
RowKey = tuple[Callable[[Ints], Ints], Callable[[], int]]


class DomainCapacity(Protocol):
    """How many more pods of a class, or subgroups of them, fit: by row, and by level and domain."""

    by_row: Ints
    by_domain: list[Ints]
    columns: Ints  # of the resources that are requested
    amounts: Ints  # of each, for one of what is counted
    gpus: int  # of one of what is counted
    share: int  # hundredths of a GPU
    least: int  # rank of the memory enforcement that is required
    pods: int  # in one of what is counted


class CountedDomains:
    """Capacity for subgroups of equal pods, or for pods on some rows only."""

    def __init__(self, snapshot: Snapshot, cap: Ints, view: DomainCapacity, pods: int = 1) -> None:
        """cap: by row. pods: in one of what is counted."""
        self.by_row, self.gpus, self.pods = cap, view.gpus * pods, pods
        self.columns, self.amounts = view.columns, view.amounts * pods
        self.share, self.least = view.share, view.least
        domains = snapshot.columns.domains
        self.by_domain = [
            sum_by_domain(cap, domains.of[level], domains.count(level))
            for level in range(len(domains.levels))
        ]


def sum_by_domain(cap: Ints, of: Ints, count: int) -> Ints:
    inside = of >= 0
    return np.bincount(of[inside], weights=cap[inside], minlength=count).astype(np.int64)


class DomainChoice:
    """capacities, counts: by pod class. limit: domains of a level that are proposed. pods: what is placed, if
    preferences and fragmentation should choose among equal nodes. of_subgroups: each of these has a closeness of its
    own, so that a used domain comes before the one that needs the fewest nodes. required: the widest level of
    the gang."""

    def __init__(
        self,
        snapshot: Snapshot,
        capacities: Sequence[DomainCapacity],
        counts: Sequence[int],
        existing_rows: Sequence[int] = (),
        *,
        limit: int = 0,
        pods: PodCounts = (),
        spread: bool = False,
        balanced: bool = False,
        of_subgroups: bool = False,
        required: str = "",
    ) -> None:
        self._snapshot, self._capacities, self._counts = snapshot, capacities, counts
        self._existing_rows, self._pods = existing_rows, pods
        self._spread, self._balanced, self._of_subgroups = spread, balanced, of_subgroups
        self._required = required
        # Equal pods are counted exactly, so the best domain takes them and no other is needed.
        self._limit = limit or (1 if len(capacities) == 1 else TRIED_DOMAINS)
        self._gpus = sum(
            capacity.gpus * count for capacity, count in zip(capacities, counts, strict=True)
        )

    def candidates(self, level: str) -> Iterator[Ints]:
        """The rows of each domain of the level that may take all pods, best first."""
        snapshot = self._snapshot
        if level in island_masks.ON_NODE:
            yield from self._nodes(level)
        elif level == ANYWHERE:
            capacities = zip(self._capacities, self._counts, strict=True)
            if all(capacity.by_row.sum() >= count for capacity, count in capacities):
                everywhere = np.zeros(len(snapshot.columns.names), dtype=np.int64)
                if len(self._capacities) == 1 or self._sums_suffice(everywhere, 1).all():
                    yield np.flatnonzero(self._usable())
        else:
            index = snapshot.columns.domains.levels.index(level)
            of = snapshot.columns.domains.of[index]
            for domain in self._domains(index):
                yield (of == domain).nonzero()[0]

    def _nodes(self, level: str) -> Iterator[Ints]:
        snapshot, capacities, gpus = self._snapshot, self._capacities, self._gpus
        sharing = any(capacity.share for capacity in capacities)
        if len(set(self._existing_rows)) > 1 or not (level == NODE or gpus or sharing):
            return
        if gpus > snapshot.most_gpus():
            return
        fits = capacities[0].by_row >= self._counts[0]
        for capacity, count in zip(capacities[1:], self._counts[1:], strict=True):
            fits &= capacity.by_row >= count
        if level == ISLAND:
            fits &= snapshot.columns.gpus.island >= gpus
        rows = fits.nonzero()[0]
        if len(capacities) > 1:
            asked, needed = self._asked()
            rows = rows[(self._free(rows, asked) >= needed).all(axis=1)]
        if level in island_masks.OPT_IN:
            rows = rows[island_masks.most(snapshot, level, rows) >= gpus]
        if self._existing_rows:
            rows = rows[rows == self._existing_rows[0]]
        if self._required.startswith(TIER):  # else a node without a label is a domain
            levels = snapshot.columns.domains.levels
            inside = snapshot.columns.domains.of[levels.index(self._required) :, rows] >= 0
            rows = rows[inside.any(axis=0)]
        if sharing and level in island_masks.PARTS:
            asks = self._asks()
            hold = [bool(island_masks.holding(snapshot, level, row, asks)) for row in rows.tolist()]
            rows = rows[hold]
        elif sharing and len(capacities) > 1:
            asks, shares = self._asks(), snapshot.columns.gpus
            rows = rows[[gpu_shares.fits(shares, row, asks) for row in rows.tolist()]]
        if self._limit == 1:
            yield from _best_rows(rows, self._keys(level))
            return
        keys = [_ranked(key, rows) for key in self._keys(level)] if len(rows) else []
        order = np.lexsort(keys[::-1]) if keys else rows
        for row in rows[order[: self._limit]]:
            yield np.array([row], dtype=np.int64)

    def _asks(self) -> list[tuple[DomainCapacity, int]]:
        """The pods of each class; of subgroups with GPU shares, all their pods."""
        pairs = zip(self._capacities, self._counts, strict=True)
        return [(each, count * (each.pods if each.share else 1)) for each, count in pairs]

    def _keys(self, level: str) -> Iterator[RowKey]:
        """What nodes are ordered by, the least first. A key is computed only for nodes that are equal by
        the keys before it."""
        snapshot, capacity, gpus = self._snapshot, self._capacities[0], self._gpus
        if (score := snapshot.preference(self._pods)) is not None:
            yield lambda rows: -score[rows], int
        if self._spread:
            if gpus:
                yield lambda rows: -snapshot.columns.gpus.count.take(rows), int
            yield lambda rows: -capacity.by_row.take(rows), int
            yield snapshot.columns.name_rank().take, int
            return
        part = max(self._capacities, key=lambda capacity: capacity.share)
        around = list(self._domains_around()) if gpus or part.share else []
        if self._pods and snapshot.mix.varied:
            cost = partial(snapshot.mix.cost, self._pods)
            if around:
                # Nodes in the same state of GPUs differ a little in their CPUs.
                yield cost, snapshot.mix.half_idle_gpu
                yield from around
            yield cost, int
        # The fullest node: by GPUs, or by its size for pods without GPUs, which keeps them off GPU nodes.
        if part.share:
            waste = partial(gpu_shares.waste, snapshot.columns.gpus)
            yield lambda rows: waste(rows, part.share, part.least), int
        left = snapshot.columns.gpus.island if level == ISLAND else snapshot.columns.gpus.count
        if gpus or part.share:
            yield left.take, int
        else:
            yield lambda rows: snapshot.columns.allocatable[rows, 0], int
        yield capacity.by_row.take, int
        yield from around or self._domains_around()
        yield snapshot.columns.name_rank().take, int

    def _domains_around(self) -> Iterator[RowKey]:
        """Fullest enclosing domains first: by GPUs, or by capacity for pods without GPUs."""
        snapshot = self._snapshot
        if self._gpus or any(capacity.share for capacity in self._capacities):
            domain_gpus = snapshot.domain_gpus.refresh()
            if not domain_gpus.single:
                yield lambda rows: domain_gpus.order_of_rows(rows, self._gpus), int
            return
        of, sums = snapshot.columns.domains.of, self._capacities[0].by_domain
        for level in reversed(range(len(of))):
            if len(sums[level]) > 1:
                yield partial(_capacity_around, of[level], sums[level]), int

    def _domains(self, level: int) -> list[int]:
        """The domains of the level with enough capacity for all pods, best first."""
        snapshot, capacities, counts = self._snapshot, self._capacities, self._counts
        enough = capacities[0].by_domain[level] >= counts[0]
        for capacity, count in zip(capacities[1:], counts[1:], strict=True):
            enough &= capacity.by_domain[level] >= count
        if self._existing_rows:
            at = {
                int(domain)
                for domain in snapshot.columns.domains.of[level, list(self._existing_rows)]
            }
            if len(at) > 1 or -1 in at:
                return []
            enough &= np.arange(len(enough)) == at.pop()
        if len(capacities) > 1:
            enough &= self._sums_suffice(snapshot.columns.domains.of[level], len(enough))
        found: Ints = enough.nonzero()[0]
        if len(found) <= 1:
            return [int(domain) for domain in found]
        main = max(
            range(len(capacities)), key=lambda i: (capacities[i].gpus * counts[i], counts[i])
        )
        by_node = len(snapshot.columns.domains.levels)
        inner = range(level + 1, by_node + (not self._of_subgroups))
        needed = np.zeros(len(found), dtype=np.int64)
        if inner:
            needed = self._needed(main, level, inner[0])[found]
            if len(capacities) > 1:
                needed = np.maximum(needed, self._needed_by_sums(level)[found])
        dislike = self._dislike(level)
        if self._limit == 1:
            found = found[needed == needed.min()]
            if self._balanced and needed.min() > 1:
                found = self._evenest(found, level)
            for by in inner[1:]:
                if len(found) > 1:
                    needed = self._needed(main, level, by)[found]
                    found = found[needed == needed.min()]
            if dislike is not None:
                found = found[dislike[found] == dislike[found].min()]
            needed = np.zeros(len(found), dtype=np.int64)
        broken, fullest = snapshot.domain_gpus.refresh().order_of_domains(level, found, self._gpus)
        left = capacities[main].by_domain[level][found]
        less = dislike[found] if dislike is not None else needed
        nodes = self._needed(main, level, by_node)[found] if self._of_subgroups else needed
        names = snapshot.columns.domains.ranks(level)[found]
        ranked = np.lexsort((names, fullest, left, nodes, broken, less, needed))
        return [int(domain) for domain in found[ranked[: self._limit]]]

    def _usable(self) -> Bools:
        """The rows that have capacity for a pod of some class."""
        usable: Bools = np.any([capacity.by_row > 0 for capacity in self._capacities], axis=0)
        return usable

    def _asked(self) -> tuple[Ints, Ints]:
        """The columns of all resources that the pods request, and how much they request of each together."""
        needed = np.zeros(self._snapshot.columns.width, dtype=np.int64)
        for capacity, count in zip(self._capacities, self._counts, strict=True):
            needed[capacity.columns] += capacity.amounts * count
        asked = np.flatnonzero(needed)
        return asked, needed[asked]

    def _free(self, rows: Ints, asked: Ints) -> Ints:
        """By row and column, what is free."""
        columns = self._snapshot.columns
        free: Ints = np.maximum(columns.free[rows][:, asked], 0)
        free[:, asked == 0] = columns.gpus.count[rows][:, None]
        return free

    def _sums_suffice(self, of: Ints, count: int) -> Bools:
        """By domain, whether unlike pods request together no more than is free in it. of: by row, one of that many
        domains, or below 0."""
        asked, needed = self._asked()
        rows = np.flatnonzero(self._usable() & (of >= 0))
        sums = np.zeros((count, len(asked)), dtype=np.int64)
        np.add.at(sums, of[rows], self._free(rows, asked))
        enough: Bools = np.all(sums >= needed, axis=1)
        return enough

    def _needed_by_sums(self, level: int) -> Ints:
        """Returns for each domain of the level how many of its children unlike pods take at least, by the sum of their
        requests."""
        tree, (asked, needed) = self._snapshot.columns.domains, self._asked()
        of, count = tree.of[level], tree.count(level)
        rows = np.flatnonzero(self._usable() & (of >= 0))
        inside = tree.of[level + 1] if level + 1 < len(tree.levels) else np.arange(len(of))
        _, first, child = np.unique(inside[rows], return_index=True, return_inverse=True)
        most = np.zeros(count, dtype=np.int64)
        for free, amount in zip(self._free(rows, asked).T, needed.tolist(), strict=True):
            held = np.bincount(child, weights=free).astype(np.int64)
            most = np.maximum(most, fewest_children(held, of[rows[first]], count, amount))
        return most

    def _evenest(self, found: Ints, level: int) -> Ints:
        """Keeps those whose children allow the most even parts."""
        domains, capacity, by = self._snapshot.columns.domains, self._capacities[0], level + 1
        uneven = []
        for domain in found.tolist():
            rows = np.flatnonzero(domains.of[level] == domain)
            inner = domains.of[by, rows] if by < len(domains.levels) else rows
            _, child = np.unique(inner, return_inverse=True)
            held = sum_by_domain(capacity.by_row[rows], child, 0)
            uneven.append(unevenness(held, self._counts[0]))
        least: Ints = found[np.array(uneven) == min(uneven)]
        return least

    def _needed(self, index: int, level: int, by: int) -> Ints:
        """Calls _domains_needed() for the pods of one class."""
        capacity, count = self._capacities[index], self._counts[index]
        return _domains_needed(self._snapshot, capacity, count, level, by=by)

    def _dislike(self, level: int) -> Ints | None:
        """The negative mean preference score of each domain's nodes with capacity; None: no preferences."""
        score = self._snapshot.preference(self._pods)
        if score is None:
            return None
        of, count = (
            self._snapshot.columns.domains.of[level],
            self._snapshot.columns.domains.count(level),
        )
        some = (self._capacities[0].by_row > 0).astype(np.int64)
        return -sum_by_domain(score * some, of, count) // np.maximum(
            sum_by_domain(some, of, count), 1
        )


def _capacity_around(of: Ints, sums: Ints, rows: Ints) -> Ints:
    """By row, the capacity of its domain; 0 without one."""
    at = of[rows]
    around: Ints = np.where(at >= 0, sums[at], 0)
    return around


def _best_rows(rows: Ints, keys: Iterator[RowKey]) -> Iterator[Ints]:
    """The first row by these keys. Only ties are looked at further; nothing is sorted."""
    for order, slack in keys if len(rows) > 1 else ():
        at = order(rows)
        rows = rows.compress(at <= np.minimum.reduce(at) + slack())
        if len(rows) == 1:
            break
    if len(rows):
        yield rows


def _ranked(key: RowKey, rows: Ints) -> Ints:
    order, slack = key
    at = order(rows)
    least: Ints = at.min()
    return np.where(at <= least + slack(), least, at)


def _domains_needed(
    snapshot: Snapshot, capacity: DomainCapacity, count: int, level: int, *, by: int
) -> Ints:
    """By domain of the level: how many of its child domains of level `by` (past the last: nodes) hold
    count pods, those with the most capacity first. More than there are children where the domain's
    capacity is too small."""
    domains = snapshot.columns.domains
    if by == level + 1 < len(domains.levels):
        inside, parent = capacity.by_domain[by], domains.parents(by)
    elif by < len(domains.levels):
        inside = capacity.by_domain[by]
        parent = np.full(len(inside), -1, dtype=np.int64)
        inner = domains.of[by]
        parent[inner[inner >= 0]] = domains.of[level][inner >= 0]
    else:
        inside, parent = capacity.by_row, domains.of[level]
    enough = capacity.by_domain[level] >= count
    needed = fewest_children(inside, parent, domains.count(level), count)
    return np.where(enough, needed, len(inside) + 1)
