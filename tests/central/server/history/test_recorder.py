"""The thread that writes the history: what could not be written is written later."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from central.model.facts import GangGone, PodGone
from central.server.history.allocations import AllocationLog
from central.server.history.gang_records import KeptRecord
from central.server.history.history_store import HistoryStore
from central.server.history.recorder import HistoryRecorder
from central.server.stats.surveyor import Surveyor
from tests.central.server.history.test_gang_records import T0, Life, run
from tests.central.server.history.test_usage_report import MIB
from tests.central.server.stats.test_surveyor import Direct


class FullDisk(HistoryStore):
    """Takes no records at first. written: what it took, since a record of the test's time is too old to stay."""

    full = True
    written: tuple[KeptRecord, ...] = ()

    def keep_records(self, records: Iterable[KeptRecord]) -> None:
        if self.full:
            raise sqlite3.OperationalError("disk I/O error")
        self.written += tuple(records)


class SyncedLoop(Direct):
    synced = True


def test_the_record_of_a_job_that_ended_while_the_disk_was_full_is_kept(tmp_path: Path) -> None:
    life = Life()
    loop: Any = SyncedLoop(life.scheduler)
    store = FullDisk(str(tmp_path / "history.db"), 16 * MIB, lambda: T0)
    recorder = HistoryRecorder(
        store, AllocationLog(life.scheduler), life.records, loop, Surveyor(loop)
    )
    run(life, "train", T0)
    life.tell(T0 + 9, *(PodGone(f"uid-train-{at}") for at in range(2)), GangGone("ns", "train"))
    recorder.check()
    store.full = False
    recorder.check()
    recorder.check()
    store.close()
    [record] = store.written
    assert (record.summary["name"], record.summary["ended"]) == ("job/train", T0 + 9)
