"""The thread serves until it is stopped, and can be stopped before it was started, or twice. Servers that end close what
they have just accepted."""

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

from central.coordinator.http_server import HttpServer
from central.server.web.web_server import WebServer
from protos.common.listener_thread import ListenerThread
from protos.common.probes import Probes

ROUNDS, AT_ONCE = 20, 6


def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


async def greet(listener: socket.socket, ending: asyncio.Event) -> None:
    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(threading.current_thread().name.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    await ending.wait()
    server.close()


def test_it_serves_in_its_own_thread_until_it_is_stopped() -> None:
    thread = ListenerThread("greeter", listener(), greet)
    thread.start()
    port = thread.port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        assert client.recv(100) == b"greeter"
    thread.stop()
    thread.stop()
    assert "greeter" not in {each.name for each in threading.enumerate()}
    with socket.create_server(("127.0.0.1", port)):
        pass  # the port is free again


def test_it_may_never_be_started() -> None:
    thread = ListenerThread("greeter", listener(), greet)
    port = thread.port
    thread.stop()
    thread.stop()
    with socket.create_server(("127.0.0.1", port)):
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
    unused: Any = None
    server = HttpServer(unused, unused, unused)
    port = await server.start("127.0.0.1", 0, None)
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
