"""The training of elastic Jobs: their progress by the speed of their size and place, and their ends.

A Job with annotations lockstep.dev/work and lockstep.dev/speed ends when its work is done: the time that a single
member needs, on a GPU of a model that the speeds do not name. Each change of its members, its start included, stops it
for its lockstep.dev/resize-cost.

Design: docs/design/elastic-speeds.md
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.model.facts import CoordinatorReported, JobSeen
from central.model.json_types import Json
from central.model.speed_table import SpeedTable
from central.scheduler.elastic.elastic_gang import COST_S
from central.simulator.sim_pod import SimPod
from protos.names import SPEED, WORK

JobKey = tuple[str, str]  # namespace, name
MEASURED_S = 30.0  # after a change of size
_EVERY = 1 << 31  # generation that it follows
_Place = tuple[str, frozenset[str]]  # a node, and the models of its GPUs


@dataclass(slots=True)
class TrainingJob:
    key: JobKey
    task: str
    speeds: SpeedTable
    left_s: float  # of its work, at size 1
    cost_s: float
    members: dict[str, "_Place"] = field(default_factory=dict)  # by uid
    rate: float = 0.0  # of work a second
    since: float = 0.0  # the last settlement
    paused_until: float = 0.0
    changes: int = 0  # of its members
    uid: str = ""  # of the Job, where its coordinator measures speeds; empty: it does not
    measured: dict[tuple[int, int], float] = field(default_factory=dict)

    def settle(self, now: float) -> None:
        """Counts what was trained since the last time."""
        trained_s = now - max(self.since, min(self.paused_until, now))
        self.left_s = max(0.0, self.left_s - trained_s * self.rate)
        self.since = now

    def change(self, now: float) -> None:
        """Updates the rate after its members have changed."""
        self.changes += 1
        self.paused_until = now + self.cost_s
        nodes = len({node for node, _ in self.members.values()})
        speeds = self.speeds.on({model for _, models in self.members.values() for model in models})
        self.rate = speeds.at(len(self.members), nodes) / self.speeds.at(1, 1)

    def measure(self) -> CoordinatorReported:
        place = (len(self.members), len({node for node, _ in self.members.values()}))
        self.measured[place] = self.rate
        speeds = tuple((*each, rate) for each, rate in sorted(self.measured.items()))
        return CoordinatorReported(*self.key, self.uid, _EVERY, (), speeds=speeds)

    def ends_at(self) -> float | None:
        if not self.members:
            return None
        return max(self.since, self.paused_until) + self.left_s / self.rate


class TrainingProgress:
    def __init__(self, jobs: Mapping[JobKey, TrainingJob]) -> None:
        self._jobs = jobs
        self._changed: dict[JobKey, None] = {}

    def joined(self, pod: SimPod, models: frozenset[str], now: float) -> None:
        """models: of its node's GPUs."""
        job = self._job_of(pod)
        if job is not None:
            job.settle(now)
            job.members[pod.seen.uid] = (pod.seen.node, models)
            self._change(job, now)

    def left(self, pod: SimPod, now: float) -> None:
        job = self._job_of(pod)
        if job is not None and pod.seen.uid in job.members:
            job.settle(now)
            del job.members[pod.seen.uid]
            self._change(job, now)

    def ends(self) -> Iterator[tuple[float, TrainingJob]]:
        """Yields the ends of the Jobs whose members have changed since the last call, valid until the next change."""
        for key in self._changed:
            job = self._jobs[key]
            if (at := job.ends_at()) is not None:
                yield at, job
        self._changed.clear()

    def _change(self, job: TrainingJob, now: float) -> None:
        job.change(now)
        self._changed[job.key] = None

    def _job_of(self, pod: SimPod) -> TrainingJob | None:
        part = pod.seen.part
        if part is None or not self._jobs:
            return None
        job = self._jobs.get((pod.seen.namespace, part.job))
        return job if job is not None and job.task == part.task else None


def read(fact: JobSeen, annotations: Json) -> TrainingJob | None:
    """Reads the Job's training; None if it has no amount of work. Raises ValueError with the field that is wrong."""
    elastic = fact.spec.elastic
    if elastic is None or WORK not in annotations:
        return None
    try:
        work_s = parse_duration(annotations[WORK])
    except InvalidQuantity as error:
        raise ValueError(f"metadata.annotations.{WORK}: {error}") from None
    if elastic.speeds is None:
        raise ValueError(f"metadata.annotations.{SPEED}: missing; {WORK} needs it")
    cost_s = COST_S if elastic.cost_s is None else elastic.cost_s
    key = (fact.spec.namespace, fact.spec.name)
    return TrainingJob(key, elastic.task, elastic.speeds, work_s, cost_s)
