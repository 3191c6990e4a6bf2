"""Weeks of several queues with weights and bursts, beside published orders with EASY:

python -m tests.experiments.backfill.months [--seeds 0-6] [--times true,wrong,missing] [--days 10] [--nodes 16]

Lost: GPU hours of runs that an eviction ended. Share error: for each queue and time with waiting gangs, what it holds
below its share by weight of the queues that wait or run, as a fraction of all GPU hours.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import Pool

from central.controllers.composite import new_scheduler
from central.model.defaults import USAGE_HALF_LIFE_S
from tests.central import factories
from tests.experiments.backfill import days, lockstep, references
from tests.experiments.backfill.days import GPUS, HOUR, Day, Job
from tests.experiments.backfill.references import Cluster, Policy

DAY = 24 * HOUR
SIZES = (
    (1, 1),
    (1, 2),
    (1, 4),
    (1, 8),
    (2, 8),
    (4, 8),
    (6, 8),
    (8, 8),
    (12, 8),
)  # pods, GPUs of each
OFTEN = (25, 12, 12, 20, 10, 8, 6, 4, 3)
LARGE = 48
LOAD = 0.9  # of the GPU hours of the days
LOCKSTEP = "Lockstep"


@dataclass(frozen=True, slots=True)
class Month:
    day: Day
    weights: dict[str, int]


def generate(seed: int, *, times: str, days_: float, nodes: int) -> Month:
    """Each queue has bursts of a day or two, in which most of its gangs arrive."""
    dice, said = random.Random(seed), random.Random(seed + 1_000_000)
    names = [f"q{number}" for number in range(dice.randint(4, 12))]
    weights = {name: dice.choice((1, 2, 3, 6)) for name in names}
    bursts = {
        name: [dice.uniform(0, days_ - 1) * DAY for _ in range(max(1, round(days_ / 4)))]
        for name in names
    }
    jobs: list[Job] = []
    left_s = LOAD * nodes * GPUS * days_ * DAY
    while left_s > 0:
        name = dice.choice(names)
        pods, gpus = dice.choices(SIZES, OFTEN)[0]
        in_burst = dice.random() < 0.8
        at_s = (
            dice.choice(bursts[name]) + dice.uniform(0, DAY)
            if in_burst
            else dice.uniform(0, days_) * DAY
        )
        runs_s = float(round(min(max(dice.lognormvariate(9.2, 1.2), 600.0), 36 * HOUR)))
        says_s = {"true": runs_s, "wrong": runs_s * said.choice((0.5, 1, 1.5, 2, 5, 10))}.get(times)
        jobs.append(
            Job(f"j{len(jobs)}", round(at_s, 1), min(pods, nodes), gpus, runs_s, says_s, name)
        )
        left_s -= jobs[-1].size * runs_s
    return Month(Day(nodes, tuple(sorted(jobs, key=lambda job: job.arrives_s))), weights)


def ordered_easy(key: Callable[[Cluster, str], float]) -> Policy:
    """EASY, with the gangs of the queue that has the lowest key first."""

    def policy(cluster: Cluster) -> None:
        while True:
            before = len(cluster.waiting)
            cluster.waiting.sort(key=lambda job: (key(cluster, job.queue), job.arrives_s))
            references.easy(cluster, most=1)
            if len(cluster.waiting) == before:
                return

    return policy


def policies(month: Month) -> dict[str, Policy]:
    weights = month.weights

    def past(cluster: Cluster, queue: str) -> float:
        return cluster.usage.get(queue, 0.0) / weights[queue]

    def now(cluster: Cluster, queue: str) -> float:
        used = sum(each.job.size for each in cluster.running.values() if each.job.queue == queue)
        return used / weights[queue]

    return {
        "past use + EASY": ordered_easy(past),
        "use now + EASY": ordered_easy(now),
        "FIFO + EASY": references.easy,
        "conservative": references.conservative,
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """Waits in hours. use: of the GPU hours until the last gang has come. lost, error: fractions of all GPU hours."""

    mean: float
    p95: float
    worst: float
    large: float
    use: float
    error: float
    lost: float


def figures(month: Month, waits: dict[str, float], lost_s: float) -> Figures:
    """waits: until the run that a gang finished began."""
    jobs, total = month.day.jobs, month.day.nodes * GPUS
    begins = {job.name: job.arrives_s + waits[job.name] for job in jobs}
    until = max(job.arrives_s for job in jobs)
    work = sum(
        job.size * max(min(begins[job.name] + job.runs_s, until) - begins[job.name], 0.0)
        for job in jobs
    )
    ordered = sorted(waits.values())
    large = [waits[job.name] for job in jobs if job.size >= LARGE]
    return Figures(
        statistics.mean(ordered) / HOUR,
        ordered[int(0.95 * len(ordered))] / HOUR,
        ordered[-1] / HOUR,
        statistics.mean(large) / HOUR if large else 0.0,
        work / (total * until),
        share_error(month, begins, until) / (total * until),
        lost_s / sum(job.size * job.runs_s for job in jobs),
    )


def share_error(month: Month, begins: dict[str, float], until: float) -> float:
    """GPU seconds that queues with waiting gangs hold below their shares."""
    total, jobs = month.day.nodes * GPUS, month.day.jobs
    events = [(job.arrives_s, job, "demand", job.size) for job in jobs]
    events += [(begins[job.name], job, "used", job.size) for job in jobs]
    for job in jobs:
        end = begins[job.name] + job.runs_s
        events += [(end, job, "used", -job.size), (end, job, "demand", -job.size)]
    events.sort(key=lambda event: event[0])
    counts = {"demand": dict.fromkeys(month.weights, 0), "used": dict.fromkeys(month.weights, 0)}
    error = 0.0
    for (at, job, what, size), (then, *_) in pairwise(events):
        counts[what][job.queue] += size
        if then > at and at < until:
            shares = water_filled(total, counts["demand"], month.weights)
            short = sum(max(shares[name] - counts["used"][name], 0.0) for name in shares)
            error += short * (min(then, until) - at)
    return error


def water_filled(total: float, demand: dict[str, int], weights: dict[str, int]) -> dict[str, float]:
    shares, left = dict.fromkeys(demand, 0.0), {name for name, amount in demand.items() if amount}
    while left:
        level = total / sum(weights[name] for name in left)
        full = {name for name in left if demand[name] <= level * weights[name]}
        for name in full or left:
            shares[name] = demand[name] if full else level * weights[name]
        total -= sum(shares[name] for name in full)
        left = left - full if full else set()
    return shares


def played(month: Month, name: str, half_life_s: float = USAGE_HALF_LIFE_S) -> Figures:
    if name != LOCKSTEP:
        starts = references.play(month.day, policies(month)[name])
        return figures(
            month, {job.name: starts[job.name] - job.arrives_s for job in month.day.jobs}, 0.0
        )
    play = lockstep.Play(
        month.day, new_scheduler(factories.LEVELS, half_life_s=half_life_s), weights=month.weights
    )
    waits = play.run()
    return figures(month, waits, play.lost_s)


NAMES = ("past use + EASY", "use now + EASY", "FIFO + EASY", "conservative", LOCKSTEP)


def row(case: tuple[int, str, str], days_: float, nodes: int, half_life_s: float) -> Figures:
    seed, times, name = case
    return played(generate(seed, times=times, days_=days_, nodes=nodes), name, half_life_s)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.backfill.months")
    parser.add_argument("--seeds", default="0-6")
    parser.add_argument("--times", default=",".join(days.TIMES))
    parser.add_argument("--days", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--half-life-s", type=float, default=USAGE_HALF_LIFE_S)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(arguments)
    low, high = map(int, args.seeds.split("-"))
    print("run times, order: mean, p95, worst wait, mean of large (h); use, share error, lost (%)")
    with Pool(args.processes) as pool:
        for times in args.times.split(","):
            for name in args.names.split(","):
                cases = [(seed, times, name) for seed in range(low, high)]
                run = partial(row, days_=args.days, nodes=args.nodes, half_life_s=args.half_life_s)
                found = pool.map(run, cases, chunksize=1)
                means = [statistics.mean(each) for each in zip(*map(_values, found), strict=True)]
                waits = " ".join(f"{value:6.2f}" for value in means[:4])
                rest = " ".join(f"{100 * value:5.1f}" for value in means[4:])
                print(f"{times:8} {name:16} {waits} | {rest}", flush=True)


def _values(each: Figures) -> tuple[float, ...]:
    return (each.mean, each.p95, each.worst, each.large, each.use, each.error, each.lost)


if __name__ == "__main__":
    main(sys.argv[1:])
