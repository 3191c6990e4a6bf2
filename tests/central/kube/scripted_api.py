"""An HTTP server with scripted answers, for those that a healthy API server never gives."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self
from urllib.parse import urlsplit

from central.model.json_types import Json
from tests.fakes.quiet_server import QuietServer


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str  # without the query
    query: str
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: Json | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: Iterator[Json] | None = None  # a watch
    hang_up: bool = False  # no answer at all


def failure(status: int, message: str, **details: Any) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": status, "message": message, **details}
    return Answer(status, body)


def missing(plural: str, name: str) -> Answer:
    """404 for an object that does not exist."""
    details = {"kind": plural.partition(".")[0], "name": name}
    return failure(404, f'{plural} "{name}" not found', reason="NotFound", details=details)


def pending_pod(name: str = "p", uid: str = "u") -> Answer:
    """A pod without a node."""
    return Answer(200, {"kind": "Pod", "metadata": {"name": name, "uid": uid}, "spec": {}})


SUCCESS = Answer(201, {"kind": "Status", "status": "Success"})  # to a binding or an eviction


class Scripted:
    """answer(call) returns the answer; calls records all requests."""

    def __init__(
        self, answer: Callable[[Call], Answer], context: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        self.calls: list[Call] = []
        self.connections = 0
        self._answer = answer
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.scripted = self
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def answer(self, call: Call) -> Answer:
        self.calls.append(call)
        return self._answer(call)

    def of(self, method: str, ending: str = "") -> list[Call]:
        return [c for c in self.calls if c.method == method and c.path.endswith(ending)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.hang_up()
        self._thread.join()
        self._server.server_close()


class _Server(QuietServer):
    scripted: Scripted
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.scripted.connections += 1
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End what is kept open, so that no thread outlives the test."""
        for request in list(self._open):
            try:
                request.shutdown(2)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        url = urlsplit(self.path)
        call = Call(
            self.command,
            url.path,
            url.query,
            json.loads(raw) if raw else None,
            {key.lower(): value for key, value in self.headers.items()},
        )
        answer = self.server.scripted.answer(call)
        if answer.hang_up:
            self.close_connection = True
            return
        if answer.lines is not None:
            self._stream(answer.lines)
            return
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body or {})
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _stream(self, lines: Iterator[Json]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            data = json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815 - its names there

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Tests read calls."""
