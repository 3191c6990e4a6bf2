"""Where a gang goes: the closest domain that takes it whole. From the inside out: one island, one
node, then each level of the network tree from the narrowest to the widest, then anywhere.

Within a level the domain is chosen that needs the fewest parts (racks of a block, nodes of a rack),
then the one that is left with the least room, then the first by name: the empty stays empty for
those who need it whole. Works on counts per domain: the cost does not grow with the gang.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from central.core import onebyone, why
from central.core.domains import Ints
from central.core.draft import DoesNotFit, Draft, Seat
from central.core.facts import PodSpec
from central.core.snapshot import Snapshot
from central.core.view import ClassView
from protos.names import ISLAND, NODE
from protos.topology import indices_of

ANYWHERE = "cluster"
TRIED_DOMAINS = 16  # of a level, for gangs of unlike pods: each costs a tentative placement


@dataclass(frozen=True, slots=True)
class Want:
    """What is to be placed at once: kinds of pods with their numbers, in the order they should sit.

    required: the widest level that may be crossed (a label key, "node", "island"; empty: none).
    anchors: rows where members of the gang already are; the rest joins them if it can.
    anchor_gpus: the GPUs that they hold, where it is one row.
    """

    groups: tuple[tuple[PodSpec, int], ...]
    required: str = ""
    anchors: tuple[int, ...] = ()
    anchor_gpus: int = 0


def fit(draft: Draft, want: Want) -> list[Seat]:
    """Takes the seats on the draft and returns them, closest neighbours beside each other.

    Raises DoesNotFit, with the draft as it was.
    """
    for spec, _ in want.groups:
        if spec.unsupported:
            raise DoesNotFit(spec.unsupported)
    mark = len(draft.seats)
    levels = ladder(draft.snapshot, want.required)
    if onebyone.entangled(draft.snapshot, want.groups):
        return _one_by_one(draft, want, levels)
    for level in levels:
        for rows in candidates(draft.snapshot, want, level):
            try:
                with draft.all_or_nothing():
                    _seat(draft, want, level, rows)
            except DoesNotFit:
                continue
            return draft.seats[mark:]
    raise DoesNotFit(why.sentence(draft.snapshot, want.groups, want.required, want.anchors))


def _one_by_one(draft: Draft, want: Want, levels: Sequence[str]) -> list[Seat]:
    try:
        return onebyone.fit(draft, want.groups, levels, want.anchors, want.anchor_gpus)
    except DoesNotFit as no:
        text = why.sentence(draft.snapshot, want.groups, want.required, want.anchors, no.why)
        raise DoesNotFit(text) from None


def ladder(snapshot: Snapshot, required: str) -> list[str]:
    """The levels to try, closest first, up to the required one."""
    every = [ISLAND, NODE, *reversed(snapshot.domains.levels), ANYWHERE]
    if not required:
        return every
    if required not in every:
        raise DoesNotFit(
            f"topology level {required} is not one of {', '.join(every[:-1])} (--topology-levels)"
        )
    return every[: every.index(required) + 1]


def candidates(snapshot: Snapshot, want: Want, level: str) -> Iterator[Ints]:
    """The rows of each domain of the level that may take the whole, best first."""
    views = [snapshot.view(spec).refresh() for spec, _ in want.groups]
    counts = [count for _, count in want.groups]
    if level in (ISLAND, NODE):
        yield from _nodes(snapshot, views, counts, want.anchors, inside_island=level == ISLAND)
    elif level == ANYWHERE:
        if all(view.cap.sum() >= count for view, count in zip(views, counts, strict=True)):
            yield np.flatnonzero(np.any([view.cap > 0 for view in views], axis=0))
    else:
        index = snapshot.domains.levels.index(level)
        of = snapshot.domains.of[index]
        for domain in _domains(snapshot, views, counts, want.anchors, index):
            yield np.flatnonzero(of == domain)


def _nodes(
    snapshot: Snapshot,
    views: Sequence[ClassView],
    counts: Sequence[int],
    anchors: Sequence[int],
    *,
    inside_island: bool,
) -> Iterator[Ints]:
    if len(set(anchors)) > 1:
        return
    fits = np.all([view.cap >= count for view, count in zip(views, counts, strict=True)], axis=0)
    gpus = sum(view.gpus * count for view, count in zip(views, counts, strict=True))
    if inside_island:
        fits &= snapshot.island >= max(gpus, 1)
        if not gpus:
            return
    rows = np.flatnonzero(fits)
    if anchors:
        rows = rows[rows == anchors[0]]
    if len(rows):
        # The fullest that takes it: by GPUs, and pods without any keep off the GPU nodes.
        left = snapshot.island[rows] if inside_island else snapshot.gpus[rows]
        if not gpus:
            left = snapshot.allocatable[rows, 0]
        order = np.lexsort((snapshot.name_rank()[rows], views[0].cap[rows], left))
        for row in rows[order[: 1 if len(views) == 1 else TRIED_DOMAINS]]:
            yield np.array([row], dtype=np.int64)


def _domains(
    snapshot: Snapshot,
    views: Sequence[ClassView],
    counts: Sequence[int],
    anchors: Sequence[int],
    level: int,
) -> list[int]:
    """Domains of the level with room for the whole, best first."""
    enough = np.all(
        [view.sums[level] >= count for view, count in zip(views, counts, strict=True)], axis=0
    )
    if anchors:
        at = {int(domain) for domain in snapshot.domains.of[level, list(anchors)]}
        if len(at) > 1 or -1 in at:
            return []
        enough &= np.arange(len(enough)) == at.pop()
    found = np.flatnonzero(enough)
    if len(found) <= 1:
        return [int(domain) for domain in found]
    main = max(range(len(views)), key=lambda i: (views[i].gpus * counts[i], counts[i]))
    parts = _parts_needed(snapshot, views[main], counts[main], level)[found]
    left = views[main].sums[level][found]
    names = snapshot.domains.names[level]
    if len(views) == 1:  # for equal pods the best is certain: it takes them
        best = found[parts == parts.min()]
        left = views[0].sums[level][best]
        best = best[left == left.min()].tolist()
        return [min(best, key=names.__getitem__)]
    shortlist = np.lexsort((left, parts))[: TRIED_DOMAINS * 4].tolist()
    ranked = sorted(shortlist, key=lambda i: (parts[i], left[i], names[found[i]]))
    return [int(found[i]) for i in ranked[:TRIED_DOMAINS]]


def _parts_needed(snapshot: Snapshot, view: ClassView, count: int, level: int) -> Ints:
    """For each domain of the level: how many of its parts (domains of the next level, or nodes)
    hold count pods, the roomiest first. Those that can't hold them get a large number."""
    domains = snapshot.domains
    if level + 1 < len(domains.levels):
        room = view.sums[level + 1]
        parent = np.full(len(room), -1, dtype=np.int64)
        inner = domains.of[level + 1]
        parent[inner[inner >= 0]] = domains.of[level][inner >= 0]
    else:
        room, parent = view.cap, domains.of[level]
    enough = view.sums[level] >= count
    needed = _fewest(room, parent, domains.count(level), count)
    return np.where(enough, needed, len(room) + 1)


SMALL_ROOM = 64  # parts with room for at most so many are counted, not sorted


def _fewest(room: Ints, parent: Ints, parents: int, count: int) -> Ints:
    """For each parent: how many of its parts, the roomiest first, together hold count. Parents
    that can't hold it get a number that means nothing."""
    rows = np.flatnonzero((room > 0) & (parent >= 0))
    most = int(min(room[rows].max(initial=0), count))
    if most <= SMALL_ROOM:
        # Parts of equal room are alike: how many there are of each, and whole steps over rooms.
        key = parent[rows] * (most + 1) + np.minimum(room[rows], most)
        alike = np.bincount(key, minlength=parents * (most + 1)).reshape(parents, most + 1)
        left = np.full(parents, count, dtype=np.int64)
        needed = np.zeros(parents, dtype=np.int64)
        for size in range(most, 0, -1):
            taken = np.minimum(alike[:, size], -(-left // size))
            needed += taken
            left = np.maximum(left - taken * size, 0)
        return needed
    order = rows[np.lexsort((-room[rows], parent[rows]))]
    filled = np.cumsum(room[order])
    first = np.searchsorted(parent[order], np.arange(parents))
    before = np.concatenate(([0], filled))[first]
    return np.searchsorted(filled, before + count) - first + 1


def _seat(draft: Draft, want: Want, level: str, rows: Ints) -> None:
    """Seats every group within the rows, the widest pods first since they fit in fewest places."""
    snapshot = draft.snapshot
    mark = len(draft.seats)
    within = -1
    if level == ISLAND:
        within = _island(snapshot, want, int(rows[0]))
    order = sorted(
        range(len(want.groups)),
        key=lambda i: (-snapshot.view(want.groups[i][0]).gpus, i),
    )
    for index in order:
        spec, count = want.groups[index]
        if len(rows) == 1:
            if len(order) > 1 and snapshot.view(spec).refresh().cap[rows[0]] < count:
                raise DoesNotFit("not enough room")
            draft.take(int(rows[0]), spec, count, within)
            continue
        view = snapshot.view(spec).refresh()
        start = _level_index(snapshot, level)
        draft.take_all(spec, *spread(snapshot, view, rows, count, start), within)
    if len(want.groups) > 1:
        rank = {spec: index for index, (spec, _) in enumerate(want.groups)}
        draft.seats[mark:] = sorted(draft.seats[mark:], key=lambda seat: rank[seat.spec])


def _level_index(snapshot: Snapshot, level: str) -> int:
    """The index of the first level below: what a domain of this level is made of."""
    if level == ANYWHERE:
        return 0
    levels = snapshot.domains.levels
    return levels.index(level) + 1 if level in levels else len(levels)


def _island(snapshot: Snapshot, want: Want, row: int) -> int:
    """The fullest island of the node that takes all of the gang's GPUs."""
    shape, free = snapshot.shape[row], snapshot.free_mask[row]
    wanted = sum(snapshot.view(spec).gpus * count for spec, count in want.groups)
    fitting = [
        island
        for island in (shape.islands if shape else ())
        if (island & free).bit_count() >= wanted and not want.anchor_gpus & ~island
    ]
    if not fitting:
        raise DoesNotFit("no island")
    return min(fitting, key=lambda island: ((island & free).bit_count(), next(indices_of(island))))


def spread(
    snapshot: Snapshot, view: ClassView, rows: Ints, count: int, level: int
) -> tuple[Ints, Ints]:
    """Seats for count equal pods among the rows, as rows and pods for each: the parts of one domain
    together, the roomiest parts filled, the rest in the part with the least room that takes it.

    level: the index of the level that the rows are divided by first; past the last one: by node.
    """
    rows = rows[view.cap[rows] > 0]
    if level >= len(snapshot.domains.levels):
        chosen, shares = _shares(view.cap[rows], snapshot.name_rank()[rows], count)
        return rows[chosen], shares
    of = snapshot.domains.of[level, rows]
    ids, part = np.unique(of, return_inverse=True)
    if len(ids) == 1:
        return spread(snapshot, view, rows, count, level + 1)
    room = np.bincount(part, weights=view.cap[rows]).astype(np.int64)
    names = snapshot.domains.names[level]
    rank = np.argsort(np.argsort([names[i] if i >= 0 else "" for i in ids], kind="stable"))
    chosen, shares = _shares(room, rank, count)
    if shares[-1] == room[chosen[-1]]:
        return _whole(snapshot, view, (rows, part), chosen, level)
    last = spread(snapshot, view, rows[part == chosen[-1]], int(shares[-1]), level + 1)
    if len(chosen) == 1:
        return last
    whole = _whole(snapshot, view, (rows, part), chosen[:-1], level)
    return np.concatenate([whole[0], last[0]]), np.concatenate([whole[1], last[1]])


def _whole(
    snapshot: Snapshot, view: ClassView, divided: tuple[Ints, Ints], parts: Ints, level: int
) -> tuple[Ints, Ints]:
    """All the room of these parts, part by part, and inside them domain by domain.

    divided: rows, and the part that each is in."""
    rows, part = divided
    place = np.full(int(part.max()) + 1, -1, dtype=np.int64)
    place[parts] = np.arange(len(parts))
    inside = place[part] >= 0
    rows, turn = rows[inside], place[part[inside]]
    inner = snapshot.domains.of[level + 1 :, rows]
    rows = rows[np.lexsort((snapshot.name_rank()[rows], *inner[::-1], turn))]
    return rows, view.cap[rows]


def _shares(room: Ints, rank: Ints, count: int) -> tuple[Ints, Ints]:
    """Divides count over the parts, as indices and shares: the fewest parts, and of those that take
    the rest the tightest."""
    order = np.lexsort((rank, -room))
    filled = np.cumsum(room[order])
    whole = int(np.searchsorted(filled, count))
    if whole >= len(order):
        raise DoesNotFit("not enough room")
    rest = count - (int(filled[whole - 1]) if whole else 0)
    # Sorted by room: those with enough for the rest are in front, the tightest are the last of them.
    enough = int(np.searchsorted(-room[order], -rest, side="right"))
    tightest = int(np.searchsorted(-room[order], -room[order[enough - 1]], side="left"))
    last = order[max(whole, tightest)]
    shares = room[order[: whole + 1]].copy()
    shares[whole] = rest
    return np.append(order[:whole], last), shares
