"""The thread that writes the history: allocations every few seconds, a picture of the cluster every minute.

The scheduling loop only notes what began and ended (allocations.py); a survey is read in slices between two cycles.
Whatever fails here is logged and tried again: scheduling continues without a history.
"""

import logging
import sqlite3
from collections.abc import Callable
from typing import Any

from central.kube.transport.runtime import RUNTIME, Runtime
from central.server.history import pictures
from central.server.history.allocations import ENTRIES_MOST, Allocation, AllocationLog
from central.server.history.gang_records import GangRecords, KeptRecord
from central.server.history.history_store import FINE_S, HistoryStore, HistoryUnusable
from central.server.loop import Loop
from central.server.rounds import Rounds
from central.server.stats.sliced_question import Steps, ask_in_slices
from central.server.stats.surveyor import SurveySource
from central.server.throttled_log import ThrottledLog

log = logging.getLogger(__name__)

FLUSH_S, USE_EVERY_S = 2.0, 30.0
RECORDS_MOST = 10_000  # that wait to be written


class HistoryRecorder(Rounds):
    def __init__(
        self,
        store: HistoryStore,
        allocations: AllocationLog,
        records: GangRecords,
        loop: Loop,
        surveyor: SurveySource,
        *,
        runtime: Runtime = RUNTIME,
    ) -> None:
        self._store, self._allocations, self._loop, self._surveyor = (
            store, allocations, loop, surveyor
        )  # fmt: skip
        self._records, self._runtime = records, runtime
        self._unsaved: list[Allocation] = []
        self._late_records: dict[str, KeptRecord] = {}  # that are not written yet, by uid
        self._file = -1  # number of the store's file that has all open allocations
        self._last_picture, self._used_at = 0, runtime.monotonic()
        self._quiet = ThrottledLog(log)
        super().__init__("history", every_s=FLUSH_S, runtime=runtime)

    def stop(self) -> None:
        """Stops after the loop has ended, and writes the last notes."""
        super().stop()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._contained(self._save)
        self._contained(self._store.close)

    def check(self) -> None:
        if self._loop.synced:
            self._contained(self.step)

    def step(self) -> None:
        """Raises sqlite3.Error, HistoryUnusable or TimeoutError."""
        if self._file != self._store.files:
            self._begin()
        self._save()
        self._save_records()
        self._add_use()
        minute = int(self._runtime.time() // FINE_S) * FINE_S
        if minute != self._last_picture:
            survey = self._surveyor.survey(FLUSH_S)
            self._store.add_picture(minute, pictures.sample(survey), pictures.picture(survey))
            self._last_picture = minute

    def _begin(self) -> None:
        """Starts a new process' entries, or those of a file that replaced a damaged one."""
        files = self._store.files
        if (open_ones := self._ask(self._allocations.steps)) is None:
            return
        missed = self._store.end_all_but(open_ones)
        if missed:
            log.info(
                "history: the ends of %d allocations were missed while no scheduler wrote it",
                missed,
            )
        self._file = files

    def _save(self) -> None:
        self._unsaved = [*self._unsaved, *self._allocations.take()][-ENTRIES_MOST:]
        self._store.record(self._unsaved, self._runtime.time())
        self._unsaved = []

    def _save_records(self) -> None:
        """A record is given once: one that could not be written stays here until it is."""
        if (changed := self._ask(self._records.steps)) is None:
            return
        late = self._late_records | {each.summary["uid"]: each for each in changed}
        self._late_records = dict([*late.items()][-RECORDS_MOST:])
        self._store.keep_records(self._late_records.values())
        self._late_records = {}

    def _add_use(self) -> None:
        """Adds what pods used of their GPUs since the last time, twice a minute."""
        now = self._runtime.monotonic()
        if (elapsed_s := now - self._used_at) < USE_EVERY_S:
            return
        self._used_at = now
        used = self._ask(lambda scheduler: self._records.add_use(scheduler, elapsed_s))
        if used is not None:
            self._store.add_use(used)

    def _ask(self, steps: Steps) -> Any:
        """Returns the answer of the loop; None if this thread stops before it is complete."""
        return ask_in_slices(self._loop, steps, stopped=lambda: self.ending)

    def _contained(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TimeoutError:
            pass  # the loop is busy
        except (sqlite3.Error, HistoryUnusable, OSError) as error:
            self._quiet.error("store", error, "could not write the history")
        except Exception as error:  # noqa: BLE001  a bug here must not end the history
            self._quiet.error("bug", error, "could not write the history (bug)")
