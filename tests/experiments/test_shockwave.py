"""Rigid jobs that share time, with the statistics of Shockwave's canonical trace."""

import pickle
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from tests.experiments.shockwave import artifact, generator, workload
from tests.experiments.shockwave.workload import QUANTUM_S, RigidJob


def test_workloads_have_the_published_statistics() -> None:
    """The mean run time alone is 3,930 s, the longest 17,235 s, the last arrival after 5,011 s."""
    loads = [generator.workload(seed) for seed in range(20)]
    assert {len(jobs) for jobs in loads} == {120}
    assert {sum(job.gpus for job in jobs) for jobs in loads} == {92 + 40 + 32}
    assert 3700 < mean(job.run_s for jobs in loads for job in jobs) < 4200
    assert 15_000 < mean(max(job.run_s for job in jobs) for jobs in loads) < 17_250
    assert 4400 < mean(jobs[-1].at_s for jobs in loads) < 5600


def test_a_small_day_that_is_shared_is_fair_to_all() -> None:
    jobs = [replace(job, at_s=job.at_s / 2) for job in generator.workload(0)[:24]]
    shared, alone = workload.run(jobs, nodes=2), workload.run(jobs, nodes=2, quantum_s=0.0)
    assert max(shared.rho) <= 1.3 < max(alone.rho)
    suspended = [each for each in shared.result.evicted if each.reason.startswith("suspended")]
    assert len(suspended) == len(shared.result.evicted) > 5
    assert shared.suspensions.total() <= 2 * len(jobs), "churn is bounded"
    assert _runs_before_suspensions(shared) >= QUANTUM_S


def _runs_before_suspensions(outcome: workload.Outcome) -> float:
    """The shortest run that a suspension ended, to the millisecond: times are sums of others."""
    began = {(each.pod, each.at_s) for each in outcome.result.placed}
    shortest_s = min(
        min(each.at_s - at_s for pod, at_s in began if pod == each.pod and at_s < each.at_s)
        for each in outcome.result.evicted
    )
    return round(shortest_s, 3)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_canonical_workload_as_asked() -> None:
    shared = [workload.run(generator.workload(seed)) for seed in range(2)]
    alone = workload.run(generator.workload(0), quantum_s=0.0)
    assert max(each.result.makespan_s for each in shared) <= 27_000
    assert max(rho for each in shared for rho in each.rho) <= 2.5 < max(alone.rho)
    assert max(each.unfair for each in shared) <= 12 < alone.unfair
    assert min(map(_runs_before_suspensions, shared)) >= QUANTUM_S


def test_the_artifact_is_read_by_line(tmp_path: Path) -> None:
    folder = tmp_path / "scheduler" / "traces" / "reproduce"
    folder.mkdir(parents=True)
    path = folder / "120_0.2_5.trace"
    line = "\t".join(
        ("LM (batch size 10)", "run", "lm", "-n", "1", "900", "4", "gns", "1", "-1", "1418", "55")
    )
    path.write_text(f"{line}\n")
    assert artifact.is_here(tmp_path)
    assert artifact.workload(tmp_path) == [RigidJob("job-000", 55.0, 1418.0, 4)]
    result = tmp_path / artifact.RESULT.replace("120_*", "120_0.2_5")
    result.parent.mkdir(parents=True)
    with result.open("wb") as file:
        pickle.dump({"jct_list": [3000.0], "finish_time_fairness_list": [2.0]}, file)
    assert artifact.workload(tmp_path) == [RigidJob("job-000", 55.0, 1500.0, 4)]
    with result.open("wb") as file:
        pickle.dump(Path("anything"), file)
    with pytest.raises(ValueError, match="is not expected in a result"):
        artifact.workload(tmp_path)
    result.unlink()
    path.write_text(line.replace("\t55", "\tsoon"))
    with pytest.raises(ValueError, match=r"120_0\.2_5\.trace, line 1: .*soon"):
        artifact.workload(tmp_path)
    path.write_text("one field\n")
    with pytest.raises(ValueError, match="line 1: 1 fields, not 12"):
        artifact.workload(tmp_path)
