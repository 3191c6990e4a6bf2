"""Workloads with the statistics of Shockwave's canonical trace: 120 jobs within 84 minutes, 92 with one GPU, 20 with
two, 8 with four. Five of six run alone for 11 to 83 minutes, the others for up to five hours; the mean is 65
minutes."""

import random

from tests.experiments.shockwave.workload import RigidJob

JOBS, GAP_S = 120, 42.0  # the mean between two arrivals
GPUS = (1,) * 92 + (2,) * 20 + (4,) * 8
LONG = 20  # jobs
SHORT_S, LONG_S = (670.0, 5000.0), (5000.0, 17250.0)


def workload(seed: int) -> list[RigidJob]:
    """In the order of arrival."""
    dice = random.Random(seed)
    gpus = dice.sample(GPUS, JOBS)
    long = set(dice.sample(range(JOBS), LONG))
    jobs, at_s = [], 0.0
    for index in range(JOBS):
        run_s = _long(dice) if index in long else dice.uniform(*SHORT_S)
        jobs.append(RigidJob(f"job-{index:03}", round(at_s, 1), round(run_s, 1), gpus[index]))
        at_s += dice.expovariate(1 / GAP_S)
    return jobs


def _long(dice: random.Random) -> float:
    """Equally likely on a logarithmic scale."""
    least_s, most_s = LONG_S
    return least_s * float((most_s / least_s) ** dice.random())
