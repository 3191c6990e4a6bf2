"""Sizes of Pollux's kinds of jobs, in workloads with the published statistics."""

from dataclasses import replace

import pytest

from central.model.jobspec import EVEN, GOODPUT
from central.simulator import training_progress, world
from tests.experiments.pollux import generator, workload
from tests.experiments.pollux.workload import speeds

pytestmark = pytest.mark.timeout(900)  # a load of the largest takes a minute on an idle machine


def test_sizes_by_what_there_is_are_faster_than_tuned_sizes() -> None:
    jobs = generator.workload("0.5", 0)
    fixed = workload.run(jobs, fixed=True)
    for objective in (EVEN, GOODPUT):
        elastic = workload.run(jobs, objective=objective)
        assert len(elastic.completion_s) == len(jobs) == generator.JOBS["0.5"]
        assert elastic.mean_s <= 0.9 * fixed.mean_s, objective
        assert elastic.resizes <= 5, objective


def test_measured_speeds_are_better_than_none_and_than_tuned_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = generator.workload("0.5", 1)
    measured = workload.run(jobs, objective=GOODPUT, measured=True)
    assert measured.mean_s <= 0.9 * workload.run(jobs, fixed=True).mean_s
    monkeypatch.setattr(training_progress, "MEASURED_S", 1e9)
    monkeypatch.setattr(world, "MEASURED_S", 1e9)
    unknown = workload.run(jobs, objective=GOODPUT, measured=True)
    assert measured.mean_s <= 0.95 * unknown.mean_s


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("load", "most_s", "factor"), [("1.0", 3450, 1.0), ("1.5", 5250, 1.0), ("2.0", 8250, 1.02)]
)
def test_jobs_of_a_load_complete_in_time(load: str, most_s: float, factor: float) -> None:
    """With `goodput` sooner than with `even`; where there is little surplus to divide, at about the same time."""
    jobs = generator.workload(load, 0)
    even, goodput = workload.run(jobs), workload.run(jobs, objective=GOODPUT)
    assert goodput.mean_s <= factor * even.mean_s
    assert max(even.mean_s, goodput.mean_s) <= most_s


def test_the_kinds_need_as_many_gpu_hours_as_published() -> None:
    hours = {
        model.name: max(
            model.steps[batch] * model.step_s(batch, 1, 1) / 3600 for batch in model.steps
        )
        for _, model in generator.KINDS
    }
    assert (
        hours["ncf"]
        < 1
        < hours["cifar10"]
        < hours["bert"]
        < 10
        < hours["yolov3"]
        < 100
        < hours["imagenet"]
        < 1000
    )


def test_a_job_that_fits_its_batch_takes_the_best_for_its_size() -> None:
    model = generator.DEEPSPEECH2
    small, large = sorted(model.steps)
    for gpus, nodes in ((1, 1), (4, 1), (32, 8)):
        each = [model.training_s(batch, gpus, nodes) for batch in (small, large)]
        assert model.training_s(None, gpus, nodes) == min(each)
    assert model.most_gpus(small) < 40
    assert model.training_s(None, 40, 10) == model.training_s(large, 40, 10)


def test_other_gpus_have_speeds_of_their_own_in_the_unit_of_the_first() -> None:
    twice = replace(generator.BERT, slower=0.5)
    cluster = (workload.Nodes("A", 1, 2), workload.Nodes("B", 1, 4))
    table, most = speeds((generator.BERT, twice), 384, cluster)
    assert "1/1:1 " in table
    assert "B=1/1:2 " in table
    assert most == 4
    jobs = [workload.TrainingJob("job", 0.0, (generator.BERT, twice), 384)]
    outcome = workload.run(jobs, cluster=cluster)
    assert set(outcome.completion_s) == {"job"}


def test_a_large_model_is_faster_on_one_node_than_on_two() -> None:
    table, most = speeds((generator.YOLOV3,), 64, workload.POLLUX)
    assert "4/1:" in table
    assert most == 16
    times = [generator.YOLOV3.step_s(64, gpus, nodes) for gpus, nodes in ((4, 1), (4, 2), (8, 2))]
    assert times[0] == min(times)
