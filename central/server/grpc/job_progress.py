"""Reports of elastic Jobs' coordinators about members and tasks. They are kept beside the scheduling loop, whose
decisions do not depend on them.

views = JobProgress(plans)
views.heard(pod_uid, report, now)                # the training service
view = views.of_job("team", "train", now)        # the query service; a message for people

Design: docs/design/coordinator.md
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite

from central.controllers.training.tasks import MOST_QUEUES
from central.model import limits
from central.model.speed_table import LEAST, MOST
from central.server.grpc.training_plans import TrainingPlans
from protos.stubs import fleet_pb2 as pb

ACTIVITIES_MOST = 16


@dataclass(frozen=True, slots=True)
class _Heard:
    progress: pb.TrainingProgress | None
    step: int
    at: float


class JobProgress:
    """The progress of all Jobs. The methods may be called from any thread. now: by the monotonic clock."""

    def __init__(self, plans: TrainingPlans) -> None:
        self._plans = plans
        self._lock = threading.Lock()
        self._heard: dict[str, _Heard] = {}  # by uid of the coordinator's pod

    def heard(self, pod: str, report: pb.TrainingReport, now: float) -> None:
        """report: without a mistake."""
        progress = report.progress if report.HasField("progress") else None
        with self._lock:
            self._heard[pod] = _Heard(progress, report.step, now)

    def forget(self, present: Collection[str]) -> None:
        """present: pods that report."""
        with self._lock:
            for pod in self._heard.keys() - set(present):
                del self._heard[pod]

    def of_job(self, namespace: str, name: str, now: float) -> pb.TrainingView | None:
        """Returns the Job's view; None if it has no coordinator."""
        plans = self._plans.of_job((namespace, name))
        if not plans:
            return None
        with self._lock:
            known = {pod: self._heard[pod] for pod in plans if pod in self._heard}
        pod = max(known, key=lambda uid: known[uid].at, default=min(plans))
        found = pb.TrainingView(changes=self._plans.times.changes(pod))
        heard = known.get(pod)
        if heard is None or heard.progress is None:
            return found
        found.progress.CopyFrom(heard.progress)
        found.progress_age_s, found.step = max(0.0, now - heard.at), heard.step
        shown = {one.member for one in heard.progress.members}
        for place in plans[pod].places:
            if place.member in shown:
                found.places.add(member=place.member, pod=place.pod, domains="/".join(place.path))
        return found


def mistake(report: pb.TrainingReport) -> str:
    """Returns why the progress in a report cannot be right; "" if it can."""
    progress = report.progress
    if len(progress.members) > limits.REPORTED_MEMBERS:
        return f"progress.members: more than {limits.REPORTED_MEMBERS}"
    if len({one.rank for one in progress.members}) < len(progress.members):
        return "progress.members: a rank comes twice"
    if len(progress.queues) > MOST_QUEUES:
        return f"progress.queues: more than {MOST_QUEUES}"
    for queue in progress.queues:
        if len(queue.name) > limits.NAME or not queue.name.isprintable():
            return (
                f"progress.queues: name: not a text of at most {limits.NAME} printable characters"
            )
    if len(progress.gpu_seconds) > ACTIVITIES_MOST:
        return f"progress.gpu_seconds: more than {ACTIVITIES_MOST}"
    if not all(name.isalpha() and len(name) <= limits.NAME for name in progress.gpu_seconds):
        return "progress.gpu_seconds: a name is not a word"
    if len(progress.speeds) > limits.MEASURED_SPEEDS:
        return f"progress.speeds: more than {limits.MEASURED_SPEEDS}"
    for one in progress.speeds:
        if not (1 <= one.nodes <= one.members <= limits.REPLICAS and LEAST <= one.per_s <= MOST):
            return "progress.speeds: no nodes, fewer members than nodes, or no speed"
    amounts = [progress.samples_per_s, *progress.gpu_seconds.values()]
    amounts += [each for one in progress.members for each in (one.step_s, one.samples_per_s)]
    amounts += [each for one in progress.queues for each in (one.tasks_per_s, one.records_per_s)]
    amounts += [progress.pause.seconds, progress.pause.repeated_s]
    if not all(isfinite(amount) and amount >= 0 for amount in amounts):
        return "progress: a time or a speed is negative, infinite or not a number"
    return ""
