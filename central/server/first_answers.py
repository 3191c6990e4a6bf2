"""What the program needs from the API server before it can serve, asked until it answers or until a signal ends the program."""

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from central.kube.transport.http_client import Client, StatusError, Unreachable
from central.server import tls, tls_secret
from central.server.settings import Settings

log = logging.getLogger(__name__)

Some = TypeVar("Some")
RETRY_S = (0.5, 10.0)  # first, longest


class Stopping:
    """Whether SIGTERM or SIGINT arrived."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[None] = SimpleQueue()

    def on_signals(self, stop: Callable[[], None]) -> None:
        """Calls stop at each. The handler takes no lock, because the thread that it interrupts may hold it."""

        def handle(*_: object) -> None:
            self._signals.put(None)
            stop()

        signal.signal(signal.SIGTERM, handle)
        signal.signal(signal.SIGINT, handle)

    def within(self, seconds: float) -> bool:
        """Whether a signal arrives in that time."""
        with contextlib.suppress(Empty):
            self._signals.get(timeout=seconds)
            return True
        return False


def answered(call: Callable[[], Some], what: str, stopping: Stopping) -> Some | None:
    """Retries until the API server answers. None: stopped meanwhile."""
    delay, longest = RETRY_S
    while True:
        try:
            return call()
        except (Unreachable, StatusError) as error:
            log.warning("no %s yet: %s; retrying", what, error)
            if stopping.within(delay):
                return None
            delay = min(longest, 2 * delay)


def first_credentials(
    settings: Settings, client: Client, stopping: Stopping
) -> tls.Credentials | None:
    """None: stopped meanwhile. Raises tls.UnusableCredentials."""
    found = answered(lambda: current_credentials(settings, client), "certificate", stopping)
    if found is not None and settings.ca_out is not None:
        _write(Path(settings.ca_out), found.ca)
    return found


def current_credentials(settings: Settings, client: Client) -> tls.Credentials:
    """From --tls-dir or from the cluster. Issued if there are none, renewed if they expire soon."""
    now = datetime.now(UTC)
    if settings.tls_dir is not None:
        return tls.from_files(Path(settings.tls_dir), settings.namespace, now)
    return tls_secret.from_cluster(client, settings.namespace, now)


def _write(path: Path, content: bytes) -> None:
    """Atomically, because another process may read the file."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        raise tls.UnusableCredentials(f"--ca-out {path}: {error.strerror}") from error
