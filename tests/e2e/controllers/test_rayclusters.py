"""KubeRay's operator: a Ray cluster starts with its head and the workers of each group; and its option `volcano`."""

import pytest

from central.model.json_types import Json
from central.standalone.local_cluster import free_port
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, template
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
WHERE = "/apis/ray.io/v1/namespaces/{}/rayclusters/tune"


def raycluster() -> Json:
    def group(name: str, replicas: int, gpus: int) -> Json:
        counts = {"replicas": replicas, "minReplicas": replicas, "maxReplicas": 4}
        pods = template(gpus, restarts=True)
        return {"groupName": name, **counts, "rayStartParams": {}, "template": pods}

    head = {"rayStartParams": {}, "template": template(0, restarts=True)}
    groups = [group("cpu", 2, 0), group("gpu", 2, 8)]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "tune"},
        "spec": {"rayVersion": "2.40.0", "headGroupSpec": head, "workerGroupSpecs": groups},
    }


@pytest.mark.parametrize("mode", ["plain", "volcano"])
def test_a_cluster_waits_runs_and_shrinks(stage: Stage, mode: str) -> None:
    argv = ["--enable-leader-election=false", f"--metrics-addr=127.0.0.1:{free_port()}"]
    argv.append(f"--health-probe-bind-address=127.0.0.1:{free_port()}")
    if mode == "volcano":
        argv.append("--batch-scheduler=volcano")
    with stage.controller(sources.KUBERAY, argv):
        play = Play(stage, f"ray-{mode}")
        gang = "ray-tune-pg" if mode == "volcano" else "raycluster/tune"

        def status() -> Json:
            found: Json = stage.get(WHERE.format(play.namespace)).get("status", {})
            return found

        with play.occupied():
            play.apply(raycluster())
            play.waits_whole(gang, 5, "2 pods x 8 GPUs")
            assert [each["spec"]["minMember"] for each in play.groups()] == (
                [5] if mode == "volcano" else []
            )
        play.runs_whole(gang, 5)
        play.until("ready", lambda: status().get("state") == "ready")
        play.until("four ready workers", lambda: status()["readyWorkerReplicas"] == 4)

        groups = stage.get(WHERE.format(play.namespace))["spec"]["workerGroupSpecs"]
        groups[0] |= {"replicas": 1, "minReplicas": 1}
        stage.patch(WHERE.format(play.namespace), {"spec": {"workerGroupSpecs": groups}})
        play.runs_whole(gang, 4)
        play.until("three ready workers", lambda: status()["readyWorkerReplicas"] == 3)
        play.delete("raycluster", "tune")
        play.until("its pods to be gone", lambda: not play.members())
