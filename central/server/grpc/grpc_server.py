"""One TLS gRPC server on its own thread and event loop: thousands of long polls are coroutines.

server = serve("0.0.0.0:9443", credentials, [agents.add_to, queries.add_to])
server.port; server.stop()
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import grpc
import grpc.aio

from central.server.tls import Credentials

log = logging.getLogger(__name__)

_START_S = 30.0
_GRACE_S = 0.5
RENEW_EVERY_S = 12 * 3600.0
_OPTIONS = [
    ("grpc.so_reuseport", 0),  # fail if another process listens on the port
    # Pings find agents that have vanished; agents may ping as well.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # default a minute; the longer timeout wins
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


class CannotStart(Exception):
    """The process can't start with these settings: a sentence for the user, exit code 2."""


class Server:
    def __init__(
        self,
        listen: str,
        credentials: Credentials,
        services: Sequence[Callable[[grpc.aio.Server], None]],
        renew: Callable[[], Credentials] | None = None,
        renew_every_s: float = RENEW_EVERY_S,
    ) -> None:
        self.port = 0
        self._listen = listen
        self._credentials = credentials
        self._services = services
        self._renew = renew
        self._renew_every_s = renew_every_s
        self._started: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="grpc-server", daemon=True)

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
        except Exception as error:  # start() raises it in its own thread
            if self._started.done():
                log.exception("the gRPC server ended")
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
            port = server.add_secure_port(self._listen, self._tls())
        except RuntimeError as error:
            raise CannotStart(
                f"--listen {self._listen}: the address is in use, or not an address of this machine"
            ) from error
        await server.start()
        self._started.set_result(port)
        while not await self._ends_within(self._renew_every_s):
            await self._renewal()
        await server.stop(_GRACE_S)

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
        return self._ending.is_set()

    async def _renewal(self) -> None:
        if self._renew is None:
            return
        try:
            self._credentials = await self._loop.run_in_executor(None, self._renew)
        except Exception as error:  # noqa: BLE001 - the present certificate may be valid for weeks
            log.warning(
                "could not renew the certificate: %s; retrying in %.0f h",
                error,
                self._renew_every_s / 3600,
            )

    def _tls(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            _certificate(self._credentials), lambda: _certificate(self._credentials)
        )


def serve(
    listen: str,
    credentials: Credentials,
    services: Sequence[Callable[[grpc.aio.Server], None]],
    renew: Callable[[], Credentials] | None = None,
    renew_every_s: float = RENEW_EVERY_S,
) -> Server:
    """A started server. Raises CannotStart."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CannotStart(f'--listen "{listen}" is not HOST:PORT')
    server = Server(listen, credentials, services, renew, renew_every_s)
    server.start()
    return server


def _certificate(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    chain = credentials.certificate + credentials.ca
    return grpc.ssl_server_certificate_configuration([(credentials.key, chain)])
