"""The HTTP server of both programs: /metrics for Prometheus, /healthz and /readyz for the kubelet.
Plain HTTP, because nothing here is secret and no request changes anything.

Anybody in the cluster may connect. A connection is for one request, and ends after CONNECTION_S. Among too many
connections, the oldest one of the peer with the most gives way to a new one, so probes are answered while others
flood the port. /healthz and /readyz are answered in the event loop, and wait for no collection of metrics.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from protos.common.listener_thread import ListenerThread, stop_accepting

log = logging.getLogger(__name__)

CONNECTIONS = 256
CONNECTION_S = 5.0  # from its start to the last byte of the answer
REQUEST_BYTES = 8 << 10
COLLECTIONS = 8  # of metrics, waiting or under way; one at a time
_REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
TEXT = "text/plain; charset=utf-8"

Problem = Callable[[], str]  # a message for people; empty: none


class Unservable(Exception):
    """The server can't listen on the address; the message is for people."""


class Probes:
    """unhealthy and unready are called in the event loop and must not block."""

    def __init__(
        self, listen: str, registry: CollectorRegistry, *, unhealthy: Problem, unready: Problem
    ) -> None:
        """Raises Unservable."""
        self.registry, self.unhealthy, self.unready = registry, unhealthy, unready
        self.connections: dict[_Connection, str] = {}  # with their peers; oldest first
        self.collector = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self.collecting = 0
        self._peers: Counter[str] = Counter()
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            if int(port) > 65535:
                raise ValueError(f"{port} is not a port")
            listener = socket.create_server((host, int(port)), family=family, backlog=1024)
        except (OSError, ValueError) as error:
            raise Unservable(f"--metrics-listen {listen}: {error}") from error
        self._thread = ListenerThread("probes", listener, self._serve)

    @property
    def port(self) -> int:
        return self._thread.port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        self.collector.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, listener: socket.socket, ending: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), sock=listener)
        await ending.wait()
        await stop_accepting(server)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    # Called by connections, in the event loop

    def opened(self, connection: "_Connection", peer: str) -> None:
        if len(self.connections) >= CONNECTIONS:
            ((most, _),) = self._peers.most_common(1)
            oldest = next(each for each, of in self.connections.items() if of == most)
            oldest.abort()
            self.closed(oldest)
        self.connections[connection] = peer
        self._peers[peer] += 1

    def closed(self, connection: "_Connection") -> None:
        peer = self.connections.pop(connection, None)
        if peer is not None:
            self._peers[peer] -= 1
            if not self._peers[peer]:
                del self._peers[peer]

    def answer(self, connection: "_Connection", path: str) -> None:
        match path.partition("?")[0]:
            case "/metrics" if self.collecting < COLLECTIONS:
                self.collecting += 1
                collected = asyncio.get_running_loop().run_in_executor(
                    self.collector, generate_latest, self.registry
                )
                collected.add_done_callback(lambda done: self._collected(connection, done))
            case "/metrics":
                connection.send(503, b"too many requests for metrics\n")
            case "/healthz":
                _probe(connection, self.unhealthy)
            case "/readyz":
                _probe(connection, self.unready)
            case _:
                connection.send(404, b"/metrics, /healthz, /readyz\n")

    def _collected(self, connection: "_Connection", done: "asyncio.Future[bytes]") -> None:
        self.collecting -= 1
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            log.warning("could not collect the metrics: %r", error)
            connection.send(500, b"the metrics could not be collected; see the log\n")
        else:
            connection.send(200, done.result(), CONTENT_TYPE_LATEST)


def _probe(connection: "_Connection", problem: Problem) -> None:
    try:
        found = problem()
    except Exception as error:  # noqa: BLE001 - the kubelet must learn of it
        found = f"the probe failed (bug): {error!r}"
    connection.send(503 if found else 200, f"{found or 'ok'}\n".encode())


class _Connection(asyncio.Protocol):
    def __init__(self, server: Probes) -> None:
        self._server = server
        self._received = bytearray()
        self._asked = False
        self._head = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        self._server.opened(self, str(name[0]) if name else "")
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(CONNECTION_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._asked:
            return  # a body, or another request: neither is read
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > REQUEST_BYTES:
                self._asked = True
                self.send(431, b"")
            return
        self._asked = True
        method, _, rest = bytes(self._received[:end]).partition(b"\r\n")[0].partition(b" ")
        path, _, version = rest.partition(b" ")
        self._received.clear()
        self._head = method == b"HEAD"
        if not version.startswith(b"HTTP/1."):
            self.send(400, b"")
        elif method not in {b"GET", b"HEAD"}:
            self.send(405, b"")
        else:
            self._server.answer(self, path.decode("latin-1"))

    def send(self, status: int, body: bytes, kind: str = TEXT) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nServer: lockstep\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if self._head else body))
        self._transport.close()  # after what was written

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.closed(self)
