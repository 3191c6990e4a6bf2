"""The HTTP server of both programs: /metrics for Prometheus, /healthz and /readyz for the kubelet.
Plain HTTP, because nothing here is secret and no request changes anything."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

log = logging.getLogger(__name__)

MAX_REQUESTS = 8  # at a time; further connections are closed
TIMEOUT_S = 5.0  # for a silent client

Problem = Callable[[], str]  # a message for people; empty: none


class Unservable(Exception):
    """The server can't listen on the address; the message is for people."""


class Probes(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(
        self, listen: str, registry: CollectorRegistry, *, unhealthy: Problem, unready: Problem
    ) -> None:
        """Raises Unservable."""
        self.registry, self.unhealthy, self.unready = registry, unhealthy, unready
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="probes", daemon=True)
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, int(port)), _Handler)
        except (OSError, OverflowError, ValueError) as error:
            raise Unservable(f"--metrics-listen {listen}: {error}") from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def _serve(self) -> None:
        """Unlike serve_forever(), this does not wake up twice a second to check for the end."""
        while not self._ending.is_set():
            self.handle_request()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            host, port = self.server_address[:2]
            # handle_request() returns only after a connection, so make one.
            with contextlib.suppress(OSError):
                socket.create_connection((_reachable(str(host)), port), timeout=1.0).close()
            self._thread.join(1.0)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("request from %s failed", client_address)


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


class _Handler(BaseHTTPRequestHandler):
    server: Probes
    timeout = TIMEOUT_S
    server_version = "lockstep"
    sys_version = ""

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, generate_latest(self.server.registry), CONTENT_TYPE_LATEST)
            case "/healthz":
                self._probe(self.server.unhealthy())
            case "/readyz":
                self._probe(self.server.unready())
            case _:
                self._answer(404, b"/metrics, /healthz, /readyz\n")

    def _probe(self, problem: str) -> None:
        self._answer(503 if problem else 200, f"{problem or 'ok'}\n".encode())

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        with contextlib.suppress(OSError):  # the client closed the connection
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  name of the base class
        log.debug(format, *args)
