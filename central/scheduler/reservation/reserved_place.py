"""The place that is kept for a gang, and its name in messages.

Design: docs/design/reservations.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from central.model.arrays import Ints
from central.model.device_claims import DeviceUse
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.snapshot.snapshot import Snapshot

GPU_COLUMN = 0


@dataclass(frozen=True, slots=True, eq=False)
class ReservedPlace:
    """The place where a gang is to fit, and what it takes there."""

    rows: Ints
    need: Ints  # by row and column
    masks: Sequence[int]  # GPUs by row, where it must be these
    volumes: frozenset[str]  # existing volumes that its claims will be bound to
    devices: Mapping[DeviceUse, int]  # that its device claims will get
    name: str  # of the narrowest domain around the rows
    versions: Ints  # of the rows' nodes: another version may be another capacity
    newest: float = 0.0  # when the last of the pods that must end there began
    has_masks: bool = field(init=False)  # it must be certain GPUs

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_masks", any(self.masks))

    @classmethod
    def on(
        cls, snapshot: Snapshot, taken: TakenCapacity, *, newest: float = 0.0
    ) -> "ReservedPlace":
        """taken: what the gang takes there; masks: 0, where it may be any GPUs."""
        versions = snapshot.columns.version[taken.rows].copy()
        return cls(*taken, place_name(snapshot, taken.rows), versions, newest)

    def gpus_lacking(self, snapshot: Snapshot) -> int:
        """GPUs of the place that are still in use."""
        free = np.maximum(snapshot.columns.free[self.rows, GPU_COLUMN], 0)
        return int(np.maximum(self.need[:, GPU_COLUMN] - free, 0).sum())


def place_name(snapshot: Snapshot, rows: Ints) -> str:
    """The narrowest domain that contains all rows."""
    if len(rows) == 1:
        return f"node {snapshot.columns.names[int(rows[0])]}"
    domains = snapshot.columns.domains
    for level in reversed(range(len(domains.levels))):
        inside = set(domains.of[level, rows].tolist())
        if len(inside) == 1 and -1 not in inside:
            kind = domains.levels[level].rpartition("/")[2]
            return f"{kind} {domains.names[level][inside.pop()]}"
    return f"{len(rows)} nodes"
