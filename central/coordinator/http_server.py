"""A small HTTP/1.1 server on asyncio for one Job's processes. It bounds connections, sizes and times, and checks the
token when the headers are complete, before anything of the body is kept.

A connection is unauthenticated until a request on it has shown the token. Unauthenticated ones have few places, per address and in
all, from the connection on, so before TLS: none of them is a member's. One of them gets one answer, of a probe.

Design: docs/design/coordinator.md
"""

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

import httptools

from central.server.grpc.connection_limits import ConnectionTable, Limits
from protos.common import open_files
from protos.common.listener_thread import stop_accepting

MOST_BODY = 256 << 10
MOST_HEAD = 16 << 10
MOST_CONNECTIONS = 2048  # that have shown the token
FIRST_REQUEST_S = 10.0  # from the connection to its first authorised request
STRANGERS = Limits(unknown_per_peer=256, unknown=512, unknown_s=FIRST_REQUEST_S)
REQUEST_S = 30.0  # from a request's first byte to its last
IDLE_S = 120.0
_SWEEP_S = 2.0
_OTHER_FILES = 256
_ACCEPTS = 64  # at once, so that those which must go are closed before others are accepted
_BACKLOG = 1024  # that wait in the kernel
# asyncio reads into a buffer of this size for each TLS connection, and keeps it: 256 KiB unless set.
sslproto.SSLProtocol.max_size = 2 << 10
# Answers are written in pieces: what is encrypted at once lies in a buffer that keeps its greatest size, for each
# connection, and the list of 512 members has 60 KiB.
_PIECE = 2 << 10
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
    tls: ssl.SSLContext | None = None
    most: int = MOST_CONNECTIONS
    refused: int = 0  # connections and requests that were not served
    _connections: "dict[int, _HttpConnection]" = field(default_factory=dict)
    _strangers: ConnectionTable = field(default_factory=lambda: ConnectionTable(STRANGERS))
    _members: set[int] = field(default_factory=set)
    _numbers: int = 0
    _server: asyncio.Server | None = None
    _sweeper: "asyncio.Task[None] | None" = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Returns the port. Raises OSError."""
        open_files.allow(self.most + STRANGERS.unknown + _OTHER_FILES)
        self.tls = tls
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _HttpConnection(self), host, port, backlog=_ACCEPTS
        )
        for listener in self._server.sockets:
            with socket.fromfd(listener.fileno(), listener.family, listener.type) as same:
                same.listen(_BACKLOG)
        self._sweeper = asyncio.create_task(self._sweep())
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            await stop_accepting(self._server)
        for each in list(self._connections.values()):
            each.abort()
        await asyncio.sleep(0)  # which closes their sockets

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = loop.time()
            for number in self._strangers.expired(now):
                self._connections[number].abort()
            for each in list(self._connections.values()):
                if each.is_late(now):
                    each.abort()

    # -- of connections

    def enter(self, connection: "_HttpConnection", peer: str, now: float) -> int:
        """A new one. Returns its number."""
        self._numbers += 1
        self._connections[self._numbers] = connection
        for number in self._strangers.accept(self._numbers, peer, now):
            self.refused += 1
            self._connections[number].abort()
        return self._numbers

    def spoke(self, number: int) -> None:
        self._strangers.spoke(number)

    def admit(self, number: int) -> bool:
        """Counts a connection that has shown the token as a member's. False if there are too many."""
        if number in self._members:
            return True
        if len(self._members) >= self.most:
            return False
        self._strangers.forget(number)
        self._members.add(number)
        return True

    def leave(self, number: int) -> None:
        self._strangers.forget(number)
        self._members.discard(number)
        self._connections.pop(number, None)


class _HttpConnection(asyncio.Protocol):
    """One request at a time; a client that sends the next one before the answer is disconnected, and one that does not
    read its answers is not read from."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._since = self._loop.time()
        self._number = 0
        self._authorized = False
        self._early: list[bytes] | None = None  # what came before TLS was complete for us
        self._messages = 0  # that began in one piece of data
        self._begin()

    def _begin(self) -> None:
        self._url, self._token, self._body = b"", "", b""
        self._head = (
            0  # bytes of the request that are not its body: headers, trailers, sizes of chunks
        )
        self._reading = False
        self._done = False

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("",)
        self._number = self._server.enter(self, str(peer[0]), self._loop.time())
        if self._server.tls is not None and not transport.is_closing():
            self._early = []
            transport.pause_reading()
            self._task = asyncio.ensure_future(self._secure(transport, self._server.tls))

    async def _secure(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            secured = await self._loop.start_tls(
                plain, self, tls, server_side=True, ssl_handshake_timeout=FIRST_REQUEST_S
            )
        except OSError:  # no TLS, too slow, or gone
            secured = None
        self._task = None
        if secured is None:
            plain.abort()
            self._server.leave(self._number)
            return
        self._transport = secured
        early, self._early = self._early or [], None
        for data in early:
            self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leave(self._number)
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._is_closing():
            assert self._transport is not None
            self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def is_late(self, now: float) -> bool:
        if self._done:
            return False  # we are the ones who take time
        return now - self._since > (REQUEST_S if self._reading else IDLE_S)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._early is not None:
            self._early.append(data)
            return
        if self._done:
            self.abort()  # the answer to the request before is not written yet
            return
        if not self._reading:
            self._reading, self._since = True, self._loop.time()
        self._head += len(data)
        self._server.spoke(self._number)
        self._messages = 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "upgrades of the connection are not supported")
        except httptools.HttpParserError as error:
            if not self._transport.is_closing():
                self._refuse(400, f"not HTTP/1.1: {error}")
        if self._head > MOST_HEAD and not self._done:
            self._refuse(431, f"the headers have more than {MOST_HEAD} bytes")

    # -- httptools

    def on_message_begin(self) -> None:
        self._messages += 1
        if self._messages > 1:
            self.abort()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes | None) -> None:
        if name.lower() == b"authorization":
            self._token = (value or b"").decode("latin-1")
        elif name.lower() == b"content-length":
            digits = (value or b"").strip().lstrip(b"0")
            if digits.isdigit() and int(digits) > MOST_BODY:
                self._refuse(413, f"the body has more than {MOST_BODY} bytes")

    def on_headers_complete(self) -> None:
        if self._is_closing():
            return
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        if self._parser.should_upgrade():
            self._refuse(400, "upgrades of the connection are not supported")
        elif not self._server.authorize(path, self._token):
            self._refuse(401, "header Authorization: the token is missing or wrong")
        elif path.startswith("/v1/"):
            self._authorized = self._server.admit(self._number)
            if not self._authorized:
                self._refuse(429, f"more than {self._server.most} connections")

    def on_body(self, body: bytes) -> None:
        if self._is_closing():
            return
        self._head -= len(body)
        if not self._authorized:
            self._refuse(413, "a request without the token has no body")
        elif len(self._body) + len(body) > MOST_BODY:
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
            self._answer(answer, close=self._is_last())
        else:
            self._task = asyncio.ensure_future(self._answer_later(answer))

    # -- answers

    async def _answer_later(self, coming: Awaitable[HttpAnswer]) -> None:
        answer = await coming
        self._task = None
        self._answer(answer, close=self._is_last())

    def _is_last(self) -> bool:
        """Strangers get one answer."""
        return not (self._authorized and self._parser.should_keep_alive())

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
        data = memoryview("\r\n".join([*head, "", ""]).encode() + answer.body)
        for start in range(0, len(data), _PIECE):
            self._transport.write(data[start : start + _PIECE])
        self._since = self._loop.time()
        self._begin()
        if close:
            self._transport.close()
