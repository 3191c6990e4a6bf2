"""What users see of a gang: its PodGroup's status, its pods' conditions, Events."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from central.kube.transport.http_client import Client
from central.kube.write.status_writer import StatusWriter
from central.model.decisions import EmitWarning, Evict, UpdateGangStatus
from tests.central.kube.api_fixtures import EVENTS, GROUPS, PODS, group, pod
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.eventually import eventually

Connected = Callable[[str], Client]
Make = Callable[[str, dict[str, Any]], dict[str, Any]]
Start = Callable[..., StatusWriter]

WAITS = "needs 16 GPUs in one rack; r7 has 12 free"


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[StatusWriter] = []

    def begin(client: Client, **options: Any) -> StatusWriter:
        started.append(StatusWriter(client, **options))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


def tell(
    gang: str = "g", phase: str = "Pending", reason: str = WAITS, **more: Any
) -> UpdateGangStatus:
    return UpdateGangStatus("default", gang, phase, reason, **{"has_object": True, **more})


def events(client: Client) -> list[tuple[str, str, str, str]]:
    return [
        (e["involvedObject"]["kind"], e["involvedObject"]["name"], e["reason"], e["message"])
        for e in client.get(EVENTS)["items"]
    ]


def test_a_waiting_gang(client: Client, made: Make, start: Start) -> None:
    uid = made(GROUPS, group("g"))["metadata"]["uid"]
    made(PODS, pod("g-0"))
    start(client).put(tell(pods=("g-0", "not-there"), running=1))
    eventually(lambda: events(client))
    status = client.get(f"{GROUPS}/g")["status"]
    [condition] = status["conditions"]
    assert (status["phase"], status["running"]) == ("Pending", 1)
    assert (condition["type"], condition["status"], condition["message"]) == (
        "Unschedulable",
        "True",
        WAITS,
    )
    assert events(client) == [("PodGroup", "g", "FailedScheduling", WAITS)]
    [event] = client.get(EVENTS)["items"]
    assert (event["involvedObject"]["uid"], event["type"]) == (uid, "Warning")
    conditions = client.get(f"{PODS}/g-0")["status"]["conditions"]
    assert [(c["type"], c["status"], c["reason"], c["message"]) for c in conditions] == [
        ("PodScheduled", "False", "Unschedulable", WAITS)
    ]


def test_a_gang_that_runs(client: Client, made: Make, start: Start) -> None:
    made(GROUPS, group("g"))
    start(client).put(tell(phase="Running", reason="in rack r1", running=2))
    eventually(lambda: events(client) == [("PodGroup", "g", "Running", "in rack r1")])
    [condition] = client.get(f"{GROUPS}/g")["status"]["conditions"]
    assert (condition["type"], condition["message"]) == ("Scheduled", "in rack r1")


def test_a_single_pod(client: Client, made: Make, start: Start) -> None:
    made(PODS, pod("p"))
    telling = start(client)
    telling.put(tell("p", has_object=False, pods=("p",)))
    eventually(lambda: events(client) == [("Pod", "p", "FailedScheduling", WAITS)])
    telling.put(tell("p", "Running", "on node n1", has_object=False, pods=("p",)))
    eventually(lambda: ("Pod", "p", "Running", "on node n1") in events(client))


def test_only_the_newest_state_is_written(connected: Connected, start: Start) -> None:
    """A gang is told a hundred times while the server is slow: it reads the first and the last."""
    messages: list[str] = []

    def answer(call: Call) -> Answer:
        if call.method == "PATCH":
            time.sleep(0.05)
            messages.append(call.body["status"]["conditions"][0]["message"])
        return Answer(201, {"metadata": {"name": "g", "namespace": "default", "uid": "u"}})

    with Scripted(answer) as server:
        telling = start(connected(server.url))
        for number in range(100):
            telling.put(tell(reason=f"waits {number}"))
        telling.put(tell(phase="Running", reason="runs"))
        eventually(lambda: messages and messages[-1] == "runs")
        telling.stop()
    assert len(messages) <= 3


def test_pods_are_not_told_to_wait_once_they_are_placed(connected: Connected, start: Start) -> None:
    told = threading.Event()

    def answer(call: Call) -> Answer:
        if call.path.endswith("/g-0/status"):
            told.wait(5)
        return Answer(200, {"metadata": {"uid": "u"}})

    with Scripted(answer) as server:
        telling = start(connected(server.url))
        telling.put(tell(pods=("g-0", "g-1")))
        eventually(lambda: server.of("PATCH", "/g-0/status"))
        telling.put(tell(phase="Running", reason="runs", pods=("g-0", "g-1")))
        told.set()
        eventually(lambda: server.of("POST", "/events"))
        telling.stop()
        assert not server.of("PATCH", "/g-1/status")
        assert server.of("PATCH", "/g/status")[-1].body["status"]["phase"] == "Running"


def test_what_its_job_has_said_is_no_event(client: Client, made: Make, start: Start) -> None:
    for name in ("g", "h"):
        made(GROUPS, group(name))
    telling = start(client)
    telling.put(tell("g", "Completed", "job j is over", quiet=True))
    telling.put(tell("h", "Completed", "all 2 pods succeeded"))
    eventually(lambda: client.get(f"{GROUPS}/g").get("status", {}).get("phase") == "Completed")
    eventually(lambda: events(client))
    telling.stop()
    assert {event[1] for event in events(client)} == {"h"}


def test_good_news_is_not_behind_the_waiting(connected: Connected, start: Start) -> None:
    """Two thousand waiting gangs are told slowly, a gang that starts at once."""
    body = {"metadata": {"name": "g", "namespace": "default", "uid": "u"}}
    with Scripted(lambda _: Answer(201, body)) as server:
        telling = start(connected(server.url), waiting_per_s=20.0)
        for number in range(2000):
            telling.put(tell(f"waits-{number}"))
        telling.put(tell("starts", "Running", "runs"))
        eventually(lambda: server.of("PATCH", "/starts/status"), timeout_s=3)
        assert len(server.calls) < 200


def test_the_same_is_not_told_twice(connected: Connected, start: Start) -> None:
    with Scripted(lambda call: Answer(201, {"metadata": {"uid": call.path}})) as server:
        telling = start(connected(server.url), same_phase_s=0.0)
        telling.put(tell())
        eventually(lambda: len(server.calls) == 2)
        telling.put(tell())
        telling.put(tell("other"))
        eventually(lambda: len(server.calls) == 4)
        assert len(server.of("PATCH", "/g/status")) == 1


def test_a_server_in_trouble_is_told_later(
    connected: Connected, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    def answer(_: Call) -> Answer:
        return failure(500, "etcd is away") if broken[0] else Answer(201, {"metadata": {}})

    with Scripted(answer) as server:
        telling = start(connected(server.url), failed_s=0.1)
        telling.put(tell())
        eventually(lambda: "default/g was not told: etcd is away" in caplog.text)
        broken[0] = False
        eventually(lambda: server.of("POST", "/events"))
        telling.stop()


def test_an_older_crd_has_its_status_in_the_object(connected: Connected, start: Start) -> None:
    def answer(call: Call) -> Answer:
        if call.path.endswith("/status"):
            return failure(404, "the server could not find the requested resource")
        return Answer(200, {"metadata": {"name": "g", "namespace": "default", "uid": "u"}})

    with Scripted(answer) as server:
        telling = start(connected(server.url))
        telling.put(tell())
        eventually(lambda: server.of("POST", "/events"))
        telling.put(tell("other"))
        eventually(lambda: server.of("PATCH", "/podgroups/other"))
        assert len(server.of("PATCH", "/status")) == 1
        telling.stop()


def test_gone_or_refused_ends_it(
    connected: Connected, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(call: Call) -> Answer:
        return failure(404 if "/gone" in call.path else 403, "no")

    with Scripted(answer) as server:
        telling = start(connected(server.url))
        telling.put(tell("gone"))
        telling.put(tell("forbidden"))
        eventually(lambda: "PodGroup default/forbidden was not told: no" in caplog.text)
        telling.stop()
    assert "/gone" not in caplog.text


def test_an_evicted_pod_learns_why(client: Client, made: Make, start: Start) -> None:
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    start(client).evicting(Evict(uid, "default", "p", "n1", "its gang is undone"))
    eventually(lambda: events(client) == [("Pod", "p", "Evicted", "its gang is undone")])


def test_an_owner_is_warned_at_the_pod_and_at_its_gang(
    client: Client, made: Make, start: Start
) -> None:
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    tells = start(client)
    tells.warn(
        EmitWarning("default", "train", "uid-of-train", uid, "p", "GPU 3 of node a is not fit")
    )
    tells.warn(EmitWarning("default", "", "", uid, "p", "GPU 4 of node a is not fit"))
    told = {
        ("Pod", "p", "GpuUnhealthy", "GPU 3 of node a is not fit"),
        ("PodGroup", "train", "GpuUnhealthy", "GPU 3 of node a is not fit"),
        ("Pod", "p", "GpuUnhealthy", "GPU 4 of node a is not fit"),
    }
    eventually(lambda: set(events(client)) == told)


def test_news_lets_bindings_pass_but_not_for_ever(client: Client, made: Make, start: Start) -> None:
    made(GROUPS, group("g"))
    behind = threading.Event()
    behind.set()
    telling = start(client, good_s=0.0, late_s=60.0, behind=behind.is_set)
    telling.put(tell(phase="Running", reason="in rack r1"))
    time.sleep(0.3)
    assert not events(client)
    behind.clear()
    eventually(lambda: events(client) == [("PodGroup", "g", "Running", "in rack r1")])
    behind.set()
    telling = start(client, good_s=0.0, late_s=0.2, behind=behind.is_set)
    telling.put(tell(phase="Running", reason="in rack r2"))
    eventually(lambda: ("PodGroup", "g", "Running", "in rack r2") in events(client))
