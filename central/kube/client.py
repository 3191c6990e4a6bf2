"""Requests to the API server: configuration through the kubernetes package, the requests themselves
over the standard library's HTTP on kept connections (a third of the package's cost per call).
Bytes in, bytes out; any number of threads.

    client = connect(kubeconfig)                 # Unusable: one sentence, exit 2
    reply = client.request("POST", path, body)   # Unreachable: later; any status is a reply
"""

import http.client
import logging
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from central.kube.configuration import Access, Unusable, load

__all__ = ["Client", "Refused", "Reply", "Stream", "Unreachable", "Unusable", "connect"]

log = logging.getLogger(__name__)

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_IDLE_MOST = 64
_TOKEN_KEPT_S = 5.0
_CHUNK = 1 << 20


class Unreachable(Exception):
    """No answer from the API server, now."""


class Refused(Exception):
    """An answer of 400 or above."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    retry_after_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status < 400

    def json(self) -> Any:
        return orjson.loads(self.body)

    def refusal(self) -> Refused:
        """What the server's Status object says, or its first line where it sent none."""
        try:
            told = orjson.loads(self.body)
            reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
        except (ValueError, AttributeError):
            reason, message = "", self.body[:200].decode(errors="replace").partition("\n")[0]
        return Refused(self.status, reason, message or f"status {self.status}")


class Client:
    def __init__(self, access: Access) -> None:
        self.server = access.server  # its address, for messages
        self._access = access
        self._prefix = urlsplit(access.server).path.rstrip("/")
        self._idle: deque[_Connection] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counts_lock = threading.Lock()
        self._credentials_lock = threading.Lock()
        self._credentials: tuple[float, dict[str, str]] = (0.0, {})

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> Reply:
        try:
            headers = self._headers()
            if body is not None:
                headers = {**headers, "Content-Type": content_type}
            reply = self._exchange(method, path, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self._count(method, "unreachable")
            raise Unreachable(f"{self.server}: {_why(error)}") from error

        self._count(method, f"{reply.status // 100}xx")
        return reply

    def counts(self) -> dict[tuple[str, str], int]:
        """Requests so far by verb and outcome: 2xx, 4xx, 5xx, unreachable."""
        with self._counts_lock:
            return dict(self._counts)

    def _count(self, verb: str, outcome: str) -> None:
        with self._counts_lock:
            self._counts[verb, outcome] += 1

    def get(self, path: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """The parsed object; raises Refused or Unreachable."""
        reply = self.request("GET", path, timeout_s=timeout_s)
        if not reply.ok:
            raise reply.refusal()
        try:
            found = reply.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unreachable(f"{self.server}: the answer to {path} is not a JSON object")
        return found

    def stream(self, path: str, timeout_s: float) -> "Stream":
        """A streamed answer; raises Refused or Unreachable. timeout_s: the longest silence."""
        connection = self._connection(timeout_s)
        try:
            connection.request("GET", self._prefix + path, headers=self._headers())
            response = connection.getresponse()
            if response.status >= 400:
                raise Reply(response.status, response.read()).refusal()
        except (OSError, http.client.HTTPException) as error:
            self._count("WATCH", "unreachable")
            connection.close()
            raise Unreachable(f"{self.server}: {_why(error)}") from error
        except Refused as refused:
            self._count("WATCH", f"{refused.status // 100}xx")
            connection.close()
            raise
        return Stream(self.server, connection, response)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> Reply:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._on(self._connection(timeout_s), method, path, body, headers)
        try:
            connection.patience(timeout_s)
            return self._on(connection, method, path, body, headers)
        except (ConnectionError, http.client.BadStatusLine):
            # The server closed an idle connection as we took it up: all that are idle are suspect.
            self.close()
            return self._on(self._connection(timeout_s), method, path, body, headers)

    def _on(
        self,
        connection: "_Connection",
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> Reply:
        try:
            connection.request(method, self._prefix + path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close or len(self._idle) >= _IDLE_MOST:
            connection.close()
        else:
            self._idle.append(connection)
        later = response.headers["Retry-After"] if response.status >= 400 else None
        return Reply(response.status, content, float(later) if later and later.isdigit() else 0.0)

    def _connection(self, timeout_s: float) -> "_Connection":
        return _Connection(self._access, timeout_s)

    def _headers(self) -> dict[str, str]:
        expires, headers = self._credentials
        if time.monotonic() < expires:
            return headers
        with self._credentials_lock:
            authorization = self._access.authorization()
            headers = {"Accept": "application/json", "User-Agent": "lockstep"}
            if authorization:
                headers["Authorization"] = authorization
            self._credentials = (time.monotonic() + _TOKEN_KEPT_S, headers)
        return headers


class Stream:
    """The lines of an answer that does not end. close() may come from another thread."""

    def __init__(
        self, server: str, connection: "_Connection", response: http.client.HTTPResponse
    ) -> None:
        self._server = server
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        pending: list[bytes] = []
        try:
            while chunk := self._response.read1(_CHUNK):
                first, *rest = chunk.split(b"\n")
                pending.append(first)
                for part in rest:
                    if line := b"".join(pending):
                        yield line
                    pending = [part]
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"{self._server}: {_why(error)}") from error

    def close(self) -> None:
        self._connection.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._response.close()
        self._connection.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, access: Access, timeout_s: float) -> None:
        host, port = access.address()
        self._access = access
        if access.proxy:
            proxy = urlsplit(access.proxy)
            super().__init__(proxy.hostname or "", proxy.port or 80, timeout=timeout_s)
            self.set_tunnel(host, port)
        else:
            super().__init__(host, port, timeout=timeout_s)

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):  # a server that vanished is noticed in half a minute
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        if self._access.context is not None:
            name = self._access.tls_name or self._access.address()[0]
            self.sock = self._access.context.wrap_socket(self.sock, server_hostname=name)

    def patience(self, timeout_s: float) -> None:
        self.timeout = timeout_s
        if self.sock is not None:
            self.sock.settimeout(timeout_s)

    def cut(self) -> None:
        """End a read that another thread is in; TLS objects may not be touched for that."""
        sock = self.sock
        if sock is not None:
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                log.debug("the connection had ended already")


def connect(kubeconfig: str | None) -> Client:
    """From the file; without one from the pod's ServiceAccount, else from KUBECONFIG or
    ~/.kube/config. Raises Unusable; asks nothing of the server yet."""
    return Client(load(kubeconfig))


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
