"""Requests to the API server that must succeed before the program can serve, repeated until they do or a signal ends
the program."""

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
    """The arrival of SIGTERM or SIGINT."""

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
        """Waits, and returns whether a signal arrived in that time."""
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
    """Returns the credentials; None if stopped meanwhile. Raises tls.UnusableCredentials."""
    found = answered(lambda: current_credentials(settings, client), "certificate", stopping)
    if found is not None and settings.ca_out is not None:
        _write(Path(settings.ca_out), found.ca)
    return found


def current_credentials(settings: Settings, client: Client) -> tls.Credentials:
    """Reads the credentials from --tls-dir or from the cluster. They are issued if there are none, and renewed if
    they expire soon."""
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
