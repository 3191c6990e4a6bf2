"""Placement while some kubelets do not have their node's devices, because the agent or the kubelet restarts. A pod
with devices that is bound there in that moment is refused for ever.

Such a node keeps its capacity in the snapshot, so that for two seconds nobody searches victims and no reservation
moves. Only what would be bound there is placed elsewhere, or waits.

Design: docs/design/kubelet.md
"""

from collections.abc import Collection

from central.model import wording
from central.model.facts import PodSpec
from central.scheduler.placement import PlacementRequest, explain, last_choice, pod_kinds
from central.scheduler.placement import fit as fit_anywhere
from central.scheduler.snapshot.draft import DoesNotFit, Draft

WAITS = "but the agent or the kubelet is restarting there"


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
    with last_choice.without_devices(draft.snapshot, rows):
        try:
            fit_anywhere(draft, request)
        except DoesNotFit:
            raise DoesNotFit(_reason(request, names)) from None


def waits(reason: str) -> bool:
    """Returns whether the only reason is that agents or kubelets restart: the gang fits once they are back."""
    return reason.endswith(WAITS)


def asks_for_devices(spec: PodSpec) -> bool:
    return any(amount and last_choice.is_device(name) for name, amount in spec.requests)


def _reason(request: PlacementRequest, names: list[str]) -> str:
    nodes = "node" if len(names) == 1 else f"{len(names)} nodes:"
    needs = f"{pod_kinds.describe(request.groups)}{explain.in_one(request.required)}"
    return f"{needs}; fits with {nodes} {wording.some(names)}, {WAITS}"
