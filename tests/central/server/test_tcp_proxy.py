"""The proxy forwards bytes as they are, in both directions, and waits for nobody."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from central.server.grpc import tcp_proxy
from central.server.grpc.connection_limits import Limits, Owner
from central.server.grpc.tcp_proxy import TcpProxy
from tests.fakes.acceptor import Acceptor
from tests.fakes.eventually import eventually

LIMITS = Limits(unknown_s=1.0, unknown_bytes=1000, chance_s=0.1)


class Behind:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.acceptor = Acceptor(self._take)
        self.port = self.acceptor.port

    def _take(self, client: socket.socket) -> None:
        self.clients.append(client.getpeername()[1])
        threading.Thread(target=self._echo, args=(client,), daemon=True).start()

    def _echo(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while data := client.recv(1 << 16):
                client.sendall(data)


@pytest.fixture
def behind() -> Iterator[Behind]:
    made = Behind()
    yield made
    made.acceptor.close()


@pytest.fixture
def proxy(behind: Behind) -> Iterator[TcpProxy]:
    made = TcpProxy("127.0.0.1:0", LIMITS)
    made.target = behind.port
    made.start()
    yield made
    made.stop()


def connect(proxy: TcpProxy, first: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    client.sendall(first)
    return client


def received(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(1 << 16)):
        data += more
    return data


def admitted(proxy: TcpProxy, behind: Behind, client: socket.socket, owner: Owner) -> int:
    client.sendall(b"x")
    assert received(client, 1) == b"x"
    port = behind.clients[-1]
    proxy.admit(port, owner)
    return port


def test_the_gRPC_server_hears_of_a_client_that_speaks(proxy: TcpProxy, behind: Behind) -> None:  # noqa: N802
    with connect(proxy) as client:
        eventually(lambda: proxy.counts()["unknown"] == 1)
        assert behind.clients == []
        client.sendall(b"hello")
        assert received(client, 5) == b"hello"
        assert proxy.peer(behind.clients[0]) == "127.0.0.1"
        assert proxy.owner(behind.clients[0]) is None
    eventually(lambda: proxy.counts()["unknown"] == 0)
    assert proxy.peer(behind.clients[0]) == ""


def test_megabytes_both_ways_through_a_slow_reader(proxy: TcpProxy, behind: Behind) -> None:
    data = bytes(range(256)) * (64 << 10)  # 16 MiB: more than any buffer
    with connect(proxy) as client:
        admitted(proxy, behind, client, Owner("agent", "n1"))
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        time.sleep(0.3)
        assert received(client, len(data)) == data
        sender.join()


def test_what_a_server_sent_before_its_end_arrives(proxy: TcpProxy) -> None:
    data = bytes(range(256)) * (32 << 10)  # 8 MiB

    def send(client: socket.socket) -> None:
        with client:
            client.recv(1)
            client.sendall(data)

    ending = Acceptor(lambda client: threading.Thread(target=send, args=(client,)).start())
    proxy.target = ending.port
    with connect(proxy, b"x") as client:
        time.sleep(0.3)
        assert received(client, len(data) + 1) == data
    ending.close()


def test_an_unknown_client_that_goes_on_is_not_read_without_end(
    proxy: TcpProxy, behind: Behind
) -> None:
    with connect(proxy, b"z") as client:
        assert received(client, 1) == b"z"
        client.sendall(b"y" * 5000)
        assert received(client, 999) == b"y" * 999
        proxy.admit(behind.clients[-1], Owner("jane"))
        assert received(client, 4001) == b"y" * 4001


def test_an_unknown_client_is_not_read_without_end(proxy: TcpProxy, behind: Behind) -> None:
    data = b"y" * 5000
    with connect(proxy, data) as client:
        assert received(client, 1000) == data[:1000]
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.admit(behind.clients[-1], Owner("jane"))
        client.settimeout(10)
        assert received(client, 4000) == data[1000:]


def test_a_client_that_takes_nothing_is_closed(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_proxy, "STALL_S", 1.0)
    proxy = TcpProxy("127.0.0.1:0", LIMITS)
    proxy.target = behind.port
    proxy.start()
    with connect(proxy) as client, connect(proxy) as reading:
        for each in (client, reading):
            admitted(proxy, behind, each, Owner("jane"))
        client.settimeout(0.2)
        sent = 0
        with suppress(OSError):  # until all buffers are full
            while sent < 200:
                client.sendall(bytes(1 << 20))
                sent += 1
        assert sent < 64  # MiB: the proxy does not read what it cannot pass on
        eventually(lambda: proxy.closed() == {"stalled": 1})
        reading.sendall(b"on")
        assert received(reading, 2) == b"on"
    proxy.stop()


def test_clients_without_a_token_are_closed_in_time(proxy: TcpProxy, behind: Behind) -> None:
    with connect(proxy) as silent, connect(proxy, b"z") as speaking, connect(proxy) as known:
        admitted(proxy, behind, known, Owner("agent", "n1"))
        assert received(speaking, 1) == b"z"
        for client in (silent, speaking):
            assert client.recv(1) == b""
        assert proxy.closed() == {"no token": 2}
        known.sendall(b"still")
        assert received(known, 5) == b"still"


def test_a_callers_oldest_connection_gives_way(proxy: TcpProxy, behind: Behind) -> None:
    clients = [connect(proxy) for _ in range(LIMITS.per_agent + 1)]
    try:
        for client in clients:
            admitted(proxy, behind, client, Owner("agent", "n1"))
        assert clients[0].recv(1) == b""
        there = {"unknown": 0, "agent": LIMITS.per_agent, "user": 0, "coordinator": 0}
        assert proxy.counts() == there
    finally:
        for client in clients:
            client.close()


def test_refused_calls_close_their_connection(proxy: TcpProxy, behind: Behind) -> None:
    with connect(proxy, b"x") as client:
        assert received(client, 1) == b"x"
        for _ in range(LIMITS.refusals):
            proxy.refuse(behind.clients[-1])
        with suppress(ConnectionError):
            assert client.recv(1) == b""
        eventually(lambda: proxy.counts()["unknown"] == 0)


def test_a_new_server_behind_takes_new_connections(proxy: TcpProxy, behind: Behind) -> None:
    other = Behind()
    with connect(proxy) as old:
        admitted(proxy, behind, old, Owner("agent", "n1"))
        proxy.target = other.port
        with connect(proxy, b"new") as new:
            assert received(new, 3) == b"new"
            old.sendall(b"old")
            assert received(old, 3) == b"old"
        assert len(other.clients) == 1
    other.acceptor.close()


def test_no_server_behind(proxy: TcpProxy, behind: Behind) -> None:
    proxy.target = 1
    for _ in range(10):
        with connect(proxy, b"x") as client, suppress(ConnectionError):
            assert client.recv(1) == b""
    eventually(lambda: proxy.counts()["unknown"] == 0)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_ports_beyond_the_loopback() -> None:
    for listen in (*["[::1]:0"] * has_ipv6(), "localhost:0", "0.0.0.0:0"):
        proxy = TcpProxy(listen, LIMITS)
        assert proxy.port
        proxy.stop()
