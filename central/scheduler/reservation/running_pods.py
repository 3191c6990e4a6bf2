"""The pods that run, with their expected ends, shared by the reservations that are planned in one pass."""

from math import inf

import numpy as np

from central.model.arrays import Bools, Floats, Ints
from central.scheduler.inventory.pods import Pod
from central.scheduler.reservation.release_forecast import Freed, PlacedPods
from central.scheduler.state.cluster_state import ClusterState

KEPT = 4  # different sets of rows


class RunningPods:
    """Holds as long as no pod comes, goes or changes. now: in seconds since the epoch."""

    def __init__(self, state: ClusterState, now: float) -> None:
        self.now = now
        self._state = state
        self._read: dict[bytes, tuple[PlacedPods, Floats, Ints]] = {}

    def on(self, useful: Bools, excluded: Ints) -> tuple[PlacedPods, Floats]:
        """The pods on the useful rows but the excluded ones, with when they are expected to end; inf: unknown. Pods of
        other schedulers count only if that is known."""
        placed, ends, _ = self._on(useful)
        if not len(excluded):
            return placed, ends
        chosen = np.flatnonzero(~_mask(excluded, len(useful))[placed.rows])
        return placed.only(chosen), ends[chosen]

    def freed(self, useful: Bools, excluded: Ints, until: float) -> Freed:
        """Returns what those pods of on() free that are expected to end by `until`."""
        placed, ends, amounts = self._on(useful)
        chosen = (ends <= until) & ~_mask(excluded, len(useful))[placed.rows]
        return Freed(placed.rows[chosen], amounts[chosen])

    def _on(self, useful: Bools) -> tuple[PlacedPods, Floats, Ints]:
        """The pods on the useful rows, with their ends and what they request."""
        key = useful.tobytes()
        if key not in self._read:
            if len(self._read) >= KEPT:
                del self._read[next(iter(self._read))]
            self._read[key] = self._of_rows(useful)
        return self._read[key]

    def _of_rows(self, useful: Bools) -> tuple[PlacedPods, Floats, Ints]:
        state, now = self._state, self.now
        names = state.snapshot.columns.names
        pods, ends = list[Pod](), list[float]()
        for row in np.flatnonzero(useful).tolist():
            for pod in state.nodes[names[row]].pods.values():
                if pod.charged_spec is None:
                    continue
                seen, end = pod.seen, inf
                if seen.runs_for_s is not None or seen.deleting or pod.life.leaving:
                    end = pod.ends(now)  # many pods have no run time
                if seen.ours or end < inf:
                    pods.append(pod)
                    ends.append(end)
        placed = PlacedPods.of(state, pods)
        return placed, np.array(ends, dtype=np.float64), placed.amounts(state.snapshot)


def _mask(rows: Ints, size: int) -> Bools:
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask
