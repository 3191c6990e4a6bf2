"""Why a gang does not fit now, in one sentence: what it needs, the best candidate and how much of the gang
fits there, what is short, which nodes are refused, and whether even an empty cluster is too small.

docs/reference/pending-reasons.md lists every clause. Pure, and off the hot path: it runs once per refused gang.
"""

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

NOT_TOGETHER = "each pod type fits on its own, but not all together"
SEARCH_LIMIT = "search limit reached; a placement may exist"
NO_NODES = "the cluster has no nodes"
Groups = Sequence[tuple[PodSpec, int]]


def reason(
    snapshot: Snapshot,
    groups: Groups,
    required: str,
    existing_rows: Sequence[int] = (),
    together: str = "",
    *,
    existing_gpus: int = 0,
) -> str:
    """Explains the pod class that is short of the most capacity.

    required: the widest level that the gang may span; empty: any. existing_rows, existing_gpus: where the
    gang's other members run, and their GPUs if that is one node. together: how far the pod-by-pod
    placement got, for pods whose own rules refer to each other."""
    spec, count = max(groups, key=lambda group: _shortfall(snapshot, *group))
    view = snapshot.view(spec).refresh()
    fitting, candidate, rows = _best_candidate(
        snapshot, view, required, existing_rows, existing_gpus
    )
    text = f"{describe_pods(groups)}{in_one(required)}; "
    if together:
        return text + together + _in_brackets(_refused_nodes(snapshot, view))
    if fitting >= count and len(groups) > 1:
        return text + NOT_TOGETHER
    text += candidate.format(fits=f"fits {fitting} of {count}")
    short = _short_of(snapshot, view, rows, fitting, count)
    text += _in_brackets([*short, *_refused_nodes(snapshot, view)])
    if existing_rows or view.share:
        return text
    return text + _too_small(snapshot, view, required, fitting, count)


def describe_pods(groups: Groups) -> str:
    """For example "needs 4 pods x 8 GPUs and 1 pod"."""
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


def in_one(required: str) -> str:
    return f" in one {level_name(required)}" if required else ""


def level_name(level: str) -> str:
    """A level without the prefix of its label key."""
    return "NUMA node" if level == NUMA else level.rpartition("/")[2]


def best_node(snapshot: Snapshot, capacity: Ints) -> tuple[int, str, Ints]:
    """The largest capacity that a node has, the clause that names the node, and its row."""
    if not len(capacity) or not capacity.any():
        clause = "the best node {fits}" if snapshot.columns.row else NO_NODES
        return 0, clause, np.arange(len(snapshot.columns.names))
    best = np.lexsort((snapshot.columns.name_rank(), -capacity))[0]
    name = snapshot.columns.names[best]
    return int(capacity[best]), f"best candidate node {name} {{fits}}", np.array([best])


def _in_brackets(details: Sequence[str]) -> str:
    return f" ({'; '.join(details)})" if details else ""


def _too_small(
    snapshot: Snapshot, view: PodClassCapacity, required: str, fitting: int, count: int
) -> str:
    """States that waiting does not help: the gang would not fit even without other pods. Empty where it
    would, and where other pods take nothing from it now. Nodes that are refused now count as usable."""
    capacity = view.capacity_when_empty()
    if not required:
        most = int(capacity.sum())
        return f"; even if empty, the cluster fits {most}" if fitting < most < count else ""
    if required not in island_masks.ON_NODE:
        of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(required)]
        inside = of >= 0
        capacity = np.bincount(of[inside], weights=capacity[inside]).astype(np.int64)
    most = int(capacity.max(initial=0))
    if not fitting < most < count:
        return ""
    return f"; even if empty, no {level_name(required)} fits more than {most}"


def _best_candidate(
    snapshot: Snapshot,
    view: PodClassCapacity,
    required: str,
    existing_rows: Sequence[int],
    existing_gpus: int,
) -> tuple[int, str, Ints]:
    """How many pods fit in the best candidate, the clause that names it ({fits} stands for the numbers),
    and its rows."""
    if required in island_masks.ON_NODE:
        capacity = view.by_row
        if required != NODE:
            capacity = island_masks.capacity(snapshot, required, view, existing_gpus)
        if len(existing_rows) != 1:
            return best_node(snapshot, capacity)
        (row,) = existing_rows
        inside = f"the {level_name(required)} of " if required != NODE else ""
        name = f"{inside}node {snapshot.columns.names[row]}"
        return int(capacity[row]), _with_the_rest(name), np.array([row])
    if required:
        return _best_domain(snapshot, view, required, existing_rows)
    return int(view.by_row.sum()), "the cluster {fits}", np.arange(len(snapshot.columns.names))


def _best_domain(
    snapshot: Snapshot, view: PodClassCapacity, required: str, existing_rows: Sequence[int]
) -> tuple[int, str, Ints]:
    level = snapshot.columns.domains.levels.index(required)
    of = snapshot.columns.domains.of[level]
    sums = view.by_domain[level]
    names = snapshot.columns.domains.names[level]
    if not len(sums):
        clause = f"no node has label {required}, so there is no {level_name(required)}"
        return 0, clause, np.arange(len(snapshot.columns.names))
    if existing_rows and (at := int(of[existing_rows[0]])) >= 0:
        clause = _with_the_rest(f"{level_name(required)} {names[at]}")
        return int(sums[at]), clause, np.flatnonzero(of == at)
    best = min(range(len(sums)), key=lambda domain: (-sums[domain], names[domain]))
    return int(sums[best]), f"best candidate {names[best]} {{fits}}", np.flatnonzero(of == best)


def _with_the_rest(name: str) -> str:
    return f"{name}, where the rest of the gang is, {{fits}}"


def _slices(name: str, amount: int) -> str:
    plural = wording.resource(name)
    return f"{amount} {plural if amount != 1 else plural.removesuffix('s')}"


def _shortfall(snapshot: Snapshot, spec: PodSpec, count: int) -> float:
    return count / (1 + int(snapshot.view(spec).refresh().by_row.sum()))


def _short_of(
    snapshot: Snapshot, view: PodClassCapacity, rows: Ints, fitting: int, count: int
) -> list[str]:
    """The free GPUs of the candidate's usable nodes, and the scarcest other resource if it is short."""
    usable = np.intersect1d(rows, view.passed_rows())
    details = []
    if view.gpus:
        free = int(snapshot.columns.gpus.count[usable].sum())
        total = int(snapshot.columns.allocatable[usable, 0].sum())
        details.append(f"{free} of {total} GPUs free on {_nodes(usable)}")
    slices = [name for name, _ in view.spec.requests if is_slice(name)]
    details += [_free_slices(snapshot, name, usable) for name in slices]
    if fitting >= count or not len(usable):
        return details
    if view.share:
        details.append(_free_shares(snapshot, view, usable))
    capacities = _capacity_by_resource(snapshot, view, usable)
    if view.nics and snapshot.columns.nics:
        by_nics = sum(nic_limits.capacities(snapshot.columns.nics, usable.tolist(), view.spec))
        if by_nics < min(count, *capacities.values()):
            return [*details, f"short of {wording.nics(view.spec)}: enough for {by_nics}"]
    scarce = min(sorted(capacities), key=capacities.__getitem__)
    if scarce != GPU and not is_slice(scarce) and capacities[scarce] < count:
        details.append(f"short of {wording.resource(scarce)}: enough for {capacities[scarce]}")
    by_volumes = view.interpod.volume_capacity() if view.interpod is not None else None
    if by_volumes is not None and (enough := int(by_volumes[usable].sum())) < count:
        details.append(f"short of volumes: enough for {enough}")
    return details


def _capacity_by_resource(snapshot: Snapshot, view: PodClassCapacity, rows: Ints) -> dict[str, int]:
    """For how many pods the rows' free amount of each requested resource would be enough."""
    columns = snapshot.columns
    names = {column: name for name, column in columns.column.items()}
    return {
        name: int(np.maximum(free // amount, 0).sum())
        for column, amount in zip(view.columns.tolist(), view.amounts, strict=True)
        if (name := names[column]) != GPU_SHARE
        for free in [columns.gpus.count[rows] if column == 0 else columns.free[rows, column]]
    }


def _nodes(rows: Ints) -> str:
    return f"{len(rows)} node" + ("s" if len(rows) != 1 else "")


def _free_shares(snapshot: Snapshot, view: PodClassCapacity, rows: Ints) -> str:
    gpus = snapshot.columns.gpus
    if not any(any(gpus.offered[row]) for row in rows.tolist()):
        return "no node there offers GPU shares"
    total, most = gpu_shares.remaining(gpus, rows, view.least)
    enforced = f" whose memory is enforced by {view.spec.memory_level}" if view.least else ""
    return f"{total} hundredths of GPUs{enforced} free, at most {most} on one GPU"


def _free_slices(snapshot: Snapshot, name: str, rows: Ints) -> str:
    column = snapshot.columns.column.get(name)
    if column is None or not (total := int(snapshot.columns.allocatable[rows, column].sum())):
        return f"there are no {wording.resource(name)}"
    free = int(np.maximum(snapshot.columns.free[rows, column], 0).sum())
    return f"{free} of {total} {wording.resource(name)} free on {_nodes(rows)}"


def _refused_nodes(snapshot: Snapshot, view: PodClassCapacity) -> list[str]:
    """How many nodes the filters refuse, by reason."""
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
