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

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric

from central.server.grpc.connection_limits import ConnectionTable, Limits, Owner
from central.server.throttled_log import ThrottledLog
from protos.common import open_files
from protos.common.metric_families import counter, gauge

log = logging.getLogger(__name__)

CHUNK = 1 << 16
BACKLOG = 1024
ACCEPTS = 64  # per pass, so that a flood of connections does not delay those that there are
STALL_S = 60.0  # a side that takes no bytes for this long has gone
_EMERGENCY_S = 0.1  # without file descriptors
_BLOCKED = (BlockingIOError, InterruptedError)


@dataclass(slots=True)
class _Side:
    """One socket of a connection, with what could not be sent to it yet."""

    socket: socket.socket
    connection: "_ProxiedConnection"
    pending: bytes = b""
    blocked_since: float = 0.0
    ended: bool = False  # it sends no more
    events: int = 0


@dataclass(slots=True)
class _ProxiedConnection:
    number: int
    peer: str
    client: _Side = field(init=False)
    server: _Side | None = None  # from the first byte on
    port: int = 0  # as the gRPC server sees it
    allowance: int = 0  # bytes that its client may still send before it shows a token
    known: bool = False  # it has shown one
    unread: bool = False  # it has sent more before that

    def other(self, side: _Side) -> _Side | None:
        return self.server if side is self.client else self.client


class TcpProxy:
    def __init__(self, listen: str, limits: Limits) -> None:
        """Raises OSError."""
        self.target = 0
        # A forwarded connection takes three file descriptors.
        known = limits.agents + limits.users + limits.coordinators
        open_files.allow(3 * known + limits.unknown)
        self._listener = _listen(listen)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # around the table, the two mappings and the commands
        self._limits = limits
        self._table = ConnectionTable(limits)
        self._connections: dict[int, _ProxiedConnection] = {}
        self._by_port: dict[int, _ProxiedConnection] = {}
        self._closing: deque[int] = deque()
        self._resuming: deque[_ProxiedConnection] = deque()
        self._closed: Counter[str] = Counter()
        self._numbers = 0
        self._ending = False
        self._stalled_check = 0.0
        self._accept_again: float | None = None
        self._quiet = ThrottledLog(log)
        self._wake_out, self._wake_in = socket.socketpair()
        for each in (self._wake_out, self._wake_in, self._listener):
            each.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="grpc-proxy", daemon=True)

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._woken)
        self._thread.start()

    def stop(self) -> None:
        self._ending = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(5.0)
        else:
            self._close_all()

    # From any thread

    def peer(self, port: int) -> str:
        """The address of the client whose connection comes from this port; "" if there is none."""
        with self._lock:
            found = self._by_port.get(port)
            return found.peer if found is not None else ""

    def owner(self, port: int) -> Owner | None:
        with self._lock:
            found = self._by_port.get(port)
            return self._table.owner(found.number) if found is not None else None

    def admit(self, port: int, owner: Owner) -> None:
        """The connection's caller is known from now on."""
        with self._lock:
            found = self._by_port.get(port)
            closing = self._table.admit(found.number, owner) if found is not None else []
            self._closing += closing
            if found is not None and not found.known:
                # Before unread is read: the proxy writes unread, and then reads known.
                found.known = True
                if found.unread:
                    self._resuming.append(found)
        if closing or self._resuming:
            self._wake()

    def refuse(self, port: int) -> None:
        """A call on the connection has shown no valid token. After some it is closed, which also drops what gRPC
        has not handed out yet."""
        with self._lock:
            found = self._by_port.get(port)
            closing = self._table.refuse(found.number) if found is not None else []
            self._closing += closing
        if closing:
            self._wake()

    def counts(self) -> dict[str, int]:
        """Connections by state: unknown, agent, user, coordinator."""
        with self._lock:
            return self._table.counts()

    def closed(self) -> dict[str, int]:
        """Connections that the proxy closed, by cause."""
        with self._lock:
            return dict(self._closed)

    def families(self) -> Iterator[Metric]:
        about = "Connections to the gRPC port: unknown until one has shown a valid token"
        yield gauge("grpc_connections", about, sorted(self.counts().items()), "state")
        about = "Connections to the gRPC port that were closed for a limit, by cause"
        yield counter("grpc_connections_closed", about, sorted(self.closed().items()), "cause")

    # In the proxy's thread

    def _run(self) -> None:
        while not self._ending:
            try:
                for key, events in self._selector.select(self._timeout()):
                    if isinstance(key.data, _Side):
                        self._ready(key.data, events)
                    else:
                        key.data()
                self._expire()
            except Exception:  # noqa: BLE001 - logged, at most once a minute
                self._quiet.exception("proxy", "unhandled exception (bug)")
                time.sleep(_EMERGENCY_S)
        self._close_all()

    def _timeout(self) -> float | None:
        with self._lock:
            deadline = self._table.next_deadline()
        due = [at for at in (deadline, self._accept_again) if at is not None]
        return min([STALL_S, *(max(0.0, at - time.monotonic()) for at in due)])

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                client, address = self._listener.accept()
            except (*_BLOCKED, ConnectionError):
                return
            except OSError as error:  # no file descriptors are left
                self._quiet.warning("accept", "can't accept connections: %s", error.strerror)
                self._selector.unregister(self._listener)
                self._accept_again = time.monotonic() + _EMERGENCY_S
                return
            self._accepted(client, str(address[0]).removeprefix("::ffff:"))

    def _accepted(self, client: socket.socket, peer: str) -> None:
        self._numbers += 1
        connection = _ProxiedConnection(self._numbers, peer, allowance=self._limits.unknown_bytes)
        connection.client = _Side(client, connection)
        with self._lock:
            self._connections[connection.number] = connection
            closing = self._table.accept(connection.number, peer, time.monotonic())
        for number in closing:
            self._end(self._connections[number], "too many")
            self._quiet.warning(
                f"many {peer}",
                "closed a connection of %s: too many connections that have shown no token",
                self._peer_of(number, connection),
            )
        if connection.number not in closing:
            client.setblocking(False)
            _no_delay(client)
            self._watch(connection.client, selectors.EVENT_READ)

    def _peer_of(self, number: int, newest: _ProxiedConnection) -> str:
        return newest.peer if number == newest.number else "another peer"

    def _woken(self) -> None:
        with contextlib.suppress(*_BLOCKED):
            while self._wake_out.recv(CHUNK):
                pass
        with self._lock:
            numbers, self._closing = self._closing, deque()
            found = [self._connections[n] for n in numbers if n in self._connections]
            resuming, self._resuming = self._resuming, deque()
        for connection in found:
            self._end(connection, "too many")
        for connection in resuming:
            self._resume_if_known(connection)

    def _resume_if_known(self, connection: _ProxiedConnection) -> None:
        if not connection.known or connection.number not in self._connections:
            return
        connection.unread = False
        if connection.server is not None and not connection.server.pending:
            self._watch(connection.client, connection.client.events | selectors.EVENT_READ)

    def _expire(self) -> None:
        now = time.monotonic()
        if self._accept_again is not None and now >= self._accept_again:
            self._accept_again = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        with self._lock:
            late = [self._connections[number] for number in self._table.expired(now)]
        for connection in late:
            self._end(connection, "no token")
        if late:
            self._quiet.warning(
                "late",
                "closed connections that showed no token in time, such as one of %s",
                late[0].peer,
            )
        if now >= self._stalled_check:
            self._stalled_check = now + STALL_S / 4
            for connection in list(self._connections.values()):
                sides = (connection.client, connection.server)
                if any(s and s.pending and now - s.blocked_since > STALL_S for s in sides):
                    self._end(connection, "stalled")

    def _ready(self, side: _Side, events: int) -> None:
        if side.connection.number not in self._connections:
            return  # ended in this pass
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(side)
            if events & selectors.EVENT_READ:
                self._forward(side)
        except _BLOCKED:
            return
        except OSError:
            self._end(side.connection)

    def _forward(self, side: _Side) -> None:
        size = self._allowed(side)
        if not size:
            return
        data = side.socket.recv(size)
        to = side.connection.other(side)
        if not data:
            side.ended = True
            if to is None or not to.pending:
                self._end(side.connection)
            else:
                self._watch(side, 0)
            return
        if to is None:
            to = self._connect(side.connection)
        side.connection.allowance -= len(data) if side is side.connection.client else 0
        to.pending = data
        to.blocked_since = time.monotonic()
        self._flush(to)

    def _allowed(self, side: _Side) -> int:
        """Returns how many bytes may be read from it now."""
        connection = side.connection
        if connection.known or side is not connection.client:
            return CHUNK
        if connection.allowance <= 0:
            self._watch(side, side.events & ~selectors.EVENT_READ)
            connection.unread = True
            self._resume_if_known(connection)
            return 0
        return min(CHUNK, connection.allowance)

    def _flush(self, to: _Side) -> None:
        """Sends what is pending. Until all is sent, nothing more is read from the other side."""
        try:
            sent = to.socket.send(to.pending)
        except _BLOCKED:
            sent = 0
        if sent:
            to.pending = to.pending[sent:]
            to.blocked_since = time.monotonic()
        source = to.connection.other(to)
        assert source is not None
        if to.pending:
            self._watch(to, to.events | selectors.EVENT_WRITE)
            self._watch(source, source.events & ~selectors.EVENT_READ)
        elif source.ended:
            self._end(to.connection)
        else:
            self._watch(to, to.events & ~selectors.EVENT_WRITE)
            if source is to.connection.server or not to.connection.unread:
                self._watch(source, source.events | selectors.EVENT_READ)

    def _connect(self, connection: _ProxiedConnection) -> _Side:
        """Connects to the gRPC server, when the client has sent its first bytes."""
        inner = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        inner.setblocking(False)
        _no_delay(inner)
        connection.server = side = _Side(inner, connection)
        inner.connect_ex(("127.0.0.1", self.target))
        connection.port = int(inner.getsockname()[1])
        with self._lock:
            self._by_port[connection.port] = connection
            self._table.spoke(connection.number)
        self._watch(side, selectors.EVENT_READ)
        return side

    def _watch(self, side: _Side, events: int) -> None:
        if events == side.events:
            return
        if not side.events:
            self._selector.register(side.socket, events, side)
        elif events:
            self._selector.modify(side.socket, events, side)
        else:
            self._selector.unregister(side.socket)
        side.events = events

    def _end(self, connection: _ProxiedConnection, cause: str = "") -> None:
        with self._lock:
            if self._connections.pop(connection.number, None) is None:
                return
            self._table.forget(connection.number)
            if self._by_port.get(connection.port) is connection:
                del self._by_port[connection.port]
            if cause:
                self._closed[cause] += 1
        for side in (connection.client, connection.server):
            if side is not None:
                self._watch(side, 0)
                side.socket.close()

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            self._end(connection)
        self._selector.close()
        for each in (self._listener, self._wake_in, self._wake_out):
            each.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake; closed: it has ended
            self._wake_in.send(b"\0")


def _listen(listen: str) -> socket.socket:
    """Raises OSError."""
    host, _, port = listen.rpartition(":")
    found = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)


def _no_delay(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
