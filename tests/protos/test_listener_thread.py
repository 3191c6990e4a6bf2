"""The thread serves until it is stopped, and can be stopped before it was started, or twice."""

import asyncio
import socket
import threading

from protos.common.listener_thread import ListenerThread


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
