"""The domains of a level that can take a gang whole, best first.

Best is the domain that needs the fewest children (racks of a block, nodes of a rack), then the one that the
pods prefer, then the one for which the fewest whole domains are broken, then the one with the least capacity
left, then the one with the fewest free GPUs in it and around it, then the first by name. So large empty domains
stay whole for the gangs that need them. All of it works on capacities counted per domain: the cost does not
depend on the size of the gang.

Design: docs/design/placement.md
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from operator import attrgetter

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.hypernode_tree import LEVEL as TIER
from central.scheduler.placement.balanced import unevenness
from central.scheduler.placement.fewest import fewest_children, fill_fewest
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity, sum_by_domain
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE

ANYWHERE = "cluster"
FEW_DOMAINS = 8  # that are filled to be compared
# Of a level, for gangs of unlike pods: each costs a tentative placement. A wider level follows.
TRIED_DOMAINS = 16


# By row, the least first; and rows within so much of the least are equal to it, which is read after the first.
RowKey = tuple[Callable[[Ints], Ints], Callable[[], int]]


class RowSums:
    """An amount by row, and its sums by level and domain."""

    def __init__(self, snapshot: Snapshot, by_row: Ints) -> None:
        self.by_row, self._domains = by_row, snapshot.columns.domains

    @cached_property
    def by_domain(self) -> list[Ints]:
        of, levels = self._domains.of, range(len(self._domains.levels))
        return [sum_by_domain(self.by_row, of[at], self._domains.count(at)) for at in levels]


class CountedDomains(RowSums):
    """Capacity for subgroups of equal pods, or for pods on some rows only."""

    def __init__(
        self, snapshot: Snapshot, cap: Ints, view: PodClassCapacity, pods: int = 1
    ) -> None:
        """cap: by row. pods: in one of what is counted."""
        super().__init__(snapshot, cap)
        self.gpus, self.pods = view.gpus * pods, pods
        self.columns, self.amounts = view.columns, view.amounts * pods
        self.share, self.least = view.share, view.least


# How many more pods of a class, or subgroups of them, fit: by row, and by level and domain.
DomainCapacity = PodClassCapacity | CountedDomains


def requirements(
    snapshot: Snapshot, classes: Sequence[tuple[DomainCapacity, int]]
) -> list[tuple[RowSums | DomainCapacity, int]]:
    """Returns what has to fit: the pods of each class, and, if they are unlike, what they request together of each
    resource where one of them may go."""
    if len(classes) == 1:
        return list(classes)
    columns = snapshot.columns
    needed = np.zeros(columns.width, dtype=np.int64)
    for capacity, count in classes:
        needed[capacity.columns] += capacity.amounts * count
    usable, sums = _usable(classes), list[tuple[RowSums, int]]()
    for column in needed.nonzero()[0].tolist():
        free = np.maximum(columns.free[:, column] if column else columns.gpus.count, 0)
        sums.append((RowSums(snapshot, free * usable), int(needed[column])))
    return [*classes, *sums]


def _usable(classes: Sequence[tuple[DomainCapacity, int]]) -> Bools:
    """The rows that have capacity for a pod of some class."""
    usable: Bools = np.any([capacity.by_row > 0 for capacity, _ in classes], axis=0)
    return usable


_share = attrgetter("share")


class DomainChoice:
    """Chooses where the pods of a request go together."""

    def __init__(
        self,
        snapshot: Snapshot,
        request: PlacementRequest,
        classes: Sequence[tuple[DomainCapacity, int]] = (),
        *,
        limit: int = 0,
        widest: str = "",
        by_preference: bool = False,
        tightest: bool = False,
        of_subgroups: bool = False,
    ) -> None:
        """classes: what is counted, and how many of it; none: the pods of the request. limit: domains of a level that
        are proposed. widest: the level of which all are proposed, as far as work is left: no wider one follows.
        by_preference: preferences and fragmentation choose among equal nodes. tightest: those with the least left come
        first, whatever else is said of them. of_subgroups: each of these has a closeness of its own, so that a used
        domain comes before the one that needs the fewest nodes."""
        self._snapshot, self._request = snapshot, request
        self._classes = list(classes) or [(snapshot.view(spec), n) for spec, n in request.groups]
        self._pods = request.groups if by_preference else ()
        self._spread = request.spread and by_preference
        self._of_subgroups, self._tightest = of_subgroups, tightest
        # Equal pods are counted exactly, so the best domain takes them and no other is needed.
        self._limit = limit or (1 if len(self._classes) == 1 else TRIED_DOMAINS)
        self._widest = widest
        self._gpus = sum([capacity.gpus * count for capacity, count in self._classes])
        self._part = max([each for each, _ in self._classes], key=_share)  # with the largest share

    def candidates(self, level: str) -> Iterator[Ints]:
        """The rows of each domain of the level that may take all pods, best first."""
        snapshot = self._snapshot
        if level in island_masks.ON_NODE:
            yield from self._best(self._nodes(level), self._keys(level), level)
        elif level == ANYWHERE:
            if all(each.by_row.sum() >= count for each, count in self._requirements):
                yield _usable(self._classes).nonzero()[0]
        else:
            index = snapshot.columns.domains.levels.index(level)
            of = snapshot.columns.domains.of[index]
            for domain in self._best(self._domains(index), self._domain_keys(index), level):
                yield (of == domain).nonzero()[0]

    @cached_property
    def _requirements(self) -> list[tuple[RowSums | DomainCapacity, int]]:
        return requirements(self._snapshot, self._classes)

    def _nodes(self, level: str) -> Ints:
        """The rows of the nodes that may take all pods, or that have a part that may."""
        snapshot, gpus, sharing = self._snapshot, self._gpus, self._part.share > 0
        apart = len(set(self._request.existing_rows)) > 1
        if apart or gpus > snapshot.most_gpus() or not (level == NODE or gpus or sharing):
            return np.zeros(0, dtype=np.int64)
        fits = self._enough(lambda each: each.by_row)
        if level == ISLAND:
            fits &= snapshot.columns.gpus.island >= gpus
        rows: Ints = fits.nonzero()[0]
        if level in island_masks.OPT_IN:
            rows = rows[island_masks.most(snapshot, level, rows) >= gpus]
        if self._request.existing_rows:
            rows = rows[rows == self._request.existing_rows[0]]
        if self._request.required.startswith(TIER):  # else a node without a label is a domain
            levels = snapshot.columns.domains.levels
            inside = snapshot.columns.domains.of[levels.index(self._request.required) :, rows] >= 0
            rows = rows[inside.any(axis=0)]
        if sharing and level in island_masks.PARTS:
            asks = self._asks()
            hold = [bool(island_masks.holding(snapshot, level, row, asks)) for row in rows.tolist()]
            rows = rows[hold]
        elif sharing and len(self._classes) > 1:
            asks, shares = self._asks(), snapshot.columns.gpus
            rows = rows[[gpu_shares.fits(shares, row, asks) for row in rows.tolist()]]
        return rows

    def _enough(self, amounts: Callable[[RowSums | DomainCapacity], Ints]) -> Bools:
        """Returns where there is enough of all that has to fit. amounts: by row, or by domain of a level."""
        (first, count), *others = self._requirements
        found = amounts(first) >= count
        for each, needed in others:
            found &= amounts(each) >= needed
        return found

    def _asks(self) -> list[tuple[DomainCapacity, int]]:
        """The pods of each class; of subgroups with GPU shares, all their pods."""
        return [(each, count * (each.pods if each.share else 1)) for each, count in self._classes]

    def _keys(self, level: str) -> Iterator[RowKey]:
        """Yields the keys by which nodes are ordered, the most important first. A key is computed only for nodes that
        are equal by the keys before it."""
        snapshot, capacity, gpus = self._snapshot, self._classes[0][0], self._gpus
        if self._tightest:
            yield snapshot.columns.gpus.count.take, int
            yield snapshot.columns.name_rank().take, int
            return
        if (score := snapshot.preference(self._pods)) is not None:
            yield lambda rows: -score[rows], int
        if self._spread:
            if gpus:
                yield lambda rows: -snapshot.columns.gpus.count.take(rows), int
            yield lambda rows: -capacity.by_row.take(rows), int
            yield snapshot.columns.name_rank().take, int
            return
        part = self._part
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
        if self._gpus or self._part.share:
            domain_gpus = snapshot.domain_gpus.refresh()
            if not domain_gpus.single:
                yield lambda rows: domain_gpus.order_of_rows(rows, self._gpus), int
            return
        of, sums = snapshot.columns.domains.of, self._classes[0][0].by_domain
        for level in reversed(range(len(of))):
            if len(sums[level]) > 1:
                yield partial(_capacity_around, of[level], sums[level]), int

    def _domains(self, level: int) -> Ints:
        """The domains of the level with enough capacity for all pods."""
        enough = self._enough(lambda each: each.by_domain[level])
        if self._request.existing_rows:
            at = set(
                self._snapshot.columns.domains.of[level, list(self._request.existing_rows)].tolist()
            )
            enough &= np.isin(np.arange(len(enough)), [*at]) & (len(at) == 1)
        return enough.nonzero()[0]

    def _domain_keys(self, level: int) -> Iterator[RowKey]:
        """Yields what domains of the level are ordered by, as _keys()."""
        domains, equal = self._snapshot.columns.domains, self._limit == 1
        if self._tightest:
            yield self._classes[0][0].by_domain[level].take, int
            yield domains.ranks(level).take, int
            return
        classes, sums = self._classes, self._requirements[len(self._classes) :]
        main = max(classes, key=lambda each: (each[0].gpus * each[1], each[1]))
        by_node = len(domains.levels)
        # Where a node takes one of the pods, all domains need as many nodes.
        one_each = self._pods and not sums and 2 * main[0].gpus > self._snapshot.most_gpus()
        nodes_tell = not (self._of_subgroups or (one_each and not self._request.balanced))
        for by in range(level + 1, by_node + nodes_tell):
            needed = self._needed(*main, level, by)
            for each in sums:
                needed = np.maximum(needed, self._needed(*each, level, by))
            narrower = level + 1 < by == by_node and equal and not self._request.balanced
            yield partial(self._nodes_taken, level, needed) if narrower else needed.take, int
            if not equal:
                break
            if self._request.balanced and by == level + 1:
                yield partial(self._unevenness, level), int
        if (dislike := self._dislike(level)) is not None:
            yield dislike.take, int
        of_domains = self._snapshot.domain_gpus.refresh()
        yield partial(of_domains.broken_around, level, gpus=self._gpus), int
        if self._of_subgroups:
            yield self._needed(*main, level, by_node).take, int
        yield main[0].by_domain[level].take, int
        yield partial(of_domains.order_of_domains, level, gpus=self._gpus), int
        yield domains.ranks(level).take, int

    def _best(self, found: Ints, keys: Iterator[RowKey], level: str) -> Iterator[Ints]:
        """The first of these rows or domains, each by itself, at most as many as are proposed. Where it is one, only
        ties are looked at further, and nothing is sorted."""
        if self._limit > 1 and len(found) > 1:
            ranked = np.lexsort([_ranked(key, found) for key in keys][::-1])
            for place in ranked if level == self._widest else ranked[: self._limit]:
                yield found[[place]]
            return
        for order, slack in keys if len(found) > 1 else ():
            at = order(found)
            found = found.compress(at <= np.minimum.reduce(at) + slack())
            if len(found) == 1:
                break
        if len(found):
            yield found[:1]

    def _unevenness(self, level: int, found: Ints) -> Ints:
        """Returns by domain how even the parts can be in its children."""
        domains, capacity, by = self._snapshot.columns.domains, self._classes[0][0], level + 1
        uneven = []
        for domain in found.tolist():
            rows = np.flatnonzero(domains.of[level] == domain)
            inner = domains.of[by, rows] if by < len(domains.levels) else rows
            _, child = np.unique(inner, return_inverse=True)
            held = sum_by_domain(capacity.by_row[rows], child, 0)
            uneven.append(unevenness(held, self._classes[0][1]))
        return np.array(uneven)

    def _needed(self, each: RowSums | DomainCapacity, count: int, level: int, by: int) -> Ints:
        """Returns by domain of the level how many of its child domains of level `by` (past the last: nodes) hold
        so much, those with the most first. Meaningless where the domain has too little."""
        domains = self._snapshot.columns.domains
        if by == level + 1 < len(domains.levels):
            inside, parent = each.by_domain[by], domains.parents(by)
        elif by < len(domains.levels):
            inside = each.by_domain[by]
            parent = np.full(len(inside), -1, dtype=np.int64)
            inner = domains.of[by]
            parent[inner[inner >= 0]] = domains.of[level][inner >= 0]
        else:
            inside, parent = each.by_row, domains.of[level]
        return fewest_children(inside, parent, domains.count(level), count)

    def _nodes_taken(self, level: int, least: Ints, found: Ints) -> Ints:
        """Returns by domain how many nodes the pods take in its fewest narrower domains. least: how many they take
        among all of its nodes, which tells where nodes are equal, and where there are many domains."""
        (capacity, count), of = self._classes[0], self._snapshot.columns.domains.of[level]
        if len(found) > FEW_DOMAINS:
            return least[found]
        sizes = capacity.by_row[capacity.by_row > 0]
        if sizes.min() == sizes.max():
            return least[found]
        rows = [np.flatnonzero(of == domain) for domain in found.tolist()]
        taken = [fill_fewest(self._snapshot, capacity.by_row, at, count, level + 1) for at in rows]
        return np.array([len(at) for at, _ in taken])

    def _dislike(self, level: int) -> Ints | None:
        """The negative mean preference score of each domain's nodes with capacity; None: no preferences."""
        score = self._snapshot.preference(self._pods)
        if score is None:
            return None
        domains = self._snapshot.columns.domains
        of, count = domains.of[level], domains.count(level)
        some = (self._classes[0][0].by_row > 0).astype(np.int64)
        nodes = np.maximum(sum_by_domain(some, of, count), 1)
        return -sum_by_domain(score * some, of, count) // nodes


def _capacity_around(of: Ints, sums: Ints, rows: Ints) -> Ints:
    """Returns by row the capacity of its domain; 0 without one."""
    at = of[rows]
    around: Ints = np.where(at >= 0, sums[at], 0)
    return around


def _ranked(key: RowKey, rows: Ints) -> Ints:
    order, slack = key
    at = order(rows)
    least: Ints = at.min()
    return np.where(at <= least + slack(), least, at)
