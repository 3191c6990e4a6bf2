"""One TLS gRPC server on its own thread and event loop: thousands of long polls are coroutines.

server = serve("0.0.0.0:9443", credentials, [intake.add_to, desk.add_to])   # Unusable: exit 2
server.port; server.stop()
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import grpc
import grpc.aio

from central.tls import Credentials

log = logging.getLogger(__name__)

_START_S = 30.0
_GRACE_S = 0.5
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # a port that another process serves is an error, not shared
    # Agents that vanished are noticed by pings, not by writes; theirs are welcome too.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


class Unusable(Exception):
    """The address can't be listened on: a sentence for the user, exit 2."""


class Server:
    def __init__(
        self,
        listen: str,
        credentials: Credentials,
        services: Sequence[Callable[[grpc.aio.Server], None]],
    ) -> None:
        self.port = 0
        self._listen = listen
        self._credentials = credentials
        self._services = services
        self._started: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.port = self._started.result(_START_S)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(10.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # it belongs to the thread that waits in start()
            if self._started.done():
                log.exception("the server ended")
            else:
                self._started.set_exception(error)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        server = grpc.aio.server(options=_OPTIONS)
        for add_to in self._services:
            add_to(server)
        try:
            port = server.add_secure_port(self._listen, _tls(self._credentials))
        except RuntimeError as error:
            raise Unusable(
                f"--listen {self._listen}: the address is in use or not one of this machine"
            ) from error
        await server.start()
        self._started.set_result(port)
        await self._ending.wait()
        await server.stop(_GRACE_S)


def serve(
    listen: str, credentials: Credentials, services: Sequence[Callable[[grpc.aio.Server], None]]
) -> Server:
    """Started. Raises Unusable."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise Unusable(f'--listen "{listen}" is not HOST:PORT')
    server = Server(listen, credentials, services)
    server.start()
    return server


def _tls(credentials: Credentials) -> grpc.ServerCredentials:
    chain = credentials.certificate + credentials.ca
    return grpc.ssl_server_credentials([(credentials.key, chain)])
