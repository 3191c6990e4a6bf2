"""Durations and costs of size changes of elastic Jobs, by the scheduler's own clock: from the decision until the
coordinator follows it (told), until all members of the new size have acknowledged (acknowledged), and until they took
a step (first-step).

A coordinator reports within 0.25 s of a change. A change that another one supersedes is not counted further. The cost
of a change is the pause that the coordinator reports; it is limited to the time since the change before.

Design: docs/design/coordinator.md
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric

from central.controllers.job.training_plan import TrainingPlan
from protos.common.metric_families import counter
from protos.common.picked import picked
from protos.stubs import fleet_pb2 as pb

STAGES = ("told", "acknowledged", "first-step")
BUCKETS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)
SHOWN = 8  # changes of a Job
PROCESS = "process"  # cause: the members are the same, their processes began again
UNKNOWN = "unknown"  # cause: another scheduler decided


@dataclass(slots=True)
class ResizeSeen:
    """One change of a Job's members, or a pause of the same members. at: Unix time."""

    plan: TrainingPlan
    cause: str
    reason: str
    before: int  # members
    decided_at: float  # monotonic clock
    at: float
    took_s: list[float] = field(default_factory=list)  # by stage
    lost_s: float | None = None  # None: unknown
    superseded: bool = False
    ended: bool = False  # nothing more is counted

    @property
    def lost_gpu_s(self) -> float | None:
        return None if self.lost_s is None else self.lost_s * self.gpus

    @property
    def gpus(self) -> float:
        """The GPUs of the members after the change."""
        return self.plan.gpus * len(self.plan.members)

    def message(self) -> pb.SizeChange:
        found = pb.SizeChange(
            after=len(self.plan.members),
            **picked(self, "at before cause reason superseded lost_s lost_gpu_s"),
        )
        known = zip(("told_s", "acknowledged_s", "stepped_s"), self.took_s, strict=False)
        for name, seconds in known:
            setattr(found, name, seconds)
        return found


@dataclass(slots=True)
class _PodResizes:
    """The changes of one coordinator's pod."""

    plan: TrainingPlan
    changes: deque[ResizeSeen] = field(default_factory=lambda: deque(maxlen=SHOWN))
    paused: int = -1  # generation of the last pause; -1: nothing was reported yet
    paused_at: float = -inf  # when it was reported, or the first report came
    live: int = 0  # the coordinator's live generation, when the latest change was decided

    @property
    def latest(self) -> ResizeSeen | None:
        return self.changes[-1] if self.changes else None


class ResizeTimes:
    """The times of all Jobs. The methods may be called from any thread. Jobs are named by the uids of their
    coordinators' pods. now: by the monotonic clock."""

    def __init__(self, label: Callable[[str], str] = str) -> None:
        """label: of a queue's name in metrics."""
        about = "Duration of changes of the size of elastic Jobs since the decision, by stage"
        self.histogram = Histogram(
            "lockstep_elastic_resize_seconds", about, ("stage",), buckets=BUCKETS_S, registry=None
        )
        self._label = label
        self._lock = threading.Lock()
        self._jobs: dict[str, _PodResizes] = {}
        self._reported: dict[str, int] = {}  # the live generation of the last report
        self._lost: dict[tuple[str, str], float] = {}  # GPU-seconds by queue's label and cause

    def decided(self, pod: str, plan: TrainingPlan, now: float) -> None:
        """A plan was published. The first one of a coordinator's pod is not a change of size."""
        with self._lock:
            job = self._jobs.get(pod)
            if job is None:
                self._jobs[pod] = _PodResizes(plan)
                return
            before, job.plan = job.plan, plan
            if plan.generation <= before.generation:
                return
            if (latest := job.latest) is not None and not latest.ended:
                latest.superseded = latest.ended = True
            job.live = self._reported.get(pod, 0)
            cause, size = plan.cause or UNKNOWN, len(before.members)
            job.changes.append(ResizeSeen(plan, cause, plan.reason, size, now, time.time()))

    def reported(
        self,
        pod: str,
        generation: int,
        *,
        complete: bool,
        stepped: bool,
        now: float,
        progress: pb.TrainingProgress | None = None,
    ) -> None:
        """generation: that the coordinator follows. complete: those who train are the planned members. stepped: a step
        of the live generation was taken. progress: None, where the coordinator is of an older version."""
        with self._lock:
            job = self._jobs.get(pod)
            if job is None:
                return
            change = job.latest if job.latest is not None and not job.latest.ended else None
            if change is not None and change.plan.generation > generation:
                change = None  # it follows the plan before
            if change is not None:
                reached = 1 + complete + (complete and stepped)
                for stage in STAGES[len(change.took_s) : reached]:
                    change.took_s.append(now - change.decided_at)
                    self.histogram.labels(stage).observe(now - change.decided_at)
            if progress is not None:
                self._reported[pod] = progress.generation
                self._pause(job, change, progress, now)
            if change is not None:
                change.ended = len(change.took_s) == len(STAGES)

    def _pause(
        self, job: _PodResizes, change: ResizeSeen | None, progress: pb.TrainingProgress, now: float
    ) -> None:
        """change: that is under way, or ends now."""
        pause = progress.pause
        if job.paused < 0:  # what was before this scheduler or this pod was counted then
            job.paused, job.paused_at = pause.generation, now
            return
        if pause.generation <= job.paused:
            ends = change is not None and len(change.took_s) == len(STAGES)
            if change is not None and ends and progress.generation == job.live > 0:
                change.lost_s = change.lost_s or 0.0  # the same processes went on
            return
        lost_s = min(pause.seconds + pause.repeated_s, now - job.paused_at)
        job.paused, job.paused_at = pause.generation, now
        if change is None:
            why = "processes began again"
            size, at = len(job.plan.members), time.time() - lost_s
            change = ResizeSeen(job.plan, PROCESS, why, size, now - lost_s, at)
            job.changes.append(change)
            change.ended = True
        change.lost_s = (change.lost_s or 0.0) + lost_s
        key = (self._label(change.plan.queue), change.cause)
        self._lost[key] = self._lost.get(key, 0.0) + lost_s * change.gpus

    def forget(self, present: Collection[str]) -> None:
        with self._lock:
            for pod in self._jobs.keys() - set(present):
                del self._jobs[pod]
                self._reported.pop(pod, None)

    # -- questions

    def changes(self, pod: str) -> list[pb.SizeChange]:
        """The last ones, oldest first."""
        with self._lock:
            job = self._jobs.get(pod)
            return [one.message() for one in job.changes] if job is not None else []

    def families(self) -> Iterator[Metric]:
        yield from self.histogram.collect()
        about = (
            "GPU-seconds that members of elastic Jobs were held without training, or trained what was trained before, "
            "because "
            "of a change of members, as their coordinators report it; by cause as in lockstep_elastic_resizes_total, "
            "and: "
            "drain (a node is drained), evicted (by the scheduler), loss (members that were lost), range (the Job's "
            "range "
            "changed), process (processes began again), unknown"
        )
        with self._lock:
            lost = sorted(self._lost.items())
        yield counter("elastic_lost_gpu_seconds", about, lost, "queue", "cause")
