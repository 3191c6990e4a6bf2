"""How long the core takes to look at all elastic Jobs again after one event, on one processor (see turns.py)."""

import statistics
import time

from central.controllers.composite import jobs_of
from central.model.decisions import SetStatus
from central.model.facts import Fact, JobSeen, PodGone, PodSeen
from central.model.jobspec import (
    RUNNING,
    ElasticTask,
    JobMember,
    JobSpec,
    JobStatus,
    TaskSpec,
    group_name,
)
from central.scheduler.apply import apply
from central.scheduler.cycle import decide, schedule_once
from central.scheduler.scheduler import Scheduler
from tests.benchmarks import turns
from tests.central import factories

WARM_UP = 3
GPUS = 8
JOBS, MEMBERS = 500, 40


def events(
    nodes: int = 5000, rounds: int = 30, jobs: int = JOBS, members: int = MEMBERS
) -> turns.Decided:
    """Jobs of 2 to twice their members share the GPUs, and pods that come and go have the rest. In each round
    one of these ends, and another takes its place: sizes are computed again and stay."""
    made = full(nodes, jobs, members)
    times = []
    for number in range(rounds + WARM_UP):
        now = 10_000.0 + number
        apply(made, PodGone(f"uid-other-{number}"))
        apply(made, _other(f"again-{number}", jobs * members + number))
        began = time.thread_time()
        decisions = decide(made, now)
        spent = time.thread_time() - began
        assert not any(isinstance(each, SetStatus) for each in decisions), "all have their share"
        if number >= WARM_UP:
            times.append(spent * 1e3)
    return turns.Decided(statistics.median(times), max(times))


def growth(
    nodes: int = 5000, rounds: int = 5, jobs: int = JOBS, members: int = MEMBERS
) -> turns.Decided:
    """A seat becomes free, and one of the Jobs gets it."""
    times = []
    for _ in range(rounds):
        made = full(nodes, jobs, members)
        apply(made, PodGone("uid-other-0"))
        began = time.thread_time()
        decide(made, 10_000.0)
        times.append((time.thread_time() - began) * 1e3)
        assert sum(each.resize is not None for each in jobs_of(made).elastic.values()) == 1
    return turns.Decided(statistics.median(times), max(times))


def full(nodes: int, jobs: int = JOBS, members: int = MEMBERS) -> Scheduler:
    made = turns.scheduler(nodes)
    facts: list[Fact] = []
    seats = GPUS * nodes
    for number in range(jobs):
        facts += _job(number, members)
    facts += [
        _other(f"other-{number}", seat) for number, seat in enumerate(range(jobs * members, seats))
    ]
    schedule_once(made, facts, 1000.0)
    for at in range(3):  # what the first cycle wrote is answered
        decide(made, 2000.0 + at)
    turns.settle(made, 2010.0)
    return made


def _other(name: str, seat: int) -> PodSeen:
    return factories.pod(name, 1, node=f"node-{seat // GPUS:05}", phase="Running", started=0.0)


def _job(number: int, members: int) -> list[Fact]:
    name, uid = f"e{number}", f"uid-e{number}"
    task = TaskSpec("w", 2 * members, 2, {"spec": {"containers": []}})
    elastic = ElasticTask("w", 2, 2 * members)
    spec = JobSpec("ns", name, uid, (task,), 2, "lockstep", elastic=elastic)
    status = JobStatus(RUNNING, members=tuple(range(members)), generation=1)
    group = group_name(spec)
    first = number * members
    return [
        JobSeen(spec, status),
        factories.gang(group, 2),
        *(
            factories.pod(
                f"{name}-w-{index}",
                1,
                group,
                node=f"node-{(first + index) // GPUS:05}",
                phase="Running",
                started=0.0,
                part=JobMember(name, uid, "w", index),
            )
            for index in range(members)
        ),
    ]
