"""Pods that can never start on the present nodes, whatever ends there, and why.

Every bound is an upper one: nodes are counted as ready, uncordoned, empty, and with all their GPUs healthy. Nodes
that the pods may not use by label, taint or GPU model are left out. So what this says is certain until somebody
changes the nodes or the pods. An empty answer says nothing.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from central.model import limits, wording
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory.columns import ABSENT
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import LastingCapacity, PodClassCapacity
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import GPU, GPU_SHARE, NUMA, PCIE_SWITCH
from protos.slicing import is_slice

NOT_LASTING = (GPU_SHARE, "hca_handle", "hca_object")
_NAMES = {NUMA: "NUMA node", PCIE_SWITCH: "PCIe switch"}
Groups = Sequence[tuple[PodSpec, int]]


def level_name(level: str) -> str:
    """A level without the prefix of its label key."""
    return _NAMES.get(level) or level.rpartition("/")[2]


def in_one(level: str) -> str:
    """Returns for example "in one rack"."""
    return f"{'under' if level == PCIE_SWITCH else 'in'} one {level_name(level)}"


def no_node_for_one(snapshot: Snapshot, view: PodClassCapacity, which: str = "") -> str:
    """Returns why no node can ever run one of the pods. which: names them where the gang has others too."""
    such, one = (f"the {which}", f"one of the {which}") if which else ("such a pod", "one pod")
    lasting = view.lasting()
    rows, refusals = lasting.rows, lasting.refusals
    if lasting.able[rows].any() or (_changes(view) and len(rows)):
        return ""
    if not len(rows) and not lasting.refused:
        return ""
    if not len(rows) and (refusals or _changes(view)):
        there = _values_there(snapshot, view.spec)
        return (
            f"{wording.NEVER}: no node may run {such}{in_brackets(nodes_refused(refusals))}{there}"
        )
    if not len(rows):  # they are too small as well
        rows = np.array(sorted(snapshot.columns.row.values()))
    names, most = resource_names(snapshot, view), lasting.of_row[rows]
    where = "no node that they may use" if lasting.refused and len(lasting.rows) else "no node"
    short = []
    for index, column in enumerate(view.columns.tolist()):
        asked, best, resource = int(view.amounts[index]), int(most[:, index].max()), names[column]
        if column == ABSENT and is_offered(snapshot, resource):
            return ""
        if asked > best:
            needed = wording.quantity(resource, asked)
            if not best:  # it may be another vendor's than the nodes have
                needed = f"{wording.amount(resource, asked)} {resource}"
            short.append(f"{where} has {needed}, the most is {wording.amount(resource, best)}")
    if not short:
        missing = np.maximum(1 - most / view.amounts, 0).sum(axis=1)
        closest = int(np.lexsort((snapshot.columns.name_rank()[rows], missing))[0])
        has = [
            f"{wording.amount(names[column], left)} of {wording.quantity(names[column], asked)}"
            for column, left, asked in zip(
                view.columns.tolist(), most[closest].tolist(), view.amounts.tolist(), strict=True
            )
            if left < asked
        ]
        node = snapshot.columns.names[rows[closest]]
        short = [f"{where} has all that {one} requests; {node} has {' and '.join(has)}"]
    return f"{wording.NEVER}: {'; '.join(short)}{in_brackets(nodes_refused(refusals))}"


def _values_there(snapshot: Snapshot, spec: PodSpec) -> str:
    """Says which values a label has, of which the pods name only others."""
    terms = (each for term in spec.node_terms or () for each in term if each.operator == "In")
    named = {key: {value} for key, value in spec.node_selector} | {
        each.key: set(each.values) for each in terms if not each.field
    }
    nodes = [node for node in snapshot.columns.nodes if node is not None]
    for key, values in named.items():
        if not any(node.labels.get(key) in values for node in nodes):
            there = {node.labels[key] for node in nodes if key in node.labels}
            return f"; {key} is {wording.some(there)}" if there else f"; no node has label {key}"
    return ""


def resource_names(snapshot: Snapshot, view: PodClassCapacity) -> dict[int, str]:
    """Returns the resource of each column; for ABSENT one without a column that the pods request, or empty."""
    columns = snapshot.columns.column
    names = {column: name for name, column in columns.items()}
    absent = (name for name, _ in view.spec.requests if name not in columns)
    return {**names, ABSENT: next(absent, "")}


def is_offered(snapshot: Snapshot, resource: str) -> bool:
    """Returns whether a node has the resource, or GPUs that its kubelet does not offer yet. There are too many for a
    column each."""
    columns = snapshot.columns
    if (column := columns.column.get(resource)) is not None:
        has_some = bool(columns.allocatable[:, column].any())
        return has_some or (resource == GPU and bool(columns.gpus.installed.any()))
    return any(resource in node.allocatable for node in columns.nodes if node is not None)


def too_many(snapshot: Snapshot, view: PodClassCapacity, required: str, count: int) -> str:
    """Returns why that many pods of one class fit in no domain of the required level, even an empty one."""
    found = when_empty(view)
    if found is None:
        return ""
    capacity, rows, refusals = found.capacity, found.rows, found.refusals
    if required in island_masks.PARTS:
        if too_small := _no_part_for_one(snapshot, view, required, rows, refusals):
            return too_small
        capacity = _in_part(snapshot, view, required, capacity)
    most = most_in_one(snapshot, capacity, required)
    return even_if_empty(required, most, refusals) if 0 < most < count else ""


def even_if_empty(required: str, most: int, refusals: Counter[str], unit: str = "") -> str:
    """unit: what is counted, as in " groups"; empty: pods."""
    if required:
        fits = f"no {level_name(required)} fits more than {most}{unit}"
    else:
        where = "the nodes that they may use fit" if refusals else "the cluster fits"
        fits = f"{where} {most}{unit}"
    return f"{wording.NEVER}: even if empty, {fits}"


def when_empty(view: PodClassCapacity) -> LastingCapacity | None:
    """Returns the capacity of the empty nodes. None: nodes may come to offer more."""
    return None if _changes(view) else view.lasting()


def most_in_one(snapshot: Snapshot, capacity: Ints, required: str) -> int:
    """Returns the largest sum of the capacity in one domain of the level; of all rows for no level."""
    sums = np.bincount(snapshot.columns.domains.of_level(required, joined=True), weights=capacity)
    return int(sums.max(initial=0))


def too_many_gpus(snapshot: Snapshot, groups: Groups) -> str:
    """Returns why pods of several classes, which fit alone, cannot all fit: their GPUs together."""
    usable = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    needed = 0
    for spec, count in groups:
        view = snapshot.view(spec)
        needed += view.gpus * count
        if view.gpus:
            usable[view.lasting().rows] = True
    gpus = snapshot.columns.gpus.installed
    most = int(np.maximum(snapshot.columns.allocatable[:, 0], gpus)[usable].sum())
    if needed <= most:
        return ""
    return f"{wording.NEVER}: they need {wording.counted(needed, 'GPU')}, the nodes that they may use have {most}"


def _changes(view: PodClassCapacity) -> bool:
    """Shares, MIG slices and NIC limits: the agents change what nodes offer, so nothing is certain."""
    return bool(view.share) or any(
        name in NOT_LASTING or is_slice(name) for name, _ in view.spec.requests
    )


def _in_part(snapshot: Snapshot, view: PodClassCapacity, level: str, capacity: Ints) -> Ints:
    """Returns the capacity by row, at most the number of pods for which the row's largest part has GPUs."""
    if not view.gpus:
        return capacity
    found = capacity.copy()
    for row in np.flatnonzero(capacity).tolist():
        found[row] = min(int(capacity[row]), _largest_part(snapshot, row, level) // view.gpus)
    return found


def with_gpus(snapshot: Snapshot, rows: Ints) -> Ints:
    """Returns those of the rows that have GPUs, whether an agent has reported them or not."""
    columns = snapshot.columns
    found: Ints = rows[(columns.allocatable[rows, 0] > 0) | (columns.gpus.installed[rows] > 0)]
    return found


def _largest_part(snapshot: Snapshot, row: int, level: str) -> int:
    """Returns how many GPUs the row's largest part has; all that there can be where that is unknown."""
    shape = snapshot.columns.gpus.shape[row]
    if shape is None or island_masks.unknown(shape, level):
        return limits.GPUS
    return max((mask.bit_count() for mask in island_masks.masks(shape, level)), default=0)


def _no_part_for_one(
    snapshot: Snapshot, view: PodClassCapacity, level: str, rows: Ints, refusals: Counter[str]
) -> str:
    """Returns why no part of a node can ever run one of the pods. Islands change by themselves, when a fabric comes
    up."""
    if level not in island_masks.OPT_IN:
        return ""
    rows = with_gpus(snapshot, rows)
    most = max((_largest_part(snapshot, row, level) for row in rows.tolist()), default=0)
    if not 0 < most < view.gpus:
        return ""
    where = "no node that they may use" if refusals else "no node"
    return (
        f"{wording.NEVER}: {where} has {wording.counted(view.gpus, 'GPU')} {in_one(level)}, the most is {most}"
        f"{in_brackets(nodes_refused(refusals))}"
    )


def in_brackets(clauses: Sequence[str]) -> str:
    return f" ({'; '.join(clauses)})" if clauses else ""


def nodes_refused(reasons: Counter[str]) -> list[str]:
    """Returns a clause for each reason, as in "2 nodes: cordoned"."""
    return [
        f"{wording.counted(count, 'node')}: {reason}" for reason, count in sorted(reasons.items())
    ]
