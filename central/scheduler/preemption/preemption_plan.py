"""Room for a gang by eviction: in which domain, and who goes. Nobody goes unless all of the gang fits
afterwards; only who is less urgent may go; gangs are broken whole, members above a minimum one by one.

Upper bounds come first: what would be free if everybody who may go were gone, by counts per domain. So a
"no" costs little, and only domains that can do are looked at closely.
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
from central.scheduler.reservation.release_forecast import could_ever
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot


def room_for(context: PreemptionContext, claim: PreemptionRequest) -> PreemptionPlan | None:
    want, snapshot = claim.want, context.state.snapshot
    usable = np.ones(len(snapshot.columns.names), dtype=np.bool_)
    usable[claim.apart] = False
    if not could_ever(snapshot, want, claim.apart):
        return None
    field = VictimSearch(context, claim, usable)
    if not field.gangs:
        return None
    domains = [rows for rows in _domains(snapshot, want) if field.could(rows)]
    return (
        field.single(domains) if len(want.groups) == 1 and not want.parts else field.mixed(domains)
    )


def _domains(snapshot: Snapshot, want: PlacementRequest) -> Iterator[Ints]:
    """The rows of each domain that the gang may be in."""
    every = np.arange(len(snapshot.columns.names), dtype=np.int64)
    anchors = set(want.anchors)
    if not want.required:
        yield every
        return
    if want.required in island_masks.ON_NODE:
        for row in anchors or every:
            if len(anchors) < 2:
                yield np.array([row], dtype=np.int64)
        return
    of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(want.required)]
    around = {int(of[row]) for row in anchors}
    for domain in np.unique(of[of >= 0]):
        if around <= {int(domain)}:
            yield np.flatnonzero(of == domain)
