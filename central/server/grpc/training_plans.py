"""The plans of elastic Jobs: published by the loop, fetched by the Jobs' coordinators with long polls.

plans.publish({("team", "train"): {pod_uid: plan}}, now)     # the loop; whole Jobs
plans.job_of(pod_uid)                                        # which Job the pod speaks for
version, plan = await plans.fetch(pod_uid, seen, wait_s)     # the training service, in its event loop
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from central.controllers.composite import jobs_of
from central.controllers.job import training_plan
from central.controllers.job.training_plan import TrainingPlan
from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler.scheduler import Scheduler
from central.server.grpc.resize_times import ResizeTimes

JobKey = tuple[str, str]  # namespace and name


@dataclass(slots=True)
class PublishedPlan:
    """leave_by: by the monotonic clock."""

    plan: TrainingPlan
    version: int
    leave_by: float | None
    waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=list)


class TrainingPlans:
    def __init__(self, label: Callable[[str], str] = str) -> None:
        """label: of a queue's name in metrics."""
        self._lock = threading.Lock()
        self.times = ResizeTimes(label)
        # What each gang's GPUs were used for, in GPU-seconds: GangRecords has an entry for each that it knows.
        self.activities: dict[JobKey, dict[str, float]] = {}
        self._by_pod: dict[str, PublishedPlan] = {}
        self._pods: dict[JobKey, tuple[str, ...]] = {}
        # Starts at the time, so that no version of an earlier process comes again.
        self._versions = itertools.count(int(time.time() * 1000))

    def publish(self, found: Mapping[JobKey, Mapping[str, TrainingPlan]], now: float) -> None:
        """Sets the plans, from any thread. found: by Job, the plan for each pod that may ask for it. now: by the
        clock of the plans' leave_by. An equal plan changes nothing."""
        wakes: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        ahead = time.monotonic() - now
        with self._lock:
            for key, by_pod in found.items():
                for uid in self._pods.pop(key, ()):
                    if uid not in by_pod and (gone := self._by_pod.pop(uid, None)) is not None:
                        wakes += gone.waiters
                if by_pod:
                    self._pods[key] = tuple(by_pod)
                for uid, plan in by_pod.items():
                    wakes += self._put(uid, plan, ahead)
        for loop, event in wakes:
            with contextlib.suppress(RuntimeError):  # the server was stopped
                loop.call_soon_threadsafe(event.set)

    def _put(
        self, uid: str, plan: TrainingPlan, ahead: float
    ) -> list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]:
        known = self._by_pod.get(uid)
        if known is not None and known.plan == plan:
            return []
        self.times.decided(uid, plan, time.monotonic())
        leave_by = None if plan.leave_by is None else plan.leave_by + ahead
        fresh = PublishedPlan(plan, next(self._versions), leave_by)
        self._by_pod[uid] = fresh
        return known.waiters if known is not None else []

    def job_of(self, pod_uid: str) -> TrainingPlan | None:
        """The plan of the Job that this pod speaks for; None: it speaks for none."""
        with self._lock:
            found = self._by_pod.get(pod_uid)
            return found.plan if found is not None else None

    def of_job(self, key: JobKey) -> dict[str, TrainingPlan]:
        """Returns the plans by uid of the pods that belong to the Job's coordinator."""
        with self._lock:
            return {uid: self._by_pod[uid].plan for uid in self._pods.get(key, ())}

    def pods(self) -> set[str]:
        with self._lock:
            return set(self._by_pod)

    async def fetch(self, pod_uid: str, seen: int, wait_s: float) -> PublishedPlan | None:
        """Returns the plan as soon as its version differs from seen, else after wait_s. None if the pod belongs to no
        Job any more."""
        changed = asyncio.Event()
        entry = (asyncio.get_running_loop(), changed)
        with self._lock:
            known = self._by_pod.get(pod_uid)
            if known is None or known.version != seen:
                return known
            known.waiters.append(entry)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait_s)
        finally:
            with self._lock:
                known.waiters.remove(entry)
        with self._lock:
            return self._by_pod.get(pod_uid)


class PlanPublisher:
    """Publishes what a scheduling cycle has changed. In the loop's thread."""

    def __init__(self, plans: TrainingPlans, scheduler: Scheduler) -> None:
        self._plans, self._scheduler = plans, scheduler

    def observe(self, facts: Sequence[Fact], decisions: Sequence[Decision]) -> None:
        state, currency = self._scheduler.state, self._scheduler.queues.currency
        found = training_plan.changed(jobs_of(self._scheduler), state, currency)
        self._plans.publish(found, state.now)
