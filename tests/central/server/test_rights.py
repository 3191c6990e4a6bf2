"""The requests of a real scheduler, held against the roles that the manifests ship: with Jobs in all namespaces, and
with --namespaces, where the Job controller's role is bound in those alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protos.names import NAMESPACE
from tests.central.controllers.job.job_api import job
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node
from tests.fakes.request_log import Request, RequestLog
from tests.manifests.manifests import one

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Json = dict[str, Any]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
PLUGINS: Json = {"svc": [], "ssh": [], "env": []}


@contextmanager
def cluster(folder: Path, *flags: str) -> Iterator[tuple[FaultyCluster, RequestLog]]:
    """Whose scheduler asks the API server through the log."""
    with FaultyCluster([bare_node("n0", gpus=0)], flags=flags) as made:
        made.start_api()
        with RequestLog(int(made.api.url.rpartition(":")[2])) as log:
            config = made.kubeconfig.read_text()
            made.kubeconfig.write_text(config.replace(made.api.url, log.url))
            made.start_scheduler()
            made.start_nodes()
            made.wait_for_scheduler()
            for namespace in ("ns", "other"):
                made.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            yield made, log


def phase(box: FaultyCluster, namespace: str, name: str) -> str:
    found = box.client.get(f"{JOBS.format(namespace)}/{name}").get("status") or {}
    return str((found.get("state") or {}).get("phase") or "")


def run_jobs(box: FaultyCluster, namespace: str) -> None:
    """One that runs, one that ends and is deleted, one that starts again."""
    jobs = JOBS.format(namespace)
    short = job({"w": 1}, name="short", ttlSecondsAfterFinished=1, plugins=PLUGINS)
    short["spec"]["tasks"][0]["template"]["metadata"] = {
        "annotations": {"lockstep.dev/runs-for": "1s"}
    }
    box.create(jobs, short)
    box.create(jobs, job({"w": 2}, "PodEvicted RestartJob", name="long", plugins=PLUGINS))
    box.wait("long to run", lambda: phase(box, namespace, "long") == "Running")
    box.client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/long-w-0")
    box.wait("short to go", lambda: box.client.request("GET", f"{jobs}/short").status == 404)
    box.wait("long to run again", lambda: phase(box, namespace, "long") == "Running")


def is_public(request: Request) -> bool:
    """Discovery and the version, which Kubernetes allows to all users (system:discovery, system:public-info-viewer)."""
    return request.verb == "get" and request.resource.startswith(("/apis/", "/version"))


def rules(kind: str, name: str) -> list[Json]:
    found: list[Json] = one(kind, name)["rules"]
    return found


def allowed(request: Request, granted: list[Json]) -> bool:
    return any(
        request.group in rule["apiGroups"]
        and request.resource in rule["resources"]
        and request.verb in rule["verbs"]
        and (not rule.get("resourceNames") or request.name in rule["resourceNames"])
        for rule in granted
    )


def forbidden(log: RequestLog, job_namespaces: tuple[str, ...] | None) -> set[str]:
    """Requests that no role allows. job_namespaces None: the Job controller's role is bound in all."""
    everywhere, jobs = (
        rules("ClusterRole", "lockstep-central"),
        rules("ClusterRole", "lockstep-jobs"),
    )
    own = rules("Role", "lockstep-central")
    return {
        str(request)
        for request in log.requests
        if not (
            is_public(request)
            or allowed(request, everywhere)
            or (
                (job_namespaces is None or request.namespace in job_namespaces)
                and allowed(request, jobs)
            )
            or (request.namespace == NAMESPACE and allowed(request, own))
        )
    }


def test_jobs_in_all_namespaces(tmp_path: Path) -> None:
    with cluster(tmp_path) as (box, log):
        run_jobs(box, "ns")
        assert forbidden(log, None) == set()
        assert forbidden(log, ()) != set(), "without the role of the Job controller"
        made = {(each.verb, each.resource) for each in log.requests}
        expected = {
            ("create", "pods"),
            ("create", "secrets"),
            ("delete", "pods"),
            ("watch", "jobs"),
        }
        assert expected <= made


def test_jobs_in_some_namespaces(tmp_path: Path) -> None:
    """Elsewhere a Job is left alone, and nothing is asked about it."""
    with cluster(tmp_path, "--namespaces=ns,not-there") as (box, log):
        alone = job({"w": 1}, name="alone")
        alone["metadata"]["namespace"] = "other"
        box.create(JOBS.format("other"), alone)
        run_jobs(box, "ns")
        assert phase(box, "other", "alone") == ""
        assert forbidden(log, ("ns", "not-there")) == set()
        pods = box.client.get("/api/v1/namespaces/other/pods")["items"]
        assert pods == []
        touched = {(each.verb, each.resource) for each in log.requests if each.namespace == "other"}
        assert touched == set()
