"""Members of an elastic Job that read who leaves, on the whole path without a cluster, with the rights that are
shipped."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from central.model.member_files import ANNOTATIONS
from tests.central.controllers.job.job_api import job
from tests.central.controllers.job.test_elastic import elastic
from tests.central.server.test_rights import allowed, rules
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node
from tests.fakes.request_log import Request, RequestLog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
Json = dict[str, Any]
PODS = "/api/v1/namespaces/ns/pods"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"


@pytest.fixture
def box() -> Iterator[tuple[FaultyCluster, RequestLog]]:
    with FaultyCluster([bare_node("n0", gpus=0)]) as made:
        made.start_api()
        with RequestLog(int(made.api.url.rpartition(":")[2])) as log:
            config = made.kubeconfig.read_text()
            made.kubeconfig.write_text(config.replace(made.api.url, log.url))
            made.start_scheduler()
            made.start_nodes()
            made.wait_for_scheduler()
            made.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
            yield made, log


def files(cluster: FaultyCluster, name: str) -> Json:
    found = cluster.client.get(f"{PODS}/{name}")["metadata"]["annotations"]
    return {file: found[key] for file, key in ANNOTATIONS.items() if key in found}


def deletions(log: RequestLog) -> list[Request]:
    return [each for each in log.requests if (each.verb, each.resource) == ("delete", "pods")]


def annotated(log: RequestLog) -> list[Request]:
    return [each for each in log.requests if (each.verb, each.resource) == ("patch", "pods/status")]


def sized(cpu: str, raw: Json) -> Json:
    for task in raw["spec"]["tasks"]:
        [container] = task["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": cpu}}
    return raw


def test_they_are_told_with_the_rights_of_the_scheduler(
    box: tuple[FaultyCluster, RequestLog],
) -> None:
    cluster, log = box
    cpus = int(cluster.client.get("/api/v1/nodes/n0")["status"]["allocatable"]["cpu"])
    seat = f"{1000 * cpus // 4}m"
    cluster.create(JOBS, sized(seat, elastic(most=4, arguments=["--files"])))
    whole = {"generation": "2", "size": "4", "members": "0-3"}
    cluster.wait("four members", lambda: len(cluster.client.get(PODS)["items"]) == 4)
    cluster.wait("the first to know", lambda: files(cluster, "j-worker-0") == whole)
    assert files(cluster, "j-worker-3") == whole

    cluster.create(JOBS, sized(seat, job({"w": 2}, name="k")))
    cluster.wait("one to be told", lambda: "leaving" in files(cluster, "j-worker-3"))
    told = files(cluster, "j-worker-3")
    status = cluster.client.get(f"{JOBS}/j")["status"]["elastic"]["worker"]
    assert told.pop("leave-by") == status["leaveBy"]
    assert told == {"generation": "3", "size": "2", "members": "0-1", "leaving": "true"}
    assert not deletions(log)
    cluster.wait("those who need the seats", lambda: _runs(cluster, "k"))
    assert {each.name for each in deletions(log)} == {"j-worker-2", "j-worker-3"}
    stays = {"generation": "3", "size": "2", "members": "0-1"}
    cluster.wait("those who stay", lambda: files(cluster, "j-worker-1") == stays)

    # The first two may have been there when two others came.
    times = Counter(each.name for each in annotated(log))
    assert (times["j-worker-2"], times["j-worker-3"]) == (1, 1)
    assert max(times.values()) <= 2
    shipped = rules("ClusterRole", "lockstep-central")
    assert all(allowed(request, shipped) for request in annotated(log))
    assert not [each for each in log.requests if (each.verb, each.resource) == ("patch", "pods")]


def _runs(cluster: FaultyCluster, name: str) -> bool:
    status = cluster.client.get(f"{JOBS}/{name}").get("status") or {}
    return (status.get("state") or {}).get("phase") == "Running"
