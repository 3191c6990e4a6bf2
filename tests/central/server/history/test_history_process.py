"""A real scheduler process with a history: kill -9 and a restart leave one interval for each pod."""

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from central.server.grpc import query_client
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from tests.central.server.test_scheduler_process import reported, submit
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FaultyCluster]:
    nodes = [HollowNode(f"n{at}", {}, CAPTURES / "dgx-a100-8.json") for at in range(2)]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    with FaultyCluster(nodes, flags=[f"--history={tmp_path}/history.db"]) as made:
        made.start_api()
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.start_agents()
        made.wait("the agents", lambda: reported(made))
        yield made


def intervals(file: Path) -> list[tuple[str, bool]]:
    """Jobs, and whether they have ended."""
    with closing(sqlite3.connect(file)) as db:
        sql = "SELECT job, ended IS NOT NULL FROM allocations ORDER BY job, ended"
        try:
            return [(job, bool(ended)) for job, ended in db.execute(sql)]
        except sqlite3.OperationalError:  # the tables are not there yet
            return []


def models(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as db:
        return {model for (model,) in db.execute("SELECT model FROM allocations")}


def pictures(file: Path) -> int:
    with closing(sqlite3.connect(file)) as db:
        return int(db.execute("SELECT count(*) FROM pictures").fetchone()[0])


def test_a_killed_scheduler_goes_on_with_its_intervals(box: FaultyCluster, tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    began = time.time()
    submit(box, "train", 2, 4)
    running = [("train", False), ("train", False)]
    box.wait("the intervals", lambda: intervals(file) == running)
    box.wait("a picture", lambda: pictures(file) > 0)
    box.kill_scheduler()
    assert intervals(file) == running
    box.start_scheduler()
    box.wait_for_scheduler()
    submit(box, "later", 1, 8)
    box.wait("the new interval", lambda: intervals(file) == [("later", False), *running])
    box.wait("the agents again", lambda: "unknown" not in models(file))
    until = time.time()
    reply = query_client.usage(box.door, began, until, ["job", "model"])
    hours = {tuple(row.keys): row.allocated for row in reply.rows}
    assert len(hours) == 2, hours
    (model,) = {key[1] for key in hours}
    assert "A100" in model
    assert 0 < hours["train", model] <= 8 * (until - began) / 3600
    assert hours["train", model] > 8 * (until - began - 30) / 3600
