"""What users see of a gang: PodGroup status, pod conditions, Events."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from central.kube.transport.http_client import Client
from central.kube.write.status_writer import StatusTiming, StatusWriter
from central.model import past_turns
from central.model.decisions import PODS_SHOWN, EmitWarning, Evict, UpdateGangStatus
from central.model.past_turns import PastTurns
from central.model.pending_causes import CAUSES
from tests.central.kube.api_fixtures import EVENTS, GROUPS, PODS, group, pod
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure, missing
from tests.fakes.eventually import eventually

Connected = Callable[[str], Client]
Make = Callable[[str, dict[str, Any]], dict[str, Any]]
Start = Callable[..., StatusWriter]
Writing = Callable[..., tuple[Scripted, StatusWriter]]

UNSCHEDULABLE = "needs 16 GPUs in one rack; r7 has 12 free"


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[StatusWriter] = []

    def begin(client: Client, **timing: float) -> StatusWriter:
        started.append(StatusWriter(client, StatusTiming(**timing)))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


def update(
    gang: str = "g", phase: str = "Pending", reason: str = UNSCHEDULABLE, **more: Any
) -> UpdateGangStatus:
    cause = "capacity" if phase == "Pending" else ""
    given = {"has_object": True, "cause": cause, **more}
    return UpdateGangStatus("default", gang, phase, reason, **given)


def events(client: Client) -> list[tuple[str, str, str, str]]:
    return [
        (e["involvedObject"]["kind"], e["involvedObject"]["name"], e["reason"], e["message"])
        for e in client.get(EVENTS)["items"]
    ]


def test_a_pending_gang(client: Client, made: Make, start: Start) -> None:
    uid = made(GROUPS, group("g"))["metadata"]["uid"]
    made(PODS, pod("g-0"))
    start(client).put(update(pods=("g-0", "not-there"), running=1, succeeded=2, failed=3))
    eventually(lambda: len(events(client)) == 2)
    status = client.get(f"{GROUPS}/g")["status"]
    [condition] = status["conditions"]
    counts = tuple(status[each] for each in ("running", "succeeded", "failed"))
    assert (status["phase"], counts) == ("Pending", (1, 2, 3))
    assert (condition["type"], condition["status"], condition["message"]) == (
        "Unschedulable",
        "True",
        UNSCHEDULABLE,
    )
    assert sorted(events(client)) == [
        ("Pod", "g-0", "FailedScheduling", UNSCHEDULABLE),
        ("PodGroup", "g", "FailedScheduling", UNSCHEDULABLE),
    ]
    event = next(
        e for e in client.get(EVENTS)["items"] if e["involvedObject"]["kind"] == "PodGroup"
    )
    assert (event["involvedObject"]["uid"], event["type"]) == (uid, "Warning")
    conditions = client.get(f"{PODS}/g-0")["status"]["conditions"]
    assert [(c["type"], c["status"], c["reason"], c["message"]) for c in conditions] == [
        ("PodScheduled", "False", "Unschedulable", UNSCHEDULABLE)
    ]


def test_a_running_gang(client: Client, made: Make, start: Start) -> None:
    made(GROUPS, group("g"))
    start(client).put(update(phase="Running", reason="in rack r1", running=2))
    eventually(lambda: events(client) == [("PodGroup", "g", "Running", "in rack r1")])
    [condition] = client.get(f"{GROUPS}/g")["status"]["conditions"]
    assert (condition["type"], condition["message"]) == ("Scheduled", "in rack r1")


@pytest.mark.parametrize("phase", ["Pending", "Inqueue", "Running"])
def test_what_a_gang_has_run_is_written_before_its_condition(
    client: Client, made: Make, start: Start, phase: str
) -> None:
    made(GROUPS, group("g"))
    turns = PastTurns(90, 2.0)
    start(client).put(update(phase=phase, past_turns=turns))
    eventually(lambda: client.get(f"{GROUPS}/g").get("status", {}).get("phase") == phase)
    conditions = client.get(f"{GROUPS}/g")["status"]["conditions"]
    assert past_turns.read(conditions[:1]) == turns
    assert len(conditions) == (1 if phase == "Inqueue" else 2)


def test_a_single_pod(client: Client, made: Make, start: Start) -> None:
    made(PODS, pod("p"))
    writer = start(client)
    writer.put(update("p", has_object=False, pods=("p",)))
    eventually(lambda: events(client) == [("Pod", "p", "FailedScheduling", UNSCHEDULABLE)])
    writer.put(update("p", "Running", "on node n1", has_object=False, pods=("p",)))
    eventually(lambda: ("Pod", "p", "Running", "on node n1") in events(client))


def conditions(client: Client, name: str) -> list[tuple[str, str]]:
    found = client.get(f"{PODS}/{name}").get("status", {}).get("conditions") or ()
    return [(each["reason"], each["message"]) for each in found]


@pytest.mark.parametrize("cause", [*CAUSES, ""])
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_conditions_have_the_reason_of_the_cause(
    client: Client, made: Make, start: Start, cause: str, phase: str
) -> None:
    """Of pods that wait, and of the PodGroup that does."""
    made(GROUPS, group("g"))
    made(PODS, pod("g-0"))
    start(client, started_s=0.0).put(update(phase=phase, pods=("g-0",), cause=cause))
    eventually(lambda: events(client))
    reason = CAUSES.get(cause, "")
    assert conditions(client, "g-0") == ([(reason, UNSCHEDULABLE)] if reason else [])
    own = client.get(f"{GROUPS}/g")["status"]["conditions"]
    expected = (
        [("Scheduled", "GangScheduled")] if phase == "Running" else [("Unschedulable", reason)]
    )
    assert [(each["type"], each["reason"]) for each in own] == (expected if expected[0][1] else [])


def test_a_pod_that_is_bound_meanwhile_stays_scheduled(
    client: Client, made: Make, start: Start
) -> None:
    """The binding overtakes the reason for which the pod waited."""
    made(PODS, {**pod("p"), "spec": {**pod("p").get("spec", {}), "nodeName": "n1"}})
    writer = start(client)
    writer.put(update("p", has_object=False, pods=("p", "q"), cause="quota"))

    def scheduled() -> tuple[object, ...]:
        found = client.get(f"{PODS}/p")["status"].get("conditions") or [{}]
        return tuple(found[0].get(key) for key in ("type", "status", "reason", "message"))

    eventually(lambda: scheduled() == ("PodScheduled", "True", None, None))


def test_pods_behind_the_first_name_the_first(client: Client, made: Make, start: Start) -> None:
    names = tuple(f"g-{number}" for number in range(PODS_SHOWN + 2))
    for name in names:
        made(PODS, pod(name))
    start(client).put(update("g", has_object=False, pods=names, cause="quota"))
    eventually(lambda: conditions(client, names[-1]))
    pointer = ("SchedulerError", "as pod g-0, which says why")
    shown = ("SchedulerError", UNSCHEDULABLE)
    assert [conditions(client, name) for name in names] == [[shown]] * PODS_SHOWN + [[pointer]] * 2
    eventually(lambda: len(events(client)) >= PODS_SHOWN)
    assert {name for _, name, _, _ in events(client)} == {*names[:PODS_SHOWN]}


def test_a_nominated_node_is_written_and_removed(client: Client, made: Make, start: Start) -> None:
    made(PODS, pod("p"))
    writer = start(client, same_phase_s=0.0)
    given: dict[str, Any] = {"has_object": False, "pods": ("p",)}
    writer.put(update("p", cause="place-reserved", nominated=(("p", "n1"),), **given))

    def node() -> object:
        return client.get(f"{PODS}/p").get("status", {}).get("nominatedNodeName")

    eventually(lambda: node() == "n1")
    writer.put(update("p", cause="capacity", **given))
    eventually(lambda: node() is None)
    assert conditions(client, "p") == [("Unschedulable", UNSCHEDULABLE)]


def test_a_quiet_update_writes_no_event(client: Client, made: Make, start: Start) -> None:
    for name in ("g", "h"):
        made(GROUPS, group(name))
    writer = start(client)
    writer.put(update("g", "Completed", "job j is over", quiet=True))
    writer.put(update("h", "Completed", "all 2 pods succeeded"))
    eventually(lambda: client.get(f"{GROUPS}/g").get("status", {}).get("phase") == "Completed")
    eventually(lambda: events(client))
    writer.stop()
    assert {event[1] for event in events(client)} == {"h"}


def named(call: Call) -> Answer:
    """The object that was asked for."""
    return Answer(201, {"metadata": {"name": call.path.split("/")[-2], "uid": "u"}})


def counts(server: Scripted, gang: str) -> list[tuple[str, int]]:
    """What was written of the gang: its phase, and how many pods run."""
    bodies = [call.body["status"] for call in server.of("PATCH", f"/{gang}/status")]
    return [(body["phase"], body["running"]) for body in bodies]


@pytest.fixture
def writing(connected: Connected, start: Start) -> Iterator[Writing]:
    """writing(**timing): a server that has every object, and a writer for it."""
    with Scripted(named) as server:
        yield lambda **timing: (server, start(connected(server.url), **timing))


GROUP = Answer(201, {"metadata": {"name": "g", "uid": "u"}})


def test_a_failed_write_is_repeated(
    connected: Connected, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    def answer(_: Call) -> Answer:
        return failure(500, "etcd is away") if broken[0] else GROUP

    with Scripted(answer) as server:
        writer = start(connected(server.url), failed_s=0.1)
        writer.put(update())
        eventually(lambda: "could not update status of default/g: etcd is away" in caplog.text)
        broken[0] = False
        eventually(lambda: server.of("POST", "/events"))
        writer.stop()


def test_an_older_crd_without_status_subresource(connected: Connected, start: Start) -> None:
    def answer(call: Call) -> Answer:
        if call.path.endswith("/status"):
            return failure(404, "the server could not find the requested resource")
        return Answer(200, {"metadata": {"namespace": "default", "uid": "u"}})

    with Scripted(answer) as server:
        writer = start(connected(server.url))
        writer.put(update())
        eventually(lambda: server.of("POST", "/events"))
        writer.put(update("other"))
        eventually(lambda: server.of("PATCH", "/podgroups/other"))
        assert len(server.of("PATCH", "/status")) == 1
        writer.stop()


@pytest.mark.parametrize(
    "trouble",
    [
        failure(403, "no"),
        failure(422, "no such phase"),
        Answer(200, "<html>sign in</html>"),
        Answer(200, {"kind": "Pod", "metadata": {"name": "g", "uid": "u"}}),
    ],
    ids=["forbidden", "invalid", "html", "another kind"],
)
def test_what_is_not_written_is_written_later(
    connected: Connected, start: Start, trouble: Answer
) -> None:
    answers = iter([trouble, trouble])

    def answer(call: Call) -> Answer:
        return next(answers, GROUP) if call.path.endswith("/status") else GROUP

    with Scripted(answer) as server:
        start(connected(server.url), failed_s=0.05).put(update())
        eventually(lambda: server.of("POST", "/events"))
        assert len(server.of("PATCH", "/status")) == 3


def test_an_object_that_is_gone_is_not_written_again(
    connected: Connected, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(call: Call) -> Answer:
        plural, name = call.path.removesuffix("/status").split("/")[-2:]
        return missing(plural, name)

    with Scripted(answer) as server:
        writer = start(connected(server.url), failed_s=0.05)
        writer.put(update())
        eventually(lambda: len(server.of("PATCH")) >= 2)  # the second time without /status
        writer.stop()
    assert not caplog.text


def test_an_evicted_pod_gets_an_event(client: Client, made: Make, start: Start) -> None:
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    evict = Evict(uid, "default", "p", "n1", "for team-b/x", public="for another namespace")
    start(client).evicting(evict)
    eventually(lambda: events(client) == [("Pod", "p", "Evicted", "for another namespace")])


def test_a_warning_is_written_for_the_pod_and_its_podgroup(
    client: Client, made: Make, start: Start
) -> None:
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    writer = start(client)
    writer.warn(
        EmitWarning("default", "train", "uid-of-train", uid, "p", "GPU 3 of node a is unhealthy")
    )
    writer.warn(EmitWarning("default", "", "", uid, "p", "GPU 4 of node a is unhealthy"))
    expected = {
        ("Pod", "p", "GpuUnhealthy", "GPU 3 of node a is unhealthy"),
        ("PodGroup", "train", "GpuUnhealthy", "GPU 3 of node a is unhealthy"),
        ("Pod", "p", "GpuUnhealthy", "GPU 4 of node a is unhealthy"),
    }
    eventually(lambda: set(events(client)) == expected)


def test_status_writes_let_bindings_pass_but_not_for_ever(client: Client, made: Make) -> None:
    made(GROUPS, group("g"))
    waiting = threading.Event()
    waiting.set()

    def written(bindings_first_s: float, reason: str) -> StatusWriter:
        timing = StatusTiming(started_s=0.0, bindings_first_s=bindings_first_s)
        writer = StatusWriter(client, timing, bindings_wait=waiting.is_set)
        writer.put(update(phase="Running", reason=reason))
        return writer

    writer = written(60.0, "in rack r1")
    time.sleep(0.3)
    assert not events(client)
    waiting.clear()
    eventually(lambda: events(client) == [("PodGroup", "g", "Running", "in rack r1")])
    writer.stop()
    waiting.set()
    writer = written(0.2, "in rack r2")
    eventually(lambda: ("PodGroup", "g", "Running", "in rack r2") in events(client))
    writer.stop()
