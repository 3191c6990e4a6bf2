"""A small HTTP/1.1 server on asyncio for one Job's processes. It bounds connections, sizes and times, and checks the
token when the headers are complete, before anything of the body is kept."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

import httptools

MOST_BODY = 256 << 10
MOST_HEAD = 16 << 10
MOST_CONNECTIONS = 2048
REQUEST_S = 30.0  # from a request's first byte to its last
FIRST_REQUEST_S = 10.0  # from the connection to its first authorised request
IDLE_S = 120.0
_SWEEP_S = 2.0
_TEXTS = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    query: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes = b""
    kind: str = "application/json"
    retry_after_s: int = 0


Handler = Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer]]
Authorize = Callable[[str, str], bool]  # path, value of the header Authorization
Error = Callable[[int, str], HttpAnswer]


@dataclass(slots=True)
class HttpServer:
    handler: Handler
    authorize: Authorize
    error: Error
    connections: "set[_Connection]" = field(default_factory=set)
    refused: int = 0  # connections and requests that were not served
    _server: asyncio.Server | None = None
    _sweeper: "asyncio.Task[None] | None" = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self),
            host,
            port,
            ssl=tls,
            backlog=1024,
            ssl_handshake_timeout=FIRST_REQUEST_S if tls else None,
        )
        self._sweeper = asyncio.create_task(self._sweep())
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for each in list(self.connections):
            each.abort()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = loop.time()
            for each in list(self.connections):
                if each.is_late(now):
                    each.abort()


class _Connection(asyncio.Protocol):
    """One request at a time; a client that sends the next one before the answer is disconnected."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._since = self._loop.time()
        self._authorized = False
        self._begin()

    def _begin(self) -> None:
        self._url, self._token, self._body = b"", "", b""
        self._head, self._in_body, self._reading = 0, False, False
        self._done = False

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream
        self._server.connections.add(self)
        if len(self._server.connections) > MOST_CONNECTIONS:
            self._refuse(429, f"more than {MOST_CONNECTIONS} connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_late(self, now: float) -> bool:
        if self._done:
            return False  # we are the ones who take time
        if self._reading:
            return now - self._since > REQUEST_S
        return now - self._since > (IDLE_S if self._authorized else FIRST_REQUEST_S)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._done:
            self.abort()  # the answer to the request before is not written yet
            return
        if not self._reading:
            self._reading, self._since = True, self._loop.time()
        if not self._in_body:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "upgrades of the connection are not supported")
        except httptools.HttpParserError as error:
            if not self._transport.is_closing():
                self._refuse(400, f"not HTTP/1.1: {error}")
        if self._head > MOST_HEAD and not (self._in_body or self._done):
            self._refuse(431, f"the headers have more than {MOST_HEAD} bytes")

    # -- httptools

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > MOST_HEAD:
            self._refuse(431, f"the headers have more than {MOST_HEAD} bytes")

    def on_header(self, name: bytes, value: bytes | None) -> None:
        if name.lower() == b"authorization":
            self._token = (value or b"").decode("latin-1")
        elif name.lower() == b"content-length":
            digits = (value or b"").strip().lstrip(b"0")
            if len(digits) > 12 or (digits.isdigit() and int(digits) > MOST_BODY):
                self._refuse(413, f"the body has more than {MOST_BODY} bytes")

    def on_headers_complete(self) -> None:
        self._in_body = True
        if self._is_closing():
            return
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        if self._parser.should_upgrade():
            self._refuse(400, "upgrades of the connection are not supported")
        elif not self._server.authorize(path, self._token):
            self._refuse(401, "header Authorization: the token is missing or wrong")
        elif path.startswith("/v1/"):
            self._authorized = True

    def on_body(self, body: bytes) -> None:
        if self._is_closing():
            return
        if len(self._body) + len(body) > MOST_BODY:
            self._refuse(413, f"the body has more than {MOST_BODY} bytes")
        else:
            self._body += body

    def on_message_complete(self) -> None:
        if self._is_closing():
            return
        if self._done:
            self.abort()
            return
        self._done = True
        path, _, query = self._url.partition(b"?")
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=16)
        except ValueError:
            self._refuse(400, "the query has more than 16 fields, or other letters than ASCII")
            return
        method = self._parser.get_method().decode("latin-1")
        request = HttpRequest(method, path.decode("latin-1"), dict(pairs), self._body)
        answer = self._server.handler(request)
        if isinstance(answer, HttpAnswer):
            self._answer(answer, close=not self._parser.should_keep_alive())
        else:
            self._task = asyncio.ensure_future(self._answer_later(answer))

    # -- answers

    async def _answer_later(self, coming: Awaitable[HttpAnswer]) -> None:
        answer = await coming
        self._task = None
        self._answer(answer, close=not self._parser.should_keep_alive())

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _refuse(self, status: int, why: str) -> None:
        if not self._is_closing():
            self._server.refused += 1
            self._answer(self._server.error(status, why), close=True)

    def _answer(self, answer: HttpAnswer, *, close: bool) -> None:
        if self._is_closing():
            return
        assert self._transport is not None
        head = [f"HTTP/1.1 {answer.status} {_TEXTS[answer.status]}"]
        if answer.status != 204:
            head += [f"Content-Type: {answer.kind}", f"Content-Length: {len(answer.body)}"]
        if answer.retry_after_s:
            head.append(f"Retry-After: {answer.retry_after_s}")
        if close:
            head.append("Connection: close")
        self._transport.write("\r\n".join([*head, "", ""]).encode() + answer.body)
        self._since = self._loop.time()
        self._begin()
        if close:
            self._transport.close()
