"""Moves a placement of unlike pods to fewer domains: class by class, each class takes the fewest domains for itself,
and together they take more than they need.

At each level, the widest first, sets of domains are tried that are smaller than the set in use: those whose free
amounts and capacities per class suffice in sum, the fewest domains first, then the tightest: first among those in the
wider domains that are in use, then in others that are as few. The numbers of sets that
are weighed and tried are limited.

Design: docs/design/unlike-pods.md
Design: docs/design/placement.md
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.assign import assign, assign_work, level_below
from central.scheduler.placement.domain_choice import requirements
from central.scheduler.placement.packing import CLASSES, Packer
from central.scheduler.placement.request import SubgroupRequest
from central.scheduler.snapshot.draft import DoesNotFit, Draft

WEIGHED = 3_000  # sets of domains of one size
STEPS = 100  # of the packing search in one set
FEWER_STEPS = 10  # after the first sets
# By set that is tried: each costs a tentative placement.
SET_STEPS = (*[STEPS] * 8, *[FEWER_STEPS] * 56)
DOMAINS = 24  # of a level, those with the most capacity


def compact(
    draft: Draft, groups: PodCounts, level: str, rows: Ints, *, balanced: bool = False
) -> None:
    """Takes what the draft has of these pods again, on fewer domains of each level below the gang's, and if balanced in
    more even parts.

    The draft holds nothing else. rows: of the domain that the gang is in. Ends with what it has at the work limit, and
    leaves pods of very many classes as they are."""
    if len(groups) > CLASSES:
        return
    of, whole, start = draft.snapshot.columns.domains.of, rows, level_below(draft.snapshot, level)
    for index in range(start, len(of) + 1):
        domain = _domain_of(draft, index)
        _reduce(draft, groups, level, (rows, domain), ())
        if index > start:  # other domains of the levels above, as few as now
            _reduce(draft, groups, level, (whole, domain), list(of[start:index]))
        used = _used(draft)
        rows = whole[np.isin(domain[whole], domain[used])]
    if balanced:
        _balance(draft, groups, level, whole, start)


def _domain_of(draft: Draft, index: int) -> Ints:
    """Returns by row its domain of the level with this index; past the last level, each node is a domain."""
    of = draft.snapshot.columns.domains.of
    return of[index] if index < len(of) else np.arange(of.shape[1])


def _balance(draft: Draft, groups: PodCounts, level: str, rows: Ints, start: int) -> None:
    """Takes all again: the pods with the most GPUs together in equal parts, and the others in the same domains of the
    start level, or of the widest below of which there are several now. Not where they do not fit there, or where that
    takes more domains."""
    of, before = draft.snapshot.columns.domains.of, list(draft.assignments)
    used = _used(draft)
    while start < len(of) and _distinct(of[start][used]) == 1:
        rows = rows[of[start][rows] == of[start][used[0]]]
        start += 1
    domain = _domain_of(draft, start)
    many = len({int(domain[taken.row]) for taken in before})
    main = max(groups, key=lambda group: (draft.snapshot.view(group[0]).gpus * group[1], group[1]))
    others = tuple(group for group in groups if group != main)
    draft.undo()
    try:
        with draft.all_or_nothing():
            assign(draft, (main,), level, rows, balanced=True)
            used = domain[[taken.row for taken in draft.assignments]]
            assign(draft, others, level, rows[np.isin(domain[rows], used)], balanced=True)
    except DoesNotFit:
        draft.retake(before)
        return
    if len(set(used.tolist())) > many:
        draft.undo()
        draft.retake(before)
        return
    order = {spec: index for index, (spec, _) in enumerate(groups)}
    draft.assignments.sort(key=lambda taken: order[taken.spec])


def _used(draft: Draft) -> Ints:
    """The rows of what the draft has."""
    return np.array(sorted({taken.row for taken in draft.assignments}), dtype=np.int64)


def _reduce(
    draft: Draft, groups: PodCounts, level: str, at: tuple[Ints, Ints], above: Sequence[Ints]
) -> None:
    """Takes the first set of fewer domains that holds all pods, if there is one. at: the rows that may be used, and
    the domain of every row. above: by wider level the same; no more of these are used than now."""
    (rows, domain), used = at, _used(draft)
    many = _distinct(domain[used])
    if many == 1:
        return
    most = [(of, _distinct(of[used])) for of in above]
    before = list(draft.assignments)
    draft.undo()
    sets = _smaller_sets(draft, groups, rows, domain, (many, most))
    for steps, chosen in zip(SET_STEPS, sets, strict=False):
        inside = rows[np.isin(domain[rows], chosen)]
        if draft.snapshot.meter.count(assign_work(inside, len(groups))):
            break
        try:
            with draft.all_or_nothing():
                assign(draft, groups, level, inside)
        except DoesNotFit:
            if not Packer(draft, (SubgroupRequest(groups),), steps=steps).assign(inside):
                continue
        return
    draft.retake(before)


def _distinct(domains: Ints) -> int:
    return len(set(domains.tolist()))


def _smaller_sets(
    draft: Draft,
    groups: PodCounts,
    rows: Ints,
    domain: Ints,
    limits: tuple[int, Sequence[tuple[Ints, int]]],
) -> Iterator[Ints]:
    """Sets of fewer domains than the first limit that may hold the pods, by their sums. The other limits: of a wider
    level."""
    many, most = limits
    ids, sums, needed = _sums(draft, groups, rows, domain[rows])
    _, first = np.unique(domain[rows], return_index=True)
    row_of = dict(zip(np.unique(domain[rows]).tolist(), rows[first].tolist(), strict=True))
    outer = [(of[[row_of[each] for each in ids.tolist()]], limit) for of, limit in most]
    for size in range(1, many):
        if comb(len(ids), size) > WEIGHED:
            return
        sets = np.array(list(combinations(range(len(ids)), size)), dtype=np.int64)
        for of, limit in outer:
            inside = np.sort(of[sets], axis=1)
            sets = sets[(np.diff(inside, axis=1) != 0).sum(axis=1) < limit]
        held = sums[sets].sum(axis=1)
        sets, held = sets[(held >= needed).all(axis=1)], held[(held >= needed).all(axis=1)]
        for place in np.argsort(held[:, : len(groups)].sum(axis=1), kind="stable"):
            yield ids[sets[place]]


def _sums(draft: Draft, groups: PodCounts, rows: Ints, domain: Ints) -> tuple[Ints, Ints, Ints]:
    """The domains with the most capacity; by domain the capacity for each class, and the free amount of each
    resource that is asked for; and what is needed of each."""
    snapshot = draft.snapshot
    needs = requirements(
        snapshot, [(snapshot.view(spec).refresh(), count) for spec, count in groups]
    )
    by_row = np.column_stack([each.by_row[rows] for each, _ in needs])
    needed = np.array([count for _, count in needs])
    ids, at = np.unique(domain, return_inverse=True)
    sums = np.zeros((len(ids), len(needed)), dtype=np.int64)
    np.add.at(sums, at, by_row)
    best = np.argsort(-np.minimum(sums / np.maximum(needed, 1), 1).sum(axis=1), kind="stable")
    best = np.sort(best[:DOMAINS])
    return ids[best], sums[best], needed
