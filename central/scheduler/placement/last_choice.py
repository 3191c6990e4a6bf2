"""Keeps gangs of several nodes off the nodes that are a last choice (Snapshot.last_choice), where others are as close.

Design: docs/design/gpu-health.md
"""

from collections.abc import Callable, Sequence

from central.model.facts import PodSpec, Toleration
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import WorkLimitReached
from protos.names import GPU

Fit = Callable[[Draft, PlacementRequest], list[Assignment]]
# Takes all that is free on a node.
ONE_GPU = PodSpec(
    ((GPU, 1), ("pods", 1)),
    tolerations=(Toleration("", "Exists", "", ""),),
    gpu_containers=(("main", 1),),
)


def fit(draft: Draft, request: PlacementRequest, fit_any: Fit) -> list[Assignment]:
    """Places as fit_any() does, on other nodes if these span no more domains of any level. Raises DoesNotFit and
    WorkLimitReached."""
    snapshot, mark = draft.snapshot, len(draft.assignments)
    placed = fit_any(draft, request)
    if not snapshot.last_choice:
        return placed
    rows = {each.row for each in placed}
    last = {row for name in snapshot.last_choice if (row := snapshot.columns.row.get(name)) in rows}
    if len(rows) < 2 or not last:
        return placed
    before, other = draft.assignments[mark:], list[Assignment]()
    draft.undo(mark)
    taken = Draft(snapshot)
    for name in snapshot.last_choice:
        row = snapshot.columns.row.get(name)
        if row is not None and (free := int(snapshot.view(ONE_GPU).refresh().by_row[row])):
            taken.take(row, ONE_GPU, free)
    try:
        other = list(fit_any(draft, request))
    except (DoesNotFit, WorkLimitReached):
        pass
    finally:
        draft.undo(mark)
        taken.undo()
    closer = other and _spans(snapshot, other) <= _spans(snapshot, before)
    draft.retake(other if closer else before)
    return draft.assignments[mark:]


def _spans(snapshot: Snapshot, placed: Sequence[Assignment]) -> list[int]:
    """The number of domains of each level, the widest first."""
    rows = [each.row for each in placed]
    return [len({*of[rows].tolist()}) for of in snapshot.columns.domains.of]
