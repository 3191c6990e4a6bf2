"""Records of gangs by HTTP: of the running scheduler, and of the history after a restart."""

from pathlib import Path

import pytest

from central.model.identity import Identity
from central.server.grpc.visibility import Viewer
from central.server.history.history_store import HistoryStore
from central.server.history.past_cluster import PastCluster
from central.server.web.record_api import RecordApi
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused
from tests.central.server.history.test_gang_records import T0, Life, changed, end, run
from tests.central.server.stats.test_surveyor import Direct
from tests.central.server.web.console_world import Rights

MIB = 1 << 20


def viewer(user: str = "admin") -> Viewer:
    made = Viewer(Rights(("ann", "pods", "other")), Identity(user))
    made.sees_everything()
    return made


def asked(name: str, namespace: str = "ns") -> Request:
    return Request("/api/job", {"namespace": namespace, "name": name})


def test_a_record_survives_the_scheduler(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), 16 * MIB, lambda: T0)
    life = Life()
    run(life, "train", T0 + 10)
    run(life, "done", T0 + 20, gpus=0)
    end(life, "done", T0 + 50, "Succeeded", 0)
    store.keep_records(changed(life))
    after, past = Life(tuple(store.open_records())), PastCluster(store)
    api = RecordApi(Direct(after.scheduler), after.records, past)
    assert api.job(asked("job/done"), viewer())["stage"] == "completed"
    assert api.job(asked("train"), viewer())["stage"] == "running"
    [row] = api.jobs(Request("/api/jobs"), viewer())["rows"]
    assert (row["name"], row["ended"]) == ("job/done", T0 + 50)
    assert api.jobs(Request("/api/jobs", {"namespace": "x"}), viewer())["rows"] == []
    store.add_picture(int(T0) + 9 * 86_400, b"", b"")
    with pytest.raises(RequestRefused, match="no record of a job"):
        api.job(asked("done"), viewer())


def test_records_are_for_those_who_may_see_the_gang() -> None:
    life = Life()
    run(life, "train", T0 + 10)
    end(life, "train", T0 + 50, "Succeeded")
    api = RecordApi(Direct(life.scheduler), life.records, None)
    assert api.job(asked("train"), viewer())["stage"] == "completed"
    with pytest.raises(RequestRefused, match="you may see no gangs"):
        api.job(asked("train"), viewer("ann"))
    assert api.jobs(Request("/api/jobs"), viewer("ann"))["rows"] == []
    assert api.jobs(Request("/api/jobs"), viewer())["size"] == 1
