"""The TLS gRPC server on its own thread and event loop, behind the proxy: thousands of long polls are coroutines.

server = serve("0.0.0.0:9443", credentials, [agents.add_to, queries.add_to], authenticator)
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

from central.server.grpc.auth import Authenticator
from central.server.grpc.connection_limits import Limits
from central.server.grpc.grpc_logs import limit_grpc_logs
from central.server.grpc.tcp_proxy import TcpProxy
from central.server.tls import Credentials

log = logging.getLogger(__name__)

_START_S = 30.0
_GRACE_S = 0.5
_DRAIN_S = 150.0  # of the server with the earlier certificate: longer than a long poll
RENEW_EVERY_S = 12 * 3600.0
STREAMS = 16  # concurrent calls of a connection; an agent makes two
MESSAGE_BYTES = 4 << 20
METADATA_BYTES = 24 << 10  # tokens of some issuers have 16 KiB
_OPTIONS = [
    ("grpc.so_reuseport", 0),
    # Pings find agents that have vanished; agents may ping as well.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # default a minute; the longer timeout wins
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # What a connection may take.
    ("grpc.max_concurrent_streams", STREAMS),
    ("grpc.http.overload_protection", 1),  # resets streams above the maximum, as of rapid resets
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.settings_timeout", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
]


class CannotStart(Exception):
    """The process can't start with these settings: a sentence for the user, exit code 2."""


class Server:
    """The proxy is the address that clients know. A renewed certificate takes a new gRPC server behind it, to
    which the proxy sends new connections; the earlier one finishes its calls."""

    def __init__(
        self,
        proxy: TcpProxy,
        credentials: Credentials,
        services: Sequence[Callable[[grpc.aio.Server], None]],
        renew: Callable[[], Credentials] | None = None,
        renew_every_s: float = RENEW_EVERY_S,
    ) -> None:
        self.proxy = proxy
        self.credentials = credentials
        self._services = services
        self._renew = renew
        self._renew_every_s = renew_every_s
        self._draining: set[asyncio.Task[None]] = set()
        self._started: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="grpc-server", daemon=True)

    @property
    def port(self) -> int:
        return self.proxy.port

    def start(self) -> None:
        self._thread.start()
        self._started.result(_START_S)
        self.proxy.start()

    def stop(self) -> None:
        self.proxy.stop()
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
        server = await self._new_server()
        self._started.set_result(None)
        wait_s = 0.0  # the certificate of a replica that was a standby for weeks is old
        while not await self._ends_within(wait_s):
            wait_s = self._renew_every_s
            if await self._renewed():
                earlier, server = server, await self._new_server()
                task = asyncio.create_task(earlier.stop(_DRAIN_S))
                self._draining.add(task)
                task.add_done_callback(self._draining.discard)
        for task in self._draining:
            task.cancel()
        await server.stop(_GRACE_S)

    async def _new_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=_OPTIONS)
        for add_to in self._services:
            add_to(server)
        pair = (self.credentials.key, self.credentials.certificate + self.credentials.ca)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        await server.start()
        self.proxy.target = port
        return server

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
        return self._ending.is_set()

    async def _renewed(self) -> bool:
        """Reads the certificate again, and returns whether it has changed."""
        if self._renew is None:
            return False
        earlier = self.credentials
        try:
            self.credentials = await self._loop.run_in_executor(None, self._renew)
        except Exception as error:  # noqa: BLE001 - the present certificate may be valid for weeks
            log.warning(
                "could not renew the certificate: %s; retrying in %.0f h",
                error,
                self._renew_every_s / 3600,
            )
        return self.credentials != earlier


def serve(
    listen: str,
    credentials: Credentials,
    services: Sequence[Callable[[grpc.aio.Server], None]],
    authenticator: Authenticator | None = None,
    *,
    limits: Limits | None = None,
    renew: Callable[[], Credentials] | None = None,
    renew_every_s: float = RENEW_EVERY_S,
) -> Server:
    """A started server. Raises CannotStart."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CannotStart(f'--listen "{listen}" is not HOST:PORT')
    limit_grpc_logs()
    try:
        proxy = TcpProxy(listen, limits or Limits())
    except OSError as error:
        raise CannotStart(
            f"--listen {listen}: the address is in use, or not an address of this machine"
        ) from error
    if authenticator is not None:
        authenticator.connections = proxy
    server = Server(proxy, credentials, services, renew, renew_every_s)
    server.start()
    return server
