"""The HTTP port of both programs: /metrics for Prometheus, /healthz and /readyz for the kubelet.
Plain HTTP, because nothing here is secret and no request changes anything.

Anybody in the cluster may connect. A connection is for one request, and ends after CONNECTION_S. Among too many
connections, the oldest one of the peer with the most is closed for a new one, so probes are answered while others
flood the port. /healthz and /readyz are answered in the event loop, and wait for no collection of metrics.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from protos.common.http_server import Bounds, HttpAnswer, HttpRequest, RequestRefused
from protos.common.http_thread import HttpThread
from protos.common.unknown_connections import UnknownLimits

log = logging.getLogger(__name__)

CONNECTIONS = 256
CONNECTION_S = 5.0  # from its start to the last byte of the answer
REQUEST_BYTES = 8 << 10
COLLECTIONS = 8  # of metrics, waiting or under way; one at a time
TEXT = "text/plain; charset=utf-8"
_UNKNOWN = UnknownLimits(CONNECTIONS, CONNECTIONS, CONNECTION_S, chance_s=0.0)

Problem = Callable[[], str]  # a message for people; empty: none


class Unservable(Exception):
    """The server can't listen on the address; the message is for people."""


class Probes(HttpThread):
    """unhealthy and unready are called in the event loop and must not block."""

    def __init__(
        self, listen: str, registry: CollectorRegistry, *, unhealthy: Problem, unready: Problem
    ) -> None:
        """Raises Unservable."""
        self.registry, self.unhealthy, self.unready = registry, unhealthy, unready
        self.collector = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self.collecting = 0
        bounds = Bounds(_UNKNOWN, head=REQUEST_BYTES, body=0, write_s=CONNECTION_S)
        try:
            super().__init__("probes", listen, self, bounds)
        except (OSError, ValueError) as error:
            raise Unservable(f"--metrics-listen {listen}: {error}") from error
        self.connections = self.server.streams

    def stop(self) -> None:
        super().stop()
        self.collector.shutdown(wait=False, cancel_futures=True)

    # Called by the server, in the event loop

    async def admit(self, request: HttpRequest) -> bool:
        if request.method not in {"GET", "HEAD"}:
            raise RequestRefused(405, "GET or HEAD")
        return False

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        match request.path:
            case "/metrics":
                return HttpAnswer(200, await self._collected(), CONTENT_TYPE_LATEST)
            case "/healthz":
                return _probe(self.unhealthy)
            case "/readyz":
                return _probe(self.unready)
            case _:
                raise RequestRefused(404, "/metrics, /healthz, /readyz")

    def problem(self, status: int, why: str) -> HttpAnswer:
        return HttpAnswer(status, f"{why}\n".encode(), TEXT)

    async def _collected(self) -> bytes:
        if self.collecting >= COLLECTIONS:
            raise RequestRefused(503, "too many requests for metrics")
        self.collecting += 1
        collected = asyncio.get_running_loop().run_in_executor(
            self.collector, generate_latest, self.registry
        )
        collected.add_done_callback(self._count_down)
        try:
            return await collected
        except Exception as error:
            log.warning("could not collect the metrics: %r", error)
            why = "the metrics could not be collected; see the log"
            raise RequestRefused(500, why) from error

    def _count_down(self, _: "asyncio.Future[bytes]") -> None:
        self.collecting -= 1


def _probe(problem: Problem) -> HttpAnswer:
    try:
        found = problem()
    except Exception as error:  # noqa: BLE001 - the kubelet must learn of it
        found = f"the probe failed (bug): {error!r}"
    return HttpAnswer(503 if found else 200, f"{found or 'ok'}\n".encode(), TEXT)
