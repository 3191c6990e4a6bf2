"""A standby keeps a copy of the leader's history on its own volume, so that a change of the leader loses none of it.

copier = HistoryCopier(store, leader)
copier.start()           # a round at once, then every EVERY_S
copier.lag               # for the readiness probe: why this replica should not take over yet; empty: it may
copier.stop()            # before this replica writes the history itself

Design: docs/design/observability.md
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from central.server.history.history_pages import of_message
from central.server.history.history_store import HistoryStore, HistoryUnusable
from central.server.throttled_log import ThrottledLog
from protos.stubs import fleet_pb2 as pb

log = logging.getLogger(__name__)

EVERY_S = 15.0
SLACK_MS = 3_600_000  # what ended this long before the last copy is read again: clocks differ
PATIENCE_S = 120.0  # for a first copy of which nothing arrives


class _Stopped(Exception):
    """Another part of this process writes the file from now on."""


class NothingToCopy(Exception):
    """The leader has no history for this replica, and will have none: a sentence."""


class NoAnswer(Exception):
    """The leader does not answer now: a sentence."""


class LeaderHistory(Protocol):
    """The leader's. Raises NothingToCopy or NoAnswer."""

    def allocations(self, after_row: int, ended_since: int) -> pb.AllocationPage: ...
    def pictures(self, after: int) -> pb.PicturePage: ...


class HistoryCopier:
    """leader: a connection to the present leader."""

    def __init__(
        self,
        store: HistoryStore,
        leader: Callable[[], AbstractContextManager[LeaderHistory]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rounds = 0  # complete ones
        self._store, self._leader, self._clock = store, leader, clock
        self._settled = False
        self._moved_at = clock()  # when something arrived
        self._stopping, self._writing = threading.Event(), threading.Lock()
        self._quiet = ThrottledLog(log)
        self._thread = threading.Thread(target=self._run, name="history-copier", daemon=True)

    @property
    def lag(self) -> str:
        """Returns why the replica should not take over yet. After PATIENCE_S without an answer it may take over all
        the same."""
        if self._settled or self._clock() - self._moved_at > PATIENCE_S:
            return ""
        return "the history of the leader is being copied"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops. No write follows, though a call to the leader may still be under way: a new leader must not wait for
        the answer of the last one."""
        self._stopping.set()
        with self._writing:
            pass

    def _run(self) -> None:
        while True:
            self._contained()
            if self._stopping.wait(EVERY_S if self._settled else 1.0):
                return

    def _contained(self) -> None:
        try:
            self.copy()
        except NothingToCopy as error:
            self._settled = True
            self._quiet.warning("nothing", "no copy of the history: %s", error)
        except _Stopped:
            log.debug("the copy of the history ends: this replica leads, or ends")
        except NoAnswer as error:
            log.debug("no copy of the history now: %s", error)
        except (sqlite3.Error, HistoryUnusable, OSError) as error:
            self._quiet.error("store", error, "could not write the copy of the history")
        except Exception as error:  # noqa: BLE001  a bug here must not end the copies
            self._quiet.error("bug", error, "could not copy the history (bug)")

    def copy(self) -> None:
        """One round. Raises NothingToCopy, NoAnswer, sqlite3.Error or HistoryUnusable."""
        with self._leader() as leader:
            self._copy_allocations(leader)
            self._copy_pictures(leader)
        if not self.rounds:
            log.info("the history of the leader is copied")
        self.rounds += 1
        self._settled = True

    def _copy_allocations(self, leader: LeaderHistory) -> None:
        known = self._store.alive()
        since = max(0, known - SLACK_MS)
        row, at, going_on = 0, 0, set[str]()
        while True:
            page = leader.allocations(row, since)
            at = at or page.at
            entries = [of_message(each) for each in page.rows]
            going_on.update(entry.uid for entry in entries if entry.ended is None)
            with self._allowed() as store:
                store.take_over(entries)
            if not page.more or page.last_row <= row:
                break
            row = page.last_row
        with self._allowed() as store:
            # The leader does not list the other open allocations: they ended while this copy was not up to date.
            store.end_all_but(going_on, held=False)
            store.record([], at / 1000)

    def _copy_pictures(self, leader: LeaderHistory) -> None:
        after = self._store.last_picture()
        while True:
            page = leader.pictures(after)
            with self._allowed() as store:
                for each in page.pictures:
                    store.add_picture(each.at, each.sample, each.picture)
            if not page.more or not page.pictures or page.pictures[-1].at <= after:
                return
            after = page.pictures[-1].at

    @contextmanager
    def _allowed(self) -> Iterator[HistoryStore]:
        """Yields the store to write arrived data. Raises _Stopped."""
        with self._writing:
            if self._stopping.is_set():
                raise _Stopped
            yield self._store
            self._moved_at = self._clock()
