"""The capacity of a pool that elastic surplus leaves free (--elastic-headroom), so that services fit at once.

Fluid keeps 3 % of a cluster's CPU free this way (its maximum desired load is 0.97).
"""

from math import ceil

import numpy as np

from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.snapshot.capacity import PodClassCapacity


def spare_seats(
    context: PreemptionContext, view: PodClassCapacity, rows: frozenset[int] | None, share: float
) -> int:
    """Returns how many more members leave that share of the nodes' capacity free; below 0 if less is free now.

    Of a member's resources, the one counts of which it takes the largest part of all. rows: of the pool; None: all.
    """
    columns = context.state.snapshot.columns
    passed = np.array(view.passed_rows(), dtype=np.int64)
    if rows is not None:
        passed = passed[np.isin(passed, sorted(rows))]
    totals = columns.allocatable[passed][:, view.columns].sum(axis=0)
    if not (totals > 0).any():
        return 0
    parts = np.divide(view.amounts, totals, out=np.zeros(len(totals)), where=totals > 0)
    scarcest = int(parts.argmax())
    amount, total = int(view.amounts[scarcest]), int(totals[scarcest])
    free = int(np.maximum(columns.free[passed, view.columns[scarcest]], 0).sum())
    return (free - ceil(total * share)) // amount
