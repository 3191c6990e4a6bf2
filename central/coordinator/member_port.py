"""The coordinator's port for one Job's processes: who may ask, and what they may take.

Members show the token and keep their connections. Others may ask the probes.

Design: docs/design/coordinator.md
"""

import hmac
import ssl

from central.coordinator.coordinator_app import CoordinatorApp, problem
from protos.common import open_files
from protos.common.http_server import (
    Bounds,
    HttpAnswer,
    HttpRequest,
    HttpServer,
    RequestRefused,
    listen,
)
from protos.common.unknown_connections import UnknownLimits

MOST_CONNECTIONS = 2048  # of members
UNKNOWN = UnknownLimits(unknown_per_peer=256, unknown=512, unknown_s=10.0)
BOUNDS = Bounds(UNKNOWN, known=MOST_CONNECTIONS, keep_alive=True, write_s=120.0)
_OTHER_FILES = 256
_PROBES = ("/healthz", "/readyz", "/metrics")


class MemberPort:
    def __init__(self, app: CoordinatorApp, token: bytes, bounds: Bounds = BOUNDS) -> None:
        self._app, self._expected = app, b"Bearer " + token
        self.server = HttpServer(self, bounds)

    def start(self, address: str, tls: ssl.SSLContext | None) -> int:
        """Serves from the running event loop, and returns the port. Raises OSError or ValueError."""
        open_files.allow(MOST_CONNECTIONS + UNKNOWN.unknown + _OTHER_FILES)
        listener = listen(address)
        self.server.serve(listener, tls)
        return int(listener.getsockname()[1])

    async def admit(self, request: HttpRequest) -> bool:
        if request.path in _PROBES:
            return False
        given = request.headers.get("Authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, self._expected):
            raise RequestRefused(401, "header Authorization: the token is missing or wrong")
        return True

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        found = self._app(request)
        return found if isinstance(found, HttpAnswer) else await found

    def problem(self, status: int, why: str) -> HttpAnswer:
        return problem(status, why)
