"""Which domain a gang gets by eviction, and its victims.

Nothing is evicted unless all of the gang fits afterwards. Whole gangs go, or single members above a
minimum. Upper bounds come first: counts per domain without all possible victims. So a "no" is
cheap, and victims are chosen only in domains that may fit the gang.

Design: docs/design/0019-preemption.md
"""

from collections.abc import Iterator

import numpy as np

from central.model.arrays import Ints
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.preemption.victims import VictimSearch
from central.scheduler.reservation.release_forecast import fits_when_empty
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot


def find_victims(context: PreemptionContext, request: PreemptionRequest) -> PreemptionPlan | None:
    placement, snapshot = request.placement, context.state.snapshot
    usable = np.ones(len(snapshot.columns.names), dtype=np.bool_)
    usable[request.excluded] = False
    if not fits_when_empty(snapshot, placement, request.excluded):
        return None
    search = VictimSearch(context, request, usable)
    if request.forced and (plan := search.try_without(())) is not None:
        return plan
    if not search.gangs:
        return None
    domains = [rows for rows in _domains(snapshot, placement) if search.may_fit(rows)]
    if len(placement.groups) == 1 and not placement.subgroups:
        return search.plan_equal_pods(domains)
    return search.plan_unlike_pods(domains)


def _domains(snapshot: Snapshot, placement: PlacementRequest) -> Iterator[Ints]:
    """The rows of each domain of the required level. Existing members fix the domain."""
    every = np.arange(len(snapshot.columns.names), dtype=np.int64)
    existing = set(placement.existing_rows)
    if not placement.required:
        yield every
        return
    if placement.required in island_masks.ON_NODE:
        for row in existing or every:
            if len(existing) < 2:
                yield np.array([row], dtype=np.int64)
        return
    of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(placement.required)]
    around = {int(of[row]) for row in existing}
    for domain in np.unique(of[of >= 0]):
        if around <= {int(domain)}:
            yield np.flatnonzero(of == domain)
