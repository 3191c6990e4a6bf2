"""gRPC logs calls and handshakes that fail, once for each. That is bounded here, as other lines that an unauthenticated
client can cause."""

import logging
import time

PER_MINUTE = 20


class _AtMost(logging.Filter):
    def __init__(self, per_minute: int) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._began = float("-inf")
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._began >= 60.0:
            self._began, self._count = now, 0
        self._count += 1
        return self._count <= self._per_minute


def limit_grpc_logs() -> None:
    """Idempotent."""
    for name in ("grpc", "grpc._cython.cygrpc", "grpc.aio._server", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, _AtMost) for each in logger.filters):
            logger.addFilter(_AtMost(PER_MINUTE))
