"""A model of scheduling pod by pod, as the default scheduler does: each pod takes a place as soon as
there is one, whatever becomes of the rest of its job. Pods that found none are tried again in any
order when something ends. A job works once all its pods run, and keeps its places until it is done."""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from central.model.facts import GangSeen, NodeSeen, PodSeen
from central.simulator.scenario import Scenario
from protos.names import GPU


@dataclass(slots=True)
class Job:
    name: str
    pods: int
    runs_s: float
    began_s: float = -1.0  # when its first pod ran
    ended_s: float = -1.0
    placed: int = 0

    @property
    def took_s(self) -> float:
        """From its first running pod, as the decks count."""
        return self.ended_s - self.began_s


@dataclass(slots=True)
class Outcome:
    jobs: list[Job] = field(default_factory=list)
    deadlocked: bool = False  # places are held by jobs that can never start

    @property
    def finished(self) -> list[Job]:
        return [job for job in self.jobs if job.ended_s >= 0]


def play(scenario: Scenario, seed: int, *, shuffled: bool = False) -> Outcome:
    """All pods of the scenario are alike, and all come at once: in order, or in any."""
    dice = random.Random(seed)
    jobs, queue = _jobs(scenario)
    free = places(scenario)
    if shuffled:
        dice.shuffle(queue)
    ends: list[tuple[float, str]] = []
    now = 0.0
    while True:
        queue, free = _fill(jobs, queue, free, now, ends)
        if not ends:
            return Outcome(list(jobs.values()), deadlocked=bool(queue))
        now, name = heapq.heappop(ends)
        jobs[name].ended_s = now
        free += jobs[name].pods
        dice.shuffle(queue)


def _fill(
    jobs: dict[str, Job], queue: Sequence[str], free: int, now: float, ends: list[tuple[float, str]]
) -> tuple[list[str], int]:
    for name in queue[:free]:
        job = jobs[name]
        if not job.placed:
            job.began_s = now
        job.placed += 1
        if job.placed == job.pods:
            heapq.heappush(ends, (now + job.runs_s, name))
    return list(queue[free:]), max(free - len(queue), 0)


def _jobs(scenario: Scenario) -> tuple[dict[str, Job], list[str]]:
    facts = [fact for _, fact in scenario.arrivals]
    pods = [fact for fact in facts if isinstance(fact, PodSeen)]
    jobs = {}
    for group in facts:
        if isinstance(group, GangSeen):
            own = [pod for pod in pods if pod.gang == group.name]
            assert len(own) == group.min_member, "the model knows jobs that need all their pods"
            jobs[group.name] = Job(group.name, len(own), own[0].runs_for_s or 0.0)
    return jobs, [pod.gang for pod in pods]


def places(scenario: Scenario) -> int:
    """How many of the scenario's pods its nodes take."""
    facts = [fact for _, fact in scenario.arrivals]
    spec = next(fact.spec for fact in facts if isinstance(fact, PodSeen))
    asked = GPU if spec.request(GPU) else "cpu"
    return sum(
        fact.allocatable.get(asked, 0) // spec.request(asked)
        for fact in facts
        if isinstance(fact, NodeSeen)
    )
