"""Kubeflow's training operator and MPI operator: without a word about gangs, and with their option `volcano`."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from central.model.json_types import Json
from protos.names import GPU, RUNS_FOR, SCHEDULER
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, condition, template
from tests.e2e.controllers.sources import Source
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
VOLCANO = "volcano"


def replicas(count: int, gpus: int, scheduler: str, runs_for: str = "") -> Json:
    made = template(gpus, scheduler)
    made["spec"].pop("restartPolicy")
    made["metadata"] = {"annotations": {RUNS_FOR: runs_for} if runs_for else {}}
    return {"replicas": count, "restartPolicy": "Never", "template": made}


def pytorchjob(scheduler: str) -> Json:
    roles = {role: replicas(1, 8, scheduler, "10s") for role in ("Master", "Worker")}
    for role in roles.values():
        role["template"]["spec"]["containers"][0]["name"] = "pytorch"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def mpijob(scheduler: str) -> Json:
    """Of the MPI operator: workers run until the launcher has ended, and are deleted then."""
    roles = {"Launcher": replicas(1, 0, scheduler, "10s"), "Worker": replicas(2, 8, scheduler)}
    policy = {"cleanPodPolicy": "Running"}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "bert"},
        "spec": {"slotsPerWorker": 8, "runPolicy": policy, "mpiReplicaSpecs": roles},
    }


@dataclass(frozen=True)
class Played:
    make: Callable[[str], Json]
    version: str
    kind: str
    pods: int
    needs: str
    argv: tuple[str, ...]
    option: str  # of gangs


PLAYED = {
    sources.TRAINING_OPERATOR: Played(
        *(pytorchjob, "v1", "pytorchjob", 2, "1 pod x 8 GPUs and 1 pod x 8 GPUs"),
        (
            "--webhook-server-port={webhook}",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ),
        "--gang-scheduler-name",
    ),
    sources.MPI_OPERATOR: Played(
        *(mpijob, "v2beta1", "mpijob", 3, "2 pods x 8 GPUs"),
        ("--lock-namespace=mpi-operator",),
        "--gang-scheduling",
    ),
}


@pytest.mark.parametrize("scheduler", [SCHEDULER, VOLCANO])
@pytest.mark.parametrize("source", PLAYED, ids=lambda source: source.name)
def test_a_job_waits_runs_and_succeeds(stage: Stage, source: Source, scheduler: str) -> None:
    played = PLAYED[source]
    argv = [*played.argv, *([f"{played.option}={VOLCANO}"] if scheduler == VOLCANO else [])]
    with stage.controller(source, argv):
        play = Play(stage, f"{source.name}-{scheduler}")
        gang = "bert" if scheduler == VOLCANO else f"{played.kind}/bert"
        with play.occupied():
            play.apply(played.make(scheduler))
            if scheduler == VOLCANO:
                play.until("its PodGroup", lambda: play.groups("Pending"))
                [group] = play.groups()
                assert group["spec"]["minMember"] == played.pods
                assert int(group["spec"]["minResources"][GPU]) == 16
            if scheduler == VOLCANO and source == sources.TRAINING_OPERATOR:
                assert play.members() == []  # it creates them when the PodGroup is admitted
            else:
                play.waits_whole(gang, played.pods, played.needs)
        where = (
            f"/apis/kubeflow.org/{played.version}/namespaces/{play.namespace}/{played.kind}s/bert"
        )

        def status() -> Json:
            found: Json = stage.get(where).get("status", {})
            return found

        play.until("all to be placed", lambda: len(play.placed()) == played.pods)
        play.until("the job to run", lambda: condition(status(), "Running"))
        play.until("the job to succeed", lambda: condition(status(), "Succeeded") == "True")
        if source == sources.MPI_OPERATOR:
            play.until("its workers to be gone", lambda: len(play.members()) == 1)
            assert status()["replicaStatuses"]["Launcher"]["succeeded"] == 1
        play.delete(f"{played.kind}s.{played.version}.kubeflow.org", "bert")
        play.until("its pods to be gone", lambda: not play.members())
