"""One true sentence for whoever waits: what is missing, and where it was closest. Pure."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from central.model import wording
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.filters import node_filters
from central.scheduler.inventory import gpu_shares, nic_limits
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import GPU, GPU_SHARE, NODE, NUMA
from protos.slicing import is_slice

TOGETHER = "each kind fits alone, all together do not"
NOT_FOUND = "no way was found in the tries that there are, though there may be one"
Groups = Sequence[tuple[PodSpec, int]]


def sentence(
    snapshot: Snapshot,
    groups: Groups,
    required: str,
    anchors: Sequence[int] = (),
    together: str = "",
    *,
    held: int = 0,
) -> str:
    """Why such a gang does not fit now. Says what is wanted, the room there is, what is short.

    together: what came of placing them one by one, where their rules speak of each other. anchors, held:
    where the rest of the gang is, and its GPUs if that is one node."""
    spec, count = max(groups, key=lambda group: _shortfall(snapshot, *group))
    view = snapshot.view(spec).refresh()
    room, place, rows = _closest(snapshot, view, required, anchors, held)
    if together:
        details = _refused(snapshot, view)
        text = f"{wanted(groups)}{_where(required)}; {together} as their pod affinity, "
        text += "anti-affinity, spread, ports and volumes have it"
        return text + (f" ({'; '.join(details)})" if details else "")
    if room >= count and len(groups) > 1:
        return f"{wanted(groups)}{_where(required)}; {TOGETHER}"
    text = f"{wanted(groups)}{_where(required)}; "
    text += f"{place} has room for {room} of {count}" if place else "no node qualifies"
    details = [*_short_of(snapshot, view, rows, room, count), *_refused(snapshot, view)]
    text += f" ({'; '.join(details)})" if details else ""
    return text if anchors or view.share else text + _never(snapshot, view, required, room, count)


def _never(snapshot: Snapshot, view: PodClassCapacity, required: str, now: int, count: int) -> str:
    """That waiting does not help, where that is so whatever becomes of nodes that are out of the
    question now; and not where all is free anyway."""
    room = view.capacity_when_empty()
    if not required:
        most = int(room.sum())
        return f"; even empty, the cluster has room for {most}" if now < most < count else ""
    if required not in island_masks.ON_NODE:
        of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(required)]
        inside = of >= 0
        room = np.bincount(of[inside], weights=room[inside]).astype(np.int64)
    most = int(room.max(initial=0))
    if not now < most < count:
        return ""
    return f"; even empty, no {within(required)} has room for more than {most}"


def _closest(
    snapshot: Snapshot, view: PodClassCapacity, required: str, anchors: Sequence[int], held: int
) -> tuple[int, str, Ints]:
    """Where it was closest: the room there, its name, its rows."""
    if required in island_masks.ON_NODE:
        room = view.by_row
        if required != NODE:
            room = island_masks.room(snapshot, required, view, held)
        if len(anchors) != 1:
            return best_node(snapshot, room)
        (row,) = anchors
        inside = f"the {within(required)} of " if required != NODE else ""
        place = f"{inside}node {snapshot.columns.names[row]}, where the rest of the gang is,"
        return int(room[row]), place, np.array([row])
    if required:
        return _best_domain(snapshot, view, required, anchors)
    return int(view.by_row.sum()), "the cluster", np.arange(len(snapshot.columns.names))


def wanted(groups: Groups) -> str:
    parts = []
    for spec, count in groups:
        gpus = spec.request(GPU)
        pods = f"{count} pod" + ("s" if count != 1 else "")
        if share := spec.request(GPU_SHARE):
            parts.append(f"{pods} x {share} hundredths of a GPU")
            continue
        each = [f"{gpus} GPU" + ("s" if gpus != 1 else "")] if gpus else []
        each += [_slices(name, amount) for name, amount in spec.requests if is_slice(name)]
        parts.append(f"{pods} x {' + '.join(each)}" if each else pods)
    return "needs " + " and ".join(parts)


def _slices(name: str, amount: int) -> str:
    said = wording.resource(name)
    return f"{amount} {said if amount != 1 else said.removesuffix('s')}"


def _where(required: str) -> str:
    if not required:
        return " at once"
    return f" at once in one {within(required)}"


def within(level: str) -> str:
    return "NUMA node" if level == NUMA else level.rpartition("/")[2]


def _shortfall(snapshot: Snapshot, spec: PodSpec, count: int) -> float:
    return count / (1 + int(snapshot.view(spec).refresh().by_row.sum()))


def best_node(snapshot: Snapshot, room: Ints) -> tuple[int, str, Ints]:
    """The most room that a node has, its name (empty: there is no node), and its row."""
    if not len(room) or not room.any():
        return (
            0,
            "the best node" if snapshot.columns.row else "",
            np.arange(len(snapshot.columns.names)),
        )
    best = np.lexsort((snapshot.columns.name_rank(), -room))[0]
    return int(room[best]), f"node {snapshot.columns.names[best]}", np.array([best])


def _best_domain(
    snapshot: Snapshot, view: PodClassCapacity, required: str, anchors: Sequence[int]
) -> tuple[int, str, Ints]:
    level = snapshot.columns.domains.levels.index(required)
    of = snapshot.columns.domains.of[level]
    sums = view.by_domain[level]
    names = snapshot.columns.domains.names[level]
    kind = required.rpartition("/")[2]
    if not len(sums):
        return (
            0,
            f"no node has label {required}, so no {kind}",
            np.arange(len(snapshot.columns.names)),
        )
    if anchors and (at := int(of[anchors[0]])) >= 0:
        place = f"{kind} {names[at]}, where the rest of the gang is,"
        return int(sums[at]), place, np.flatnonzero(of == at)
    best = min(range(len(sums)), key=lambda domain: (-sums[domain], names[domain]))
    return int(sums[best]), f"{kind} {names[best]}", np.flatnonzero(of == best)


def _short_of(
    snapshot: Snapshot, view: PodClassCapacity, rows: Ints, room: int, count: int
) -> list[str]:
    """The free GPUs there, and the resource that is scarcest where the nodes themselves would do."""
    details = []
    fitting = np.intersect1d(rows, view.passed_rows())
    if view.gpus:
        free = int(snapshot.columns.gpus.count[fitting].sum())
        total = int(snapshot.columns.allocatable[fitting, 0].sum())
        details.append(f"{free} of {total} GPUs free on {_nodes(fitting)}")
    wanted_slices = [name for name, _ in view.spec.requests if is_slice(name)]
    details += [_slices_free(snapshot, name, fitting) for name in wanted_slices]
    if view.share and room < count and len(fitting):
        if not any(any(snapshot.columns.gpus.offered[row]) for row in fitting.tolist()):
            details.append("no agent there offers shares of GPUs")
        else:
            total, most = gpu_shares.remaining(snapshot.columns.gpus, fitting, view.least)
            sure = f" whose memory is enforced by {view.spec.memory_level}" if view.least else ""
            details.append(f"{total} hundredths of GPUs{sure} free, at most {most} of one")
    if room < count and len(fitting):
        names = {column: name for name, column in snapshot.columns.column.items()}
        rooms = {
            names[int(column)]: int(
                np.maximum(
                    (
                        snapshot.columns.gpus.count[fitting]
                        if column == 0
                        else snapshot.columns.free[fitting, column]
                    )
                    // amount,
                    0,
                ).sum()
            )
            for column, amount in zip(view.columns, view.amounts, strict=True)
            if names[int(column)] != GPU_SHARE
        }
        if view.nics and snapshot.columns.nics:
            room = sum(nic_limits.capacities(snapshot.columns.nics, fitting.tolist(), view.spec))
            if room < min(count, *rooms.values()):
                details.append(f"short of {wording.cards(view.spec)}: enough for {room}")
                return details
        scarce = min(sorted(rooms), key=rooms.__getitem__)
        if scarce != GPU and not is_slice(scarce) and rooms[scarce] < count:
            details.append(f"short of {wording.resource(scarce)}: enough for {rooms[scarce]}")
        stocked = view.interpod.volume_capacity() if view.interpod is not None else None
        if stocked is not None and (enough := int(stocked[fitting].sum())) < count:
            details.append(f"short of volumes: enough for {enough}")
    return details


def _nodes(rows: Ints) -> str:
    return f"{len(rows)} node" + ("s" if len(rows) != 1 else "")


def _slices_free(snapshot: Snapshot, name: str, rows: Ints) -> str:
    column = snapshot.columns.column.get(name)
    if column is None or not (total := int(snapshot.columns.allocatable[rows, column].sum())):
        return f"there are no {wording.resource(name)}"
    free = int(np.maximum(snapshot.columns.free[rows, column], 0).sum())
    return f"{free} of {total} {wording.resource(name)} free on {_nodes(rows)}"


def _refused(snapshot: Snapshot, view: PodClassCapacity) -> list[str]:
    """How many nodes are out of the question, by reason."""
    reasons = Counter(
        node_filters.refusal(view.spec, node)
        for row in view.refused_rows()
        if (node := snapshot.columns.nodes[row]) is not None
    )
    if view.interpod is not None:
        beside = (view.interpod.reason(row) for row in view.passed_rows().tolist())
        reasons.update(reason for reason in beside if reason)
    return [
        f"{count} node{'s' if count != 1 else ''}: {reason}"
        for reason, count in sorted(reasons.items())
    ]
