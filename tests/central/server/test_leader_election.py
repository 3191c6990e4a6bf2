"""Replicas of the scheduler as processes on one API server: one decides and another stands by, whatever
happens to the leader, and every pod is bound once."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Client, connect
from central.standalone.apiserver import StandaloneApi
from central.standalone.local_cluster import free_port
from protos.names import GPU, NAMESPACE
from tests.fakes.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
OWN = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/lockstep-central"
LEASE_S = 6  # on a busy machine, too
NODES = 10
PATIENCE_S = 150.0  # a program that starts on a busy machine


class World:
    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.replicas: dict[str, subprocess.Popen[bytes]] = {}

    def create(self, path: str, body: dict[str, Any]) -> None:
        reply = self.client.request("POST", path, orjson.dumps(body))
        assert reply.ok, reply.body

    def start(self, name: str, *more: str) -> None:
        container = {"name": "central", "image": "x"}
        spec = {"containers": [container], "schedulerName": "other"}
        self.create(OWN, {"metadata": {"name": name}, "spec": spec})
        argv = [sys.executable, "-m", "central", "central", "--leader-elect", "--agents-wait=0"]
        argv += [f"--pod-name={name}", f"--lease-duration={LEASE_S}", *more]
        argv += [f"--kubeconfig={self.folder / 'kubeconfig'}", f"--listen=127.0.0.1:{free_port()}"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.replicas[name] = subprocess.Popen(argv, stdout=log, stderr=log)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def leader(self) -> str:
        """The pod that the Service routes to, if it also holds the Lease."""
        found = self.client.get(f"{OWN}?labelSelector=lockstep.dev/leads%3Dtrue")["items"]
        marked = [each["metadata"]["name"] for each in found]
        reply = self.client.request("GET", LEASE)
        holder = reply.json()["spec"]["holderIdentity"] if reply.ok else ""
        return marked[0] if marked == [holder.rpartition("_")[0]] else ""

    def submit(self, gang: str, pods: int) -> None:
        for rank in range(pods):
            limits = {GPU: "1", "cpu": "1"}
            container = {"name": "main", "image": "x", "resources": {"limits": limits}}
            meta = {
                "name": f"{gang}-{rank}",
                "labels": {"lockstep.dev/gang": gang},
                "annotations": {"lockstep.dev/gang-min": str(pods)},
            }
            spec = {"schedulerName": "lockstep", "containers": [container]}
            self.create(PODS, {"metadata": meta, "spec": spec})

    def bound(self) -> dict[str, str]:
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in self.client.get(PODS)["items"]
            if pod["spec"].get("nodeName")
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with StandaloneApi() as api:
        api.write_kubeconfig(tmp_path / "kubeconfig")
        client = connect(str(tmp_path / "kubeconfig"))
        made = World(client, tmp_path)
        made.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        stock = {GPU: "8", "cpu": "64", "memory": "64Gi", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": stock, "allocatable": stock, "conditions": ready}
        for number in range(NODES):
            made.create("/api/v1/nodes", {"metadata": {"name": f"n{number}"}, "status": status})
        yield made
        for process in made.replicas.values():
            process.kill()
            process.wait()
        client.close()


def test_a_standby_takes_over_and_nothing_is_bound_twice(world: World) -> None:
    """The first leader is killed at work, the second is stopped, the third finishes."""
    moved: Counter[str] = Counter()  # by pod uid: how often its node changed
    before: dict[str, str] = {}
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(0.02):
            now = world.bound()
            moved.update(uid for uid, node in before.items() if now.get(uid) != node)
            before.update(now)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        world.start("a")
        eventually(lambda: world.leader() == "a", PATIENCE_S)
        world.start("b")
        eventually(lambda: "standing by" in world.log("b"), PATIENCE_S)
        for number in range(10):
            world.submit(f"g{number}", 2)
        eventually(lambda: len(world.bound()) >= 4, PATIENCE_S)
        world.replicas["a"].kill()  # without a release, with calls in flight
        for number in range(10, 20):
            world.submit(f"g{number}", 2)
        eventually(lambda: world.leader() == "b", PATIENCE_S)
        eventually(lambda: len(world.bound()) == 40, PATIENCE_S)

        world.start("c")
        eventually(lambda: "standing by" in world.log("c"), PATIENCE_S)
        world.replicas["b"].send_signal(signal.SIGTERM)
        assert world.replicas["b"].wait(60) == 0
        world.submit("last", 8)
        eventually(lambda: world.leader() == "c", PATIENCE_S)
        eventually(lambda: len(world.bound()) == 48, PATIENCE_S)
    finally:
        ending.set()
        looker.join()
    assert not moved
    assert max(Counter(world.bound().values()).values()) <= 8, "a GPU was given twice"
    assert world.client.get(LEASE)["spec"]["leaseTransitions"] == 3
    assert "Traceback" not in "".join(world.log(name) for name in "abc")


def test_a_leader_that_loses_the_lease_exits_and_binds_no_more(world: World) -> None:
    world.start("a", "--metrics-listen=127.0.0.1:0")
    eventually(lambda: world.leader() == "a", PATIENCE_S)
    taken = world.client.get(LEASE)
    taken["spec"] |= {"holderIdentity": "thief", "leaseDurationSeconds": 3600}
    reply = world.client.request("PUT", LEASE, orjson.dumps(taken))
    assert reply.ok
    assert world.replicas["a"].wait(60) == 1
    assert "lost the lease: thief holds it" in world.log("a")
    world.submit("g", 2)
    assert not world.bound()
