"""Days on which many jobs wait: no worse than the published ways to backfill."""

import pytest

from tests.experiments.backfill import days, references
from tests.experiments.backfill.__main__ import LOCKSTEP, figures_of


def a_job(name: str, arrives_s: float, pods: int, runs_s: float) -> days.Job:
    return days.Job(name, arrives_s, pods, 8, runs_s, runs_s)


@pytest.mark.parametrize("policy", [*references.POLICIES, LOCKSTEP])
def test_who_ends_in_time_passes_the_head_and_who_does_not_waits(policy: str) -> None:
    """Two nodes: the textbook's example."""
    jobs = (
        a_job("now", 0, 1, 3600),
        a_job("big", 1, 2, 600),
        a_job("short", 2, 1, 1800),
        a_job("long", 3, 1, 7200),
    )
    found = figures_of(days.Day(2, jobs), policy)
    starts = {"now": 0, "big": 3600, "short": 2, "long": 4200}
    assert found == days.figures(days.Day(2, jobs), {k: float(v) for k, v in starts.items()})


@pytest.mark.slow
@pytest.mark.nightly
def test_with_true_run_times_the_mean_wait_is_shorter() -> None:
    """The p95 and the makespan of so few days vary by more than the policies differ."""
    made = [days.generate(seed) for seed in range(4)]
    ours = days.means([figures_of(day, LOCKSTEP) for day in made])
    for name in references.POLICIES:
        theirs = days.means([figures_of(day, name) for day in made])
        assert ours.mean_wait_s < theirs.mean_wait_s, name
        assert ours.p95_wait_s < 1.05 * theirs.p95_wait_s, name
        assert ours.makespan_s < 1.03 * theirs.makespan_s, name


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_without_run_times_no_mean_is_worse_and_large_gangs_do_not_pay_for_it() -> None:
    """Twelve days, as in docs/results/experiments.md: the longest wait of four depends on single jobs."""
    made = [days.generate(seed, times="missing") for seed in range(12)]
    ours = days.means([figures_of(day, LOCKSTEP) for day in made])
    for name in references.POLICIES:
        theirs = days.means([figures_of(day, name) for day in made])
        assert ours.mean_wait_s < theirs.mean_wait_s, name
        assert ours.p95_wait_s < theirs.p95_wait_s, name
        assert ours.makespan_s < theirs.makespan_s, name
        if (
            name == "EASY"
        ):  # the one that also lets small gangs pass; multifactor puts large ones first
            assert ours.longest_large_s < 1.03 * theirs.longest_large_s
