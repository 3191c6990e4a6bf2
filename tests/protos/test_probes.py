"""The HTTP port under load: probes are answered while strangers hold and flood it."""

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from protos.common.probes import COLLECTIONS, CONNECTION_S, CONNECTIONS, Probes, Unservable
from tests.fakes.eventually import eventually


class Slow(Collector):
    def __init__(self) -> None:
        self.gate = threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.gate.wait(20)
        return iter(())


@pytest.fixture
def probes() -> Iterator[Probes]:
    registry = CollectorRegistry()
    Gauge("some_gauge", "One.", registry=registry).set(7)
    server = Probes("127.0.0.1:0", registry, unhealthy=str, unready=lambda: "not yet")
    server.start()
    yield server
    server.stop()


def get(probes: Probes, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", probes.port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def connected(probes: Probes, first: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", probes.port), timeout=10)
    made.sendall(first)
    return made


def test_paths_and_methods(probes: Probes) -> None:
    assert get(probes, "/healthz?x=1") == (200, "ok\n")
    assert get(probes, "/readyz") == (503, "not yet\n")
    assert "some_gauge 7.0" in get(probes, "/metrics")[1]
    assert get(probes, "/")[0] == 404
    assert get(probes, "/healthz", "HEAD") == (200, "")
    assert get(probes, "/healthz", "POST")[0] == 405


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"\r\n\r\n", b" 400 "),
        (b"GET /healthz HTTP/2\r\n\r\n", b" 400 "),
        (b"GET /" + b"x" * 20_000, b""),
        (b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 5_000, b""),
        (b"GET /healthz HTTP/1.0\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n", b" 200 "),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b" 400 "),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b" 405 "),
        (b"GET /healthz HTTP/1.1\r\nContent-Length: 9\r\n\r\n", b" 413 "),
    ],
)
def test_odd_requests(probes: Probes, sent: bytes, status: bytes) -> None:
    with connected(probes, sent) as client:
        answer = b""
        with suppress(ConnectionError):
            while more := client.recv(1 << 16):
                answer += more
    assert status in answer.partition(b"\r\n")[0]
    assert answer.count(b"HTTP/1.1 ") == bool(status), (
        "a head without end is closed without an answer"
    )
    assert get(probes, "/healthz")[0] == 200


def test_a_probe_that_raises_is_an_answer(probes: Probes) -> None:
    probes.unhealthy = lambda: str(1 // 0)
    status, why = get(probes, "/healthz")
    assert status == 503
    assert "ZeroDivisionError" in why


def test_held_connections_give_way_to_new_ones(probes: Probes) -> None:
    """Silent ones, half requests, and readers that do not read."""
    threads = threading.active_count()  # earlier tests' among them
    with ExitStack() as stack:
        for number in range(CONNECTIONS + 100):
            first = (b"", b"GET /healthz HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nA: ")[number % 3]
            stack.enter_context(connected(probes, first))
            if number % 50 == 0:
                assert get(probes, "/healthz")[0] == 200
        assert get(probes, "/healthz")[0] == 200
        assert len(probes.connections) <= CONNECTIONS
        assert threading.active_count() <= threads + 5


@pytest.mark.long
def test_a_slow_writer_is_closed_in_time(probes: Probes) -> None:
    """Although it never pauses for long."""
    with connected(probes, b"GET /healthz HTTP/1.1\r\n") as client:
        began = time.monotonic()
        client.settimeout(0.2)
        with suppress(ConnectionError):
            while True:
                client.sendall(b"x")
                try:
                    if not client.recv(100):
                        break
                except TimeoutError:
                    continue
        assert time.monotonic() - began < 4 * CONNECTION_S
    eventually(lambda: not probes.connections)


def test_collections_of_metrics_are_bounded_and_delay_no_probe(probes: Probes) -> None:
    slow = Slow()
    probes.registry.register(slow)
    asked = [connected(probes, b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(COLLECTIONS + 5)]
    try:
        eventually(lambda: probes.collecting == COLLECTIONS)
        assert get(probes, "/healthz")[0] == 200
        assert get(probes, "/metrics")[0] == 503
        slow.gate.set()
        answers = [client.recv(100).split()[1] for client in asked]
        assert sorted(answers) == [b"200"] * COLLECTIONS + [b"503"] * 5
    finally:
        slow.gate.set()
        for client in asked:
            client.close()


@pytest.mark.long
def test_a_flood_is_answered_between(probes: Probes) -> None:
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            with suppress(OSError), connected(probes, os.urandom(100)):
                pass

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            assert get(probes, "/healthz")[0] == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_an_address_that_is_none() -> None:
    for listen in ("127.0.0.1:99999", "192.0.2.1:80", "x"):
        with pytest.raises(Unservable, match="--metrics-listen"):
            Probes(listen, CollectorRegistry(), unhealthy=str, unready=str)


def test_a_port_is_free_again(probes: Probes) -> None:
    port = probes.port
    get(probes, "/healthz")
    probes.stop()
    again = Probes(f"127.0.0.1:{port}", CollectorRegistry(), unhealthy=str, unready=str)
    again.stop()
