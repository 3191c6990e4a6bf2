"""Which PodGroups a round of the mirror writes, in which order, and what the scheduling loop is asked for."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.kube.transport.http_client import Client, Reply
from central.model.facts import Fact, PodGone
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server import podgroup_mirror
from central.server.podgroup_mirror import AGAIN_S, GANGS_AT_ONCE, PodGroupMirror
from protos.names import GANG_LABEL, GANG_MIN
from tests.central import factories
from tests.central.kube import controller_fixtures as made
from tests.fakes.eventually import eventually
from tests.fakes.still_clock import StillClock

READER = Decoder(("lockstep",), factories.LEVELS)


class Api(Client):
    """Answers that each PodGroup is made, but for those that have another status here."""

    server = "https://api"

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.tried: list[str] = []  # names, in the order of their creation
        self.said: dict[str, Json] = {}  # status by name
        self.on_try: Callable[[str], None] = lambda _: None

    def request(
        self, method: str, path: str, body: bytes | None = None, *args: Any, **more: Any
    ) -> Reply:
        sent = json.loads(body or b"{}")
        if method == "POST":
            name = sent["metadata"]["name"]
            self.tried.append(name)
            self.on_try(name)
            return Reply(self.statuses.get(name, 201), body or b"")
        self.said[path.split("/")[-2]] = sent["status"]
        return Reply(200, b"{}")


class Rig:
    def __init__(self) -> None:
        self.api, self.clock, self.leads = Api(), StillClock(), True
        self.clock.now = 1000.0
        self.asked = 0
        self.between: Callable[[], None] = lambda: None  # two slices of one question
        self.scheduler = new_scheduler(factories.LEVELS)
        runtime: Any = self.clock
        self.mirror = PodGroupMirror(self.api, self, may_act=lambda: self.leads, runtime=runtime)

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 10.0) -> Any:
        if self.asked:
            self.between()
        self.asked += 1
        return question(self.scheduler)

    def told(self, *facts: Fact) -> None:
        schedule_once(self.scheduler, list(facts), 0.0)

    def round(self, after_s: float = 0.0) -> list[str]:
        """The PodGroups that it tries to write."""
        self.clock.now += after_s
        self.api.tried.clear()
        self.asked = 0
        count = self.mirror.check()
        assert count == len(self.api.tried)
        return list(self.api.tried)


def pod(name: str, owner: tuple[str, str], **more: Any) -> Json:
    raw = made.pod(name, owner, {}, {GANG_MIN: "1"}, gpus=1)
    for key, value in more.items():
        raw[key] = {**raw.get(key, {}), **value}
    return raw


def webs(*names: str, kind: str = "ReplicaSet") -> list[Fact]:
    """A gang of one pod each."""
    return [READER.pod(pod(f"pod-{name}", (kind, name))) for name in names]


def mirrored(*names: str) -> list[str]:
    return [f"replicaset-{name}" for name in names]


def test_what_is_written_is_written_again_when_it_may_have_been_deleted_and_not_before() -> None:
    rig = Rig()
    rig.told(*webs("a"))
    assert rig.round() == mirrored("a")
    assert rig.round(AGAIN_S - 1) == []
    assert rig.round(1) == mirrored("a")
    assert rig.round(AGAIN_S - 1) == []


@pytest.mark.parametrize(
    ("status", "after_s"),
    [(503, 0.0), (422, AGAIN_S)],  # may be another answer at once; is final for a while
)
def test_what_could_not_be_written_is_tried_again(status: int, after_s: float) -> None:
    rig = Rig()
    rig.told(*webs("a"))
    rig.api.statuses["replicaset-a"] = status
    assert rig.round() == mirrored("a")
    if after_s:
        assert rig.round(after_s - 1) == []
        after_s = 1
    assert rig.round(after_s) == mirrored("a")
    del rig.api.statuses["replicaset-a"]
    assert rig.round(AGAIN_S) == mirrored("a")
    assert rig.round() == []


def test_what_could_not_be_written_is_said(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.told(*webs("a", "b"))
    rig.api.statuses = {"replicaset-a": 503, "replicaset-b": 422}
    rig.round()
    retried, refused = caplog.messages
    assert retried == "could not write a PodGroup: status 503; trying again"
    assert refused == "the PodGroup of a controller stays out: status 422"


def test_rounds_are_made_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podgroup_mirror, "EVERY_S", 0.001)
    rig = Rig()
    rig.told(*webs("a"))
    rig.mirror.start()
    eventually(lambda: rig.api.tried == mirrored("a"))
    rig.mirror.stop()


def test_a_gang_by_label_is_not_the_controllers() -> None:
    """Though a ReplicaSet makes its pods."""
    rig = Rig()
    raw = pod("p", ("ReplicaSet", "web"))
    raw["metadata"]["labels"] = {GANG_LABEL: "mine"}
    rig.told(READER.pod(raw))
    assert [gang.name for gang in rig.scheduler.state.gangs.values()] == ["mine"]
    assert rig.round() == []


def test_a_gang_that_went_is_forgotten_and_written_when_it_comes_back() -> None:
    rig = Rig()
    rig.told(*webs("a", "b"))
    assert rig.round() == mirrored("a", "b")
    rig.told(PodGone("uid-pod-a"))
    assert rig.round() == []
    rig.told(*webs("a"))
    assert rig.round() == mirrored("a")


def test_rounds_that_cannot_write_all_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podgroup_mirror, "WRITES_MOST", 2)
    rig = Rig()
    names = ["c", "a", "e", "d", "b"]  # not in the order in which they come
    rig.told(*webs(*names))
    rig.api.statuses = dict.fromkeys(mirrored(*names), 503)
    tried = [rig.round() for _ in range(3)]
    assert tried == [mirrored("a", "b"), mirrored("c", "d"), mirrored("e", "a")]


def test_a_round_writes_at_most_so_many() -> None:
    rig = Rig()
    names = [f"w{number:03}" for number in range(podgroup_mirror.WRITES_MOST + 1)]
    rig.told(*webs(*names))
    assert len(rig.round()) == 300
    assert rig.round() == mirrored(names[-1])


def test_a_leader_that_is_none_any_more_stops_in_the_middle_of_a_round() -> None:
    rig = Rig()
    rig.told(*webs("a", "b", "c"))

    def lose(name: str) -> None:
        rig.leads = name != "replicaset-b"

    rig.api.on_try = lose
    assert rig.round() == mirrored("a", "b")
    assert rig.round() == []
    rig.leads = True
    assert rig.round() == mirrored("c")


def test_a_process_that_ends_stops_in_the_middle_of_a_round() -> None:
    rig = Rig()
    rig.told(*webs("a", "b", "c"))
    rig.api.on_try = lambda name: rig.mirror.stop() if name == "replicaset-b" else None
    assert rig.round() == mirrored("a", "b")


def test_the_loop_may_go_on_between_so_many_gangs() -> None:
    """And what it forgets meanwhile is left out."""
    rig = Rig()
    count = 2 * GANGS_AT_ONCE + 1
    names = [f"w{number:03}" for number in range(count)]
    rig.told(*webs(*names))

    def slow() -> float:  # a slice is over at once
        rig.clock.now += 1.0
        return rig.clock.now

    rig.clock.monotonic = slow  # type: ignore[method-assign]  # each look at the clock takes long
    rig.between = lambda: rig.told(PodGone(f"uid-pod-{names[-1]}"), *webs("late"))
    assert rig.round() == mirrored(*names[:-1])
    assert rig.asked == 1 + 3  # begins, then three parts


def counts(rig: Rig, name: str) -> tuple[int, int, int]:
    status = rig.api.said[name]
    return status["running"], status["succeeded"], status["failed"]


def test_the_status_counts_the_pods() -> None:
    rig = Rig()
    phases = ["Running", "Running", "Running", "Succeeded", "Succeeded", "Failed", "Pending"]
    owner = ("Job", "train")
    rig.told(
        factories.node("n"),
        *(
            READER.pod(
                pod(
                    f"p-{rank}",
                    owner,
                    status={"phase": phase},
                    spec={"nodeName": "n"} if phase != "Pending" else {},
                )
            )
            for rank, phase in enumerate(phases)
        ),
    )
    assert rig.round() == ["job-train"]
    assert counts(rig, "job-train") == (3, 2, 1)
    assert rig.api.said["job-train"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("kind", "version"),
    [("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("Job", "batch/v1"), ("Thing", "")],
)
def test_a_podgroup_goes_with_a_controller_whose_version_is_known(kind: str, version: str) -> None:
    rig = Rig()
    owners: list[Json] = []
    create = rig.api.request

    def request(method: str, path: str, body: bytes | None = None, *args: Any) -> Reply:
        if method == "POST":
            owners.extend(json.loads(body or b"")["metadata"]["ownerReferences"])
        return create(method, path, body, *args)

    rig.api.request = request  # type: ignore[method-assign]  # listens
    rig.told(*webs("x", kind=kind))
    rig.round()
    known = [(one["apiVersion"], one["kind"], one["name"], one["uid"]) for one in owners]
    assert known == ([(version, kind, "x", f"uid-{kind}-x")] if version else [])
