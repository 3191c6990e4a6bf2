"""Two real scheduler processes, each with a history of its own: the leader is killed, and the week is still there."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from central.server.grpc import query_client
from central.server.history.allocations import Allocation
from central.server.history.history_copier import NothingToCopy
from central.server.history.history_store import HistoryStore
from central.server.history.leader_link import LeaderAddress, leader_link
from central.standalone.agent_process import token
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, free_port
from protos.names import CENTRAL_ACCOUNT, NAMESPACE
from tests.central.local_clusters import started
from tests.central.server.history.test_history_process import intervals, pictures
from tests.central.server.history.test_history_store import ENTRY, MIB
from tests.central.server.test_scheduler_process import reported, submit
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PATIENCE_S = 150.0
LEADS = ("--leader-elect", "--lease-duration=3")
WEEK_S = 7 * 86_400


def a_week(file: Path) -> int:
    """Writes pictures and allocations of the last week, and returns the number of pictures."""
    store, now = HistoryStore(str(file), 64 * MIB, time.time), int(time.time()) // 600 * 600
    times = [*range(now - WEEK_S + 7200, now, 600)]
    for at in times:
        store.add_picture(at, b"sample", b"picture of %d" % at)
    began = (now - WEEK_S + 3600) * 1000
    store.record([_old(at, began) for at in range(3000)], now)
    store.close()
    return len(times)


def _old(number: int, began: int) -> Allocation:
    return replace(ENTRY, uid=f"old-{number}", job="old", began=began, ended=began + number)


@contextmanager
def standby(box: FaultyCluster, folder: Path, history: Path) -> Iterator[tuple[Path, str, int]]:
    """Its log, its address and its port of probes."""
    server, probes, log = f"127.0.0.1:{free_port()}", free_port(), folder / "standby.log"
    secret = folder / "standby.token"
    account = {"metadata": {"name": CENTRAL_ACCOUNT, "namespace": NAMESPACE}}
    box.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    secret.write_text(token(box.client, NAMESPACE, CENTRAL_ACCOUNT))
    command = [sys.executable, "-m", "central", "central", *LEADS, "--tls-dir", str(box.tls)]
    command += ["--kubeconfig", str(box.kubeconfig), "--listen", server, f"--history={history}"]
    command += ["--history-from", box.server, f"--metrics-listen=127.0.0.1:{probes}"]
    env = {**os.environ, "LOCKSTEP_TOKEN_FILE": str(secret)}
    with log.open("ab") as output:
        made = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        yield log, server, probes
    finally:
        made.terminate()
        made.wait(30)


def nodes() -> list[HollowNode]:
    return [HollowNode(f"n{at}", {}, CAPTURES / "dgx-a100-8.json") for at in range(2)]


def jobs(file: Path) -> dict[str, int]:
    with closing(sqlite3.connect(file)) as db:
        try:
            return dict(db.execute("SELECT job, count(*) FROM allocations GROUP BY job"))
        except sqlite3.OperationalError:  # the tables are not there yet
            return {}


def pictures_of(file: Path) -> int:
    try:
        return pictures(file)
    except sqlite3.OperationalError:
        return 0


def alive(file: Path) -> int:
    with closing(sqlite3.connect(file)) as db:
        (found,) = db.execute("SELECT value FROM facts WHERE name = 'alive'").fetchone()
        return int(found)


def test_a_change_of_the_leader_keeps_the_week(tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    count = a_week(first)
    with started(nodes(), flags=[f"--history={first}", *LEADS]) as box:
        box.wait("the agents", lambda: reported(box))
        submit(box, "train", 2, 4)
        box.wait("its intervals", lambda: jobs(first).get("train") == 2, PATIENCE_S)
        with standby(box, tmp_path, second) as (log, server, _):
            box.wait("the copy", lambda: "is copied" in log.read_text(), PATIENCE_S)
            assert jobs(second) == {"old": 3000, "train": 2}
            assert pictures_of(second) >= count
            box.kill_scheduler()
            box.wait("the leader", lambda: "is the leader" in log.read_text(), PATIENCE_S)
            box.server = server
            box.wait("its answer", lambda: box.topology() is not None, PATIENCE_S)
            until = time.time()
            reply = query_client.usage(box.door, until - WEEK_S, until, ["job"])
            hours = {row.keys[0]: row.allocated for row in reply.rows}
            assert hours["old"] > 0
            assert hours["train"] > 0
            assert [row for row in intervals(second) if row[0] == "train"] == [("train", False)] * 2
            with closing(sqlite3.connect(second)) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_one_file_for_both_has_one_writer(tmp_path: Path) -> None:
    """As on a volume that both replicas mount."""
    file = tmp_path / "shared.db"
    with started(nodes(), flags=[f"--history={file}", *LEADS]) as box:
        box.wait("the agents", lambda: reported(box))
        submit(box, "train", 2, 4)
        box.wait("its intervals", lambda: jobs(file).get("train") == 2, PATIENCE_S)
        with standby(box, tmp_path, file) as (log, _, _):
            box.wait("the standby", lambda: "standing by" in log.read_text(), PATIENCE_S)
            submit(box, "later", 1, 8)
            box.wait("the first's interval", lambda: jobs(file).get("later") == 1, PATIENCE_S)
            box.kill_scheduler()
            box.wait("the leader", lambda: "is the leader" in log.read_text(), PATIENCE_S)
            before = alive(file)
            box.wait("it writes", lambda: alive(file) > before, PATIENCE_S)
            assert jobs(file) == {"train": 2, "later": 1}
            assert "keeps no history" not in log.read_text()


def test_others_may_not_read_it(tmp_path: Path) -> None:
    """It names the pods of every namespace."""
    with started(nodes()[:1], flags=[f"--history={tmp_path}/h.db"]) as box:
        to = LeaderAddress(
            box.server, box.ca_file.read_bytes(), "lockstep-central", str(box.token_file)
        )
        with leader_link(to) as link:
            with pytest.raises(NothingToCopy, match=r"PERMISSION_DENIED.*may read the history"):
                link.allocations(0, 0)
            with pytest.raises(NothingToCopy, match="PERMISSION_DENIED"):
                link.pictures(0)
        wrong = tmp_path / "wrong"
        wrong.write_text("no.such.token")
        with (
            leader_link(replace(to, token_file=str(wrong))) as link,
            pytest.raises(NothingToCopy, match="UNAUTHENTICATED"),
        ):
            link.pictures(0)
