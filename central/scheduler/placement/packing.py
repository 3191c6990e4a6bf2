"""Unlike pods in one domain where filling it kind by kind found no way: a search for any way at all,
node by node. Only what leaves no room for another of the pods is tried on a node, since whoever could
sit there may as well. Bounded; it knows whether its "no" is certain."""

from collections.abc import Iterator

import numpy as np

from central.model.arrays import Ints
from central.scheduler.placement.request import Groups, RolePreferences
from central.scheduler.placement.role_placement import (
    RolePlacementProblem,
    Vector,
    problem_of,
    take,
)
from central.scheduler.snapshot.draft import Draft
from protos.names import GPU_SHARE

ROWS = 128  # of a domain that are looked at
CHOICES = 600


class Packer:
    """For one gang. certain: nothing that was refused may have been possible."""

    def __init__(self, groups: Groups) -> None:
        # Unlike parts of a GPU are put where they fit best, and not in every way there is.
        self.certain = len({spec.request(GPU_SHARE) for spec, _ in groups} - {0}) < 2
        self._left = CHOICES

    def seat(self, draft: Draft, groups: Groups, rows: Ints) -> bool:
        """Seats them among the rows, if a way is found."""
        if len(groups) < 2 or len(rows) < 2:
            return False  # there is one way only, and it was tried
        if self._left <= 0:
            self.certain = False
            return False
        snapshot = draft.snapshot
        room = np.zeros(len(rows), dtype=np.int64)
        for spec, count in groups:
            room += np.minimum(snapshot.view(spec).refresh().by_row[rows], count)
        order = np.lexsort((snapshot.columns.name_rank()[rows], -room))
        order = order[room[order] > 0]
        chosen = rows[order[:ROWS]]
        plan, self._left = packed(problem_of(snapshot, RolePreferences(groups), chosen), self._left)
        if plan is None:
            self.certain &= self._left > 0 and len(order) <= ROWS
            return False
        take(draft, groups, chosen, plan)
        return True


def packed(problem: RolePlacementProblem, budget: int = CHOICES) -> tuple[list[Vector] | None, int]:
    """A plan, or None, and what is left of the budget; None is certain if that is anything."""
    rows = len(problem.free)
    after = [(0,) * len(problem.counts)]  # how many of each role fit on the nodes from there on
    for room in reversed(problem.room):
        after.insert(0, tuple(map(int.__add__, room, after[0])))
    dead: set[tuple[int, Vector]] = set()
    plan: list[Vector] = []

    def place(left: Vector) -> bool:
        nonlocal budget
        index = len(plan)
        if not any(left):
            plan.extend([left] * (rows - index))
            return True
        if index == rows or any(map(int.__gt__, left, after[index])) or (index, left) in dead:
            return False
        for vector in _full(problem, index, left):
            budget -= 1
            if budget <= 0:
                return False
            plan.append(vector)
            if place(tuple(map(int.__sub__, left, vector))):
                return True
            plan.pop()
        dead.add((index, left))
        return False

    found = place(problem.counts)
    return (plan if found else None), budget


def _full(problem: RolePlacementProblem, place: int, left: Vector) -> Iterator[Vector]:
    """The vectors that fit there and leave no room for another of those who are left."""

    def grow(role: int, vector: list[int]) -> Iterator[Vector]:
        if role == len(left):
            if not any(
                vector[other] < left[other] and problem.fits(place, _plus(vector, other))
                for other in range(len(left))
            ):
                yield tuple(vector)
            return
        for count in range(left[role], -1, -1):
            vector[role] = count
            rest = (*vector[: role + 1], *[0] * (len(left) - role - 1))
            if problem.fits(place, rest):
                yield from grow(role + 1, list(rest))

    yield from grow(0, [0] * len(left))


def _plus(vector: list[int], role: int) -> Vector:
    return tuple(count + (place == role) for place, count in enumerate(vector))
