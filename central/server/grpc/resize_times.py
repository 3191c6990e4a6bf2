"""How long changes of size of elastic Jobs take, by the scheduler's own clock: from the decision until the coordinator
follows it (told), until all members of the new size have acknowledged (acknowledged), and until they took a step
(first-step).

A coordinator reports within 0.25 s of a change. A change that another one supersedes is not counted further.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass

from prometheus_client import Histogram

STAGES = ("told", "acknowledged", "first-step")
BUCKETS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(slots=True)
class _Change:
    generation: int
    decided_at: float
    stages: int  # that were seen


class ResizeTimes:
    """Its methods may be called from any thread. Jobs are named by the uids of their coordinators' pods."""

    def __init__(self) -> None:
        about = "Duration of changes of the size of elastic Jobs since the decision, by stage"
        self.histogram = Histogram(
            "lockstep_elastic_resize_seconds", about, ("stage",), buckets=BUCKETS_S, registry=None
        )
        self._lock = threading.Lock()
        self._changes: dict[str, _Change] = {}

    def decided(self, pod: str, generation: int, now: float) -> None:
        """A plan was published. The first one of a coordinator's pod is no change of size."""
        with self._lock:
            known = self._changes.get(pod)
            if known is None:
                self._changes[pod] = _Change(generation, now, len(STAGES))
            elif generation > known.generation:
                self._changes[pod] = _Change(generation, now, 0)

    def reported(
        self, pod: str, generation: int, *, complete: bool, stepped: bool, now: float
    ) -> None:
        """generation: that the coordinator follows. complete: those who train are the planned members. stepped: a step of
        the live generation was taken."""
        with self._lock:
            change = self._changes.get(pod)
            if change is None or generation < change.generation:
                return
            reached = 1 + complete + (complete and stepped)
            for stage in STAGES[change.stages : reached]:
                self.histogram.labels(stage).observe(now - change.decided_at)
            change.stages = max(change.stages, reached)

    def forget(self, present: Collection[str]) -> None:
        with self._lock:
            for pod in self._changes.keys() - set(present):
                del self._changes[pod]
