"""The history's file of this replica: it follows the leader's while the replica stands by, and is written by it then.

kept = StandbyHistory(settings, credentials, metrics)
kept.followed_until(leads)                                # leads() waits until this replica does
store = kept.taken_over()                                 # None: no history

Design: docs/design/observability.md
"""

import logging
import os
import time
from collections.abc import Callable
from functools import partial

from central.server import tls
from central.server.grpc.query_client import TOKEN_FILE
from central.server.history.history_copier import HistoryCopier
from central.server.history.history_store import HistoryLocked, HistoryStore
from central.server.history.leader_link import LeaderAddress, leader_link
from central.server.metrics import Metrics
from central.server.optional_part import begin_optional
from central.server.settings import Settings

log = logging.getLogger(__name__)

LOCKED_S = 10.0  # for the last leader to let go of a file on a volume of both


class StandbyHistory:
    def __init__(self, settings: Settings, credentials: tls.Credentials, metrics: Metrics) -> None:
        self._settings, self._credentials, self._metrics = settings, credentials, metrics
        self._store = self._opened()

    def followed_until(self, leads: Callable[[], bool]) -> bool:
        """Follows the leader's file until leads() returns, and returns its result."""
        if self._store is None or not self._settings.leader_elect:
            return leads()
        copier = HistoryCopier(self._store, partial(leader_link, self._leader()))
        self._metrics.watch_standby(lambda: copier.lag)
        copier.start()
        try:
            return leads()
        finally:
            copier.stop()

    def taken_over(self) -> HistoryStore | None:
        """Returns the store; None also if the file cannot be used, or if another process continues to write it."""
        end = time.monotonic() + LOCKED_S
        self._store = self._store or self._opened()
        while self._is_locked:
            if time.monotonic() >= end:
                log.error("this leader keeps no history: another process writes the file")
                break
            time.sleep(0.2)
            self._store = self._opened()
        return self._store

    def _opened(self) -> HistoryStore | None:
        """Opens the store; None if none is kept, the file cannot be used, or another process writes it."""
        settings, self._is_locked = self._settings, False
        if settings.history is None:
            return None
        make = partial(HistoryStore, settings.history, settings.history_mib << 20, time.time)
        try:
            return begin_optional("history", make, HistoryLocked)
        except HistoryLocked as error:
            self._is_locked = True
            log.debug("%s", error)
            return None

    def _leader(self) -> LeaderAddress:
        settings = self._settings
        names = tls.names(settings.namespace)
        service = f"{names[2]}:{settings.listen.rpartition(':')[2]}"
        token_file = os.environ.get("LOCKSTEP_TOKEN_FILE") or TOKEN_FILE
        return LeaderAddress(
            settings.history_from or service, self._credentials.ca, names[0], token_file
        )
