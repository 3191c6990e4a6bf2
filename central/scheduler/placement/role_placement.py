"""Roles of one gang that want to share nodes, or to keep off each other's (servers apart, workers with
their servers): who sits where inside the domain that was chosen.

The closest domain comes first; wishes never widen it, nor make a gang wait. In it, in this order: the
fewest of one role together that want to be apart, the fewest pairs on different nodes that want to be
near (of two roles, then of one), the fewest pairs of two roles together that want to be apart,
partners spread evenly, the fewest nodes. The seats that any gang would get are the start; pods are
moved and exchanged while that helps; with few pods everything that could be better is tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import product

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory import gpu_shares
from central.scheduler.placement.request import Groups, RolePreferences
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Draft
from central.scheduler.snapshot.snapshot import Snapshot

ROWS = 64  # of a domain that are looked at
EXCHANGES = 20_000
CHOICES = 20_000  # in the search for the best
Vector = tuple[int, ...]  # pods by role
Holds = Callable[[int, Vector], bool]


class RolePlacementProblem:
    """Rows and roles by their places; a plan has a vector for each row."""

    def __init__(
        self,
        crew: RolePreferences,
        free: Sequence[Vector],
        room: Sequence[Vector],
        asks: Sequence[Vector],
        fixed: Sequence[Vector] = (),
        *,
        holds: Holds | None = None,
    ) -> None:
        """free: amounts by row; room: how many of each role alone; asks: amounts by role; fixed: who
        is there already; holds: where parts of GPUs are asked for, whether they find them."""
        self.crew, self.free, self.room, self.asks = crew, free, room, asks
        self._holds = holds
        self.counts = tuple(count for _, count in crew.roles)
        self.fixed = fixed or [(0,) * len(self.counts)] * len(free)
        self.total = [
            count + sum(there[role] for there in self.fixed)
            for role, count in enumerate(self.counts)
        ]
        # More than any part of the cost can be.
        self._step = 4 * (sum(self.total) + 1) ** 3 * (len(crew.near) + len(crew.apart) + 1)
        self.harm = cache(self._harm)
        self.fits = cache(self._fits)

    def _fits(self, place: int, vector: Vector) -> bool:
        if any(map(int.__gt__, vector, self.room[place])):
            return False
        if any(
            sum(pods * ask[column] for pods, ask in zip(vector, self.asks, strict=True)) > free
            for column, free in enumerate(self.free[place])
        ):
            return False
        return self._holds is None or self._holds(place, vector)

    def cost(self, plan: Sequence[Vector]) -> int:
        return sum(self.harm(place, vector) for place, vector in enumerate(plan))

    def _harm(self, place: int, vector: Vector) -> int:
        """What one node adds to the cost, as one number; pairs that are together take from it."""
        have = list(map(int.__add__, vector, self.fixed[place]))
        alone = strangers = mates = others = uneven = 0
        for a, b in self.crew.apart:
            if a == b:
                alone += have[a] * (have[a] - 1) // 2
            else:
                others += have[a] * have[b]
        for a, b in self.crew.near:
            if a == b:
                mates -= have[a] * (have[a] - 1) // 2
                continue
            strangers -= have[a] * have[b]
            uneven += have[a] * (self.total[b] - have[b]) ** 2
            uneven += have[b] * (self.total[a] - have[a]) ** 2
        worth = 0
        opened = any(vector) and not any(self.fixed[place])
        for part in (alone, strangers, mates, others, uneven, int(opened)):
            worth = worth * self._step + part
        return worth

    def best_case(self, left: Vector) -> int:
        """At least so much is added by those who are left, wherever they go."""
        strangers = mates = 0
        for a, b in self.crew.near:
            if a == b:
                mates -= left[a] * self.total[a]
            else:
                strangers -= left[a] * self.total[b] + left[b] * self.total[a]
        return (strangers * self._step + mates) * self._step**3 - self._step**2


def exchanged(problem: RolePlacementProblem, plan: list[Vector]) -> list[Vector]:
    """Moves pods to other nodes, or exchanges two, as long as that is better."""
    tries = EXCHANGES
    moved = True
    while moved and tries > 0:
        moved = False
        for a in range(len(plan)):
            for b in range(len(plan)):
                if a == b or not any(plan[a]):
                    continue
                now = problem.harm(a, plan[a]) + problem.harm(b, plan[b])
                for left, right in _swaps(plan[a], plan[b]):
                    tries -= 1
                    if problem.harm(a, left) + problem.harm(b, right) >= now:
                        continue
                    if problem.fits(a, left) and problem.fits(b, right):
                        plan[a], plan[b] = left, right
                        moved = True
                        break
    return plan


def _swaps(left: Vector, right: Vector) -> Iterator[tuple[Vector, Vector]]:
    """One pod goes over, and none or one of another role comes back."""
    roles = range(len(left))
    for out in roles:
        if not left[out]:
            continue
        for back in (-1, *roles):
            if back == out or (back >= 0 and not right[back]):
                continue
            change = [(role == back) - (role == out) for role in roles]
            yield (
                tuple(map(int.__add__, left, change)),
                tuple(map(int.__sub__, right, change)),
            )


def searched(problem: RolePlacementProblem, plan: list[Vector]) -> tuple[list[Vector], bool]:
    """The best plan there is, and whether that is certain; or what was found in time."""
    best, found, budget = problem.cost(plan), list(plan), CHOICES
    alike = [(f, r, x) for f, r, x in zip(problem.free, problem.room, problem.fixed, strict=True)]
    taken: list[Vector] = []
    nobody = (0,) * len(problem.counts)
    empty = [0]  # what the nodes from there on cost as they are
    for index in reversed(range(len(plan))):
        empty.insert(0, empty[0] + problem.harm(index, nobody))

    def place(left: Vector, spent: int) -> None:
        nonlocal best, found, budget
        index = len(taken)
        if not any(left):
            if spent + empty[index] < best:
                best, found = spent + empty[index], [*taken, *[nobody] * (len(plan) - index)]
            return
        if index == len(plan) or budget <= 0:
            return
        if spent + empty[index] + problem.best_case(left) >= best:
            return
        most = taken[-1] if index and alike[index] == alike[index - 1] else None
        for vector in product(*(range(count, -1, -1) for count in left)):
            if (most is not None and vector > most) or not problem.fits(index, vector):
                continue
            budget -= 1
            taken.append(vector)
            place(tuple(map(int.__sub__, left, vector)), spent + problem.harm(index, vector))
            taken.pop()

    place(problem.counts, 0)
    return found, budget > 0


SMALL = 16  # pods: with more, what exchanges come to is good and no more is claimed


def seat(draft: Draft, crew: RolePreferences, rows: Ints, mark: int) -> int:
    """Seats anew, among the rows, those who were seated since the mark; the lower the number that is
    returned, the better."""
    snapshot = draft.snapshot
    seated = [(seat.row, seat.spec, seat.pods) for seat in draft.seats[mark:]]
    rows = _close(snapshot, rows, [row for row, _, _ in seated])
    draft.undo(mark)
    chosen = _shortlist(snapshot, crew, rows, [row for row, _, _ in seated])
    problem = problem_of(snapshot, crew, chosen)
    plan = _as_plan(crew, chosen, seated)
    plan = exchanged(problem, plan)
    if sum(problem.counts) <= SMALL:
        plan, _ = searched(problem, plan)
    take(draft, crew.roles, chosen, plan)
    return problem.cost(plan)


def take(draft: Draft, groups: Groups, rows: Ints, plan: Sequence[Vector]) -> None:
    """The seats of a plan, those of each kind together."""
    mark = len(draft.seats)
    for place in gpu_shares.widest_first([draft.snapshot.view(spec) for spec, _ in groups]):
        counts = np.array([vector[place] for vector in plan], dtype=np.int64)
        where = np.flatnonzero(counts)
        if len(where):
            draft.take_all(groups[place][0], rows[where], counts[where])
    rank = {spec: index for index, (spec, _) in reversed(list(enumerate(groups)))}
    draft.seats[mark:] = sorted(draft.seats[mark:], key=lambda seat: rank[seat.spec])


def _close(snapshot: Snapshot, rows: Ints, taken: Sequence[int]) -> Ints:
    """The rows of the narrowest domains of the tree where seats were taken: wishes open no other."""
    of = snapshot.columns.domains.of
    return rows[np.isin(of[-1, rows], of[-1, taken])] if len(of) else rows


def by_role(
    crew: RolePreferences, seated: Iterable[tuple[int, PodSpec, int]]
) -> Iterator[tuple[int, int, int]]:
    """Kinds of pods become roles: the first role of the kind sits first. Row, role and number."""
    left = [count for _, count in crew.roles]
    for row, spec, pods in seated:
        rest = pods
        for role, (kind, _) in enumerate(crew.roles):
            if kind == spec and (here := min(rest, left[role])):
                left[role] -= here
                rest -= here
                yield row, role, here


def _as_plan(
    crew: RolePreferences, rows: Ints, seated: Iterable[tuple[int, PodSpec, int]]
) -> list[Vector]:
    place = {row: index for index, row in enumerate(rows.tolist())}
    plan = [[0] * len(crew.roles) for _ in place]
    for row, role, count in by_role(crew, seated):
        plan[place[row]][role] += count
    return [tuple(vector) for vector in plan]


def _shortlist(snapshot: Snapshot, crew: RolePreferences, rows: Ints, used: Sequence[int]) -> Ints:
    """The rows where they sit, and others with room: the roomiest first, in the order of the tree."""
    room = np.zeros(len(rows), dtype=np.int64)
    for spec, count in crew.roles:
        room += np.minimum(snapshot.view(spec).refresh().by_row[rows], count)
    order = np.lexsort((snapshot.columns.name_rank()[rows], -room, ~np.isin(rows, used)))
    order = order[room[order] + np.isin(rows[order], used) > 0]
    chosen = rows[order[: max(ROWS, len(set(used)))]]
    return chosen[
        np.lexsort(
            (snapshot.columns.name_rank()[chosen], *snapshot.columns.domains.of[::-1, chosen])
        )
    ]


def problem_of(snapshot: Snapshot, crew: RolePreferences, rows: Ints) -> RolePlacementProblem:
    views = [snapshot.view(spec).refresh() for spec, _ in crew.roles]
    columns = sorted({int(column) for view in views for column in view.columns})
    free = snapshot.columns.free[rows][:, columns]
    if 0 in columns:
        free[:, columns.index(0)] = snapshot.columns.gpus.count[rows]
    asks = [dict(zip(view.columns.tolist(), view.amounts.tolist(), strict=True)) for view in views]
    room = np.stack([view.by_row[rows] for view in views], axis=1)
    fixed = np.zeros((len(rows), len(views)), dtype=np.int64)
    place = {row: index for index, row in enumerate(rows.tolist())}
    for row, role, count in crew.there:
        if row in place:
            fixed[place[row], role] += count
    return RolePlacementProblem(
        crew,
        [tuple(amounts) for amounts in free.tolist()],
        [tuple(pods) for pods in room.tolist()],
        [tuple(ask.get(column, 0) for column in columns) for ask in asks],
        [tuple(pods) for pods in fixed.tolist()],
        holds=_holds(snapshot, rows, [snapshot.view(spec) for spec, _ in crew.roles]),
    )


def _holds(snapshot: Snapshot, rows: Ints, views: Sequence[PodClassCapacity]) -> Holds | None:
    """What no sum over a node tells: whether parts of GPUs, and shares of network cards, find room one by
    one, and how many of a kind its rules and volumes allow there, whatever their roles."""
    company = any(view.interpod is not None for view in views)
    sharing = any(view.share for view in views)
    carded = any(view.nics for view in views) and bool(snapshot.columns.nics)

    def holds(place: int, vector: Vector) -> bool:
        row = int(rows[place])
        if company:
            alike: Counter[PodSpec] = Counter()
            for view, count in zip(views, vector, strict=True):
                alike[view.spec] += count
            if any(count > snapshot.view(spec).by_row[row] for spec, count in alike.items()):
                return False
        if sharing and not gpu_shares.fits(
            snapshot.columns.gpus, row, zip(views, vector, strict=True)
        ):
            return False
        room = snapshot.columns.nics.get(row) if carded and any(vector) else None
        kinds = (view.spec for view in views)
        return room is None or room.fits(zip(kinds, vector, strict=True))

    return holds if sharing or carded or company else None
