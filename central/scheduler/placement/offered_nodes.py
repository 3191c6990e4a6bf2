"""Placement while some kubelets do not have their node's devices, because the agent or the kubelet restarts. A pod
with devices that is bound there in that moment is refused for ever.

Such a node keeps its capacity in the snapshot, so that for two seconds nobody searches victims and no reservation
moves. Only what would be bound there is placed elsewhere, or waits.

Design: docs/design/kubelet.md
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from central.model.facts import PodSpec
from central.scheduler.placement import PlacementRequest, explain, pod_kinds
from central.scheduler.placement import fit as fit_anywhere
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import GPU, GPU_SHARE, MIG, RAIL, RDMA

WAITS = "but the agent or the kubelet is restarting there"
NAMED = 3  # nodes in a reason


def fit(draft: Draft, request: PlacementRequest, not_offered: Collection[str]) -> None:
    """placement.fit() without devices of these nodes. Raises DoesNotFit, whose reason ends with WAITS if the
    request fits with their devices; and WorkLimitReached."""
    mark = len(draft.assignments)
    fit_anywhere(draft, request)
    if not not_offered:
        return
    columns = draft.snapshot.columns
    rows = {columns.row[name] for name in not_offered if name in columns.row}
    taken = draft.assignments[mark:]
    used = {each.row for each in taken if each.row in rows and asks_for_devices(each.spec)}
    if not used:
        return
    names = sorted(columns.names[row] for row in used)
    draft.undo(mark)
    with _without_devices(draft.snapshot, rows):
        try:
            fit_anywhere(draft, request)
        except DoesNotFit:
            raise DoesNotFit(_reason(request, names)) from None


def waits(reason: str) -> bool:
    """Whether a gang is refused for that reason alone, and fits once the agents and kubelets are back."""
    return reason.endswith(WAITS)


def asks_for_devices(spec: PodSpec) -> bool:
    return any(amount and is_device(name) for name, amount in spec.requests)


def is_device(resource: str) -> bool:
    """Whether Lockstep's agent serves the resource to the kubelet."""
    return resource in (GPU, GPU_SHARE, RDMA) or resource.startswith((MIG, RAIL))


@contextmanager
def _without_devices(snapshot: Snapshot, nodes: Iterable[int]) -> Iterator[None]:
    """Inside the block the rows have no free devices. Everything else of them stays."""
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


def _reason(request: PlacementRequest, names: list[str]) -> str:
    which = ", ".join(names[:NAMED])
    if len(names) > NAMED:
        which += f" and {len(names) - NAMED} more"
    nodes = "node" if len(names) == 1 else f"{len(names)} nodes:"
    needs = f"{pod_kinds.describe(request.groups)}{explain.in_one(request.required)}"
    return f"{needs}; fits with {nodes} {which}, {WAITS}"
