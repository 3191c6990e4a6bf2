"""Target sizes of the gangs that share a pool: gangs of one kind of pod, which may use the same nodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import groupby

import numpy as np

from central.model.facts import PodSpec
from central.model.jobspec import FILL, GOODPUT
from central.scheduler.elastic import goodput, headroom, seat_counts, sizes
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.sizes import SizeRange
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement.placement_attempts import required_level
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.queues import quota
from central.scheduler.reservation.release_forecast import ReleasablePods
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.snapshot import island_masks
from central.scheduler.state.gangs import GangKey

Divide = Callable[[Sequence[SizeRange], int], list[int]]


@dataclass(slots=True)
class Pool:
    """gangs: in line order."""

    spec: PodSpec
    gangs: list[ElasticGang]
    rows: frozenset[int] | None = None  # the domain that the gangs must stay in; None: all nodes
    seats: int = 0  # for surplus: free ones, and those that the gangs' surplus holds
    free: int = 0  # of these, the seats that nobody holds


def pools_of(context: PreemptionContext, gangs: Sequence[ElasticGang]) -> Iterator[Pool]:
    """Yields the pools of the gangs that have started."""
    line = sorted((gang for gang in gangs if gang.started), key=lambda gang: gang.gang.attempt.rank)
    found: dict[object, Pool] = {}
    for gang in line:
        spec = gang.spec
        if spec is None:
            continue
        rows = _rows(context, gang)
        pool = found.setdefault((spec, rows), Pool(spec, [], rows))
        pool.gangs.append(gang)
    yield from found.values()


def share(context: PreemptionContext, pool: Pool, headroom: float) -> dict[ElasticGang, int]:
    """Counts the pool's seats, and returns the size that each of its gangs should have. One whose work comes to its end
    leaves the pool."""
    pool.gangs = [gang for gang in pool.gangs if not gang.ending]
    if not pool.gangs:
        return {}
    count_seats(context, pool, headroom)
    return dict(zip(pool.gangs, targets(context, pool), strict=True))


def pool_with(
    context: PreemptionContext,
    gangs: Sequence[ElasticGang],
    newcomers: Sequence[ElasticGang],
    spec: PodSpec,
) -> Pool:
    """Makes the pool of the gangs of this kind of pod that may be anywhere, in line order, and of newcomers of that
    sort, which are about to start."""
    started = [
        gang
        for gang in gangs
        if gang.started
        and gang.spec == spec
        and not gang.ending
        and not required_level(context.state, gang.gang)
    ]
    members = [*started, *newcomers]
    members.sort(key=lambda gang: gang.gang.attempt.rank)
    return Pool(spec, members)


def _rows(context: PreemptionContext, gang: ElasticGang) -> frozenset[int] | None:
    """Growth never crosses the level that the gang requires."""
    columns = context.state.snapshot.columns
    required = required_level(context.state, gang.gang)
    if required not in (*island_masks.ON_NODE, *columns.domains.levels):
        return None
    of = columns.domains.of_level(required)
    placed = gang.gang.counts.placed
    own = {columns.row[pod.node] for pod in placed if pod.node in columns.row}
    return frozenset(np.flatnonzero(np.isin(of, of[sorted(own)])).tolist())


def count_seats(
    context: PreemptionContext, pool: Pool, share_free: float, newcomers: Iterable[GangKey] = ()
) -> None:
    """Counts the pool's seats with all members of its gangs released, and those that are free now; without what is
    reserved for others and the headroom.

    share_free: of the pool's capacity, that surplus leaves free. If less is free, pool.free is below 0.
    newcomers: gangs that are about to start there. Capacity that is reserved or terminates for them counts as seats.
    """
    snapshot = context.state.snapshot
    withheld = WithheldCapacity(snapshot)
    coming = [held for key in newcomers if (held := context.reservations.get(key)) is not None]
    withheld.set(
        [
            reservation
            for key, reservation in context.reservations.items()
            if reservation not in coming and not any(gang.key == key for gang in pool.gangs)
        ]
    )
    withheld.lend_what_victims_use()
    members = [pod for gang in pool.gangs for pod in gang.placed.values()]
    if coming:
        members = list(dict.fromkeys((*members, *_leaving_for(context, coming))))
    freed = snapshot.freed
    try:
        pool.free = _fitting(context, pool)
        room = seat_counts.fitting(context, pool.spec, members, pool.rows)
        if room is None:
            releasable = ReleasablePods(context.state, members)
            with releasable.without(np.arange(len(members))):
                room = _fitting(context, pool)
    finally:
        withheld.set([])
        snapshot.freed = freed
    if share_free:
        view = snapshot.view(pool.spec).refresh()
        spare = headroom.spare_seats(context, view, pool.rows, share_free)
        pool.free = min(pool.free, spare)
        room = min(room, spare + sum(len(gang.placed) for gang in pool.gangs))
    pool.seats = room - sum(gang.task.least for gang in pool.gangs)


def _leaving_for(context: PreemptionContext, coming: Sequence[Reservation]) -> Iterator[Pod]:
    """The pods that terminate where something is reserved for these."""
    columns, nodes = context.state.snapshot.columns, context.state.nodes
    rows = {row for held in coming if held.by_eviction for row in held.place.rows.tolist()}
    for row in sorted(rows):
        if (node := nodes.get(columns.names[row])) is not None:
            yield from (
                pod for pod in node.pods.values() if pod.leaving and pod.charged_spec is not None
            )


def some_domain_has(context: PreemptionContext, pool: Pool, required: str, count: int) -> bool:
    """Returns whether one domain of the level has so many seats: free ones, and those that surplus of the pool's gangs
    could leave there. True if no level is required."""
    if not required:
        return True
    columns = context.state.snapshot.columns
    of = columns.domains.of_level(required)
    rows = np.array(sorted(pool.rows or range(len(of))), dtype=np.int64)
    rows = rows[of[rows] >= 0]
    free = context.state.snapshot.view(pool.spec).refresh().by_row[rows]
    seats = np.bincount(of[rows], weights=free, minlength=1)
    for gang in pool.gangs:
        inside = np.array([of[columns.row[pod.node]] for pod in gang.placed.values()])
        held = np.bincount(inside[inside >= 0], minlength=len(seats))
        seats[: len(held)] += np.minimum(held, gang.spare)[: len(seats)]
    return bool(seats.max() >= count)


def faster(context: PreemptionContext, pool: Pool, gang: ElasticGang, goal: int) -> int:
    """The largest size up to the goal with which the gang is faster than now, on the nodes where its members would be:
    its own first, then those with the most free seats. Its present size if there is none."""
    present, speeds = len(gang.placed), gang.task.speeds
    if speeds is None or goal <= present:
        return goal
    columns = context.state.snapshot.columns
    own = {columns.row[pod.node] for pod in gang.placed.values()}
    by_row = context.state.snapshot.view(pool.spec).refresh().by_row
    inside = int(by_row[sorted(own)].sum())
    others = np.delete(by_row, sorted(own))
    reach = np.cumsum(np.sort(others)[::-1])
    useful = np.array(gang.task.useful, dtype=np.int64)
    sizes = useful[(useful > present) & (useful <= goal)]
    beyond = sizes - present - inside
    more = np.where(beyond > 0, np.searchsorted(reach, beyond) + 1, 0)
    better = sizes[speeds.at_each(sizes, len(own) + more) > speeds.at(present, len(own))]
    return int(better[-1]) if len(better) else present


def _fitting(context: PreemptionContext, pool: Pool) -> int:
    by_row = context.state.snapshot.view(pool.spec).refresh().by_row
    return int(by_row[sorted(pool.rows)].sum() if pool.rows is not None else by_row.sum())


Queue = str


def targets(context: PreemptionContext, pool: Pool) -> list[int]:
    """The gangs' sizes: across queues by their usage levels, inside a queue by priority, and among equals
    by the objective."""
    if not context.queues.enabled:
        return _by_priority(pool.gangs, pool.seats)
    shares = _seats_by_queue(context, pool)
    found: dict[int, int] = {}
    for queue, seats in shares.items():
        own = [gang for gang in pool.gangs if gang.gang.queue == queue]
        sizes_of_own = _by_priority(own, seats)
        found |= {id(gang): size for gang, size in zip(own, sizes_of_own, strict=True)}
    return [found[id(gang)] for gang in pool.gangs]


def _by_priority(gangs: Sequence[ElasticGang], seats: int) -> list[int]:
    found: dict[int, int] = {}
    order = sorted(gangs, key=lambda gang: -gang.gang.priority)
    for _, group in groupby(order, key=lambda gang: gang.gang.priority):
        equals = list(group)
        given = _by_objective(equals, max(0, seats))
        seats -= sum(size - gang.task.least for size, gang in zip(given, equals, strict=True))
        found |= {id(gang): size for gang, size in zip(equals, given, strict=True)}
    return [found[id(gang)] for gang in gangs]


def _by_objective(gangs: Sequence[ElasticGang], seats: int) -> list[int]:
    """Returns the gangs' sizes by the objective of all of them; gangs of unlike objectives share evenly."""
    objectives = {gang.task.objective for gang in gangs}
    if objectives == {FILL}:
        return _useful_sizes(gangs, seats, sizes.fill)
    tenants = [(gang.gang.queue, gang.gang.namespace) for gang in gangs]
    even = _useful_sizes(gangs, seats, lambda jobs, left: sizes.even_by_tenant(jobs, tenants, left))
    if objectives != {GOODPUT}:
        return even
    curves = [goodput.curve(gang.task) for gang in gangs]
    return goodput.goodput(curves, even, [len(gang.placed) for gang in gangs], seats)


def _useful_sizes(gangs: Sequence[ElasticGang], seats: int, divide: Divide) -> list[int]:
    """A gang that would be as fast with fewer members keeps these, and the others share the rest."""
    ranges = [_range(gang) for gang in gangs]
    left = seats
    for _ in gangs:
        given = divide(ranges, left)
        lowered = [
            index
            for index, (gang, size) in enumerate(zip(gangs, given, strict=True))
            if gang.useful(size) < size
        ]
        if not lowered:
            break
        for index in lowered:
            size = gangs[index].useful(given[index])
            left -= size - ranges[index].least
            ranges[index] = SizeRange(size, size, 1, ranges[index].now)
    return given


def _range(gang: ElasticGang) -> SizeRange:
    task = gang.task
    return SizeRange(task.least, gang.most_useful, task.step, len(gang.placed))


def _seats_by_queue(context: PreemptionContext, pool: Pool) -> dict[Queue, int]:
    """Seat by seat to the queue with the lowest dominant share by weight, as far as its gangs can use them
    and its capability allows."""
    queues = context.queues
    request = queues.currency.counted(dict(pool.spec.requests))
    wanted: dict[Queue, int] = {}
    held: dict[Queue, int] = {}
    for gang in pool.gangs:
        name = gang.gang.queue
        wanted[name] = wanted.get(name, 0) + gang.most_useful - gang.task.least
        held[name] = held.get(name, 0) + gang.spare
    seats = dict.fromkeys(wanted, 0)
    heap = []
    for name, most in list(wanted.items()):
        queue = queues.by_name[name]
        part = max(
            (
                amount / queues.total[each]
                for each, amount in request.items()
                if queues.total.get(each)
            ),
            default=0.0,
        )
        _, _, level, _ = quota.usage_level(queue, queues.total)
        step = part / max(queue.seen.weight, 1)
        wanted[name] = min(most, held[name] + within_capability(context, name, request, {}))
        heap.append((level - held[name] * step, name, step))
    heapify(heap)
    left = pool.seats
    while heap and left > 0:
        level, name, step = heap[0]
        if seats[name] >= wanted[name]:
            heappop(heap)
            continue
        seats[name] += 1
        left -= 1
        heapreplace(heap, (level + step, name, step))
    return seats


def at_capability(context: PreemptionContext, spec: PodSpec, queue: Queue) -> bool:
    """Returns whether a capability of the queue, or of one above it, allows no further member."""
    request = context.queues.currency.counted(dict(spec.requests))
    return within_capability(context, queue, request, {}) <= 0


def within_capability(
    context: PreemptionContext,
    name: Queue,
    request: Mapping[str, int],
    asked: Mapping[Queue, Mapping[str, int]],
) -> int:
    """Returns how many more such pods the capability of the queue and of those above it allows; below 0: they use more.
    asked: by queue, amounts that count as used too"""
    most = 2**31
    for above in context.queues.by_name[name].path:
        beside = asked.get(above.name, {})
        for resource, limit in above.capability.items():
            if amount := request.get(resource, 0):
                left = limit - above.used.get(resource, 0) - beside.get(resource, 0)
                most = min(most, left // amount)
    return most
