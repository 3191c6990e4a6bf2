"""Days on which gangs share time, held against a model of its own: who may suspend whom, and when."""

import random
from collections import defaultdict
from pathlib import Path

import pytest

from central.controllers.composite import new_scheduler
from central.scheduler.scheduler import Scheduler
from central.server.journal import Journal
from central.server.replay import replay
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from central.simulator.simulation_result import SimulationResult
from tests.central.scheduler.invariants import check_invariants, check_journal

NODES, GPUS, QUANTUM_S = 2, 4, 300.0
Json = dict[str, object]


class Job:
    def __init__(self, number: int, dice: random.Random) -> None:
        self.name, self.at_s = f"job-{number}", round(number * dice.uniform(50, 150))
        self.run_s, self.gpus = float(dice.randint(200, 3000)), dice.choice((1, 1, 2, 4))
        self.cost_s = dice.choice((10.0, 10.0, 30.0, None))  # None: it can't be suspended
        self.urgent = dice.random() < 0.1

    def manifest(self) -> Json:
        notes = {"arrives-at": f"{self.at_s}s", "runs-for": f"{self.run_s:g}s"}
        if self.cost_s is not None:
            notes["suspendable"] = f"{self.cost_s:g}s"
        requests = {"nvidia.com/gpu": "1"}
        container = {
            "name": "m",
            "image": "i",
            "resources": {"requests": requests, "limits": requests},
        }
        task = {"name": "w", "replicas": self.gpus, "minAvailable": self.gpus}
        spec: Json = {
            "schedulerName": "lockstep",
            "tasks": [{**task, "template": {"spec": {"containers": [container]}}}],
        }
        if self.urgent:
            spec["priorityClassName"] = "urgent"
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "annotations": {f"lockstep.dev/{key}": value for key, value in notes.items()},
            },
            "spec": spec,
        }


def cluster(capability: Json | None) -> list[Json]:
    queue: Json = {"kind": "Queue", "apiVersion": "scheduling.volcano.sh/v1beta1"}
    queue |= {
        "metadata": {"name": "default"},
        "spec": {"quantum": f"{QUANTUM_S:g}s", "capability": capability},
    }
    urgent: Json = {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "value": 10}
    urgent["metadata"] = {"name": "urgent"}
    allocatable = {"nvidia.com/gpu": f"{GPUS}", "cpu": "64", "pods": "110"}
    nodes: list[Json] = [
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": f"n{index}"},
            "status": {"allocatable": allocatable},
        }
        for index in range(NODES)
    ]
    return [queue, urgent, *nodes]


def plays(
    jobs: list[Job],
    scheduler: Scheduler,
    journal: Journal | None = None,
    capability: Json | None = None,
) -> SimulationResult:
    documents = [*cluster(capability), *(job.manifest() for job in jobs)]
    placed = [(SourceLocation("day", index), raw) for index, raw in enumerate(documents)]
    simulation = Simulation(scenario.read(placed, ("lockstep",), ()), scheduler, journal=journal)
    return simulation.run(lambda sim: check_invariants(sim.scheduler))


class Day:
    """What each job had run and was asked for beside it, from the events alone."""

    def __init__(self, jobs: list[Job], result: SimulationResult) -> None:
        self.jobs, self.result = {job.name: job for job in jobs}, result
        self.ended = {end.name: end.at_s for end in result.ended if end.kind == "Job"}
        self.begun, self.evicted = (
            defaultdict[str, set[float]](set),
            defaultdict[str, set[float]](set),
        )
        for placed in result.placed:
            self.begun[placed.gang].add(placed.at_s)
        for each in result.evicted:
            self.evicted[each.pod.rpartition("-w-")[0]].add(each.at_s)

    def ran_s(self, name: str, now: float) -> float:
        total = 0.0
        for begun in self.begun[name]:
            ends = [at_s for at_s in self.evicted[name] if at_s > begun]
            total += max(0.0, min([now, *ends]) - begun)
        return total

    def contention(self, name: str, now: float) -> float:
        """The most that was asked for while the job existed, as a multiple of all GPUs."""
        first = self.jobs[name].at_s
        moments = [job.at_s for job in self.jobs.values() if first <= job.at_s <= now]
        asked = [
            sum(j.gpus for j in self.jobs.values() if j.at_s <= at_s < self.ended[j.name])
            for at_s in moments
        ]
        return max(1.0, max(asked) / (NODES * GPUS))

    def slack_s(self, name: str, now: float) -> float:
        """Until it is late; negative: since."""
        job = self.jobs[name]
        left = job.run_s - self.ran_s(name, now)
        delay = 0.7 * (self.contention(name, now) - 1)
        return job.at_s + job.run_s * (1 + delay) - left - now


@pytest.mark.parametrize("seed", range(3))
def test_only_who_is_late_suspends_and_only_who_is_not_and_has_had_its_quantum(seed: int) -> None:
    dice = random.Random(seed)
    jobs = [Job(number, dice) for number in range(14)]
    result = plays(jobs, new_scheduler(()))
    day = Day(jobs, result)
    assert day.ended.keys() == day.jobs.keys(), result.waiting
    suspensions = [each for each in result.evicted if each.reason.startswith("suspended")]
    assert suspensions
    by_gang = defaultdict[tuple[str, float, str], int](int)
    for each in suspensions:
        claimant = each.reason.rpartition("/")[2]
        by_gang[each.pod.rpartition("-w-")[0], each.at_s, claimant] += 1
    for (name, at_s, claimant), pods in by_gang.items():
        victim = day.jobs[name]
        assert victim.cost_s is not None
        assert victim.urgent == day.jobs[claimant].urgent
        assert pods == victim.gpus, "all of it goes"
        began = max(begun for begun in day.begun[name] if begun < at_s)
        assert at_s - began >= max(QUANTUM_S, 20 * victim.cost_s)
        assert day.slack_s(claimant, at_s) <= 1
        assert day.slack_s(name, at_s) >= -1
        assert any(at_s <= begun <= at_s + 1 for begun in day.begun[claimant]), "in vain"


@pytest.mark.parametrize("most_bytes", [1 << 30, 100_000])
def test_a_day_is_replayed_alike(tmp_path: Path, most_bytes: int) -> None:
    """Also from a file in the middle of it."""
    dice = random.Random(7)
    path = tmp_path / "day.journal"
    scheduler = new_scheduler(())
    journal = Journal(path, scheduler, most_bytes)
    result = plays([Job(number, dice) for number in range(8)], scheduler, journal)
    journal.close()
    assert result.evicted
    parts = [*tmp_path.iterdir()]
    assert len(parts) == (1 if most_bytes == 1 << 30 else 2)
    for part in parts:
        check_journal(str(part))
    assert sum(replay(str(part)).decisions for part in parts) > 30  # it raises Differs


def test_a_job_at_the_capability_of_its_queue_gets_pods_to_claim_with() -> None:
    dice = random.Random(0)
    long, short = Job(0, dice), Job(1, dice)
    long.run_s, short.run_s = 9000.0, 1000.0
    for job in (long, short):
        job.gpus, job.cost_s, job.urgent = 4, 10.0, False
    result = plays([long, short], new_scheduler(()), capability={"nvidia.com/gpu": "4"})
    assert {each.pod for each in result.evicted} == {f"job-0-w-{index}" for index in range(4)}
    ends = {end.name: end.at_s for end in result.ended if end.kind == "Job"}
    assert ends["job-1"] < 3000 < 9000 + 1000 < ends["job-0"] < 10_200
