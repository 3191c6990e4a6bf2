"""PyTorch with gloo on real kubelets, resized by a service that comes and goes: the same steps, records and losses as
at a fixed size, and no restart counted (experiment 16.9 of the elastic training specification)."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_torch_resize import Curve
from tests.e2e import elastic_jobs
from tests.e2e.cluster.settings import say
from tests.e2e.elastic_jobs import ElasticRun, Service
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(580)]
PYTHON = torch_training.SYSTEMS
LAUNCH = f"{PYTHON} -m lockstep_train.launch --stop-wait=20 -- {PYTHON}"
STEPS, LAST = 400, 3  # the last size, at which steps follow each other without a pause


@pytest.fixture(scope="module")
def _torch() -> None:
    if not torch_training.runs(PYTHON, torch_training.IMPORTS):
        pytest.skip("apt-get install python3-torch")


@pytest.fixture(scope="module")
def _image(_torch: None, cluster: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    elastic_jobs.load_image(tmp_path_factory.mktemp("python"))


class Training(ElasticRun):
    """One GPU each; PyTorch computes on the processor."""

    def train(self, command: str, batch: int, least: int, most: int, pause_s: float) -> None:
        script = elastic_jobs.write_script(self.folder, torch_training.SCRIPT)
        worker = self.task(
            "worker",
            f"{command} {script} {STEPS} {batch} {pause_s} {LAST}",
            gpus=1,
            minAvailable=least,
            replicas=most,
        )
        self.apply(self.coordinator(), worker, elastic=["--task=worker", "--hold=5s"], maxRetry=3)

    def reaches(self, size: int, more: int = 0) -> float:
        """When that size took its first step, in seconds since 1970; waits until it took so many more."""

        def at() -> list[float]:
            found = sorted(one["at"] for one in self.said() if one["size"] == size)
            return found if len(found) > more * size else []

        return float(self.until(f"a step of {size}", at)[0])

    def size(self) -> int:
        """That the scheduler has decided."""
        return int(self.status()["elastic"]["worker"]["size"])

    def restarts(self) -> dict[str, int]:
        """Of containers, and retries of the Job."""
        found = {
            name: one["status"]["containerStatuses"][0]["restartCount"]
            for name, one in self.pods().items()
            if one["status"].get("containerStatuses")
        }
        return {**found, "retries": self.status().get("retryCount", 0)}


def fixed(cluster: World, namespace: str, folder: Path, batch: int) -> Curve:
    run = Training(cluster, namespace, folder)
    run.name = "fixed"
    run.train(PYTHON, batch, 3, 3, 0.0)
    run.completed()
    run.delete()
    curve = Curve(run.said())
    curve.is_whole(STEPS)
    assert curve.size_changes() == [3]
    return curve


@pytest.mark.usefixtures("_image")
@pytest.mark.parametrize(
    ("command", "batch"),
    [
        pytest.param(PYTHON, 240, id="python"),
        pytest.param(LAUNCH, 256, id="lockstep-launch", marks=pytest.mark.nightly),
    ],
)
def test_two_six_three_workers(
    cluster: World, namespace: str, tmp_path: Path, command: str, batch: int
) -> None:
    service = Service(cluster, namespace)
    for name in ("first", "second"):
        service.comes(name, 7)  # of 8 GPUs of a node
    run = Training(cluster, namespace, tmp_path / "elastic")
    run.train(command, batch, 2, 6, 0.2)
    run.reaches(2, more=10)
    since = asked(run, 2, lambda: service.goes("second"))
    grown_s = run.reaches(6, more=10) - since
    since = asked(run, 6, lambda: service.comes("third", 6))
    shrunk_s = run.reaches(3) - since
    assert set(run.restarts().values()) == {0}
    run.completed()
    run.delete()
    curve = Curve(run.said())
    curve.is_whole(STEPS)
    assert curve.size_changes() == [2, 6, 3]
    service.end()
    worst = curve.equals(fixed(cluster, namespace, tmp_path / "fixed", batch))
    say(
        f"batch {batch}: {grown_s:.1f} s from seats that are free to the first step of 6 workers, {shrunk_s:.1f} s from "
        f"a service's need to the first step of 3; "
        f"losses differ by {worst:.1e} at most"
    )


def asked(run: Training, size: int, by: Any) -> float:
    """When others' needs changed, in seconds since 1970; waits for the decision on another size."""
    assert run.size() == size
    since = time.time()
    by()
    run.until("another size", lambda: run.size() != size, 90)
    return since
