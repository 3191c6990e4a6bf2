"""Two centres, processes both, on one API: one decides and the other stands by, whatever happens to the
first; and every pod is bound once."""

import signal
import socket
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
from protos.names import GPU, NAMESPACE
from tests.fakes.eventually import eventually

PODS = "/api/v1/namespaces/default/pods"
OWN = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/lockstep-central"
LEASE_S = 3
NODES = 10


class World:
    def __init__(self, client: Client, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.centres: dict[str, subprocess.Popen[bytes]] = {}

    def create(self, path: str, body: dict[str, Any]) -> None:
        reply = self.client.request("POST", path, orjson.dumps(body))
        assert reply.ok, reply.body

    def start(self, name: str, *more: str) -> None:
        container = {"name": "central", "image": "x"}
        spec = {"containers": [container], "schedulerName": "other"}
        self.create(OWN, {"metadata": {"name": name}, "spec": spec})
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        argv = [sys.executable, "-m", "central", "central", "--leader-elect", "--agents-wait=0"]
        argv += [f"--pod-name={name}", f"--lease-duration={LEASE_S}", *more]
        argv += [f"--kubeconfig={self.folder / 'kubeconfig'}", f"--listen=127.0.0.1:{port}"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.centres[name] = subprocess.Popen(argv, stdout=log, stderr=log)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def leader(self) -> str:
        """Whom the Service leads to, if that is who has the Lease."""
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
        for process in made.centres.values():
            process.kill()
            process.wait()
        client.close()


def test_the_other_takes_over_and_nothing_is_bound_twice(world: World) -> None:
    """The first is killed in the middle of its work, the second asked to go; the third finishes."""
    moved: Counter[str] = Counter()  # by pod: how often its node changed
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
        eventually(lambda: world.leader() == "a", 20)
        world.start("b")
        eventually(lambda: "standing by" in world.said("b"), 20)
        for number in range(10):
            world.submit(f"g{number}", 2)
        eventually(lambda: len(world.bound()) >= 4, 10)
        world.centres["a"].kill()  # no word to anybody, calls on the wire
        for number in range(10, 20):
            world.submit(f"g{number}", 2)
        eventually(lambda: world.leader() == "b", 20)
        eventually(lambda: len(world.bound()) == 40, 20)

        world.start("c")
        eventually(lambda: "standing by" in world.said("c"), 20)
        world.centres["b"].send_signal(signal.SIGTERM)
        assert world.centres["b"].wait(10) == 0
        world.submit("last", 8)
        eventually(lambda: world.leader() == "c", 20)
        eventually(lambda: len(world.bound()) == 48, 20)
    finally:
        ending.set()
        looker.join()
    assert not moved
    assert max(Counter(world.bound().values()).values()) <= 8, "a GPU was given twice"
    assert world.client.get(LEASE)["spec"]["leaseTransitions"] == 3
    assert "Traceback" not in "".join(world.said(name) for name in "abc")


def test_whoever_loses_the_lease_ends_and_binds_no_more(world: World) -> None:
    world.start("a", "--metrics-listen=127.0.0.1:0")
    eventually(lambda: world.leader() == "a", 20)
    taken = world.client.get(LEASE)
    taken["spec"] |= {"holderIdentity": "thief", "leaseDurationSeconds": 3600}
    reply = world.client.request("PUT", LEASE, orjson.dumps(taken))
    assert reply.ok
    assert world.centres["a"].wait(10) == 1
    assert "the lease is lost: thief has it" in world.said("a")
    world.submit("g", 2)
    assert not world.bound()
