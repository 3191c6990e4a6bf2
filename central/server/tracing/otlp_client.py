"""One request to a collector, by OTLP over HTTP."""

import gzip
import http.client
import socket
import threading
from contextlib import suppress
from typing import NamedTuple

from central.server.otlp_endpoint import CollectorAddress

TIMEOUT_S = 10.0  # of a whole request, however slowly the answer comes
ANSWER_BYTES = 1 << 16
RETRIED = (429, 502, 503, 504)  # as OTLP says
RETRY_AFTER_MOST_S = 60.0


class Sent(NamedTuple):
    """status 0: no answer. retry: whether the same request may succeed later, then after retry_after_s at least."""

    status: int
    why: str
    retry: bool
    body: bytes = b""
    retry_after_s: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


def post(
    to: CollectorAddress, content_type: str, body: bytes, timeout_s: float = TIMEOUT_S
) -> Sent:
    headers = {**dict(to.headers), "Content-Type": content_type, "User-Agent": "lockstep-central"}
    if to.gzip:
        body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
    connection = _connection(to, timeout_s)
    end = threading.Timer(timeout_s, _shut, [connection])
    end.daemon = True
    end.start()
    try:
        connection.request("POST", to.path, body, headers)
        reply = connection.getresponse()
        answer = reply.read(ANSWER_BYTES)
        return Sent(
            reply.status,
            f"HTTP {reply.status} {reply.reason}",
            reply.status in RETRIED,
            answer,
            _seconds(reply.getheader("Retry-After", "")),
        )
    except (OSError, http.client.HTTPException) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return Sent(0, why or type(error).__name__, retry=True)
    finally:
        end.cancel()
        connection.close()


def _connection(to: CollectorAddress, timeout_s: float) -> http.client.HTTPConnection:
    if to.scheme == "https":
        return http.client.HTTPSConnection(to.host, to.port, timeout=timeout_s, context=to.tls)
    return http.client.HTTPConnection(to.host, to.port, timeout=timeout_s)


def _shut(connection: http.client.HTTPConnection) -> None:
    """Ends what the request's own thread waits for."""
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _seconds(text: str) -> float:
    plain = text.isascii() and text.isdigit() and len(text) < 6
    return min(float(text), RETRY_AFTER_MOST_S) if plain else 0.0
