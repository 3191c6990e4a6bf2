"""The thread serves until it is stopped, and can be stopped before it was started, or twice. Servers that end close
what they have just accepted."""

import asyncio
import gc
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from prometheus_client import CollectorRegistry

from central.coordinator.member_port import BOUNDS
from central.server.web.web_server import WebServer
from protos.common.http_server import Bounds, HttpAnswer, HttpRequest, HttpServer, listen
from protos.common.http_thread import HttpThread
from protos.common.probes import Probes
from protos.common.unknown_connections import UnknownLimits

ROUNDS, AT_ONCE = 20, 6


class Greeter:
    async def admit(self, request: HttpRequest) -> bool:
        return False

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, threading.current_thread().name.encode())

    def problem(self, status: int, why: str) -> HttpAnswer:
        return HttpAnswer(status, why.encode())


def greeter() -> HttpThread:
    return HttpThread("greeter", "127.0.0.1:0", Greeter(), Bounds(UnknownLimits()))


def test_it_serves_in_its_own_thread_until_it_is_stopped() -> None:
    thread = greeter()
    thread.start()
    port = thread.port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(1000).endswith(b"greeter")
    thread.stop()
    thread.stop()
    assert "greeter" not in {each.name for each in threading.enumerate()}
    with socket.create_server(("127.0.0.1", port)):
        pass  # the port is free again


def test_it_may_never_be_started() -> None:
    thread = greeter()
    port = thread.port
    thread.stop()
    thread.stop()
    thread.start()  # in a thread of the owner that is late
    assert "greeter" not in {each.name for each in threading.enumerate()}
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", ":0", "localhost:0"])
def test_addresses(address: str) -> None:
    with listen(address) as listener:
        host = "::1" if address == "[::1]:0" else "127.0.0.1"
        with socket.create_connection((host, listener.getsockname()[1]), timeout=10):
            pass


class Server(Protocol):
    @property
    def port(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


def probes() -> Server:
    return Probes("127.0.0.1:0", CollectorRegistry(), unhealthy=lambda: "", unready=lambda: "")


def console() -> Server:
    unused: Any = None
    return WebServer("127.0.0.1:0", unused, unused, unused)


def stopped(make: Callable[[], Server]) -> None:
    server = make()
    server.start()
    with ExitStack() as clients:
        for _ in range(AT_ONCE):
            clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        server.stop()


async def coordinator_stopped(turns: int) -> None:
    server = HttpServer(Greeter(), BOUNDS)
    listener = listen("127.0.0.1:0")
    port = listener.getsockname()[1]
    server.serve(listener)
    with ExitStack() as clients:
        for _ in range(AT_ONCE):
            clients.enter_context(socket.create_connection(("127.0.0.1", port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()


def leaks(end: Callable[[], None]) -> list[str]:
    """What nobody closes, the garbage collector reports."""
    gc.collect()
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(sys, "unraisablehook", lambda report: found.append(str(report.exc_value)))
        warnings.simplefilter("error")
        for _ in range(ROUNDS):
            end()
        gc.collect()
    return found


@pytest.mark.long
@pytest.mark.parametrize("make", [probes, console])
def test_connections_that_come_at_the_end_are_closed(make: Callable[[], Server]) -> None:
    assert not leaks(lambda: stopped(make))


@pytest.mark.long
@pytest.mark.parametrize("turns", range(5))
def test_a_coordinator_closes_what_it_has_just_accepted(turns: int) -> None:
    """turns: of the event loop between the connections and the end."""
    assert not leaks(lambda: asyncio.run(coordinator_stopped(turns)))
