"""Searches a placement of unlike pods in one domain after filling it class by class has failed.

The search goes node by node. On each node it tries only selections that leave no capacity for another of the
remaining pods, because adding that pod loses nothing, and it never visits the same remainder at the same node
twice. The number of steps is limited, and the result says whether a refusal is certain.

Design: docs/design/unlike-pods.md
"""

from collections.abc import Iterator

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.request import RolePreferences
from central.scheduler.placement.role_placement import (
    RolePlacementProblem,
    Vector,
    build_problem,
    take,
)
from central.scheduler.snapshot.draft import Draft
from protos.names import GPU_SHARE

ROWS = 128  # of a domain that are considered
STEPS = 600
CLASSES = 128  # of pods that are searched; a step costs as much as there are
CLASSES_PER_UNIT = 8  # of work of a step


class Packer:
    """For one gang, over all domains that are tried. exact: so far every refusal was certain."""

    def __init__(self, groups: PodCounts, steps: int = STEPS) -> None:
        # Unlike GPU shares are assigned to the tightest GPU only, not in every possible way.
        self.exact = len({spec.request(GPU_SHARE) for spec, _ in groups} - {0}) < 2
        self._left = steps

    def assign(self, draft: Draft, groups: PodCounts, rows: Ints) -> bool:
        """Assigns the pods to some of the rows; False if no placement was found."""
        if len(groups) < 2 or len(rows) < 2:
            return False  # there is only one way, which has failed
        if self._left <= 0 or len(groups) > CLASSES:
            self.exact = False
            return False
        snapshot = draft.snapshot
        capacity = np.zeros(len(rows), dtype=np.int64)
        for spec, count in groups:
            capacity += np.minimum(snapshot.view(spec).refresh().by_row[rows], count)
        order = np.lexsort((snapshot.columns.name_rank()[rows], -capacity))
        order = order[capacity[order] > 0]
        chosen = rows[order[:ROWS]]
        plan, self._left = search(
            build_problem(snapshot, RolePreferences(groups), chosen), self._left
        )
        if plan is None:
            self.exact &= self._left > 0 and len(order) <= ROWS
            return False
        take(draft, groups, chosen, plan)
        return True


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
