"""A real scheduler process whose watches go wrong: the API server comes back with an older etcd, has lost the history,
or brings nothing any more. What the process has missed, it knows in time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import pytest

from central.kube.transport.http_client import Client, connect
from central.model.json_types import Json
from tests.fakes.cable import Cable
from tests.fakes.faulty_api import FaultyApi
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = pytest.mark.slow

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
WITHIN_S = 60.0
NOTICED_S = 90.0  # where bookmarks come each minute; else it takes 327 s
LATE_S = 40.0  # to list again, on a machine that is busy
BOOKMARK_S = 10.0  # of the standalone API


def node(name: str, cpu: int = 4) -> Json:
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    return {"metadata": {"name": name}, "status": status}


def pod(name: str, cpu: int) -> Json:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"schedulerName": "lockstep", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def home(client: Client, name: str) -> str:
    return str(client.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))


def create(client: Client, path: str, obj: Json) -> None:
    reply = client.request("POST", path, orjson.dumps(obj))
    assert reply.ok, reply.error()


def delete(client: Client, name: str) -> None:
    """At once, as no kubelet is there to end it."""
    assert client.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0").ok


def version(client: Client) -> int:
    return int(client.get(PODS)["metadata"]["resourceVersion"])


@contextmanager
def cabled() -> Iterator[tuple[FaultyCluster, Cable]]:
    """A node whose CPUs pod "first" has, and a scheduler that reaches the API server through the cable."""
    with FaultyCluster([]) as box:
        box.start_api()
        with Cable(int(box.api.url.rpartition(":")[2])) as cable:
            box.kubeconfig.write_text(box.kubeconfig.read_text().replace(box.api.url, cable.url))
            box.create(NODES, node("n0"))
            box.start_scheduler()
            box.wait_for_scheduler()
            box.create(PODS, pod("first", 4))
            box.wait("the first pod", lambda: home(box.client, "first"), WITHIN_S)
            yield box, cable


def test_an_etcd_that_was_restored_from_a_backup() -> None:
    """The backup knows nothing of the pod that fills the node, and has another one. No event tells that ever: the
    versions that the process knows are yet to come."""
    with cabled() as (box, cable), FaultyApi() as restored:
        client = connect(str(restored.write_kubeconfig(box.directory / "restored")))
        create(client, NODES, node("n0"))
        create(client, PODS, pod("second", 4))
        for number in range(30):
            create(box.client, PODS, pod(f"lost-{number}", 4))
        assert version(client) + 10 < version(box.client)
        cable.pull()
        cable.freeze(to=int(restored.url.rpartition(":")[2]))
        cable.plug()
        box.wait("the second pod", lambda: home(client, "second"), WITHIN_S)
        delete(client, "second")
        create(client, PODS, pod("third", 4))
        box.wait("the third pod", lambda: home(client, "third"), WITHIN_S)
        client.close()


def test_a_history_that_was_lost() -> None:
    """What happens while the process is cut off is not in the history any more: 410 Expired."""
    with cabled() as (box, cable):
        cable.pull()
        delete(box.client, "first")
        box.api.forget_history("", "pods")
        box.create(PODS, pod("second", 4))
        cable.plug()
        box.wait("the second pod", lambda: home(box.client, "second"), WITHIN_S)


@pytest.mark.nightly  # two minutes; tests/simulation/test_silent_watch.py has it in virtual time
def test_watches_that_stall_without_a_word() -> None:
    """Open connections stay open and bring nothing, not even an end; new ones work."""
    with cabled() as (box, cable):
        threading.Event().wait(2.5 * BOOKMARK_S)  # so that bookmarks are known to come
        cable.freeze()
        delete(box.client, "first")
        box.create(PODS, pod("second", 4))
        box.wait("the second pod", lambda: home(box.client, "second"), NOTICED_S + LATE_S)
