"""Competition for reservations: whether two gangs could use the same nodes.

Design: docs/design/reservations.md
"""

import numpy as np

from central.model.arrays import Bools
from central.scheduler.placement import PlacementRequest
from central.scheduler.snapshot.snapshot import Snapshot


def compete(snapshot: Snapshot, one: PlacementRequest, other: PlacementRequest) -> bool:
    """Returns whether some node could run pods of both requests."""
    return bool((_usable(snapshot, one) & _usable(snapshot, other)).any())


def _usable(snapshot: Snapshot, request: PlacementRequest) -> Bools:
    """Returns which rows have nodes that could run pods of the request with nothing else on them. Of a gang that needs
    GPUs only its pods with GPUs count: other pods rarely lack a place."""
    views = [snapshot.view(spec).refresh() for spec, _ in request.groups]
    needing = [view for view in views if view.gpus] or views
    found: Bools = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    for view in needing:
        rows = view.passed_rows()
        has = snapshot.columns.allocatable[rows[:, None], view.columns] >= view.amounts
        found[rows[has.all(axis=1)]] = True
    return found
