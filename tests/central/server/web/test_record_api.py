"""Records of gangs by HTTP: of the running scheduler, and of the history after a restart."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from central.model.facts import PodSeen, QueueSeen
from central.model.identity import Identity
from central.server.grpc.visibility import Viewer
from central.server.history.history_store import HistoryStore
from central.server.history.past_cluster import PastCluster
from central.server.stats.surveyor import Surveyor
from central.server.web.record_api import RecordApi
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused
from protos.names import GPU
from protos.topology import GpuUse
from tests.central import factories
from tests.central.server.history.test_gang_records import T0, Life, changed, end, run
from tests.central.server.stats.test_surveyor import Direct
from tests.central.server.web.console_world import Rights

MIB = 1 << 20
Json = dict[str, Any]


def viewer(user: str = "admin") -> Viewer:
    made = Viewer(Rights(("ann", "pods", "other")), Identity(user))
    made.sees_everything()
    return made


def asked(name: str, namespace: str = "ns") -> Request:
    return Request("/api/job", {"namespace": namespace, "name": name})


def jobs(api: RecordApi, life: Life, by: str = "admin", **query: str) -> Json:
    survey = Surveyor(Direct(life.scheduler)).survey(0.0)
    return api.jobs(Request("/api/jobs", query), viewer(by), survey)


def running_pod(rank: int) -> PodSeen:
    return factories.pod(f"train-{rank}", 4, "train", node="a", phase="Running")


def test_a_record_survives_the_scheduler(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), 16 * MIB, lambda: T0)
    life = Life()
    run(life, "train", T0 + 10)
    run(life, "done", T0 + 20, gpus=0)
    end(life, "done", T0 + 50, "Succeeded", 0)
    store.keep_records(changed(life))
    known, pods = tuple(store.open_records()), [running_pod(at) for at in range(2)]
    gang = factories.gang("train", 2, created=T0 + 9, owner="job/train")
    after, past = Life(known, gang, *pods, now=T0 + 60), PastCluster(store)
    api = RecordApi(Direct(after.scheduler), after.records, past)
    assert api.job(asked("job/done"), viewer())["stage"] == "completed"
    assert api.job(asked("train"), viewer())["stage"] == "running"
    [row] = jobs(api, after, state="ended")["rows"]
    assert (row["name"], row["ended"]) == ("job/done", T0 + 50)
    assert jobs(api, after, namespace="x")["rows"] == []
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
    assert jobs(api, life, "ann")["rows"] == []
    assert jobs(api, life)["size"] == 1


def test_lists_of_gangs_that_run_wait_and_have_ended() -> None:
    life = Life()
    life.tell(T0, QueueSeen("default", uid="d"), QueueSeen("other", uid="o"))
    run(life, "old", T0 + 5, gpus=1, user="jane")
    end(life, "old", T0 + 8, "Succeeded", 1)
    run(life, "big", T0 + 10, user="jane")
    waits: list[PodSeen] = [factories.pod(f"w{at}-0", at, f"w{at}", user="bob") for at in (1, 2)]
    gangs = [factories.gang(f"w{at}", 1, created=T0 + 20 + at) for at in (1, 2)]
    life.tell(T0 + 30, *gangs, *waits)
    api = RecordApi(Direct(life.scheduler), life.records, None)
    found = jobs(api, life)
    assert found["states"] == {"running": 1, "pending": 2, "ended": 1}
    assert [row["gang"] for row in found["rows"]] == ["w2", "w1", "big", "old"]  # newest first

    def names(**query: str) -> list[str]:
        return [row["gang"] for row in jobs(api, life, **query)["rows"]]

    assert names(state="pending", sort="place") == ["w1", "w2"]
    assert names(sort="-gpus")[0] == "big"
    assert names(sort="gpus") == ["w1", "w2", "old", "big"]
    assert names(user="jane", state="ended") == ["old"]
    assert names(find="BOB w2") == ["w2"]
    assert names(queue="other") == []
    assert names(find="ns/job/big") == ["big"]
    [first, second] = jobs(api, life, state="pending", sort="place")["rows"]
    assert (first["place"], second["place"], second["waited"]) == (1, 2, 8.0)
    assert "0 of 1" in first["why"] or "GPUs" in first["why"]
    [big] = jobs(api, life, state="running")["rows"]
    assert (big["gpus"], big["pods"], big["nodes"], big["node_count"]) == (8.0, 2, ["a"], 1)
    assert (big["ran"], big["stage"]) == (18.0, "running")
    assert big["gpu_use"] is None
    life.uses.record("a", [GpuUse("ns", "big-0", "c", 0.0, 7)], time.monotonic() - 90.0)
    life.uses.record("a", [GpuUse("ns", "big-0", "c", 0.0, 7)], time.monotonic())
    api = RecordApi(Direct(life.scheduler), life.records, None)
    [big] = jobs(api, life, state="running")["rows"]
    assert (big["gpu_use"]["utilization"], big["gpu_use"]["memory"]) == (0.0, 7)
    assert big["gpu_use"]["idle_s"] >= 90.0
    assert names(sort="-idle")[0] == "big"
    assert jobs(api, life, state="running", at="1")["rows"][0]["gpu_use"] is None
    page = jobs(api, life, limit="3")
    assert (len(page["rows"]), page["size"], page["next"]) == (3, 4, 3)
    with pytest.raises(RequestRefused, match="sort: must be one of created"):
        jobs(api, life, sort="colour")


def test_what_happened_to_gangs_nodes_and_queues() -> None:
    life = Life()
    life.tell(T0 + 1, QueueSeen("default", uid="d", deserved=((GPU, 8),)))
    run(life, "train", T0 + 10)
    sick = replace(factories.report("a", factories.topology(8, sick=(3,))), generation=9)
    life.tell(T0 + 20, sick)
    life.tell(T0 + 21, factories.node("a", unschedulable=True))
    life.tell(T0 + 22, QueueSeen("default", uid="d", deserved=((GPU, 4),)))
    api = RecordApi(Direct(life.scheduler), life.records, None)

    def told(user: str = "admin", **query: str) -> list[tuple[str, str]]:
        request = Request("/api/happened", {"at": str(int(T0) + 100), **query})
        rows = api.happened(request, viewer(user))["rows"]
        return [(row["name"], f"{row['what']} {row['text']}") for row in rows]

    found = told()
    assert found[0] == ("queue/default", "changed deserved: nvidia.com/gpu 8 to nvidia.com/gpu 4")
    assert found[1][0] == "node/a"
    assert found[1][1].startswith("problem node: ")
    assert found[2][1].startswith("problem GPU 3: ")
    assert [what for name, what in found[3:]] == [
        "running ", "bound ", "placed 2 pods on a", "created "
    ]  # fmt: skip
    assert told(kind="queue") == found[:1]
    assert told(find="gpu 3") == found[2:3]
    assert told("ann") == []
    assert told(at=str(int(T0) + 11))[0] == ("job/train", "placed 2 pods on a")
    life.tell(T0 + 30, replace(factories.report("a"), generation=10))
    assert told(kind="node")[0][1].startswith("well again GPU 3")
    assert [each["what"] for each in api.events_of("node/a")] == [
        "problem",
        "problem",
        "well again",
    ]


def test_what_happened_survives_the_scheduler(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path / "h.db"), 16 * MIB, lambda: T0)
    life = Life()
    life.tell(
        T0 + 5, replace(factories.report("a", factories.topology(8, sick=(3,))), generation=9)
    )
    run(life, "done", T0 + 20, gpus=0)
    end(life, "done", T0 + 50, "Succeeded", 0)
    store.keep_records(changed(life))
    after, past = Life(tuple(store.open_records()), now=T0 + 55), PastCluster(store)
    api = RecordApi(Direct(after.scheduler), after.records, past)
    rows = api.happened(Request("/api/happened", {"at": str(int(T0) + 60)}), viewer())["rows"]
    assert [row["what"] for row in rows][:2] == ["well again", "completed"]
    assert [row["what"] for row in rows if row["kind"] == "node"] == ["well again", "problem"]
    assert jobs(api, after)["size"] == 1, "nodes are no gangs"


def test_the_day_before_a_time_of_today_reaches_back_into_yesterday(tmp_path: Path) -> None:
    """What ended more than a day ago is in the history alone, after a restart."""
    now = time.time()
    began = now - 30 * 3600.0
    store = HistoryStore(str(tmp_path / "h.db"), 16 * MIB, lambda: now)
    life = Life(now=began - 10)
    run(life, "train", began)
    end(life, "train", began + 50, "Succeeded")
    store.keep_records(changed(life))
    after = Life(now=now)
    api = RecordApi(Direct(after.scheduler), after.records, PastCluster(store))
    at = str(int(now - 12 * 3600.0))
    rows = api.happened(Request("/api/happened", {"at": at}), viewer())["rows"]
    assert {"completed", "running"} <= {row["what"] for row in rows}
