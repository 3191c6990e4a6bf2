"""A listening socket that is served by an event loop in a thread of its own.

thread = ListenerThread("probes", listener, serve)     # serve(listener, ending): until ending is set
thread.start()
thread.port
thread.stop()                                          # also if it was never started
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable

STOP_S = 5.0
ACCEPT_TURNS = (
    10  # of the event loop, until an accepted connection has its handler: about four, and some more
)

Serve = Callable[[socket.socket, asyncio.Event], Awaitable[None]]


class ListenerThread:
    def __init__(self, name: str, listener: socket.socket, serve: Serve) -> None:
        self._listener, self._serve = listener, serve
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Waits for the end of the thread, STOP_S at most, and closes the socket."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(STOP_S)
        elif not self._loop.is_closed():
            self._loop.close()
        self._listener.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve_until_stopped())
        finally:
            self._loop.close()

    async def _serve_until_stopped(self) -> None:
        await self._serve(self._listener, self._ending)


async def stop_accepting(server: asyncio.Server) -> None:
    """Closes the server once each connection that it has accepted has its handler, which is then to end it. A server that
    is closed at once leaves those that it has just accepted to nobody: asyncio makes no transport for them any more, and
    their sockets stay open until they are collected as garbage."""
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)
    server.close()
