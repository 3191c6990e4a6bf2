"""A watch that ends early loses no pod."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from central.kube.transport.http_client import Client, connect
from tests.benchmarks.pod_watch import PodWatch
from tests.central.kube.api_fixtures import PODS, pod
from tests.fakes.eventually import eventually
from tests.fakes.faulty_api import Fault, FaultyApi


class Refusals:
    """Refuses so many lists and watches, as an API server whose history begins later."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self, method: str, path: str) -> Fault | None:
        if method != "GET" or path != PODS or not self.left:
            return None
        self.left -= 1
        return Fault(status=410, body=b'{"kind":"Status","reason":"Expired","code":410}')


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture
def client(refusals: Refusals, tmp_path: Path) -> Iterator[Client]:
    with FaultyApi(faults=refusals) as api:
        api.write_kubeconfig(tmp_path / "kubeconfig")
        made = connect(str(tmp_path / "kubeconfig"))
        yield made
        made.close()


@pytest.fixture
def watch(client: Client) -> Iterator[PodWatch]:
    create(client, "before")
    made = PodWatch(client, PODS, 60)
    yield made
    made.close()


def create(client: Client, *names: str) -> None:
    for name in names:
        assert client.request("POST", PODS, orjson.dumps(pod(name))).ok


def test_pods_are_seen_as_they_come_and_end(client: Client, watch: PodWatch) -> None:
    create(client, "a", "b")
    eventually(lambda: set(watch.first) == {"a", "b"})
    assert watch.lists == 0
    status = orjson.dumps({"status": {"phase": "Succeeded"}})
    kind = "application/merge-patch+json"
    assert client.request("PATCH", f"{PODS}/b/status", status, kind).ok
    eventually(lambda: set(watch.ended) == {"b"})
    assert watch.first["a"] <= watch.first["b"] < watch.ended["b"]


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_pods_that_come_while_no_watch_is_open_are_seen(
    refused: int, client: Client, refusals: Refusals, watch: PodWatch
) -> None:
    create(client, "a")
    eventually(lambda: "a" in watch.first)
    refusals.left = refused
    watch._stream.close()
    create(client, "b")
    eventually(lambda: "b" in watch.first)
    eventually(lambda: not refusals.left)
    lists = watch.lists
    create(client, "c")
    eventually(lambda: "c" in watch.first)
    assert watch.lists - lists <= 1  # the watch goes on


def test_what_the_api_holds_is_counted_and_seen(client: Client, watch: PodWatch) -> None:
    """Even with a watch that shows nothing any more."""
    watch.close()
    create(client, "a", "b", "c")
    assert watch.count() == 3
    assert set(watch.first) == {"a", "b", "c"}
