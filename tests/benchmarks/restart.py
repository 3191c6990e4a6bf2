"""How long a centre that starts takes to its first binding, and how much memory, on a cluster of 5,000
nodes with 40,000 pods: a real API server that holds them all, and one pod that waits."""

import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from central.kube.transport.http_client import Client
from tests.benchmarks.binding import PODS_PATH, post
from tests.benchmarks.plane import Plane, free_port
from tests.e2e.cluster.settings import ROOT

NODES, PODS = 5000, 40_000


def rows(plane: Plane, say: Callable[[str], None]) -> list[tuple[str, float, str, str]]:
    say(f"creating {NODES} nodes and {PODS} pods")
    fill(plane.client, NODES, PODS)
    say("a centre starts there")
    spent, mib = first_binding(plane)
    where = f"{NODES} nodes, {PODS:,} pods"
    return [
        (f"(e) start to first binding, {where}", spent, "s", "<= 10 s"),
        ("    resident memory by then", mib, "MiB", "<= 1,024 MiB"),
    ]


def fill(client: Client, nodes: int, pods: int) -> None:
    stock = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "9"}
    ready = [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}]

    def node(number: int) -> None:
        labels = {
            "lockstep.dev/rack": f"r{number // 16}",
            "lockstep.dev/block": f"b{number // 256}",
        }
        meta = {"name": f"big-{number:04}", "labels": labels}
        status = {"capacity": stock, "allocatable": stock, "conditions": ready}
        kind = {"apiVersion": "v1", "kind": "Node"}
        post(client, "/api/v1/nodes", {**kind, "metadata": meta, "status": status})

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(node, range(nodes)))
        list(pool.map(lambda n: pod(client, f"r{n}", f"big-{n % nodes:04}"), range(pods)))


def pod(client: Client, name: str, node: str = "") -> None:
    resources = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "x", "resources": {"limits": resources}}
    spec = {"schedulerName": "lockstep", "containers": [container]}
    if node:
        spec["nodeName"] = node
    kind = {"apiVersion": "v1", "kind": "Pod"}
    post(client, PODS_PATH, {**kind, "metadata": {"name": name}, "spec": spec})


def first_binding(plane: Plane) -> tuple[float, float]:
    """Seconds from the start of the process, and MiB."""
    pod(plane.client, "waits")
    argv = [sys.executable, "-m", "central", "central", f"--kubeconfig={plane.kubeconfig}"]
    argv += [f"--tls-dir={plane.folder / 'tls'}", f"--listen=127.0.0.1:{free_port()}"]
    argv += ["--agents-wait=0", "--log-level=warning"]
    began = time.perf_counter()
    process = subprocess.Popen(argv, cwd=ROOT)
    try:
        while not plane.client.get(f"{PODS_PATH}/waits")["spec"].get("nodeName"):
            if time.perf_counter() - began > 120 or process.poll() is not None:
                raise SystemExit("the centre bound nothing in 120 s")
            time.sleep(0.05)
        spent = time.perf_counter() - began
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        return spent, int(resident[1]) / 1024 if resident else 0.0
    finally:
        process.terminate()
        process.wait()
