"""An HTTP port: Tornado parses requests and speaks TLS, and this module limits what clients can take.

    site = Greeter()                        # a Site: admit(request), answer(request), problem(status, why)
    server = HttpServer(site, Bounds())
    server.serve(listen("127.0.0.1:8080"), tls=None)        # in a running event loop
    await server.close()

A connection is unknown, from before TLS, until the site has admitted a request on it. Unknown ones have few places, per
address and in all, for a short time. One of them gets one answer, and its body is not read.

Design: docs/design/hostile-inputs.md
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl

from tornado import httpserver, httputil
from tornado.iostream import IOStream, StreamClosedError

from protos.common.unknown_connections import UnknownConnections, UnknownLimits

BACKLOG = 1024  # connections that wait in the kernel
CLOSE_S = 2.0
MOST_FIELDS = 16  # of a query
_log = logging.getLogger(__name__)
logging.getLogger("tornado.general").setLevel(logging.ERROR)  # anybody can cause the others


class RequestRefused(Exception):
    """Ends a request: with a status, and a sentence for the user."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of clients: connections, bytes and seconds."""

    unknown: UnknownLimits
    known: int = 0  # connections on which a request was admitted
    head: int = 16 << 10
    body: int = 256 << 10
    keep_alive: bool = False
    idle_s: float = 120.0  # from an answer to the end of the next request's head
    body_s: float = 30.0
    write_s: float = 10.0  # until the client has taken an answer, or a piece of a longer one


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)  # names in any case
    caller: Any = None  # for the site
    cleanup: ExitStack = field(default_factory=ExitStack)  # closed at the end, whatever it is


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes = b""
    kind: str = "application/json"
    retry_after_s: int = 0
    location: str = ""  # where a redirection leads
    more: AsyncGenerator[bytes, None] | None = None  # an answer without a length goes on with it


class Site(Protocol):
    """The service of a port. admit and answer may raise RequestRefused, and are cancelled when the client leaves."""

    async def admit(self, request: HttpRequest) -> bool:
        """Called when the head is complete. True: the connection is known from now on, and may send a body."""

    async def answer(self, request: HttpRequest) -> HttpAnswer: ...

    def problem(self, status: int, why: str) -> HttpAnswer: ...


def listen(address: str) -> socket.socket:
    """A socket of HOST:PORT, with an IPv6 host in brackets; without a host, or of [::], of all addresses. Raises
    OSError or ValueError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not 0 <= int(port) <= 65535:
        raise ValueError(f"{port} is not a port")
    both = host in ("", "::") and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    return socket.create_server(
        (host, int(port)), family=family, backlog=BACKLOG, dualstack_ipv6=both
    )


class HttpServer:
    def __init__(
        self, site: Site, bounds: Bounds, headers: Mapping[str, str] | None = None
    ) -> None:
        """headers: of each answer."""
        self.site, self.bounds, self.headers = site, bounds, headers or {}
        self.unknown = UnknownConnections(bounds.unknown)
        self.streams: dict[int, IOStream] = {}  # of all connections, by number
        self.known: set[int] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._port: _Port | None = None
        self._timer: asyncio.TimerHandle | None = None

    def serve(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """tls: its certificate may be replaced at any time, for connections to come."""
        self._loop = asyncio.get_running_loop()
        self._port = _Port(
            lambda _: None,  # start_request() takes requests
            ssl_options=tls,
            no_keep_alive=not self.bounds.keep_alive,
            chunk_size=8 << 10,
            max_header_size=self.bounds.head,
            max_body_size=self.bounds.body,
            max_buffer_size=4 * self.bounds.head,
            idle_connection_timeout=self.bounds.idle_s,
            body_timeout=self.bounds.body_s,
        )
        self._port.server = self
        listener.setblocking(False)
        self._port.add_socket(listener)

    async def close(self) -> None:
        """Closes all connections, and waits for the ends of their requests, CLOSE_S at most."""
        if self._port is None:
            return
        self._port.stop()
        for stream in list(self.streams.values()):
            stream.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._port.close_all_connections()
                await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    # -- of connections

    def enter(self, stream: IOStream, peer: str) -> bool:
        """Registers a connection, and closes those whose place it takes. False: it is closed itself."""
        self.streams[id(stream)] = stream
        for number in self.unknown.accept(id(stream), peer, self._loop.time()):
            self.streams.pop(number).close()
        self._await_deadline()
        return not stream.closed()

    def _await_deadline(self) -> None:
        deadline = self.unknown.next_deadline()
        if self._timer is None and deadline is not None:
            self._timer = self._loop.call_at(deadline, self._close_late)

    def _close_late(self) -> None:
        self._timer = None
        for number in self.unknown.expired(self._loop.time()):
            self.streams.pop(number).close()
        self._await_deadline()

    def admit(self, number: int) -> bool:
        """Makes the connection a known one. False: there are too many."""
        if number not in self.known:
            if len(self.known) >= self.bounds.known:
                return False
            self.unknown.forget(number)
            self.known.add(number)
        return True

    def leave(self, stream: IOStream) -> None:
        self.unknown.forget(id(stream))
        self.known.discard(id(stream))
        self.streams.pop(id(stream), None)


class _Port(httpserver.HTTPServer):
    """Tornado's server, which tells of connections before TLS."""

    server: HttpServer

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if self.server.enter(stream, str(address[0])):
            super().handle_stream(stream, address)

    def start_request(
        self, server_conn: Any, request_conn: httputil.HTTPConnection
    ) -> httputil.HTTPMessageDelegate:
        return _Exchange(self.server, server_conn.stream, request_conn)

    def on_close(self, server_conn: Any) -> None:
        super().on_close(server_conn)
        self.server.leave(server_conn.stream)


class _Exchange(httputil.HTTPMessageDelegate):
    """One request and its answer."""

    def __init__(self, server: HttpServer, stream: IOStream, connection: Any) -> None:
        self._server, self._stream, self._connection = server, stream, connection
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._answered = False
        self._method = ""
        self._request: HttpRequest | None = None

    async def headers_received(self, start_line: Any, headers: httputil.HTTPHeaders) -> None:
        self._server.unknown.spoke(id(self._stream))
        self._method = start_line.method
        try:
            request = self._request = _request(start_line, headers)
            length, most = headers.get("Content-Length", "").lstrip("0"), self._server.bounds.body
            if length.isdecimal() and int(length[:16]) > most:
                raise RequestRefused(413, f"the body has more than {most} bytes")
            if await self._server.site.admit(request):
                if not self._server.admit(id(self._stream)):
                    raise RequestRefused(
                        429, f"more than {self._server.bounds.known} connections; try again later"
                    )
            elif length or "Transfer-Encoding" in headers:
                raise RequestRefused(413, "a request without a token has no body")
        except RequestRefused as refused:
            await self._refuse(refused)
        else:
            if id(self._stream) not in self._server.known:
                await self._respond(request)  # before its end, so that the connection is closed

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk

    def finish(self) -> None:
        assert self._request is not None
        if self._answered:
            self._request.cleanup.close()
            return
        self._request.body = bytes(self._body)
        self._connection.set_close_callback(self.on_connection_close)
        self._task = asyncio.create_task(self._respond(self._request))
        self._server.tasks.add(self._task)
        self._task.add_done_callback(self._ended)

    def on_connection_close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif self._request is not None:
            self._request.cleanup.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._server.tasks.discard(task)
        assert self._request is not None
        self._request.cleanup.close()

    async def _respond(self, request: HttpRequest) -> None:
        try:
            answer = await self._server.site.answer(request)
        except RequestRefused as refused:
            await self._refuse(refused)
        except Exception as error:  # noqa: BLE001  # a bug; others are served
            _log.error("a request was not answered (bug)", exc_info=error)
            await self._send(self._server.site.problem(500, "internal error; see the log"))
        else:
            await self._send(answer)

    async def _refuse(self, refused: RequestRefused) -> None:
        await self._send(self._server.site.problem(refused.status, refused.why))

    async def _send(self, answer: HttpAnswer) -> None:
        """Closes the connection if the client does not take the answer in time."""
        self._answered = True
        start = httputil.ResponseStartLine("", answer.status, HTTPStatus(answer.status).phrase)
        connection, limit = self._connection, self._server.bounds.write_s
        body = answer.body if self._method != "HEAD" else b""
        try:
            async with asyncio.timeout(limit):
                await connection.write_headers(start, self._headers(answer), body)
            if answer.more is not None:
                async with aclosing(answer.more) as pieces:
                    async for piece in pieces:
                        async with asyncio.timeout(limit):
                            await connection.write(piece)
            connection.finish()
        except Exception as error:  # noqa: BLE001  # the client has part of the answer
            if not isinstance(error, TimeoutError | StreamClosedError | RequestRefused):
                _log.error("an answer broke off (bug)", exc_info=error)
            self._stream.close()

    def _headers(self, answer: HttpAnswer) -> httputil.HTTPHeaders:
        headers = httputil.HTTPHeaders(self._server.headers)
        if answer.status != 204:
            headers["Content-Type"] = answer.kind
            if answer.more is None:
                headers["Content-Length"] = str(len(answer.body))
        if answer.location:
            headers["Location"] = answer.location
        if answer.retry_after_s:
            headers["Retry-After"] = str(answer.retry_after_s)
        if id(self._stream) not in self._server.known:
            headers["Connection"] = "close"
        return headers


def _request(start_line: Any, headers: httputil.HTTPHeaders) -> HttpRequest:
    path, _, query = start_line.path.partition("?")
    if not (path.startswith("/") and start_line.path.isascii()):
        raise RequestRefused(400, "the request names no path, or not in ASCII")
    try:
        fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise RequestRefused(400, f"the query has more than {MOST_FIELDS} fields") from None
    return HttpRequest(start_line.method, path, fields, headers=headers)
