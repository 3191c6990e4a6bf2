"""How long the core takes to look at all elastic Jobs again after one event, on one processor (see turns.py)."""

import statistics
import time
from collections.abc import Callable

from central.controllers.composite import jobs_of
from central.model import speed_table
from central.model.decisions import SetStatus
from central.model.facts import Fact, JobSeen, PodGone, PodSeen
from central.model.jobspec import (
    GOODPUT,
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


def goodput(gpus: int = 2048, jobs: int = 1000, rounds: int = 3) -> turns.Decided:
    """Jobs of one member, each with speeds of its own, and all other GPUs become free at once: a plan of all sizes."""
    times = []
    for _ in range(rounds):
        made = full(gpus // GPUS, jobs, 1, _by_goodput)
        for number in range(gpus - jobs):
            apply(made, PodGone(f"uid-other-{number}"))
        began = time.thread_time()
        decide(made, 10_000.0)
        times.append((time.thread_time() - began) * 1e3)
        sizes = [job.resize.members for job in jobs_of(made).elastic.values() if job.resize]
        assert sum(map(len, sizes)) - len(sizes) == gpus - jobs, "every GPU is given"
    return turns.Decided(statistics.median(times), max(times))


def _by_goodput(number: int) -> ElasticTask:
    """Of 1 to 16 members; the last Job is almost as fast as it has members, the first hardly faster than with one."""
    power = 0.2 + 0.75 * (number % 1009) / 1009
    speeds = speed_table.parse(" ".join(f"{size}:{size**power:.6f}" for size in range(1, 17)))
    return ElasticTask("w", 1, 16, objective=GOODPUT, speeds=speeds, useful=tuple(range(1, 17)))


def full(
    nodes: int,
    jobs: int = JOBS,
    members: int = MEMBERS,
    task_of: Callable[[int], ElasticTask] | None = None,
) -> Scheduler:
    """task_of: of a Job's number; None: 2 to twice the members, evenly."""
    made = turns.scheduler(nodes)
    facts: list[Fact] = []
    seats = GPUS * nodes
    even = ElasticTask("w", 2, 2 * members)
    for number in range(jobs):
        facts += _job(number, members, task_of(number) if task_of else even)
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


def _job(number: int, members: int, elastic: ElasticTask) -> list[Fact]:
    name, uid = f"e{number}", f"uid-e{number}"
    task = TaskSpec("w", elastic.most, elastic.least, {"spec": {"containers": []}})
    spec = JobSpec("ns", name, uid, (task,), elastic.least, "lockstep", elastic=elastic)
    status = JobStatus(RUNNING, members=tuple(range(members)), generation=1)
    group = group_name(spec)
    first = number * members
    return [
        JobSeen(spec, status),
        factories.gang(group, elastic.least),
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
