"""Gang scheduling, as the seed documents measured it: published outcome, a model of the default
scheduler, and ours. The numbers are in docs/results/experiments.md; `python -m tests.experiments` prints them."""

from collections import Counter
from math import comb
from statistics import mean

import pytest

from tests.experiments import default_scheduler, stage

MINUTE = 60.0


@pytest.mark.parametrize(("case", "jobs"), [(1, 1), (2, 2), (3, 5)])
def test_each_of_our_jobs_takes_its_24_minutes(case: int, jobs: int) -> None:
    """Published for Volcano: 24, 24, 24 minutes on average, and all jobs finish."""
    for seed in (None, *range(10)):
        story, took = stage.ours(f"gang-case-{case}", shuffled=seed)
        assert [job.took_s / MINUTE for job in took.values()] == [24.0] * jobs
        assert story.makespan_s == jobs * 24 * MINUTE  # one after the other, without a gap
        assert story.waiting == []


def test_the_default_scheduler_with_one_and_two_jobs() -> None:
    """Published: 24, and 36 where two jobs do not fit: the second holds five places and waits."""
    for seed in range(20):
        one = default_scheduler.play(stage.read("gang-case-1"), seed)
        assert [job.took_s / MINUTE for job in one.jobs] == [24.0]
        two = default_scheduler.play(stage.read("gang-case-2"), seed)
        assert [job.took_s / MINUTE for job in two.jobs] == [24.0, 48.0]
        assert mean(job.took_s for job in two.jobs) / MINUTE == 36.0


def test_the_default_scheduler_with_five_jobs_deadlocks() -> None:
    """Published: 2 of 5 finish, 36 minutes on average, the rest never. Two is what chance allows:
    one pod is missing to the second job, and six of nineteen that wait get the freed places."""
    scenario, runs = stage.read("gang-case-3"), 2000
    outcomes = [default_scheduler.play(scenario, seed) for seed in range(runs)]
    finished = Counter(len(outcome.finished) for outcome in outcomes)
    assert finished[1] / runs == pytest.approx(1 - 6 / 19, abs=0.04)
    assert finished[2] / runs > 0.2
    assert sum(outcome.deadlocked for outcome in outcomes) / runs > 0.95
    for outcome in outcomes:
        if len(outcome.finished) == 2:
            assert mean(job.took_s for job in outcome.finished) / MINUTE == 36.0


def test_two_jobs_on_four_gpus() -> None:
    """Published: each may get two GPUs, and both wait for ever. In any order that is the rule: only
    two of the ways to choose four of eight pods are one job's own."""
    runs = 2000
    scenario = stage.read("four-gpus")
    stuck = sum(
        default_scheduler.play(scenario, seed, shuffled=True).deadlocked for seed in range(runs)
    )
    assert stuck / runs == pytest.approx(1 - 2 / comb(8, 4), abs=0.02)


def test_two_jobs_on_four_gpus_run_one_after_the_other() -> None:
    for seed in range(40):
        story, took = stage.ours("four-gpus", shuffled=seed)
        first, second = sorted(took.values(), key=lambda job: job.began_s)
        assert (first.began_s, first.ended_s) == (0.0, 3600.0)
        assert (second.began_s, second.ended_s) == (3600.0, 7200.0)
        assert story.gpu_seconds_used == story.gpu_seconds_there  # no GPU idles
