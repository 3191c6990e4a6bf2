"""1,000 Jobs of 10 pods created at once on 100 hollow nodes of a real API server: all Completed, and
how fast their pods come to be, against the same pods created barely by as many workers."""

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from central.kube.client import Client, Refused, Unreachable
from central.kube.effects import MAKERS
from central.standalone.hollow import HollowNodes
from central.standalone.hollownode import HollowNode
from tests.benchmarks import binding
from tests.benchmarks import plane as planes
from tests.benchmarks.plane import Plane

JOBS, PODS, NODES = 1000, 10, 100
SPACE = "/namespaces/default"
PODS_PATH = f"/api/v1{SPACE}/pods"
JOBS_PATH = f"/apis/batch.volcano.sh/v1alpha1{SPACE}/jobs"
SECONDS = 600


@dataclass(frozen=True)
class Run:
    created_per_s: float  # pods, from the first request to the last pod
    done_s: float = 0.0  # from the first Job to the last that is Completed
    phases: tuple[tuple[str, int], ...] = ()


class Watch:
    """When each object of a kind was first seen."""

    def __init__(self, client: Client, path: str) -> None:
        version = client.get(path + "?limit=1")["metadata"]["resourceVersion"]
        self._stream = client.stream(
            f"{path}?watch=1&resourceVersion={version}&timeoutSeconds={SECONDS}", SECONDS
        )
        self.first: dict[str, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._stream:
                found = orjson.loads(line)["object"]
                name = found["metadata"].get("name", "")
                self.first.setdefault(name, time.perf_counter())
        except (Unreachable, Refused):
            pass

    def close(self) -> None:
        self._stream.close()


def template(runs_s: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    container = {"name": "main", "image": "x", "resources": resources}
    told = {"lockstep.dev/runs-for": f"{runs_s}s"}
    spec = {"schedulerName": "lockstep", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": told}, "spec": spec}


def job(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"j{number}"},
        "spec": {
            "minAvailable": PODS,
            "schedulerName": "lockstep",
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [{"name": "w", "replicas": PODS, "template": template(1)}],
        },
    }


def bare(plane: Plane, jobs: int = JOBS) -> Run:
    """The pods of as many Jobs, straight to the API server, whom nobody schedules."""

    def create(number: int) -> None:
        pod = template(1)
        pod["metadata"] = {**pod["metadata"], "name": f"bare-{number}"}
        pod["spec"]["schedulerName"] = "nobody"
        reply = plane.client.request("POST", PODS_PATH, orjson.dumps(pod))
        if not reply.ok:
            raise SystemExit(f"{PODS_PATH}: {reply.body[:200]!r}")

    began = time.perf_counter()
    with ThreadPoolExecutor(MAKERS) as pool:
        list(pool.map(create, range(jobs * PODS)))
    took = time.perf_counter() - began
    plane.client.request("DELETE", PODS_PATH + "?gracePeriodSeconds=0", timeout_s=300)
    return Run(jobs * PODS / took)


def ours(plane: Plane, folder: Path, jobs: int = JOBS) -> Run:
    stock = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    nodes = [HollowNode(f"hollow-{number}", gpus=0, capacity=stock) for number in range(NODES)]
    with HollowNodes(plane.client, nodes, folder, bare_workers=16), binding.centre(plane):
        _warm(plane)
        pods = Watch(plane.client, PODS_PATH)
        began = time.perf_counter()

        def create(number: int) -> None:
            reply = plane.client.request("POST", JOBS_PATH, orjson.dumps(job(number)))
            if not reply.ok:
                raise SystemExit(f"{JOBS_PATH}: {reply.body[:200]!r}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(jobs)))
        deadline = time.monotonic() + SECONDS
        phases: Counter[str] = Counter()
        while phases["Completed"] < jobs and time.monotonic() < deadline:
            time.sleep(2)  # a watch that falls behind is cut off: asked instead
            phases = Counter(map(_phase, plane.client.get(JOBS_PATH)["items"]))
            phases["Completed"] -= 1  # the first, which warmed up
        done = time.perf_counter() - began
        created = max(pods.first.values()) - began
        pods.close()
    return Run(len(pods.first) / created, done, tuple(sorted(phases.items())))


def _warm(plane: Plane) -> None:
    """The centre has listed everything, and decides."""
    body = job(0)
    body["metadata"]["name"] = "first"
    plane.client.request("POST", JOBS_PATH, orjson.dumps(body))
    deadline = time.monotonic() + 60
    while _phase(plane.client.get(f"{JOBS_PATH}/first")) != "Completed":
        if time.monotonic() > deadline:
            raise SystemExit("the first Job does not complete")
        time.sleep(0.2)


def _phase(found: Any) -> str:
    return str(((found.get("status") or {}).get("state") or {}).get("phase") or "")


def rows(say: Callable[[str], None], jobs: int = JOBS) -> list[tuple[str, float, str, str]]:
    with planes.running() as made, tempfile.TemporaryDirectory() as folder:
        binding.crds(made)
        say(f"{jobs * PODS:,} pods created barely")
        first = bare(made, jobs)
        say(f"{jobs:,} Jobs of {PODS} pods, until all are Completed")
        run = ours(made, Path(folder), jobs)
    completed = dict(run.phases).get("Completed", 0)
    return [
        (f"(f) of {jobs:,} Jobs of {PODS} pods, Completed", completed, "", f"{jobs}"),
        ("    their pods / bare pod creation", run.created_per_s / first.created_per_s, "x", ""),
        ("    pods created for Jobs", run.created_per_s, "pods/s", ""),
        ("    bare pod creation, as many workers", first.created_per_s, "pods/s", ""),
        ("    from the first Job to the last end", run.done_s, "s", ""),
    ]


if __name__ == "__main__":
    for row in rows(print, int(sys.argv[1]) if len(sys.argv) > 1 else JOBS):
        print(*row)
