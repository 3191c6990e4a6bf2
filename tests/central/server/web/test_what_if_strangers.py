"""Strangers and tenants at the console's what-if: bodies that are slow, deep, too long or too short, a hundred at once,
and counts that no cluster has. Others are served, and nothing stays."""

import http.client
import json
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from central.server.web import what_if_process
from central.server.web.web_request import BODY_MOST
from central.server.web.web_server import WHAT_IF, WebServer
from tests.central.server.web.console_world import EVERYTHING, Rights, cluster, served
from tests.central.server.web.test_what_if_process import ECHO, WAIT, gone, post, process
from tests.fakes.eventually import eventually

pytestmark = pytest.mark.timeout(180)


def raw(server: WebServer, token: str, length: int) -> socket.socket:
    """A connection that has sent the head of a question, and no body."""
    made = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    made.sendall(
        f"POST {WHAT_IF} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {length}\r\n\r\n".encode()
    )
    return made


def ended(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    told = b""
    try:
        while part := connection.recv(1 << 16):
            told += part
    except ConnectionError:
        pass
    return told


def test_a_stranger_is_refused_before_the_body_is_read() -> None:
    with served(cluster(2), what_if=process(ECHO)) as (server, _):
        for token in ("stranger", ""):
            with raw(server, token, BODY_MOST) as connection:
                assert b" 401 " in ended(connection).split(b"\r\n")[0]


def test_bodies_that_do_not_come_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte by byte, or not at all: each ends by itself, and takes none of the places for questions."""
    monkeypatch.setattr("central.server.web.web_server.BODY_S", 1.0)
    with served(cluster(2), what_if=process(ECHO)) as (server, _), ExitStack() as held:
        slow = [held.enter_context(raw(server, "admin", 1000)) for _ in range(6)]
        end = time.monotonic() + 30

        def drip() -> None:
            while time.monotonic() < end:
                try:
                    slow[0].sendall(b" ")
                except OSError:
                    return
                time.sleep(0.05)

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        for connection in slow:
            assert ended(connection) == b""
        dripping.join(30)
        assert not dripping.is_alive()
        assert post(server)[0] == 200


def test_a_body_that_is_shorter_than_it_says() -> None:
    with served(cluster(2), what_if=process(ECHO)) as (server, _):
        with raw(server, "admin", 1000) as connection:
            connection.sendall(b"{}")
            connection.shutdown(socket.SHUT_WR)
            assert ended(connection) == b""
        assert post(server)[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"[" * BODY_MOST,
        b'{"cordon":' * 6000,
        b'{"cordon":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"cordon": ["n1"], "cordon": ' + b"9" * 60_000 + b"}",
        b'{"cordon": [' + b'"n",' * 16_000 + b'"n"]}',
        b'{"' + b"k" * 60_000 + b'": 1}',
        b"\xff\xfe" * 1000,
        b'{"cordon": ["\\ud800"]}',
    ],
)
def test_deep_and_odd_bodies_are_wrong_questions(body: bytes) -> None:
    with served(cluster(2), what_if=process(ECHO)) as (server, _):
        with raw(server, "admin", len(body)) as connection:
            connection.sendall(body)
            told = ended(connection)
        assert b" 400 " in told.split(b"\r\n")[0], told[:300]
        assert len(told) < 3000, "what was sent does not come back whole"


def test_a_hundred_at_once(tmp_path: Path) -> None:
    """One runs, few wait, the rest is told so at once; then nothing is left, and the next one is answered."""
    users = [f"user-{at}" for at in range(100)]
    rights = Rights(*((user, kind, "") for user in users for kind in EVERYTHING))
    pids, found = tmp_path / "pids", Counter[int]()
    with served(cluster(2), rights, what_if=process(WAIT.format(str(pids)))) as (server, _):
        connections: list[http.client.HTTPConnection] = []

        def ask(user: str) -> None:
            made = http.client.HTTPConnection("127.0.0.1", server.port, timeout=90)
            connections.append(made)
            try:
                body = json.dumps({"cordon": ["n1"]})
                made.request("POST", WHAT_IF, body, {"Authorization": f"Bearer {user}"})
                found[made.getresponse().status] += 1
            except (OSError, http.client.HTTPException):
                found[0] += 1  # closed below

        askers = [threading.Thread(target=ask, args=(user,), daemon=True) for user in users]
        for asker in askers:
            asker.start()
        waiting = what_if_process.WAITING_MOST + 1
        eventually(lambda: found.total() >= 100 - waiting, 60.0)
        assert {*found} <= {429, 503}
        assert found[429] >= 1
        eventually(lambda: pids.exists() and pids.read_text(), 60.0)
        assert len(pids.read_text().split()) == 1
        for made in connections:
            if made.sock is not None:
                made.sock.shutdown(socket.SHUT_RDWR)
        for asker in askers:
            asker.join(60)
        eventually(lambda: all(gone(int(pid)) for pid in pids.read_text().split()), 60.0)
        server._what_if._command = (sys.executable, "-c", ECHO)  # type: ignore[union-attr]
        eventually(lambda: post(server)[0] == 200, 60.0)


def test_no_answer_names_what_its_asker_may_not_see() -> None:
    """Who may list one namespace alone gets no what-if at all: its answer says what all others do."""
    rights = Rights(("tenant", "pods", "mine"), ("tenant", "nodes", ""))
    with served(cluster(2), rights, what_if=process(ECHO)) as (server, _):
        status, told = post(server, "tenant")
        assert status == 403
        assert "n1" not in json.dumps(told)
