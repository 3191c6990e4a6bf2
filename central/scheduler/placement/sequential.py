"""Gangs whose pods' rules speak of each other (replicas apart by zone, workers near their servers, an
even spread): placed one pod at a time on the draft, so that each finds the counts that those before
it have changed. Slower than counting by kind, and only used where counting would be wrong.

Sound always: every pod satisfies Kubernetes' filters when it is seated. A "no" is certain for pods
of one kind with one rule; with several rules at once it is the answer of a bounded search, without
taking back a seat once it is given.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory import gpu_shares
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NUMA

TOGETHER = "fit together under their pod affinity, anti-affinity, spread, port and volume rules"
TRIED = 32  # domains of a level
Groups = Sequence[tuple[PodSpec, int]]


def pods_affect_each_other(snapshot: Snapshot, groups: Groups) -> bool:
    """Whether placing one of the pods can change where another may go."""
    if (
        all(spec.rules is None and spec.volumes is None for spec, _ in groups)
        or sum(count for _, count in groups) == 1
    ):
        return False
    return any(_touches(snapshot, spec, count, groups) for spec, count in groups)


def _touches(snapshot: Snapshot, spec: PodSpec, count: int, groups: Groups) -> bool:
    neighbours, rules = snapshot.pod_counts, spec.rules
    if _share_volumes(snapshot, spec, groups):
        return True
    if rules is None:
        return False
    others = [other for other, _ in groups if other is not spec and other != spec]
    everybody = [*others, *([spec] if count > 1 else [])]
    near = rules.near
    if near is not None and (
        any(neighbours.matched_by(near.peers, other) for other in others)
        or (neighbours.matched_by(near.peers, spec) and not neighbours.matching(near.peers).any())
    ):
        return True
    for apart in rules.apart:
        if any(neighbours.matched_by(apart.peers, other) for other in others):
            return True
        if neighbours.matched_by(apart.peers, spec) and not neighbours.domains(apart.key).single():
            return count > 1  # one on each node, where each node is a domain, is plain counting
    for spread in rules.spread:
        if any(neighbours.matched_by(spread.peers, other) for other in everybody):
            return True
    return any(
        mine.conflicts(port)
        for mine in rules.ports
        for other in others
        for port in (other.rules.ports if other.rules else ())
    )


def _share_volumes(snapshot: Snapshot, spec: PodSpec, groups: Groups) -> bool:
    """Whether a pod that has its volumes leaves fewer for another elsewhere, or for one of another kind.
    Equal pods whose volumes are of one node each are counted."""
    volumes, neighbours = spec.volumes, snapshot.pod_counts
    if volumes is None:
        return False
    if volumes.exclusive or neighbours.volumes.spans_nodes(volumes):
        return True
    others = [v for other, _ in groups if other != spec and (v := other.volumes) is not None]
    classes = {want.storage_class for want, _ in volumes.wants}
    if any(want.storage_class in classes for other in others for want, _ in other.wants):
        return True
    attach: Counter[str] = Counter()
    for other, count in groups:
        for driver, each in other.volumes.attach if other.volumes is not None else ():
            attach[driver] += each * count
        for driver, _ in other.volumes.common if other.volumes is not None else ():
            attach[driver] += 1
    return any(
        driver in dict((*other.attach, *other.common))
        and (neighbours.attach_capacity(driver) < attach[driver]).any()
        for driver, _ in (*volumes.attach, *volumes.common)
        for other in others
    )


def fit(
    draft: Draft, groups: Groups, levels: Sequence[str], anchors: Sequence[int], held: int
) -> list[Assignment]:
    """levels: to try, closest first. anchors, held: where the rest of the gang is, and its GPUs if
    that is one node. Raises DoesNotFit, with the draft as it was."""
    mark, most, wanted = len(draft.seats), 0, sum(count for _, count in groups)
    for level in levels:
        for rows in _candidates(draft.snapshot, groups, level, anchors):
            for within in islands(draft.snapshot, groups, level, rows, held):
                seated = seat_all(draft, groups, rows, within)
                if seated == wanted:
                    return draft.seats[mark:]
                most = max(most, seated)
    raise DoesNotFit(f"{most} of {wanted} {TOGETHER}")


def seat_all(draft: Draft, groups: Groups, rows: Ints, within: int) -> int:
    """Seats all of them among the rows, each kind's ranks beside each other, or none; says how many
    would have found a seat. within: the GPUs that they may have."""
    mark, most = len(draft.seats), 0
    for order in _orders(draft.snapshot, groups):
        seated = _seat(draft, groups, order, rows, within)
        if seated == sum(count for _, count in groups):
            break
        most = max(most, seated)
        draft.undo(mark)
    else:
        return most
    rank = {spec: index for index, (spec, _) in enumerate(groups)}
    places: dict[int, int] = {}
    for seat in draft.seats[mark:]:
        places.setdefault(seat.row, len(places))
    draft.seats[mark:] = sorted(draft.seats[mark:], key=lambda s: (rank[s.spec], places[s.row]))
    return seated


def _bare(spec: PodSpec) -> PodSpec:
    """Volumes stay: of those that there are, more can't be had."""
    return replace(spec, rules=None, matched=())


def _candidates(
    snapshot: Snapshot, groups: Groups, level: str, anchors: Sequence[int]
) -> Iterator[Ints]:
    """The rows of each domain that would have room if it were not for the rules, the tightest first."""
    wanted: dict[PodSpec, int] = {}
    for spec, count in groups:
        wanted[_bare(spec)] = wanted.get(_bare(spec), 0) + count
    views = {spec: snapshot.view(spec).refresh() for spec in wanted}
    usable = np.any([view.by_row > 0 for view in views.values()], axis=0)
    gpus = sum(view.gpus * wanted[spec] for spec, view in views.items())
    sharing = any(view.share for view in views.values())
    if level in island_masks.ON_NODE:
        fits = np.all([views[spec].by_row >= count for spec, count in wanted.items()], axis=0)
        fits &= snapshot.columns.gpus.count >= gpus
        if level == ISLAND:
            fits &= (snapshot.columns.gpus.island >= gpus) & (gpus > 0 or sharing)
        if anchors:
            fits &= np.isin(np.arange(len(fits)), anchors) & (len(set(anchors)) == 1)
        rows = np.flatnonzero(fits)
        if level == NUMA:
            least = gpus if sharing else max(gpus, 1)
            rows = rows[island_masks.most(snapshot, NUMA, rows) >= least]
        order = np.lexsort((snapshot.columns.name_rank()[rows], snapshot.columns.gpus.count[rows]))
        yield from (rows[[index]] for index in order[:TRIED])
        return
    if level not in snapshot.columns.domains.levels:
        if all(views[spec].by_row.sum() >= count for spec, count in wanted.items()):
            yield np.flatnonzero(usable)
        return
    index = snapshot.columns.domains.levels.index(level)
    of = snapshot.columns.domains.of[index]
    sums = [views[spec].by_domain[index] for spec in wanted]
    enough = np.all(
        [room >= count for room, count in zip(sums, wanted.values(), strict=True)], axis=0
    )
    if anchors:
        at = set(of[list(anchors)].tolist())
        enough &= np.isin(np.arange(len(enough)), list(at)) & (len(at) == 1)
    names = snapshot.columns.domains.names[index]
    found = sorted(np.flatnonzero(enough), key=lambda d: (int(sums[0][d]), names[d], int(d)))
    for domain in found[:TRIED]:
        yield np.flatnonzero(usable & (of == domain))


def islands(snapshot: Snapshot, groups: Groups, level: str, rows: Ints, held: int) -> Sequence[int]:
    """The masks of the node's islands, or NUMA nodes, that take all of the gang's GPUs, the fullest
    first; at other levels: any GPUs."""
    if level not in island_masks.PARTS:
        return (-1,)
    asks = [(snapshot.view(spec), count) for spec, count in groups]
    return island_masks.holding(snapshot, level, int(rows[0]), asks, held)


def _orders(snapshot: Snapshot, groups: Groups) -> list[list[int]]:
    """The widest kind first; then whose volumes must be the largest."""
    gpus = [snapshot.view(spec).gpus for spec, _ in groups]
    sizes = [
        max((want.size for want, _ in spec.volumes.wants), default=0) if spec.volumes else 0
        for spec, _ in groups
    ]
    widest = gpu_shares.widest_first([snapshot.view(spec) for spec, _ in groups])
    largest = sorted(range(len(groups)), key=lambda i: (-sizes[i], -gpus[i], i))
    return [widest] if widest == largest else [widest, largest]


def _seat(draft: Draft, groups: Groups, order: Sequence[int], rows: Ints, within: int) -> int:
    """Seats one pod after another, kind by kind; a kind that waits for another is asked again after it.
    Returns how many found a seat."""
    left = [count for _, count in groups]
    seated, used, moved = 0, set[int](), True
    while moved and any(left):
        moved = False
        for index in order:
            spec = groups[index][0]
            while left[index]:
                row = _best(draft.snapshot, spec, left[index], rows, used)
                if row is None:
                    break
                try:
                    draft.take(row, spec, 1, within)
                except DoesNotFit:  # no GPU of the island has so much left
                    break
                used.add(row)
                left[index] -= 1
                seated += 1
                moved = True
    return seated


def _best(snapshot: Snapshot, spec: PodSpec, left: int, rows: Ints, used: set[int]) -> int | None:
    """The node for the next pod of the kind: where its spread wants it; in a domain with room for
    those who must join it; beside the others of the gang; the fullest; the first by name."""
    view = snapshot.view(spec).refresh()
    rows = rows[view.by_row[rows] > 0]
    if not len(rows):
        return None
    fresh = np.array([row not in used for row in rows.tolist()])
    crowd = view.interpod.spread_peers()[rows] if view.interpod is not None else np.zeros(len(rows))
    lean = snapshot.preference(((spec, 1),))
    order = np.lexsort(
        (
            snapshot.columns.name_rank()[rows],
            snapshot.columns.gpus.count[rows],
            -lean[rows] if lean is not None else crowd * 0,
            fresh,
            _cramped(snapshot, view, left, rows),
            crowd,
        )
    )
    return int(rows[order[0]])


def _cramped(snapshot: Snapshot, view: PodClassCapacity, left: int, rows: Ints) -> Ints:
    """How many of those who must follow the first into its domain would find no room there."""
    short = np.zeros(len(rows), dtype=np.int64)
    near = view.spec.rules.near if view.spec.rules else None
    if near is None or not snapshot.pod_counts.matched_by(near.peers, view.spec):
        return short
    room = np.zeros(len(snapshot.columns.names), dtype=np.int64)
    room[rows] = view.by_row[rows]
    for key in near.keys:
        places = snapshot.pod_counts.domains(key)
        short = np.maximum(short, left - places.sums(room)[places.of[rows]])
    return short
