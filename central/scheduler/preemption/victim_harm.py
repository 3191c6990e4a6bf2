"""What evictions cost, as arrays: the parts of harm.Harm by entry of the table of victims.

Design: docs/design/evictions.md
"""

import numpy as np

from central.model.arrays import Ints
from central.scheduler.preemption.harm import LOST_MOST_S
from central.scheduler.preemption.victim_columns import PodEntries

# Columns, compared from the left: priority, gangs broken, work lost, pods, capacity that they hold, run time, age, and
# the negative rank of the member. The last but one are as in harm.Harm.
PARTS = 8
UNKNOWN = -1.0  # no time


def parts_of(entries: PodEntries, chosen: Ints, now: float) -> Ints:
    """By chosen entry: the harm of evicting the pod alone, without its priority."""
    began, checkpoint = entries.began[chosen], entries.checkpoint[chosen]
    ran = np.where(began == UNKNOWN, 0, np.maximum(now - began, 0)).astype(np.int64)
    since = np.maximum(now - checkpoint, 0).astype(np.int64)
    lost = np.where(checkpoint == UNKNOWN, ran, np.minimum(ran, since))
    size = entries.size[chosen]
    found = np.zeros((len(chosen), PARTS), dtype=np.int64)
    work = size * np.minimum(lost, LOST_MOST_S)
    found[:, 2], found[:, 3], found[:, 4], found[:, 5] = work, 1, size, ran
    found[:, 6] = np.maximum(now - entries.created[chosen], 0)
    found[:, 7] = -entries.rank[chosen]
    return found
