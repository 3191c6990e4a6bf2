"""The port that agents and users connect to. It forwards bytes to the gRPC server behind it, on loopback, and
closes what exceeds the limits of central.server.grpc.connection_limits. It reads nothing of what it forwards: TLS
ends in the gRPC server.

    proxy = TcpProxy("0.0.0.0:9443", Limits())     # raises OSError
    proxy.target = port_of_the_grpc_server
    proxy.start()
    proxy.peer(port), proxy.admit(port, owner)  # from any thread; port: as the gRPC server sees the client
    proxy.stop()

gRPC has a limit for all connections together, which one peer can use up, and none per peer. And it can change its
certificate only by a callback into Python for each connection, or by a new server: here a new target.

Design: docs/design/access.md
"""

import asyncio
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.metrics_core import Metric

from central.server.grpc.connection_limits import ConnectionTable, Limits, Owner
from central.server.throttled_log import ThrottledLog
from protos.common import http_server, open_files
from protos.common.metric_families import counter, gauge

log = logging.getLogger(__name__)

CHUNK = 1 << 16
ACCEPTS = 64  # per pass, so that a flood of connections does not delay those that there are
STALL_S = 60.0  # a side that takes no bytes for this long has gone
EXPIRE_EVERY_S = 0.5
_EMERGENCY_S = 0.1  # without file descriptors
_BLOCKED = (BlockingIOError, InterruptedError)


class _Side(asyncio.BufferedProtocol):
    """One socket of a connection. Its transport keeps what could not be sent to it yet, at most CHUNK: until all is
    sent, nothing more is read from the other side."""

    def __init__(self, proxy: "TcpProxy", connection: "_ProxiedConnection") -> None:
        self._proxy, self.connection = proxy, connection
        self.transport: asyncio.Transport | None = None  # None: not connected yet
        self.first = b""  # what to send it then
        self._blocked_since: float | None = None
        self._left = 0  # bytes that were not sent at the last look

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        self._proxy.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._proxy.buffer[: self.connection.readable(self)]

    def buffer_updated(self, nbytes: int) -> None:
        self._proxy.forward(self, bytes(self._proxy.buffer[:nbytes]))

    def pause_writing(self) -> None:
        assert self.transport is not None
        self._left, self._blocked_since = self.transport.get_write_buffer_size(), time.monotonic()
        self.connection.read_or_wait()

    def resume_writing(self) -> None:
        self._blocked_since = None
        self.connection.read_or_wait()

    def eof_received(self) -> bool:
        """Ends the connection when the other side has what was sent to it before."""
        other = self.connection.other(self)
        if other is not None and other.transport is not None and not other.takes():
            other.transport.close()
            return True
        self._proxy.end(self.connection)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.end(self.connection)

    def takes(self) -> bool:
        """Returns whether it is connected and has taken all that was sent to it."""
        return self.transport is not None and self._blocked_since is None

    def is_stalled(self, now: float) -> bool:
        if self.transport is None or self._blocked_since is None:
            return False
        left, before = self.transport.get_write_buffer_size(), self._left
        if left < before:
            self._left, self._blocked_since = left, now
        return now - self._blocked_since > STALL_S


class _ProxiedConnection:
    def __init__(self, proxy: "TcpProxy", number: int, peer: str, allowance: int) -> None:
        self.number, self.peer = number, peer
        self.allowance = allowance  # bytes that its client may still send before it shows a token
        self.known = False  # it has shown one
        self.port = 0  # as the gRPC server sees it
        self.client = _Side(proxy, self)
        self.server: _Side | None = None  # from the first byte on

    def other(self, side: _Side) -> _Side | None:
        return self.server if side is self.client else self.client

    def readable(self, side: _Side) -> int:
        """Returns how many bytes may be read from the side now."""
        return CHUNK if self.known or side is not self.client else min(CHUNK, self.allowance)

    def read_or_wait(self) -> None:
        """Reads from each side while the other one takes what it sends."""
        for side in (self.client, self.server):
            if side is not None and side.transport is not None:
                other = self.other(side)
                if self.readable(side) > 0 and (other is None or other.takes()):
                    side.transport.resume_reading()
                else:
                    side.transport.pause_reading()


class TcpProxy:
    def __init__(self, listen: str, limits: Limits) -> None:
        """Raises OSError."""
        self.target = 0
        self.buffer = memoryview(bytearray(CHUNK))  # of the chunk that is being forwarded
        # A forwarded connection takes three file descriptors.
        known = limits.agents + limits.users + limits.coordinators
        open_files.allow(3 * known + limits.unknown)
        self._listener = http_server.listen(listen)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._limits = limits
        self._table = ConnectionTable(limits)
        self._connections: dict[int, _ProxiedConnection] = {}
        self._by_port: dict[int, _ProxiedConnection] = {}
        self._closed: Counter[str] = Counter()
        self._numbers = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._quiet = ThrottledLog(log)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self._run, name="grpc-proxy", daemon=True)

    def start(self) -> None:
        self._loop.call_soon(self._listen)
        self._loop.call_soon(self._each, EXPIRE_EVERY_S, self._expire)
        self._loop.call_soon(self._each, STALL_S / 4, self._end_stalled)
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5.0)
        elif not self._loop.is_closed():
            self._close_all()

    # From any thread: single look-ups of what the proxy's thread writes

    def peer(self, port: int) -> str:
        """The address of the client whose connection comes from this port; "" if there is none."""
        found = self._by_port.get(port)
        return found.peer if found is not None else ""

    def owner(self, port: int) -> Owner | None:
        found = self._by_port.get(port)
        return self._table.owner(found.number) if found is not None else None

    def admit(self, port: int, owner: Owner) -> None:
        """The connection's caller is known from now on."""
        if self.owner(port) != owner:
            self._loop.call_soon_threadsafe(self._admit, port, owner)

    def refuse(self, port: int) -> None:
        """A call on the connection has shown no valid token. After some it is closed, which also drops what gRPC
        has not handed out yet."""
        self._loop.call_soon_threadsafe(self._refuse, port)

    def counts(self) -> dict[str, int]:
        """Connections by state: unknown, agent, user, coordinator."""
        return self._table.counts()

    def closed(self) -> dict[str, int]:
        """Connections that the proxy closed, by cause."""
        return dict(self._closed)

    def families(self) -> Iterator[Metric]:
        about = "Connections to the gRPC port: unknown until one has shown a valid token"
        yield gauge("grpc_connections", about, sorted(self.counts().items()), "state")
        about = "Connections to the gRPC port that were closed for a limit, by cause"
        yield counter("grpc_connections_closed", about, sorted(self.closed().items()), "cause")

    # In the proxy's thread

    def _run(self) -> None:
        self._loop.run_forever()
        self._close_all()

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            self.end(connection)
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))  # closes the sockets
        self._loop.close()
        self._listener.close()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        self._quiet.error("proxy", error, "unhandled exception (bug)")

    def _each(self, seconds: float, act: Callable[[], None]) -> None:
        self._loop.call_later(seconds, self._each, seconds, act)
        act()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                client, address = self._listener.accept()
            except (*_BLOCKED, ConnectionError):
                return
            except OSError as error:  # no file descriptors are left
                self._quiet.warning("accept", "can't accept connections: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_EMERGENCY_S, self._listen)
                return
            self._accepted(client, str(address[0]).removeprefix("::ffff:"))

    def _accepted(self, client: socket.socket, peer: str) -> None:
        self._numbers += 1
        made = _ProxiedConnection(self, self._numbers, peer, self._limits.unknown_bytes)
        self._connections[made.number] = made
        for number in self._table.accept(made.number, peer, time.monotonic()):
            self.end(self._connections[number], "too many")
            whose = peer if number == made.number else "another peer"
            text = "closed a connection of %s: too many connections that have shown no token"
            self._quiet.warning(f"many {peer}", text, whose)
        if made.number in self._connections:
            self._attach(client, made.client)
        else:
            client.close()

    def _attach(self, own: socket.socket, side: _Side) -> None:
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._loop.create_connection(lambda: side, sock=own))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def connected(self, side: _Side) -> None:
        """The side has its transport."""
        assert side.transport is not None
        if side.connection.number not in self._connections:  # ended meanwhile
            side.transport.abort()
            return
        if side.first:
            side.transport.write(side.first)
        side.connection.read_or_wait()

    def forward(self, side: _Side, data: bytes) -> None:
        connection, to = side.connection, side.connection.other(side)
        if side is connection.client:
            connection.allowance -= len(data)
        if to is None:
            self._connect(connection, data)
        elif to.transport is not None:
            to.transport.write(data)
        if connection.readable(side) <= 0:
            connection.read_or_wait()

    def _connect(self, connection: _ProxiedConnection, first: bytes) -> None:
        """Connects to the gRPC server, when the client has sent its first bytes."""
        inner = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        inner.setblocking(False)
        connection.server = _Side(self, connection)
        connection.server.first = first
        inner.connect_ex(("127.0.0.1", self.target))
        connection.port = int(inner.getsockname()[1])
        self._by_port[connection.port] = connection
        self._table.spoke(connection.number)
        self._attach(inner, connection.server)
        connection.read_or_wait()

    def _admit(self, port: int, owner: Owner) -> None:
        if (found := self._by_port.get(port)) is None:
            return
        self._end_each(self._table.admit(found.number, owner), "too many")
        found.known = True
        found.read_or_wait()

    def _refuse(self, port: int) -> None:
        if (found := self._by_port.get(port)) is not None:
            self._end_each(self._table.refuse(found.number), "too many")

    def _expire(self) -> None:
        late = self._table.expired(time.monotonic())
        if late:
            text = "closed connections that showed no token in time, such as one of %s"
            self._quiet.warning("late", text, self._connections[late[0]].peer)
        self._end_each(late, "no token")

    def _end_stalled(self) -> None:
        now = time.monotonic()
        for each in list(self._connections.values()):
            if each.client.is_stalled(now) or (each.server and each.server.is_stalled(now)):
                self.end(each, "stalled")

    def _end_each(self, numbers: list[int], cause: str) -> None:
        for number in numbers:
            if (found := self._connections.get(number)) is not None:
                self.end(found, cause)

    def end(self, connection: _ProxiedConnection, cause: str = "") -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._table.forget(connection.number)
        if self._by_port.get(connection.port) is connection:
            del self._by_port[connection.port]
        if cause:
            self._closed[cause] += 1
        for side in (connection.client, connection.server):
            if side is not None and side.transport is not None:
                side.transport.abort()
