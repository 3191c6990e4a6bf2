"""Requests to the API server on persistent connections, for any number of threads. The kubernetes package
reads the configuration; its own requests take ten times as long.

    client = connect(kubeconfig)                 # may raise KubeconfigError
    reply = client.request("POST", path, body)   # may raise Unreachable; any status is a reply
"""

import http.client
import logging
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from central.kube.transport import deep_json
from central.kube.transport.configuration import ClientConfig, load_config, without_credentials
from central.kube.transport.configuration import KubeconfigError as KubeconfigError
from central.kube.transport.connection import Connection, HttpResponse, InvalidResponse, is_stale

log = logging.getLogger(__name__)

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_IDLE_MOST = 64
_TOKEN_KEPT_S = 5.0
_BROKEN = (OSError, InvalidResponse, http.client.HTTPException)  # network, response, proxy


# Stands before the usual Accept line, which servers then ignore.
_METADATA = (
    b"Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json\r\n"
)
_METADATA_LIST = _METADATA.replace(b"Metadata;", b"MetadataList;")


class Unreachable(Exception):
    """The API server did not answer."""


class Silent(Unreachable):
    """A response that does not end has brought nothing for too long."""


class StatusError(Exception):
    """The API server answered with a status of 400 or above."""

    def __init__(
        self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """reason, message and details as in the Status object."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    retry_after_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status < 400

    def accepted(self, *but: int) -> Self:
        """Returns itself. Raises StatusError for an error whose status is not among `but`."""
        if not self.ok and self.status not in but:
            raise self.error()
        return self

    def json(self) -> Any:
        return deep_json.loads(self.body)

    def error(self) -> StatusError:
        """Reads the error from the Status object in the body, or else from the body's first line."""
        try:
            status = orjson.loads(self.body)
            reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
            details = status.get("details")
        except (ValueError, AttributeError):
            reason, message = "", self.body[:200].decode(errors="replace").partition("\n")[0]
            details = None
        known = details if isinstance(details, dict) else None
        return StatusError(self.status, reason, message or f"status {self.status}", known)


class Client:
    def __init__(self, config: ClientConfig) -> None:
        self.server = config.server  # its address, for messages
        self._config = config
        url = urlsplit(config.server)
        self._prefix, self._host = url.path.rstrip("/"), url.netloc.rpartition("@")[2]
        self._idle: deque[Connection] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._counts_lock = threading.Lock()
        self._credentials_lock = threading.Lock()
        self._credentials: tuple[float, bytes] = (0.0, b"")

    def address(self) -> dict[str, Any]:
        """The API server's address without credentials, as JSON: for configuration.as_user."""
        return without_credentials(self._config)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
        *,
        accept: bytes = b"",
        most_bytes: int | None = None,
    ) -> Reply:
        """most_bytes: of the answer; one with more raises connection.TooLong."""
        try:
            request = self._request(method, path, body, content_type, accept)
            reply = self._exchange(request, timeout_s, most_bytes)
        except _BROKEN as error:
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

    def get(
        self,
        path: str,
        timeout_s: float = 60.0,
        *,
        metadata_only: bool = False,
        most_bytes: int | None = None,
    ) -> dict[str, Any]:
        """The parsed object, or only metadata of each. Raises StatusError, Unreachable, and TooLong as request()."""
        accept = _METADATA_LIST if metadata_only else b""
        reply = self.request("GET", path, timeout_s=timeout_s, accept=accept, most_bytes=most_bytes)
        reply.accepted()
        try:
            found = reply.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unreachable(f"{self.server}: the response to {path} is not a JSON object")
        return found

    def stream(self, path: str, timeout_s: float, *, metadata_only: bool = False) -> "Stream":
        """A response that does not end. timeout_s: the longest silence. Raises StatusError,
        Unreachable."""
        connection = Connection(self._config, timeout_s)
        try:
            response = connection.send(
                self._request("GET", path, None, "", _METADATA if metadata_only else b"")
            )
            if response.status >= 400:
                raise Reply(response.status, connection.read_all(response)).error()
        except _BROKEN as error:
            self._count("WATCH", "unreachable")
            connection.close()
            kind = Silent if isinstance(error, TimeoutError) else Unreachable
            raise kind(f"{self.server}: {_why(error)}") from error
        except StatusError as refused:
            self._count("WATCH", f"{refused.status // 100}xx")
            connection.close()
            raise
        return Stream(self.server, connection, response)

    def close(self) -> None:
        """Closes the idle connections. Requests after it open new ones."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return  # another thread may have taken the last one
            connection.close()

    def _exchange(self, request: bytes, timeout_s: float, most_bytes: int | None) -> Reply:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._send_on(Connection(self._config, timeout_s), request, most_bytes)
        try:
            connection.set_timeout(timeout_s)
            return self._send_on(connection, request, most_bytes)
        except (OSError, InvalidResponse) as error:
            if isinstance(error, TimeoutError) or is_stale(error):
                self.close()  # the other idle connections are likely as dead
            if not is_stale(error):
                raise
            return self._send_on(Connection(self._config, timeout_s), request, most_bytes)

    def _send_on(self, connection: Connection, request: bytes, most_bytes: int | None) -> Reply:
        try:
            response = connection.send(request)
            content = connection.read_all(response, most_bytes)
        except BaseException:
            connection.close()
            raise
        if response.reusable and len(self._idle) < _IDLE_MOST:
            self._idle.append(connection)
        else:
            connection.close()
        later = response.retry_after if response.status >= 400 else ""
        after_s = float(later) if later.isdigit() else 0.0
        return Reply(response.status, content, after_s)

    def _request(
        self, method: str, path: str, body: bytes | None, content_type: str, accept: bytes = b""
    ) -> bytes:
        line = f"{method} {self._prefix}{path} HTTP/1.1"
        if not line.isascii() or not line.isprintable() or line.count(" ") != 2:
            raise ValueError(f"the path is not quoted: {path!r}")
        if body is None:
            return b"%b\r\n%b%b\r\n" % (line.encode(), accept, self._headers())
        return b"%b\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            line.encode(),
            self._headers(),
            content_type.encode(),
            len(body),
            body,
        )

    def _headers(self) -> bytes:
        """The headers of every request. Raises OSError if there are no credentials."""
        expires, headers = self._credentials
        if time.monotonic() < expires:
            return headers
        with self._credentials_lock:
            lines = [f"Host: {self._host}", "Accept: application/json", "User-Agent: lockstep"]
            if authorization := self._config.authorization():
                if not authorization.isprintable():
                    raise OSError("no credentials: the token is not one line of text")
                lines.append(f"Authorization: {authorization}")
            headers = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
            self._credentials = (time.monotonic() + _TOKEN_KEPT_S, headers)
        return headers


class Stream:
    """A response that does not end. close() may be called from another thread."""

    def __init__(self, server: str, connection: Connection, response: HttpResponse) -> None:
        self._server = server
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._connection.lines(self._response)
        except TimeoutError as error:
            raise Silent(f"{self._server}: {_why(error)}") from error
        except (*_BROKEN, ValueError) as error:
            raise Unreachable(f"{self._server}: {_why(error)}") from error

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces: for logs, whose empty and unfinished lines count, too."""
        try:
            yield from self._connection.chunks(self._response)
        except (*_BROKEN, ValueError) as error:
            raise Unreachable(f"{self._server}: {_why(error)}") from error

    def set_silence(self, timeout_s: float) -> None:
        """Sets the longest silence from now on. Called from the reader's thread."""
        self._connection.set_timeout(timeout_s)

    def close(self) -> None:
        try:
            self._connection.shutdown()
        except OSError:
            log.debug("the connection has ended already")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def connect(kubeconfig: str | None) -> Client:
    """Configured from the file; without one from the pod's ServiceAccount, else from KUBECONFIG or
    ~/.kube/config. Sends no request yet. Raises KubeconfigError."""
    return Client(load_config(kubeconfig))


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
