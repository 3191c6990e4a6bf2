"""Keeps gangs off the nodes that are their last choice (Snapshot.last_choice), where others are as close: gangs of
several nodes off those that all avoid, and each gang off those on which its own members failed.

Design: docs/design/gpu-health.md
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import WorkLimitReached
from protos.names import GPU, GPU_SHARE, MIG, RAIL, RDMA

Fit = Callable[[Draft, PlacementRequest], list[Assignment]]


def fit(draft: Draft, request: PlacementRequest, fit_any: Fit) -> list[Assignment]:
    """Places as fit_any() does, on other nodes if these span no more domains of any level. Raises DoesNotFit and
    WorkLimitReached."""
    snapshot, mark = draft.snapshot, len(draft.assignments)
    placed = fit_any(draft, request)
    if not (snapshot.last_choice.shared or request.failed_rows):
        return placed
    rows = {each.row for each in placed}
    names = snapshot.last_choice.shared if len(rows) > 1 else ()
    known = snapshot.columns.row
    last = {known[name] for name in names if name in known}.union(request.failed_rows)
    if not last & rows:
        return placed
    before, other = draft.assignments[mark:], list[Assignment]()
    draft.undo(mark)
    with without_devices(snapshot, last):
        try:
            other = list(fit_any(draft, request))
        except (DoesNotFit, WorkLimitReached):
            pass
        finally:
            draft.undo(mark)
    beside = request.existing_rows
    closer = other and _spans(snapshot, other, beside) <= _spans(snapshot, before, beside)
    draft.retake(other if closer else before)
    return draft.assignments[mark:]


def is_device(resource: str) -> bool:
    """Returns whether Lockstep's agent serves the resource to the kubelet."""
    return resource in (GPU, GPU_SHARE, RDMA) or resource.startswith((MIG, RAIL))


@contextmanager
def without_devices(snapshot: Snapshot, nodes: Iterable[int]) -> Iterator[None]:
    """Takes the free devices of the rows away inside the block. Everything else of them stays."""
    columns, rows = snapshot.columns, np.array(sorted(nodes), dtype=np.int64)
    taken = np.zeros((len(rows), columns.width), dtype=np.int64)
    for resource, column in columns.column.items():
        if is_device(resource):
            taken[:, column] = columns.free[rows, column]
    masks = [columns.gpus.free_mask[row] for row in rows.tolist()]
    with snapshot.changing():
        columns.shift(rows, taken, masks, free=False)
    try:
        yield
    finally:
        with snapshot.changing():
            columns.shift(rows, taken, masks, free=True)


def _spans(snapshot: Snapshot, placed: Sequence[Assignment], beside: Sequence[int]) -> list[int]:
    """The number of domains of each level, the widest first. beside: rows of members that run."""
    rows = [*beside, *(each.row for each in placed)]
    return [len({*of[rows].tolist()}) for of in snapshot.columns.domains.of]
