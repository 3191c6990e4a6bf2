"""The history's file: bounded, thinned out, set aside when damaged, and whole after kill -9."""

import logging
import os
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from central.model.facts import Fact, QueueSeen
from central.scheduler.cycle import schedule_once
from central.server.history import pictures
from central.server.history.allocations import ALLOCATED, Allocation
from central.server.history.history_store import DAY_S, WEEK_S, HistoryStore, HistoryUnusable
from central.server.history.past_cluster import PastCluster
from central.server.stats.surveyor import Surveyor
from protos.names import GPU
from tests.central import factories
from tests.central.server.stats.test_surveyor import Direct, cluster

MIB = 1 << 20
ENTRY = Allocation("u", ALLOCATED, "ns", "q", "me", "job/x", "H100", 8400, 1000)


def store(folder: Path, mib: int = 16) -> HistoryStore:
    return HistoryStore(str(folder / "history.db"), mib * MIB, lambda: 1_700_000_000.0)


def count(made: HistoryStore, table: str) -> int:
    with made.readable() as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_a_day_by_the_minute_and_a_week_by_ten(tmp_path: Path) -> None:
    made = store(tmp_path)
    end = 1_700_000_400  # a whole ten minutes
    made._write(
        lambda db: db.executemany(
            "INSERT INTO pictures VALUES (?, x'00')",
            [(at,) for at in range(end - 9 * DAY_S, end, 60)],
        )
    )
    made.add_picture(end, b"", b"")
    times = PastCluster(made).times()
    fine = [at for at in times if at >= end - DAY_S]
    coarse = [at for at in times if at < end - DAY_S]
    assert len(fine) == DAY_S // 60 + 1
    assert (coarse[0], len(coarse)) == (end - WEEK_S, 6 * DAY_S // 600)
    assert all(at % 600 == 0 for at in coarse)


def test_the_file_stays_below_its_size(tmp_path: Path) -> None:
    made, body = store(tmp_path, mib=2), os.urandom(100_000)
    for minute in range(100):
        made.add_picture(minute * 60, b"x", body)
    times = PastCluster(made).times()
    assert times[-1] == 99 * 60
    assert 4 <= len(times) <= 20
    assert (tmp_path / "history.db").stat().st_size <= 2 * MIB


def test_allocations_give_way_where_pictures_do_not_help(tmp_path: Path) -> None:
    made = store(tmp_path, mib=1)
    for batch in range(30):
        made.record(
            [
                replace(ENTRY, uid=f"u{batch}-{i}", began=batch, ended=batch + 1, job="j" * 200)
                for i in range(500)
            ],
            1.0,
        )
    with made.readable() as db:
        (first, last) = db.execute("SELECT min(ended), max(ended) FROM allocations").fetchone()
    assert last == 30
    assert first > 1
    assert (tmp_path / "history.db").stat().st_size <= MIB


@pytest.mark.parametrize(
    "content", [b"not a database" * 100, b"", b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_file_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "history.db").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        made = store(tmp_path)
    made.record([ENTRY], 1.0)
    assert count(made, "allocations") == 1
    aside = tmp_path / "history.db.corrupt-1700000000"
    assert aside.exists() == bool(content)
    if content:
        assert aside.read_bytes() == content
        assert "is kept as history.db.corrupt-1700000000, and a new one begins" in caplog.text


def test_a_file_that_is_damaged_later_is_set_aside_then(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.record([replace(ENTRY, uid=f"u{i}", job="j" * 500) for i in range(2000)], 1.0)
    made._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    made._db.execute("PRAGMA cache_size = 1")
    file = tmp_path / "history.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    made.record([replace(ENTRY, uid="new", ended=2000)], 1.0)
    assert made.files == 1
    assert count(made, "allocations") == 1
    assert [*tmp_path.glob("history.db.corrupt-*")]


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(HistoryUnusable, match=r"--history .*/none/history.db: No such file"):
        HistoryStore(str(tmp_path / "none" / "history.db"), MIB, time.time)


KILLED = """
import sys
from dataclasses import replace
from tests.central.server.history.test_history_store import ENTRY, MIB, HistoryStore
made = HistoryStore(sys.argv[1], 16 * MIB, lambda: 0.0)
for number in range(10**6):
    made.record([replace(ENTRY, uid=f"u{number}-{i}") for i in range(10)], number)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_had_recorded(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    for _ in range(5):
        file.unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            last = [process.stdout.readline() for _ in range(20)][-1]
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split()
        known = int(rest[-1] if rest else last)
        made = store(tmp_path)
        assert not [*tmp_path.glob("*.corrupt-*")]
        found = count(made, "allocations")
        assert found % 10 == 0
        assert 10 * (known + 1) <= found <= 10 * (known + 2)
        made.close()
        for left in tmp_path.glob("history.db*"):
            left.unlink()


def test_a_picture_is_the_survey_again(tmp_path: Path) -> None:
    world = cluster(4, QueueSeen("q", deserved=((GPU, 8),)))
    waits: list[Fact] = [
        factories.gang("giant", 9, queue="q"),
        *(factories.pod(f"giant-{i}", 8, "giant") for i in range(9)),
    ]
    schedule_once(world, [factories.pod("one", 8, queue="q"), *waits], 1001.0)
    survey = Surveyor(Direct(world)).survey(0.0)
    assert any(row.gangs for row in survey.queues)
    assert survey.pending
    made = store(tmp_path)
    made.add_picture(60, pictures.sample(survey), pictures.picture(survey))
    past = PastCluster(made)
    assert past.at(59.0) is None
    again = past.at(1000.0)
    assert again is not None
    assert again.at == survey.at
    for name, row in survey.nodes.items():
        holders = tuple(replace(held, gang=None) for held in row.holders)
        assert again.nodes[name] == replace(row, version=0, holders=holders)
    assert [replace(row, rank=again.pending[0].rank) for row in survey.pending] == [*again.pending]
    assert again.queues == survey.queues
    assert again.largest == survey.largest
    assert past.at(61.0) is again  # read once
    ((at, sample),) = past.samples(0.0, 100.0)
    assert (at, sample["queues"]["q"][0]) == (60, 8.0)


def test_long_curves_have_few_points_and_the_last_one(tmp_path: Path) -> None:
    made = store(tmp_path)
    body = pictures.sample(Surveyor(Direct(cluster(1))).survey(0.0))
    made._write(
        lambda db: db.executemany(
            "INSERT INTO samples VALUES (?, ?)", [(at, body) for at in range(0, DAY_S, 60)]
        )
    )
    times = [at for at, _ in PastCluster(made).samples(0.0, DAY_S)]
    assert (len(times), times[-1]) == (288, DAY_S - 60)
    assert PastCluster(made).samples(2.0 * DAY_S, 3.0 * DAY_S) == []


@pytest.mark.parametrize("body", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"[")])
def test_a_picture_that_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        pictures.read_picture(body)
