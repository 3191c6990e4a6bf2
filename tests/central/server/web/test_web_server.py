"""The console over HTTP: its files, tokens and rights, pages of rows, and events."""

import http.client
import json
import socket
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from central.model.facts import Fact, NodeGone
from central.server.web.web_server import HEAD_BYTES, STATIC, ConsoleUnservable, WebServer
from tests.central import factories
from tests.central.server.web.console_world import Rights, cluster, served
from tests.fakes.eventually import eventually

Json = dict[str, Any]


def ask(
    server: WebServer, path: str, token: str = "admin", host: str = ""
) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("GET", path, headers=headers | ({"Host": host} if host else {}))
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    kind = reply.headers["Content-Type"]
    return (
        reply.status,
        json.loads(body) if kind == "application/json" else body,
        dict(reply.headers),
    )


def data(server: WebServer, path: str, token: str = "admin") -> Json:
    """The answer. A test that polls asks more often than a user may, and waits then."""
    while (answer := ask(server, path, token))[0] == 429:
        time.sleep(0.1)
    status, found, _ = answer
    assert status == 200, found
    return dict(found)


def private() -> list[Fact]:
    """The cluster, with a pod of another namespace."""
    secret = replace(factories.pod("secret", 2), namespace="hush", uid="uid-secret")
    waits = replace(factories.pod("waits", 9), namespace="hush", uid="uid-waits")
    return [*cluster(8), secret, waits]


def test_files_need_no_token_and_data_do() -> None:
    with served([]) as (server, _):
        for file in STATIC.iterdir():
            assert ask(server, f"/{file.name}", token="")[:2] == (200, file.read_bytes())
        status, page, headers = ask(server, "/", token="")
        assert (status, page) == (200, (STATIC / "index.html").read_bytes())
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert ask(server, "/../web_server.py", token="")[0] == 404
        for path in (
            "overview",
            "nodes",
            "queues",
            "pending",
            "node?name=n",
            "gang",
            "events",
            "none",
        ):
            assert ask(server, f"/api/{path}", token="")[0] == 401
            assert ask(server, f"/api/{path}", token="stranger")[0] == 401
        assert ask(server, "/api/none")[0] == 404
        assert ask(server, "/api/overview", host="evil.example")[0] == 421


def test_an_admin_sees_the_cluster() -> None:
    with served(private()) as (server, _):
        eventually(lambda: data(server, "/api/overview")["totals"]["used"] > 0)
        overview = data(server, "/api/overview")
        assert (
            overview["totals"]["nodes"],
            overview["totals"]["gpus"],
            overview["totals"]["unhealthy"],
        ) == (8, 64, 1)
        nodes = data(server, "/api/nodes")["nodes"]
        assert [node["n"] for node in nodes] == [f"node-{at:04}" for at in range(8)]
        owners = {each["o"] for node in nodes for each in node["h"]}
        assert "hush/secret" in owners
        pending = {row["name"]: row for row in data(server, "/api/pending")["rows"]}
        assert pending["never"]["cause"] == "never"
        assert {row["name"] for row in data(server, "/api/queues")["rows"]} >= {
            "root",
            "prod",
            "llm",
        }
        node = data(server, "/api/node?name=node-0001")
        assert [gpu["healthy"] for gpu in node["gpus"]] == [True] * 3 + [False] + [True] * 4
        shown = {"index", "uuid", "model", "numa", "healthy", "why", "mig", "memory", "owners"}
        assert set(node["gpus"][0]) == shown
        runs = next(each for each in owners if each.startswith("ns/train-")).removeprefix("ns/")
        gang = data(server, f"/api/gang?namespace=ns&name={runs}")
        assert [pod["name"] for pod in gang["pods"]] == [f"{runs}-0", f"{runs}-1"]
        assert all(len(pod["gpus"]) == 8 for pod in gang["pods"])
        assert ask(server, "/api/node?name=nothere")[0] == 404
        assert ask(server, "/api/gang?namespace=ns&name=nothere")[0] == 404


def test_others_see_what_they_may_see() -> None:
    rights = Rights(("ann", "pods", "ns"), ("bob", "nodes", ""), ("bob", "pods", "ns"))
    with served(private(), rights) as (server, _):
        eventually(lambda: data(server, "/api/overview")["totals"]["used"] > 0)
        overview = data(server, "/api/overview", "ann")
        assert "totals" not in overview
        assert overview["may"] == {"nodes": False, "queues": False, "what_if": False}
        assert overview["pending"]["hidden"] == 1
        for path in ("nodes", "node?name=node-0001"):
            assert ask(server, f"/api/{path}", "ann")[0] == 403
        own = {row["queue"] for row in data(server, "/api/pending", "ann")["rows"]}
        own |= {row["queue"] for row in data(server, "/api/jobs?state=running", "ann")["rows"]}
        assert {row["name"] for row in data(server, "/api/queues", "ann")["rows"]} == own
        assert own < {row["name"] for row in data(server, "/api/queues")["rows"]}
        assert {row["namespace"] for row in data(server, "/api/pending", "ann")["rows"]} == {"ns"}
        assert ask(server, "/api/gang?namespace=hush&name=secret", "ann")[0] == 403
        assert ask(server, "/api/gang?namespace=ns&name=train-0", "ann")[0] == 200
        seen = data(server, "/api/nodes", "bob")
        owners = {each["o"] for node in seen["nodes"] for each in node["h"]}
        assert "-" in owners
        assert "hush" not in json.dumps(seen)
        assert "hush" not in json.dumps(data(server, "/api/pending", "bob"))


def test_pages_and_what_changed_since() -> None:
    with served(cluster(7)) as (server, tell):
        eventually(lambda: data(server, "/api/overview")["totals"]["nodes"] == 7)
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            page = data(server, f"/api/nodes?limit=3&after={after}")
            names += [node["n"] for node in page["nodes"]]
            assert len(page["nodes"]) <= 3
            after = page["next"]
        assert names == [f"node-{at:04}" for at in range(7)]
        version = page["version"]
        assert data(server, f"/api/nodes?since={version}")["nodes"] == []
        tell(factories.node("late"))
        eventually(lambda: data(server, "/api/overview")["version"] > version)
        found = data(server, f"/api/nodes?since={version}")
        assert ([node["n"] for node in found["nodes"]], found["all"]) == (["late"], False)
        tell(NodeGone("late"))
        eventually(lambda: data(server, f"/api/nodes?since={found['version']}")["all"])
        # The questions above may be more than one user may ask in a second.
        eventually(lambda: ask(server, "/api/nodes?limit=x")[0] == 400)
        rows = data(server, "/api/queues?limit=2")
        assert (len(rows["rows"]), rows["next"], rows["size"]) == (2, 2, 5)


def test_events_follow_the_cluster() -> None:
    with served(cluster(2)) as (server, tell):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/api/events", headers={"Authorization": "Bearer admin"})
        reply = connection.getresponse()
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream")
        line = reply.readline()
        assert json.loads(line.removeprefix(b"data: "))["totals"]["nodes"] == 2
        tell(factories.node("late"))
        while not line.startswith(b"data: ") or json.loads(line[6:])["totals"]["nodes"] != 3:
            line = reply.readline()
            assert line
        connection.close()


def test_a_head_without_end_is_not_kept() -> None:
    with (
        served([]) as (server, _),
        socket.create_connection(("127.0.0.1", server.port), 20) as peer,
    ):
        peer.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 2 * HEAD_BYTES + b"\r\n\r\n")
        with suppress(ConnectionError):
            assert peer.recv(100) == b"", "closed without an answer"
        assert ask(server, "/", token="")[0] == 200


@pytest.mark.parametrize(
    ("first", "status"),
    [("PUT / HTTP/1.1", 405), ("GET http://x/ HTTP/1.1", 400), ("GET / SPDY/3", 400), ("rubbish", 400),
     ("GET /?" + "&".join(f"a{at}=1" for at in range(99)) + " HTTP/1.1", 400)],
)  # fmt: skip
def test_odd_requests_are_refused(first: str, status: int) -> None:
    with (
        served([]) as (server, _),
        socket.create_connection(("127.0.0.1", server.port), 20) as peer,
    ):
        peer.sendall(f"{first}\r\nHost: localhost\r\n\r\n".encode())
        assert peer.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.1.2.3:80", "example.com:80", "[::]:0"])
def test_it_listens_on_the_loopback_alone(listen: str) -> None:
    rights = Rights()
    with pytest.raises(ConsoleUnservable, match="port-forward"):
        WebServer(listen, None, rights, rights)  # type: ignore[arg-type]  # it refuses before
