"""1,000 Jobs of 10 pods created at once on 100 hollow nodes of a real API server: all Completed. Against
the same pods created barely by as many workers, and against their whole life without Jobs or a scheduler:
created, bound, started and ended, which takes four calls a pod whoever is in charge."""

import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from central.kube.write.executor import OBJECT_WORKERS
from tests.benchmarks import binding
from tests.benchmarks import plane as planes
from tests.benchmarks.plane import Plane
from tests.benchmarks.pod_watch import PodWatch
from tests.fakes.hollow_nodes import HollowNodes, bare_node

JOBS, PODS, NODES = 1000, 10, 100
SPACE = "/namespaces/default"
PODS_PATH = f"/api/v1{SPACE}/pods"
JOBS_PATH = f"/apis/batch.volcano.sh/v1alpha1{SPACE}/jobs"
SECONDS = 600
REQUESTS = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
NOT_OF_JOBS = ("pods", "leases", "nodes", "queues")


Changes = Counter[tuple[str, str]]  # by verb and resource


@dataclass(frozen=True)
class Run:
    created_per_s: float  # pods, from the first request to the last pod
    done_s: float = 0.0  # from the first request to the last end
    completed: int = 0
    calls: Changes = field(default_factory=Counter)  # that changed something, until then


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
    began = time.perf_counter()
    with ThreadPoolExecutor(OBJECT_WORKERS) as pool:
        list(pool.map(lambda number: _create_pod(plane, number), range(jobs * PODS)))
    took = time.perf_counter() - began
    _clear(plane)
    return Run(jobs * PODS / took)


def life(plane: Plane, folder: Path, jobs: int = JOBS) -> Run:
    """The same pods, each bound as soon as it is made, on nodes that start and end them."""
    with _nodes(plane, folder):
        pods = PodWatch(plane.client, PODS_PATH, SECONDS)
        before, began = _changes(plane), time.perf_counter()

        def go(number: int) -> None:
            _create_pod(plane, number)
            name, node = f"bare-{number}", f"hollow-{number // PODS % NODES}"
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            binding.post(plane.client, f"{PODS_PATH}/{name}/binding", bound | {"target": target})

        with ThreadPoolExecutor(OBJECT_WORKERS) as pool:
            list(pool.map(go, range(jobs * PODS)))
        deadline = time.monotonic() + SECONDS
        while len(pods.ended) < jobs * PODS and time.monotonic() < deadline:
            time.sleep(0.1)
        calls = _changes(plane) - before
        _all_seen(pods, jobs)
        done = max(pods.ended.values()) - began
        created = max(pods.first.values()) - began
        pods.close()
        _clear(plane)
    return Run(jobs * PODS / created, done, calls=calls)


def ours(plane: Plane, folder: Path, jobs: int = JOBS) -> Run:
    with _nodes(plane, folder), binding.centre(plane):
        _warm(plane)
        pods = PodWatch(plane.client, PODS_PATH, SECONDS)
        before, began = _changes(plane), time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            make = pool.map(lambda n: binding.post(plane.client, JOBS_PATH, job(n)), range(jobs))
            list(make)
        deadline = time.monotonic() + SECONDS
        completed = sum(_ends(plane, f"j{number}", deadline) for number in range(jobs))
        done = time.perf_counter() - began
        calls = _changes(plane) - before
        _all_seen(pods, jobs)
        created = max(pods.first.values()) - began
        pods.close()
    return Run(len(pods.first) / created, done, completed, calls)


def _all_seen(pods: PodWatch, jobs: int) -> None:
    """The rate counts what the API holds, however often the watch ended."""
    if (held := pods.count()) != jobs * PODS:
        raise SystemExit(f"the API holds {held} of {jobs * PODS} pods")


@contextmanager
def _nodes(plane: Plane, folder: Path) -> Iterator[None]:
    stock = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    nodes = [bare_node(f"hollow-{number}", gpus=0, capacity=stock) for number in range(NODES)]
    with HollowNodes(plane.client, nodes, folder, bare_workers=16):
        yield


def _create_pod(plane: Plane, number: int) -> None:
    pod = template(1)
    pod["metadata"] = {**pod["metadata"], "name": f"bare-{number}"}
    pod["spec"]["schedulerName"] = "nobody"
    binding.post(plane.client, PODS_PATH, pod)


def _clear(plane: Plane) -> None:
    plane.client.request("DELETE", PODS_PATH + "?gracePeriodSeconds=0", timeout_s=300)
    while plane.client.get(PODS_PATH + "?limit=1")["items"]:
        time.sleep(0.1)


def _ends(plane: Plane, name: str, deadline: float) -> bool:
    """Asked one by one: a list of all would cost the API server a part of what is measured."""
    while _phase(plane.client.get(f"{JOBS_PATH}/{name}")) != "Completed":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _changes(plane: Plane) -> Changes:
    """How many calls have changed something, as the API server itself counts."""
    told = plane.client.request("GET", "/metrics", timeout_s=30).body.decode()
    found: Changes = Counter()
    for text, count in REQUESTS.findall(told):
        labels = dict(LABEL.findall(text))
        if labels.get("verb") in CHANGING:
            parts = filter(None, (labels.get("resource", ""), labels.get("subresource", "")))
            found[labels["verb"], "/".join(parts)] += int(float(count))
    return found


def _beyond_pods(calls: Changes) -> Changes:
    """Without what pods need anyhow, and what does not grow with the Jobs."""
    kept = {key: n for key, n in calls.items() if key[1].split("/")[0] not in NOT_OF_JOBS}
    return Counter(kept)


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
        say(f"{jobs * PODS:,} pods created, bound, started and ended barely")
        lives = life(made, Path(folder), jobs)
        say(f"{jobs:,} Jobs of {PODS} pods, until all are Completed")
        run = ours(made, Path(folder), jobs)
    beyond = _beyond_pods(run.calls)
    return [
        (f"(f) of {jobs:,} Jobs of {PODS} pods, Completed", run.completed, "", f"{jobs}"),
        ("    their pods' life, barely / as Jobs", lives.done_s / run.done_s, "x", ""),
        ("    the same as Jobs", run.done_s, "s", ""),
        ("    changes to the API, for each Job", run.calls.total() / jobs, "calls", ""),
        ("    of these without Jobs", lives.calls.total() / jobs, "calls", ""),
        ("    beyond its pods and itself", (beyond.total() - jobs) / jobs, "calls", "<= 4"),
        *(
            (f"        {verb} {resource}", count / jobs, "calls", "")
            for (verb, resource), count in sorted(beyond.items())
        ),
        ("    their pods / bare pod creation", run.created_per_s / first.created_per_s, "x", ""),
        ("    pods created for Jobs", run.created_per_s, "pods/s", ""),
        ("    bare pod creation, as many workers", first.created_per_s, "pods/s", ""),
    ]


if __name__ == "__main__":
    for row in rows(print, int(sys.argv[1]) if len(sys.argv) > 1 else JOBS):
        print(*row)
