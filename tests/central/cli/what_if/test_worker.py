"""The process behind the console's what-if, as the console starts it: real processes beside an API server in memory."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from central.kube.transport.http_client import Client
from tests.central.cli.what_if.test_what_if import NOBODY, Put, node, put_old_and_new
from tests.fakes.quiet_server import QuietServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Json = dict[str, Any]


@contextmanager
def started(api: Json, change: Json, memory_mib: int = 1024) -> Iterator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-m", "central.cli.what_if.worker", "--patience=60")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as made:
        question = {
            "api": api,
            "scheduler": NOBODY,
            "token": "ann",
            "memory_mib": memory_mib,
            "change": change,
        }
        assert made.stdin is not None
        made.stdin.write(json.dumps(question).encode() + b"\n")
        made.stdin.flush()
        try:
            yield made
        finally:
            made.kill()


def told(api: Json, change: Json, memory_mib: int = 1024) -> Json:
    with started(api, change, memory_mib) as made:
        assert made.stdout is not None
        found: Json = json.loads(made.stdout.read())
        return found


@pytest.fixture
def api(put: Put, client: Client) -> Json:
    put_old_and_new(put)
    return client.address()


def test_it_says_what_would_be_different(api: Json) -> None:
    found = told(api, {"without": ["old"]})
    [gang] = [row for row in found["gangs"] if row["name"] == "new"]
    assert gang["now"].startswith("stays pending: needs 1 pod x 8 GPUs")
    assert gang["then"] == "starts at once on n1"
    assert (gang["states"], gang["nodes"]) == (["waits", "starts"], ["n1"])
    assert found["totals"][1] == {"name": "gangs pending at the end", "now": 1, "then": 0}
    assert "did not say what hardware" in found["notes"][0]


def test_what_can_not_be_asked(api: Json) -> None:
    def why(change: Json) -> tuple[int, str]:
        found = told(api, change)
        return found["status"], found["error"]

    assert why({"cordon": ["nothere"]}) == (400, "no node named nothere")
    assert why({"queue": ["q:colour=3"]})[1].startswith('"q:colour=3" is not QUEUE:FIELD=NUMBER')
    status, sentence = why({"submit": "kind: [\n"})
    assert (status, sentence.startswith("manifest.yaml: document 1: line ")) == (400, True)
    machine = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x", "annotations": {}}}
    machine["metadata"]["annotations"] = {"lockstep.dev/capture": "/etc/passwd"}  # type: ignore[index]
    assert why({"submit": json.dumps(machine)})[1].endswith("is not allowed here")


def test_it_asks_with_the_token_of_whoever_asks() -> None:
    seen: list[tuple[str, str]] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path.partition("?")[0], self.headers["Authorization"]))
            nodes = self.path.startswith("/api/v1/nodes")
            body = json.dumps({"items": []} if nodes else {"message": "ann may not"}).encode()
            self.send_response(200 if nodes else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with served(Server) as api:
        found = told(api, {"cordon": ["n1"]})
    assert found == {"error": "you may not list pods: ann may not", "status": 403}
    assert {token for _, token in seen} == {"Bearer ann"}


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[Json]:
    with QuietServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield where(server.server_port)
        server.shutdown()
        thread.join()


def where(port: int) -> Json:
    return {"host": f"http://127.0.0.1:{port}"}


def test_it_takes_no_more_memory_than_it_may(api: Json) -> None:
    doubled = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n"
        for before, name in zip("abcdefg", "bcdefgh", strict=True)
    )  # YAML's aliases are one object each: no memory, and no object with a kind
    assert told(api, {"submit": doubled})["status"] == 400
    many = {**node("many", "r1"), "apiVersion": "v1", "kind": "Node"}
    many["metadata"]["annotations"] = {"lockstep.dev/count": "10000"}
    more = [{**many, "metadata": {**many["metadata"], "name": f"many-{at}"}} for at in range(10)]
    found = told(api, {"submit": "\n---\n".join(map(json.dumps, more))}, memory_mib=150)
    assert (found["status"], "more than 150 MiB of memory" in found["error"]) == (503, True)


def test_it_ends_when_nobody_waits() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        started(where(silent.getsockname()[1]), {"cordon": ["n1"]}) as made,
    ):
        peer, _ = silent.accept()  # it asks, and gets no answer
        with peer:
            assert made.stdin is not None
            assert made.poll() is None
            made.stdin.close()
            assert made.wait(300.0) == 1


HUGE = 10**12
TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"schedulerName": "lockstep", "containers": [{"name": "c", "image": "x"}]},
}


@pytest.mark.parametrize(
    ("kind", "version", "spec"),
    [
        ("Job", "batch.volcano.sh/v1alpha1",
         {"minAvailable": 1, "tasks": [{"name": "t", "replicas": HUGE, "template": TEMPLATE}]}),
        ("Job", "batch/v1", {"parallelism": HUGE, "completions": HUGE, "template": TEMPLATE}),
        ("Deployment", "apps/v1",
         {"replicas": HUGE, "selector": {"matchLabels": {"app": "x"}}, "template": TEMPLATE}),
        ("Node", "v1", {}),
    ],
)  # fmt: skip
def test_counts_that_no_cluster_has_end(api: Json, kind: str, version: str, spec: Json) -> None:
    """Nothing is built for each of them."""
    many: Json = {"apiVersion": version, "kind": kind, "metadata": {"name": "many"}, "spec": spec}
    if kind == "Node":
        many = {**node("many", "r1"), "apiVersion": "v1", "kind": "Node"}
        many["metadata"]["annotations"] = {"lockstep.dev/count": str(HUGE)}
    found = told(api, {"submit": json.dumps(many), "until": "1h"}, memory_mib=200)
    assert found["status"] == 400
    assert found["error"].startswith("manifest.yaml: document 1: ")
    assert "more than 10000 here" in found["error"]
