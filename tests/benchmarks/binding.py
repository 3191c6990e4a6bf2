"""How fast 2,000 pods are bound on 1,000 nodes of a real API server: by bare Binding calls, by the
centre as gangs of 8, by kube-scheduler one by one. Rates are pods per second from the first binding
to the last, as a watch sees them, so start-up and the creation of the pods stay out of it."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from central.kube.transport.http_client import Client, Unreachable
from tests.benchmarks.plane import Plane, free_port
from tests.e2e.cluster.settings import ROOT, program

NODES, PODS, GANG, WORKERS = 1000, 2000, 8, 32
PODS_PATH = "/api/v1/namespaces/default/pods"
GROUPS_PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
CRD = ROOT / "daemonset" / "crds"


@dataclass(frozen=True)
class Run:
    pods_per_s: float
    cpu_s: float  # of the binder's own process
    server_cpu_s: float  # of etcd and the API server meanwhile


class Watch:
    """Counts pods as they are bound."""

    def __init__(self, client: Client) -> None:
        version = client.get(PODS_PATH + "?limit=1")["metadata"]["resourceVersion"]
        path = f"{PODS_PATH}?watch=1&resourceVersion={version}&timeoutSeconds=600"
        self._stream = client.stream(path, 600.0)
        self.bound: dict[str, float] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._stream:
                pod = orjson.loads(line)["object"]
                if pod["spec"].get("nodeName"):
                    self.bound.setdefault(pod["metadata"]["uid"], time.perf_counter())
        except Unreachable:
            pass

    def rate(self, seconds: float, alive: Callable[[], bool]) -> float:
        deadline = time.monotonic() + seconds
        while len(self.bound) < PODS:
            if time.monotonic() > deadline or not alive():
                raise SystemExit(f"only {len(self.bound)} of {PODS} pods were bound")
            time.sleep(0.02)
        self._stream.close()
        times = sorted(self.bound.values())
        return (PODS - 1) / (times[-1] - times[0])


def crds(plane: Plane) -> None:
    client = plane.client
    for crd in sorted(CRD.glob("*.yaml")):
        import yaml

        for document in yaml.safe_load_all(crd.read_text()):
            post(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)
            names = document["spec"]["names"]["plural"]
            version = document["spec"]["versions"][0]["name"]
            path = f"/apis/{document['spec']['group']}/{version}/{names}"
            deadline = time.monotonic() + 30
            while client.request("GET", path).status != 200 and time.monotonic() < deadline:
                time.sleep(0.1)


def furnish(plane: Plane) -> None:
    """Nodes in 16-node racks, 8 GPUs each."""
    client = plane.client
    crds(plane)
    stock = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    ready = [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}]

    def node(number: int) -> None:
        labels = {
            "lockstep.dev/rack": f"r{number // 16}",
            "lockstep.dev/block": f"b{number // 256}",
        }
        post(
            client,
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{number:04}", "labels": labels},
                "status": {"capacity": stock, "allocatable": stock, "conditions": ready},
            },
        )

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(node, range(NODES)))


def pods(plane: Plane, scheduler: str, gangs: bool) -> None:
    """Removes what is there and creates 2,000 pods of 2 GPUs."""
    client = plane.client
    client.request("DELETE", PODS_PATH + "?gracePeriodSeconds=0", timeout_s=120)
    client.request("DELETE", GROUPS_PATH, timeout_s=60)
    while client.get(PODS_PATH + "?limit=1")["items"]:
        time.sleep(0.1)

    def gang(number: int) -> None:
        group = {"metadata": {"name": f"g{number}"}, "spec": {"minMember": GANG}}
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        post(client, GROUPS_PATH, kind | group)

    def pod(number: int) -> None:
        resources = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
        container = {"name": "main", "image": "x", "resources": {"limits": resources}}
        name = {"scheduling.k8s.io/group-name": f"g{number // GANG}"} if gangs else {}
        post(
            client,
            PODS_PATH,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "annotations": name},
                "spec": {"schedulerName": scheduler, "containers": [container]},
            },
        )

    with ThreadPoolExecutor(16) as pool:
        if gangs:
            list(pool.map(gang, range(PODS // GANG)))
        list(pool.map(pod, range(PODS)))


def bare(plane: Plane) -> Run:
    pods(plane, "nobody", gangs=False)
    argv = [sys.executable, "-m", "tests.benchmarks.bare", str(plane.kubeconfig), str(WORKERS)]
    return _timed(plane, argv, ends=True)


def ours(plane: Plane) -> Run:
    pods(plane, "lockstep", gangs=True)
    return _timed(plane, centre_argv(plane))


def centre_argv(plane: Plane) -> list[str]:
    argv = [sys.executable, "-m", "central", "central", f"--kubeconfig={plane.kubeconfig}"]
    argv += [f"--tls-dir={plane.folder / 'tls'}", f"--listen=127.0.0.1:{free_port()}"]
    return [*argv, f"--workers={WORKERS}", "--agents-wait=0", "--log-level=warning"]


@contextmanager
def centre(plane: Plane) -> Iterator[subprocess.Popen[bytes]]:
    with (plane.folder / "centre.log").open("wb") as log:
        process = subprocess.Popen(centre_argv(plane), stdout=log, stderr=log, cwd=ROOT)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def theirs(plane: Plane) -> Run:
    pods(plane, "default-scheduler", gangs=False)
    configuration = plane.folder / "scheduler.json"
    limits = {"kubeconfig": str(plane.kubeconfig), "qps": 1e6, "burst": 1000000}
    for version in ("v1", "v1beta3", "v1beta1"):  # the newest that this build takes
        configuration.write_text(
            json.dumps(
                {
                    "apiVersion": f"kubescheduler.config.k8s.io/{version}",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "clientConnection": limits,
                }
            )
        )
        argv = [str(program("kube-scheduler")), f"--config={configuration}"]
        argv += [f"--secure-port={free_port()}", f"--cert-dir={plane.folder / 'scheduler'}"]
        argv += [f"--authentication-kubeconfig={plane.kubeconfig}"]
        argv += [f"--authorization-kubeconfig={plane.kubeconfig}"]
        probe = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            probe.wait(1.0)
        except subprocess.TimeoutExpired:
            probe.kill()
            probe.wait()
            if version != "v1":
                pods(plane, "default-scheduler", gangs=False)
            break
    pods(plane, "default-scheduler", gangs=False)
    return _timed(plane, argv)


def _timed(plane: Plane, argv: list[str], *, ends: bool = False) -> Run:
    watch = Watch(plane.client)
    before = _server_cpu()
    with (plane.folder / "binder.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)
        try:
            alive = (lambda: True) if ends else (lambda: process.poll() is None)
            rate = watch.rate(300, alive)
            if ends:
                return Run(rate, 0.0, _server_cpu() - before)
            return Run(rate, _cpu(process.pid), _server_cpu() - before)
        finally:
            process.terminate()
            process.wait()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _server_cpu() -> float:
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().partition("(")[2].startswith(("kube-apiserver)", "etcd)")):
                total += _cpu(int(stat.parent.name))
        except (OSError, IndexError):
            continue
    return total


def post(client: Client, path: str, body: object) -> None:
    reply = client.request("POST", path, orjson.dumps(body), timeout_s=30)
    if not reply.ok and reply.status != 409:
        raise SystemExit(f"{path}: {reply.body[:300]!r}")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """One line on a terminal that says what is being measured."""
    shown = sys.stderr.isatty()
    steps = itertools.count(1)

    def say(text: str) -> None:
        if shown:
            print(f"\r\x1b[K[{next(steps)}] {text} ...", end="", file=sys.stderr, flush=True)

    yield say
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)
