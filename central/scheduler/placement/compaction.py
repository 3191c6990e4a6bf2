"""Moves a placement of unlike pods to fewer domains: class by class, each class takes the fewest domains for itself, and
together they take more than they need.

At each level, the widest first, sets of domains are tried that are smaller than the set in use: those whose free
amounts and capacities per class suffice in sum, the fewest domains first, then the tightest. The numbers of sets that
are weighed and tried are limited.

Design: docs/design/0013-unlike-pods.md
"""

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.assign import assign
from central.scheduler.placement.packing import Packer
from central.scheduler.snapshot.draft import DoesNotFit, Draft

WEIGHED = 3_000  # sets of domains of one size
TRIED = 8  # sets of each level: each costs a tentative placement
STEPS = 100  # of the packing search in one set
DOMAINS = 24  # of a level, those with the most capacity


def compact(draft: Draft, groups: PodCounts, level: str, rows: Ints, start: int) -> None:
    """Takes what the draft has of these pods again, on fewer domains of each level below the gang's.

    The draft holds nothing else. rows: of the domain that the gang is in. start: the index of the widest level whose
    domains should be few."""
    of = draft.snapshot.columns.domains.of
    for index in range(start, len(of) + 1):
        used = np.array(sorted({taken.row for taken in draft.assignments}), dtype=np.int64)
        domain = of[index] if index < len(of) else np.arange(of.shape[1])
        many = len(set(domain[used].tolist()))
        if many > 1:
            _reduce(draft, groups, level, (rows, domain, many))
            used = np.array([taken.row for taken in draft.assignments], dtype=np.int64)
        rows = rows[np.isin(domain[rows], domain[used])]


def _reduce(draft: Draft, groups: PodCounts, level: str, at: tuple[Ints, Ints, int]) -> None:
    """Takes the first set of fewer domains that holds all pods, if there is one."""
    rows, domain, many = at
    before = list(draft.assignments)
    draft.undo()
    for tried, chosen in enumerate(_smaller_sets(draft, groups, rows, domain[rows], many)):
        if tried == TRIED:
            break
        inside = rows[np.isin(domain[rows], chosen)]
        packer = Packer(groups, STEPS)
        try:
            with draft.all_or_nothing():
                assign(draft, groups, level, inside)
        except DoesNotFit:
            if not packer.assign(draft, groups, inside):
                continue
        return
    draft.retake(before)


def _smaller_sets(
    draft: Draft, groups: PodCounts, rows: Ints, domain: Ints, many: int
) -> Iterator[Ints]:
    """Sets of fewer than `many` domains that may hold the pods, by their sums."""
    ids, sums, needed = _sums(draft, groups, rows, domain)
    for size in range(1, many):
        if comb(len(ids), size) > WEIGHED:
            return
        sets = np.array(list(combinations(range(len(ids)), size)), dtype=np.int64)
        held = sums[sets].sum(axis=1)
        sets, held = sets[(held >= needed).all(axis=1)], held[(held >= needed).all(axis=1)]
        for place in np.argsort(held[:, : len(groups)].sum(axis=1), kind="stable"):
            yield ids[sets[place]]


def _sums(draft: Draft, groups: PodCounts, rows: Ints, domain: Ints) -> tuple[Ints, Ints, Ints]:
    """The domains with the most capacity; by domain the capacity for each class, and the free amount of each
    resource that is asked for; and what is needed of each."""
    snapshot = draft.snapshot
    views = [snapshot.view(spec).refresh() for spec, _ in groups]
    counts = [count for _, count in groups]
    columns = sorted({int(column) for view in views for column in view.columns})
    free = np.maximum(snapshot.columns.free[rows][:, columns], 0)
    if 0 in columns:
        free[:, columns.index(0)] = snapshot.columns.gpus.count[rows]
    usable = np.any([view.by_row[rows] > 0 for view in views], axis=0)
    by_row = np.column_stack([*(view.by_row[rows] for view in views), free * usable[:, None]])
    ids, at = np.unique(domain, return_inverse=True)
    sums = np.zeros((len(ids), by_row.shape[1]), dtype=np.int64)
    np.add.at(sums, at, by_row)
    needed = np.zeros(by_row.shape[1], dtype=np.int64)
    needed[: len(counts)] = counts
    for view, count in zip(views, counts, strict=True):
        for column, amount in zip(view.columns.tolist(), view.amounts.tolist(), strict=True):
            needed[len(counts) + columns.index(column)] += amount * count
    best = np.argsort(-np.minimum(sums / np.maximum(needed, 1), 1).sum(axis=1), kind="stable")
    best = np.sort(best[:DOMAINS])
    return ids[best], sums[best], needed
