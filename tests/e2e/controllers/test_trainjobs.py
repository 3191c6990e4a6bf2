"""Kubeflow Trainer v2: its TrainJobs become JobSets, whose pods are gangs by themselves or by its podGroupPolicy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from central.model.json_types import Json
from protos.names import GPU, RUNS_FOR, SCHEDULER
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, condition, template
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
WHERE = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/tune"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
VOLCANO = "volcano"
INITIALIZERS = ("dataset-initializer", "model-initializer")


def job(name: str, step: str, scheduler: str, gpus: int = 0, runs_for: str = "10s") -> Json:
    pods = template(gpus, scheduler)
    pods["spec"]["containers"][0]["name"] = name
    pods["metadata"] = {"annotations": {RUNS_FOR: runs_for}}
    inside = {"backoffLimit": 0, "template": pods}
    return {"name": name, "template": {"metadata": {"labels": {STEP: step}}, "spec": inside}}


def runtime(scheduler: str, policy: Json | None, *before: str) -> Json:
    """before: steps that complete before training starts, as in the runtimes that come with Trainer for language
    models."""
    node = job("node", "trainer", scheduler, 1)
    if before:
        node["dependsOn"] = [{"name": name, "status": "Complete"} for name in before]
    jobs = [*(job(name, name, scheduler, runs_for="2s") for name in before), node]
    spec: Json = {
        "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
        "template": {"spec": {"replicatedJobs": jobs}},
    }
    if policy is not None:
        spec["podGroupPolicy"] = policy
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": spec,
    }


def trainjob(**more: Any) -> Json:
    trainer = {"numNodes": 2, "resourcesPerNode": {"limits": {GPU: 8}}}
    group = "trainer.kubeflow.org"
    reference = {"apiGroup": group, "kind": "TrainingRuntime", "name": "torch"}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tune"},
        "spec": {"runtimeRef": reference, "trainer": trainer, **more},
    }


def status(play: Play) -> Json:
    found: Json = play.stage.get(WHERE.format(play.namespace)).get("status", {})
    return found


@contextmanager
def trainer(stage: Stage) -> Iterator[None]:
    with (
        stage.controller(sources.JOBSET, settings={}),
        stage.controller(sources.TRAINER, settings={}),
    ):
        yield


def ends_well(play: Play, succeeded: dict[str, int]) -> None:
    """succeeded: Jobs of each step, of which Trainer has one."""
    play.until("it to complete", lambda: condition(status(play), "Complete") == "True")
    play.until(
        "the status of its steps",
        lambda: (
            {each["name"]: each["succeeded"] for each in status(play)["jobsStatus"]} == succeeded
        ),
    )
    play.delete("trainjob", "tune")
    play.until("its pods to be gone", lambda: not play.members())


@pytest.mark.parametrize("scheduler", [SCHEDULER, VOLCANO])
def test_a_trainjob_waits_runs_and_completes(stage: Stage, scheduler: str) -> None:
    with trainer(stage):
        play = Play(stage, f"trainer-{scheduler}")
        gang = "tune" if scheduler == VOLCANO else "jobset/tune"
        with play.occupied():
            play.apply(runtime(scheduler, {VOLCANO: {}} if scheduler == VOLCANO else None))
            play.apply(trainjob())
            play.waits_whole(gang, 2, "needs 2 pods x 8 GPUs; the cluster fits 1 of 2")
            groups = [(one["metadata"]["name"], one["spec"]["minMember"]) for one in play.groups()]
            assert groups == ([("tune", 2)] if scheduler == VOLCANO else [])
        play.until("all to be placed", lambda: len(play.placed()) == 2)
        ends_well(play, {"node": 1})


def test_training_starts_whole_after_its_initializers(stage: Stage) -> None:
    with trainer(stage):
        play, gang = Play(stage, "trainer-initializers"), "jobset/tune"
        with play.occupied():
            play.apply(runtime(SCHEDULER, None, *INITIALIZERS))
            play.apply(trainjob())
            why = "needs 2 pods x 8 GPUs; the cluster fits 1 of 2"
            play.until(f'"{why}"', lambda: why in play.reason(gang))
            assert "2 of 4 pods are bound" in play.reason(gang)
            assert len(play.members()) == 4
            assert all(each["status"]["phase"] == "Succeeded" for each in play.placed())
        play.until("all to be placed", lambda: len(play.placed()) == 4)
        ends_well(play, dict.fromkeys((*INITIALIZERS, "node"), 1))
