"""Searches a placement of unlike pods in one domain after filling it class by class has failed.

Subgroups and their bundles are each given a domain of their level first, and then all pods are packed at once; this is
done after placing subgroup by subgroup has failed.

The search goes node by node. On each node it tries only selections that leave no capacity for another of the
remaining pods, because adding that pod loses nothing, and it never visits the same remainder at the same node
twice. The number of steps is limited, and the result says whether a refusal is certain.

Design: docs/design/unlike-pods.md
Design: docs/design/subgroups.md
"""

from collections.abc import Iterator, Sequence

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.placement.request import Bundle, RolePreferences, SubgroupRequest
from central.scheduler.placement.role_placement import (
    RolePlacementProblem,
    Vector,
    build_problem,
    take,
)
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Draft
from protos.names import GPU_SHARE

ROWS = 128  # of a domain that are considered
PLACES = 32  # nodes of a domain for several subgroups; the search grows fast with them
DIVISIONS = 400  # of subgroups among domains, for each gang
STEPS = 600
CLASSES = 128  # of pods that are searched; a step costs as much as there are
CLASSES_PER_UNIT = 8  # of work of a step


class Packer:
    """The search for one gang, over all domains that are tried. exact: so far every refusal was certain."""

    def __init__(
        self,
        draft: Draft,
        parts: Sequence[SubgroupRequest],
        *,
        counted: bool = True,
        steps: int = 0,
    ) -> None:
        """parts: the subgroups, one for each copy; or all pods as one. counted: the pods' own rules do not refer to
        each other. steps: 0: as many as there are."""
        self._draft, self._parts = draft, parts
        self._classes = tuple(pods for part in parts for pods in part.groups)
        inside_nodes = any(part.required in island_masks.PARTS for part in parts)
        shares = {spec.request(GPU_SHARE) for spec, _ in self._classes} - {0}
        self._alone = len(parts) == 1 and not (parts[0].required or parts[0].bundles)
        self._works = counted and not inside_nodes and (self._alone or not shares)
        self._works &= len(self._classes) <= CLASSES
        # Unlike GPU shares are assigned to the tightest GPU only, not in every possible way.
        self.exact = self._works and len(shares) < 2
        self._steps, self._divisions = steps or STEPS, DIVISIONS

    def assign(self, rows: Ints) -> bool:
        """Assigns all pods to some of the rows, in the order of the parts; False if no placement was found."""
        if not self._works or (self._alone and (len(self._classes) < 2 or len(rows) < 2)):
            return False  # of one class or on one row there is only one way, which has failed
        snapshot = self._draft.snapshot
        fits = [snapshot.view(spec).refresh().by_row[rows] for spec, _ in self._classes]
        most = np.sum(
            [np.minimum(fit, n) for fit, (_, n) in zip(fits, self._classes, strict=True)], 0
        )
        usable = np.flatnonzero(most)
        if len(usable) > (ROWS if self._alone else PLACES):
            self.exact = False
            if not self._alone:
                return False
        if self._alone:
            # First those that are a large part of all that some class may have.
            counts = zip(fits, self._classes, strict=True)
            parts = [n * np.minimum(fit, n) / max(fit.sum(), 1) for fit, (_, n) in counts]
            best = np.lexsort((snapshot.columns.name_rank()[rows], -np.sum(parts, 0)))
            usable = best[: min(len(usable), ROWS)]
        chosen = rows[usable]
        for allowed in self._divided(chosen, np.stack(fits)[:, usable]):
            if self._divisions <= 0 or self._steps <= 0:
                self.exact = False
                return False
            self._divisions -= 1
            problem = build_problem(snapshot, RolePreferences(self._classes), chosen, allowed)
            plan, self._steps = search(problem, self._steps)
            if plan is not None:
                views = [snapshot.view(spec) for spec, _ in self._classes]
                order = gpu_shares.widest_first(views) if self._alone else range(len(views))
                take(self._draft, self._classes, chosen, plan, order)
                return True
        self.exact &= self._steps > 0
        return False

    def _divided(self, rows: Ints, capacity: Ints) -> Iterator[Ints]:
        """Each division of the bundles and subgroups among domains: by row and pod class, 1 where it may go."""
        bundles = {one.number: one for subgroup in self._parts for one in subgroup.bundles}
        placed: list[SubgroupRequest | Bundle] = [*bundles.values(), *self._parts]
        domains = [self._domains(each, rows) for each in placed]
        ends = np.cumsum([len(subgroup.groups) for subgroup in self._parts]).tolist()
        starts = [0, *ends[:-1]]
        allowed = np.zeros((len(rows), len(capacity)), dtype=np.int64)
        inside_of: dict[int, Ints] = {}  # by bundle: 1 for the rows in its domain

        def divide(index: int, before: int) -> Iterator[Ints]:
            """Yields `allowed` for each division of the bundles and subgroups from the index on. before: the domain of
            the subgroup before; an equal one need not try those before it again."""
            if index == len(domains):
                yield allowed
                return
            each = placed[index]
            if isinstance(each, Bundle):
                for inside in domains[index]:
                    inside_of[each.number] = inside
                    yield from divide(index + 1, 0)
                return
            at = index - len(bundles)
            classes = slice(starts[at], ends[at])
            alike = each == self._parts[at - 1]  # of the first, none is before it
            counts = np.array([count for _, count in each.groups])
            for number, domain in enumerate(domains[index]):
                inside = domain
                for bundle in each.bundles:
                    inside = inside * inside_of[bundle.number]
                fits = (capacity[classes] * inside).sum(axis=1) >= counts
                if (alike and number < before) or not fits.all():
                    continue
                allowed[:, classes] = inside[:, None]
                yield from divide(index + 1, number)

        yield from divide(0, 0)

    def _domains(self, subgroup: SubgroupRequest | Bundle, rows: Ints) -> list[Ints]:
        """Returns for each domain that the subgroup, or the bundle, may be in: 1 for the rows in it. It joins its
        existing members."""
        of = self._draft.snapshot.columns.domains.of_level(subgroup.required)
        found = set(of[rows].tolist()) - {-1}
        if subgroup.existing_rows:
            there = set(of[list(subgroup.existing_rows)].tolist())
            found = found & there if len(there) == 1 else set()
        return [(of[rows] == domain).astype(np.int64) for domain in sorted(found)]


def search(problem: RolePlacementProblem, budget: int = STEPS) -> tuple[list[Vector] | None, int]:
    """A plan or None, and the remaining steps. None is certain if steps remain."""
    rows = len(problem.free)
    after = [(0,) * len(problem.counts)]  # capacity by role of the nodes from an index on
    for capacity in reversed(problem.capacity):
        after.insert(0, tuple(map(int.__add__, capacity, after[0])))
    dead: set[tuple[int, Vector]] = set()
    plan: list[Vector] = []

    def row_index(left: Vector) -> bool:
        nonlocal budget
        index = len(plan)
        if not any(left):
            plan.extend([left] * (rows - index))
            return True
        if index == rows or any(map(int.__gt__, left, after[index])) or (index, left) in dead:
            return False
        for vector in _maximal(problem, index, left):
            budget -= 1
            if problem.meter.count(rows):
                budget = 0
            if budget <= 0:
                return False
            plan.append(vector)
            if row_index(tuple(map(int.__sub__, left, vector))):
                return True
            plan.pop()
        dead.add((index, left))
        return False

    found = row_index(problem.counts)
    return (plan if found else None), budget


def _maximal(problem: RolePlacementProblem, row_index: int, left: Vector) -> Iterator[Vector]:
    """The vectors that fit the node and leave no capacity for another of the remaining pods."""

    def grow(role: int, vector: list[int]) -> Iterator[Vector]:
        if role == len(left):
            if not any(
                vector[other] < left[other]
                and problem.fits(row_index, _with_one_more(vector, other))
                for other in range(len(left))
            ):
                yield tuple(vector)
            return
        for count in range(left[role], -1, -1):
            vector[role] = count
            if problem.meter.count(1 + len(left) // CLASSES_PER_UNIT):
                return
            rest = (*vector[: role + 1], *[0] * (len(left) - role - 1))
            if problem.fits(row_index, rest):
                yield from grow(role + 1, list(rest))

    yield from grow(0, [0] * len(left))


def _with_one_more(vector: list[int], role: int) -> Vector:
    return tuple(count + (row_index == role) for row_index, count in enumerate(vector))
