"""Moves pods to nodes that earlier pods of their controller have left, where nothing else tells the nodes apart.

A node takes another's place if both are in the same domain of each level, their GPUs are in the same state, and
fragmentation tells them apart by less than half an idle GPU, as system pods do on all nodes.

Design: docs/design/placement.md
"""

from collections.abc import Callable, Sequence

import numpy as np

from central.scheduler.placement.request import PlacementRequest
from central.scheduler.scoring.node_states import gpus_of
from central.scheduler.snapshot.draft import Assignment, Draft
from central.scheduler.snapshot.snapshot import Snapshot

Fit = Callable[[Draft, PlacementRequest], list[Assignment]]


def fit(draft: Draft, request: PlacementRequest, fit_any: Fit) -> list[Assignment]:
    """Places as fit_any() does, then exchanges nodes. Raises as it does."""
    snapshot, mark = draft.snapshot, len(draft.assignments)
    placed = fit_any(draft, request)
    if not request.former_rows:
        return placed
    rows = {each.row for each in placed}
    former = [row for row in request.former_rows if row not in rows]
    if not former or any(_is_particular(snapshot, each) for each in placed):
        return placed
    draft.undo(mark)
    instead = dict[int, int]()
    for row in sorted(rows - {*request.former_rows, *request.existing_rows}):
        pods = [each for each in placed if each.row == row]
        if (
            other := next((one for one in former if _alike(snapshot, pods, row, one)), None)
        ) is not None:
            former.remove(other)
            instead[row] = other
    draft.retake([each._replace(row=instead.get(each.row, each.row)) for each in placed])
    return draft.assignments[mark:]


def _is_particular(snapshot: Snapshot, each: Assignment) -> bool:
    """Returns whether more than free amounts and GPUs decides on the pods' node."""
    spec = each.spec
    return bool(
        spec.rules is not None
        or spec.devices is not None
        or spec.share_containers
        or spec.rdma_containers
        or snapshot.pod_counts.soft_tainted
    )


def _alike(snapshot: Snapshot, pods: Sequence[Assignment], row: int, other: int) -> bool:
    """pods: those on the row. Without GPUs they need as much room as there, which best fit has chosen."""
    columns = snapshot.columns
    of = columns.domains.of
    if (of[:, row] != of[:, other]).any() or gpus_of(columns, row, 0) != gpus_of(columns, other, 0):
        return False
    if len(pods) > 1 and (columns.free[row] != columns.free[other]).any():
        return False
    for each in pods:
        view = snapshot.view(each.spec).refresh()
        there, here = view.by_row[[other, row]].tolist()
        if there < each.pods or (not view.gpus and there != here):
            return False
    if not snapshot.mix.varied:
        return True
    counts = tuple((each.spec, each.pods) for each in pods)
    cost, instead = snapshot.mix.cost(counts, np.array([row, other])).tolist()
    return bool(abs(cost - instead) < max(snapshot.mix.half_idle_gpu(), 1))
