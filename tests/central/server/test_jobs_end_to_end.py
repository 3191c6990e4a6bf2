"""Jobs on the whole path without a cluster: API server in memory, hollow nodes, the scheduler as a process."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.central.controllers.job.job_api import job
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node

Json = dict[str, Any]
PODS = "/api/v1/namespaces/ns/pods"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
OWNED = (
    PODS,
    "/api/v1/namespaces/ns/configmaps",
    "/api/v1/namespaces/ns/services",
    "/api/v1/namespaces/ns/secrets",
    "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups",
)


@pytest.fixture
def box() -> Iterator[FaultyCluster]:
    with FaultyCluster([bare_node(f"n{i}", gpus=0) for i in range(2)]) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        yield made


def state(box: FaultyCluster, name: str) -> Json:
    found: Json = (box.client.get(f"{JOBS}/{name}").get("status") or {}).get("state") or {}
    return found


def items(box: FaultyCluster, path: str) -> list[Json]:
    found: list[Json] = box.client.get(path)["items"]
    return found


def test_jobs_run_restart_end_and_leave_nothing(box: FaultyCluster) -> None:
    plugins: Json = {"svc": [], "ssh": []}
    short = job({"w": 2}, name="short", ttlSecondsAfterFinished=1, plugins=plugins)
    metadata = {"annotations": {"lockstep.dev/runs-for": "1s"}}
    short["spec"]["tasks"][0]["template"]["metadata"] = metadata
    box.create(JOBS, short)
    box.create(JOBS, job({"w": 2}, "PodEvicted RestartJob", name="long", plugins=plugins))
    box.create(JOBS, job({"w": 2}, name="wrong", minAvailable=5))
    box.wait("long to run", lambda: state(box, "long").get("phase") == "Running")
    first = {pod["metadata"]["uid"] for pod in items(box, PODS)}
    box.client.request("DELETE", f"{PODS}/long-w-0")

    def again() -> bool:
        status = box.client.get(f"{JOBS}/long")["status"]
        pods = [pod for pod in items(box, PODS) if pod["metadata"]["name"].startswith("long-")]
        fresh = [pod for pod in pods if pod["metadata"]["uid"] not in first]
        return len(fresh) == 2 and (status["version"], status["state"]["phase"]) == (1, "Running")

    box.wait("long to run again", again)
    wrong = state(box, "wrong")
    assert wrong["reason"] == "InvalidSpec"
    assert wrong["message"].startswith("spec.minAvailable: 5 exceeds the 2 pods")
    box.wait(
        "short to go", lambda: all(one["metadata"]["name"] != "short" for one in items(box, JOBS))
    )
    for name in ("long", "wrong"):
        box.client.request("DELETE", f"{JOBS}/{name}")
    box.wait("nothing to be left", lambda: not any(items(box, path) for path in OWNED))
