"""Clients that hold connections of the console, or do not take their answers: others are served, and nothing stays."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from central.server.grpc.visibility import Viewer
from central.server.web.web_request import Request
from central.server.web.web_server import CONNECTIONS, WebServer
from tests.central.server.web.console_world import Rights
from tests.fakes.eventually import eventually

pytestmark = pytest.mark.timeout(120)
WRITE_S = 0.5


class LongAnswers:
    """More than the kernel takes for a client that does not read."""

    def answer(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        return {"text": "x" * (24 << 20)} if request.query.get("long") else {"text": "short"}


@contextmanager
def serving() -> Iterator[WebServer]:
    rights, api = Rights(), LongAnswers()
    server = WebServer("127.0.0.1:0", api, rights, rights, write_s=WRITE_S)  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: WebServer, request: bytes) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", server.port))
    made.sendall(request)
    return made


def short_answer(server: WebServer) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", "/api/any", headers={"Authorization": "Bearer admin"})
        return str(json.loads(connection.getresponse().read()).get("text"))
    finally:
        connection.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("request_start", [b"", b"GET /api/any HTTP/1.1\r\nHost: localhost\r\nX:"])
def test_connections_without_a_token_give_way(request_start: bytes) -> None:
    with serving() as server, ExitStack() as held:
        for _ in range(2 * CONNECTIONS):
            held.enter_context(connect(server, request_start))
        assert short_answer(server) == "short"


def test_an_answer_that_is_not_taken_is_dropped() -> None:
    request = (
        b"GET /api/any?long=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer admin\r\n\r\n"
    )
    with serving() as server:
        before = open_files()
        with ExitStack() as held:
            for _ in range(5):
                held.enter_context(connect(server, request))
            eventually(lambda: open_files() >= before + 10)
            eventually(lambda: open_files() <= before + 5, 60.0)  # only ours
        assert short_answer(server) == "short"
