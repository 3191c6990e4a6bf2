"""Days of batch work: nodes with GPUs, and jobs that arrive, say how long they will run, and run.

Sizes and times follow what the public traces of GPU clusters have in common (Philly, Helios, Acme): most jobs
are small and short, most GPU hours belong to a few large and long ones.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

GPUS = 8  # of a node
HOUR = 3600.0
LARGE = 64  # GPUs of a gang that small ones may starve
TIMES = ("true", "wrong", "missing")
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8))  # pods, GPUs of each
WEIGHTS = (30, 12, 12, 20, 10, 8, 5, 3)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    arrives_s: float
    pods: int
    gpus: int  # of each pod
    runs_s: float
    says_s: float | None  # run time that its owner states; None: none
    queue: str = ""

    @property
    def size(self) -> int:
        return self.pods * self.gpus

    @property
    def limit_s(self) -> float:
        """The stated run time; inf: unknown."""
        return inf if self.says_s is None else self.says_s


@dataclass(frozen=True, slots=True)
class Day:
    nodes: int
    jobs: tuple[Job, ...]  # in order of arrival

    @property
    def queues(self) -> list[str]:
        return sorted({job.queue for job in self.jobs} - {""})


def generate(
    seed: int,
    *,
    times: str = "true",
    queues: int = 0,
    nodes: int = 40,
    jobs: int = 250,
    hours: float = 12.0,
) -> Day:
    """times: whether stated run times are true, wrong (half to ten times the true one) or missing. hours:
    in which the jobs arrive; nobody arrives later, so that the last jobs show the makespan."""
    dice = random.Random(seed)
    said = random.Random(seed + 1_000_000)  # so that the jobs are the same with all kinds of days
    made = []
    arrivals = sorted(dice.uniform(0, hours * HOUR) for _ in range(jobs))
    for number, arrives_s in enumerate(arrivals):
        pods, gpus = dice.choices(SHAPES, WEIGHTS)[0]
        runs_s = float(round(min(max(dice.lognormvariate(8.2, 1.3), 120.0), 8 * HOUR)))
        says_s = {"true": runs_s, "wrong": runs_s * said.choice((0.5, 1, 1.5, 2, 5, 10))}.get(times)
        queue = f"q{said.randrange(queues)}" if queues else ""
        made.append(Job(f"j{number}", round(arrives_s, 1), pods, gpus, runs_s, says_s, queue))
    return Day(nodes, tuple(made))


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one day. Seconds; use: the share of all GPU hours until the last end."""

    mean_wait_s: float
    p95_wait_s: float
    makespan_s: float
    use: float
    longest_large_s: float  # the longest wait of a gang of LARGE GPUs or more


def figures(day: Day, starts: dict[str, float]) -> Figures:
    """starts: when each job began the run that it finished."""
    return of_waits(day, {job.name: starts[job.name] - job.arrives_s for job in day.jobs})


def of_waits(day: Day, waits: dict[str, float]) -> Figures:
    begin = min(job.arrives_s for job in day.jobs)
    end = max(job.arrives_s + waits[job.name] + job.runs_s for job in day.jobs)
    ordered = sorted(waits.values())
    worked = sum(job.size * job.runs_s for job in day.jobs)
    return Figures(
        sum(ordered) / len(ordered),
        ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)],
        end - begin,
        worked / (day.nodes * GPUS * (end - begin)),
        max((waits[job.name] for job in day.jobs if job.size >= LARGE), default=0.0),
    )


def means(all_figures: Sequence[Figures]) -> Figures:
    count = len(all_figures)
    return Figures(
        sum(each.mean_wait_s for each in all_figures) / count,
        sum(each.p95_wait_s for each in all_figures) / count,
        sum(each.makespan_s for each in all_figures) / count,
        sum(each.use for each in all_figures) / count,
        sum(each.longest_large_s for each in all_figures) / count,
    )
