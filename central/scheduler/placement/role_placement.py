"""Places the roles of a gang inside the domain that was chosen, for example servers on different nodes and
workers beside their servers.

Role preferences never widen the domain and never keep a gang pending. The order inside it is, by importance:
fewest pairs of one role together that should be apart, most pairs of two roles together that should share a
node, most pairs of one role together that should, fewest pairs of two roles together that should be apart,
partners spread evenly, fewest nodes. The search starts from the placement that any gang would get, and moves
and swaps pods while that helps; for up to EXACT_PODS pods it then tries everything that could be better.

Design: docs/design/placement.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations_with_replacement, product

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.request import RolePreferences
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Assignment, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import WorkMeter

ROWS = 64  # of a domain that are considered
SWAPS = 20_000
SWAP_UNITS = 4  # of work, for FEW_ROLES
FEW_ROLES, ROLES_PER_UNIT = 8, 2
STEPS = 20_000  # of the exact search
Vector = tuple[int, ...]  # number of pods by role
FitsDevices = Callable[[int, Vector], bool]


class RolePlacementProblem:
    """Nodes and roles by index. A plan is one vector for each node."""

    def __init__(
        self,
        roles: RolePreferences,
        free: Sequence[Vector],
        capacity: Sequence[Vector],
        asks: Sequence[Vector],
        existing: Sequence[Vector] = (),
        *,
        fits_devices: FitsDevices | None = None,
        meter: WorkMeter | None = None,
    ) -> None:
        """free: free amounts by node. capacity: by node, how many pods of each role fit without the others.
        asks: requested amounts by role. existing: the gang's members by node. fits_devices: whether the
        GPU shares, NICs and pod rules of a vector fit a node, which sums cannot tell."""
        self.roles, self.free, self.capacity, self.asks = roles, free, capacity, asks
        self._fits_devices = fits_devices
        self.meter = meter or WorkMeter()
        self.counts = tuple(count for _, count in roles.pods)
        self._apart = frozenset(roles.anti_affinity)
        self._partners: dict[int, list[int]] = {}
        for a, b in roles.affinity:
            self._partners.setdefault(a, []).append(b)
            if a != b:
                self._partners.setdefault(b, []).append(a)
        self.swap_units = SWAP_UNITS + max(0, len(self.counts) - FEW_ROLES) // ROLES_PER_UNIT
        self.existing = existing or [(0,) * len(self.counts)] * len(free)
        self.total = [
            count + sum(members[role] for members in self.existing)
            for role, count in enumerate(self.counts)
        ]
        # Larger than any component of the cost, summed over all nodes.
        self._step = (
            4 * (sum(self.total) + 1) ** 3 * (len(roles.affinity) + len(roles.anti_affinity) + 1)
        )
        self.cost_on = cache(self._cost_on)
        self.fits = cache(self._fits)

    def _fits(self, place: int, vector: Vector) -> bool:
        if any(map(int.__gt__, vector, self.capacity[place])):
            return False
        asked = [(pods, ask) for pods, ask in zip(vector, self.asks, strict=True) if pods]
        if any(
            sum(pods * ask[column] for pods, ask in asked) > free
            for column, free in enumerate(self.free[place])
        ):
            return False
        return self._fits_devices is None or self._fits_devices(place, vector)

    def total_cost(self, plan: Sequence[Vector]) -> int:
        return sum(self.cost_on(place, vector) for place, vector in enumerate(plan))

    def _cost_on(self, place: int, vector: Vector) -> int:
        """Returns the cost of one node: six components as the digits of one integer with base _step, the most important
        first, so that comparing integers compares them in order.

        Example with base 1000: two servers and four workers in all, servers apart, workers beside servers.
        A node with one server and two workers has 0 pairs of servers, 2 server-worker pairs (counted as -2),
        0, 0, unevenness 1 * (4 - 2)**2 + 2 * (2 - 1)**2 = 6, and 1 opened node:
        (0, -2, 0, 0, 6, 1) becomes -2 * 1000**4 + 6 * 1000 + 1.
        A node with both servers has a first digit of 1, and is worse than any without."""
        have = list(map(int.__add__, vector, self.existing[place]))
        role_together = partners_split = role_split = roles_together = uneven = 0
        present = [role for role, pods in enumerate(have) if pods]
        for a, b in combinations_with_replacement(present, 2):
            if (a, b) not in self._apart:
                continue
            if a == b:
                role_together += have[a] * (have[a] - 1) // 2
            else:
                roles_together += have[a] * have[b]
        for a in present:
            for b in self._partners.get(a, ()):
                if a == b:
                    role_split -= have[a] * (have[a] - 1) // 2
                    continue
                uneven += have[a] * (self.total[b] - have[b]) ** 2
                if a < b:
                    partners_split -= have[a] * have[b]
        cost = 0
        opened = any(vector) and not any(self.existing[place])
        pairs = (role_together, partners_split, role_split, roles_together)
        for part in (*pairs, uneven, int(opened)):
            cost = cost * self._step + part
        return cost

    def best_case(self, left: Vector) -> int:
        """A lower bound of what the remaining pods add to the cost: all their partners on one node."""
        partners_split = role_split = 0
        for a, b in self.roles.affinity:
            if a == b:
                role_split -= left[a] * self.total[a]
            else:
                partners_split -= left[a] * self.total[b] + left[b] * self.total[a]
        return (partners_split * self._step + role_split) * self._step**3 - self._step**2


def improved(problem: RolePlacementProblem, plan: list[Vector]) -> list[Vector]:
    """Moves single pods and swaps two pods between nodes as long as the cost falls."""
    tries = SWAPS
    moved = True
    while moved and tries > 0:
        moved = False
        for a in range(len(plan)):
            for b in range(len(plan)):
                if a == b or not any(plan[a]):
                    continue
                if tries <= 0 or problem.meter.is_spent:
                    return plan
                now = problem.cost_on(a, plan[a]) + problem.cost_on(b, plan[b])
                for left, right in _swaps(plan[a], plan[b]):
                    tries -= 1
                    problem.meter.count(problem.swap_units)
                    if problem.cost_on(a, left) + problem.cost_on(b, right) >= now:
                        continue
                    if problem.fits(a, left) and problem.fits(b, right):
                        plan[a], plan[b] = left, right
                        moved = True
                        break
    return plan


def _swaps(left: Vector, right: Vector) -> Iterator[tuple[Vector, Vector]]:
    """One pod goes to the other node, and none or one of another role comes back."""
    roles = range(len(left))
    for out in roles:
        if not left[out]:
            continue
        for back in (-1, *roles):
            if back == out or (back >= 0 and not right[back]):
                continue
            change = [(role == back) - (role == out) for role in roles]
            yield (tuple(map(int.__add__, left, change)), tuple(map(int.__sub__, right, change)))


def searched(problem: RolePlacementProblem, plan: list[Vector]) -> tuple[list[Vector], bool]:
    """The best plan within STEPS steps, and whether it is certainly the best of all."""
    best, found, budget = problem.total_cost(plan), list(plan), STEPS
    alike = [
        (f, r, x) for f, r, x in zip(problem.free, problem.capacity, problem.existing, strict=True)
    ]
    taken: list[Vector] = []
    no_pods = (0,) * len(problem.counts)
    empty = [0]  # cost of the nodes from an index on without further pods
    for index in reversed(range(len(plan))):
        empty.insert(0, empty[0] + problem.cost_on(index, no_pods))

    def place(left: Vector, spent: int) -> None:
        nonlocal best, found, budget
        index = len(taken)
        if not any(left):
            if spent + empty[index] < best:
                best, found = spent + empty[index], [*taken, *[no_pods] * (len(plan) - index)]
            return
        if index == len(plan) or budget <= 0:
            return
        if spent + empty[index] + problem.best_case(left) >= best:
            return
        most = taken[-1] if index and alike[index] == alike[index - 1] else None
        for vector in product(*(range(count, -1, -1) for count in left)):
            if budget <= 0 or problem.meter.count(1):
                budget = 0
                return
            if (most is not None and vector > most) or not problem.fits(index, vector):
                continue
            budget -= 1
            taken.append(vector)
            place(tuple(map(int.__sub__, left, vector)), spent + problem.cost_on(index, vector))
            taken.pop()

    place(problem.counts, 0)
    return found, budget > 0


EXACT_PODS = 16  # above it, the result of moves and swaps is taken


def reassign(draft: Draft, roles: RolePreferences, rows: Ints, mark: int) -> int:
    """Assigns the pods that were assigned since the mark again, to some of the rows. Returns the cost, which
    is comparable among domains."""
    snapshot = draft.snapshot
    assigned = [(taken.row, taken.spec, taken.pods) for taken in draft.assignments[mark:]]
    rows = _in_used_domains(snapshot, rows, [row for row, _, _ in assigned])
    draft.undo(mark)
    chosen = _shortlist(snapshot, roles, rows, [row for row, _, _ in assigned])
    problem = build_problem(snapshot, roles, chosen)
    plan = _plan_of(roles, chosen, assigned)
    plan = improved(problem, plan)
    if sum(problem.counts) <= EXACT_PODS:
        plan, _ = searched(problem, plan)
    views = [snapshot.view(spec) for spec, _ in roles.pods]
    take(draft, roles.pods, chosen, plan, gpu_shares.widest_first(views))
    first = {spec: role for role, (spec, _) in reversed(list(enumerate(roles.pods)))}
    draft.assignments[mark:] = sorted(draft.assignments[mark:], key=lambda one: first[one.spec])
    return problem.total_cost(plan)


def take(
    draft: Draft, groups: PodCounts, rows: Ints, plan: Sequence[Vector], order: Iterable[int]
) -> None:
    """Takes a plan on the draft, roles in this order. Their assignments are in the order of the roles."""
    mark, taken = len(draft.assignments), [list[Assignment]() for _ in groups]
    for role in order:
        counts, before = np.array([vector[role] for vector in plan]), len(draft.assignments)
        where = np.flatnonzero(counts)
        if len(where):
            draft.take_all(groups[role][0], rows[where], counts[where])
        taken[role] = draft.assignments[before:]
    draft.assignments[mark:] = chain.from_iterable(taken)


def _in_used_domains(snapshot: Snapshot, rows: Ints, taken: Sequence[int]) -> Ints:
    """The rows of the narrowest domains in use; role preferences open no other."""
    of = snapshot.columns.domains.of
    return rows[np.isin(of[-1, rows], of[-1, taken])] if len(of) else rows


def split_by_role(
    roles: RolePreferences, assigned: Iterable[tuple[int, PodSpec, int]]
) -> Iterator[tuple[int, int, int]]:
    """Assigned specs as (row, role, number); the first role of a spec takes the first pods."""
    left = [count for _, count in roles.pods]
    for row, spec, pods in assigned:
        rest = pods
        for role, (kind, _) in enumerate(roles.pods):
            if kind == spec and (here := min(rest, left[role])):
                left[role] -= here
                rest -= here
                yield row, role, here


def _plan_of(
    roles: RolePreferences, rows: Ints, assigned: Iterable[tuple[int, PodSpec, int]]
) -> list[Vector]:
    place = {row: index for index, row in enumerate(rows.tolist())}
    plan = [[0] * len(roles.pods) for _ in place]
    for row, role, count in split_by_role(roles, assigned):
        plan[place[row]][role] += count
    return [tuple(vector) for vector in plan]


def _shortlist(snapshot: Snapshot, roles: RolePreferences, rows: Ints, used: Sequence[int]) -> Ints:
    """The rows in use, and others by falling capacity up to ROWS; in the order of the network tree."""
    capacity = np.zeros(len(rows), dtype=np.int64)
    for spec, count in roles.pods:
        capacity += np.minimum(snapshot.view(spec).refresh().by_row[rows], count)
    order = np.lexsort((snapshot.columns.name_rank()[rows], -capacity, ~np.isin(rows, used)))
    order = order[capacity[order] + np.isin(rows[order], used) > 0]
    chosen = rows[order[: max(ROWS, len(set(used)))]]
    return chosen[
        np.lexsort(
            (snapshot.columns.name_rank()[chosen], *snapshot.columns.domains.of[::-1, chosen])
        )
    ]


def build_problem(
    snapshot: Snapshot, roles: RolePreferences, rows: Ints, allowed: Ints | None = None
) -> RolePlacementProblem:
    """allowed: by row and role, 1 where its pods may go; None: everywhere."""
    views = [snapshot.view(spec).refresh() for spec, _ in roles.pods]
    columns = sorted({int(column) for view in views for column in view.columns})
    free = snapshot.columns.free[rows][:, columns]
    if 0 in columns:
        free[:, columns.index(0)] = snapshot.columns.gpus.count[rows]
    asks = [dict(zip(view.columns.tolist(), view.amounts.tolist(), strict=True)) for view in views]
    capacity = np.stack([view.by_row[rows] for view in views], axis=1)
    if allowed is not None:
        capacity *= allowed
    existing = np.zeros((len(rows), len(views)), dtype=np.int64)
    place = {row: index for index, row in enumerate(rows.tolist())}
    for row, role, count in roles.existing_members:
        if row in place:
            existing[place[row], role] += count
    return RolePlacementProblem(
        roles,
        [tuple(amounts) for amounts in free.tolist()],
        [tuple(pods) for pods in capacity.tolist()],
        [tuple(ask.get(column, 0) for column in columns) for ask in asks],
        [tuple(pods) for pods in existing.tolist()],
        fits_devices=_fits_devices(snapshot, rows, [snapshot.view(spec) for spec, _ in roles.pods]),
        meter=snapshot.meter,
    )


def _fits_devices(
    snapshot: Snapshot, rows: Ints, views: Sequence[PodClassCapacity]
) -> FitsDevices | None:
    """Returns the check of a vector on one node where sums per node cannot tell: GPU shares, NICs, devices of claims,
    and how many pods of a class their rules and volumes allow. None: sums are enough."""
    interpod = any(view.interpod is not None for view in views)
    sharing = any(view.share for view in views)
    limited_nics = any(view.nics for view in views) and bool(snapshot.columns.nics)

    def fits_devices(place: int, vector: Vector) -> bool:
        row = int(rows[place])
        if interpod:
            alike: Counter[PodSpec] = Counter()
            for view, count in zip(views, vector, strict=True):
                alike[view.spec] += count
            if any(count > snapshot.view(spec).by_row[row] for spec, count in alike.items()):
                return False
            asks = [(view.spec.devices, n) for view, n in zip(views, vector, strict=True)]
            devices = [(needs, n) for needs, n in asks if needs is not None and needs.asks and n]
            if devices and not snapshot.pod_counts.devices.fits(row, devices):
                return False
        if sharing and not gpu_shares.fits(
            snapshot.columns.gpus, row, zip(views, vector, strict=True)
        ):
            return False
        capacity = snapshot.columns.nics.get(row) if limited_nics and any(vector) else None
        specs = (view.spec for view in views)
        return capacity is None or capacity.fits(zip(specs, vector, strict=True))

    return fits_devices if sharing or limited_nics or interpod else None
