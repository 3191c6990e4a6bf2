"""One persistent HTTP/1.1 connection to the API server.

Requests are written by hand and responses parsed in C (httptools), in an eighth of the standard library's
time per call. Only shutdown() may be called from another thread.

Design: docs/design/api-server.md
"""

import http.client
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import httptools

from central.kube.transport.configuration import ClientConfig

_CHUNK = 1 << 18


class InvalidResponse(Exception):
    """Raised if the server sent an incomplete HTTP response."""


class TooLong(Exception):
    """Raised if a response has more bytes than its reader accepts."""


class ConnectionClosed(InvalidResponse, ConnectionError):
    """The server closed the connection without a response, most likely before the request."""


class HttpResponse:
    """Filled by the parser. body: the chunks that have not been taken yet."""

    def __init__(self) -> None:
        self.status = 0
        self.retry_after = ""
        self.body: list[bytes] = []
        self.done = False
        self.started = False
        self.reusable = False  # the connection may be used again
        self._delimited = False  # the end is known from its headers
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Empty data: the server has closed the connection. Raises InvalidResponse."""
        if not data:
            if not self.started:
                raise ConnectionClosed("the server closed the connection")
            if not self.status or self._delimited:
                raise InvalidResponse("the response is truncated")
            self.done = True
            return
        self.started = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise InvalidResponse(f"the response is not HTTP: {error}") from error

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._delimited = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._delimited |= self.status in {204, 304}

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.done = self.status >= 200  # not after 100 Continue or 103 Early Hints
        self.reusable = self.done and self._delimited and self._parser.should_keep_alive()


class Connection:
    """Raises OSError, InvalidResponse, and http.client.HTTPException from a proxy."""

    def __init__(self, config: ClientConfig, timeout_s: float) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def send(self, request: bytes) -> HttpResponse:
        """Returns when the status is known; read_all(), lines() or chunks() read the body."""
        if self._socket is None:
            self._socket = _open(self._config, self._timeout_s)
        self._socket.sendall(request)
        response = HttpResponse()
        while not response.status:
            response.feed(self._socket.recv(_CHUNK))
        return response

    def read_all(self, response: HttpResponse, most_bytes: int | None = None) -> bytes:
        """Raises TooLong, after which the connection is of no use."""
        found = bytearray()
        for chunk in self.chunks(response):
            found += chunk
            if most_bytes is not None and len(found) > most_bytes:
                raise TooLong
        return bytes(found)

    def lines(self, response: HttpResponse) -> Iterator[bytes]:
        """The lines until the response ends, without an unfinished last one."""
        pending = b""
        for chunk in self.chunks(response):
            *complete, pending = (pending + chunk).split(b"\n")
            yield from filter(None, complete)

    def chunks(self, response: HttpResponse) -> Iterator[bytes]:
        """The body in pieces as they arrive."""
        assert self._socket is not None
        while True:
            if response.body:
                chunk = b"".join(response.body)
                response.body.clear()
                yield chunk
            if response.done:
                return
            response.feed(self._socket.recv(_CHUNK))

    def set_timeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        if self._socket is not None:
            self._socket.settimeout(timeout_s)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def shutdown(self) -> None:
        """Ends another thread's read; TLS objects are not thread-safe, the socket is. Raises OSError if
        the connection has ended already."""
        if self._socket is not None:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _open(config: ClientConfig, timeout_s: float) -> socket.socket:
    """Through the proxy if there is one; with TLS for https."""
    host, port = config.address()
    if config.proxy:
        proxy = urlsplit(config.proxy)
        link = http.client.HTTPConnection(proxy.hostname or "", proxy.port or 80, timeout=timeout_s)
        link.set_tunnel(host, port)
    else:
        link = http.client.HTTPConnection(host, port, timeout=timeout_s)
    link.connect()
    opened: socket.socket = link.sock
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # notice a vanished server in half a minute
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # the same for what was sent and not acknowledged
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    if config.context is None:
        return opened
    try:
        return config.context.wrap_socket(opened, server_hostname=config.tls_name or host)
    except BaseException:
        opened.close()
        raise


def is_stale(error: Exception) -> bool:
    """Returns whether the server closed an idle connection before it accepted the request."""
    return isinstance(error, ConnectionError | ssl.SSLEOFError)
