"""Events about objects: one for each object, reason and message within ten minutes, whatever the API server answers;
and which reasons of a pending object are news."""

import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Reply, Unreachable
from central.kube.transport.runtime import OsRuntime
from central.kube.transport.workers import RateLimiter
from central.kube.write import event_writer, new_reasons
from central.kube.write.event_writer import REPEAT_S, EventWriter, LimitedClient
from central.kube.write.new_reasons import FORMS_MOST, PER_MINUTE, NewReasons, form

POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}
OK = 201


class Clock(OsRuntime):
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Writer:
    def __init__(self, *answers: int | Exception) -> None:
        """answers: statuses, of which the last is repeated."""
        self.clock, self.answers = Clock(), answers or (OK,)
        self.sent: list[tuple[str, str, Any]] = []
        limiter = RateLimiter(1e6, 1000)
        self.client = LimitedClient(self, limiter, self.clock.flag(), lambda: True)  # type: ignore[arg-type]
        self.events = EventWriter(self.clock)

    server = "https://api"

    def request(self, method: str, path: str, content: bytes, *_: Any) -> Reply:
        self.sent.append((method, path, orjson.loads(content)))
        answer = self.answers[min(len(self.sent), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer, orjson.dumps({"kind": "Status", "message": "why"}), 0.0)

    def emit(self, reason: str = "R", message: str = "m", involved: Any = None) -> None:
        self.events.emit(self.client, involved or POD, reason, message, "Warning")


def test_objects_without_a_uid_have_an_event_each() -> None:
    """Such as two queues with one fault."""
    writer = Writer()
    for kind, name in (("Queue", "a"), ("Queue", "b"), ("HyperNode", "a"), ("Queue", "a")):
        writer.emit(involved={**POD, "kind": kind, "name": name, "namespace": "", "uid": ""})
    told = [(e["involvedObject"]["kind"], e["involvedObject"]["name"]) for _, _, e in writer.sent]
    assert told == [("Queue", "a"), ("Queue", "b"), ("HyperNode", "a")]
    assert len({event["metadata"]["name"] for _, _, event in writer.sent}) == 3


def test_what_an_event_says() -> None:
    writer = Writer()
    writer.emit(message="x" * 2000)
    [(method, path, event)] = writer.sent
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/events")
    meta = event.pop("metadata")
    assert meta["namespace"] == "ns"
    name, _, digest = meta["name"].rpartition(".")
    assert (name, len(digest)) == ("p", 16)
    assert event.pop("firstTimestamp") == event.pop("lastTimestamp")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": POD,
        "reason": "R",
        "message": "x" * 1000,
        "type": "Warning",
        "source": {"component": "lockstep"},
        "count": 1,
    }


def test_an_event_of_an_object_without_a_namespace() -> None:
    writer = Writer()
    writer.emit(involved={**POD, "namespace": "", "name": "n" * 253, "uid": None})
    [(_, path, event)] = writer.sent
    assert path == "/api/v1/namespaces/default/events"
    assert len(event["metadata"]["name"]) == 200 + 1 + 16


def test_the_same_event_is_written_again_after_ten_minutes() -> None:
    writer = Writer()
    for at, count in ((0, 1), (1, 1), (REPEAT_S - 1, 1), (REPEAT_S, 2), (REPEAT_S + 1, 2)):
        writer.clock.now = 1000.0 + at
        writer.emit()
        assert len(writer.sent) == count, at
    for other in ({"reason": "S"}, {"message": "n"}, {"involved": {**POD, "uid": "v"}}):
        before = len(writer.sent)
        writer.emit(**other)
        writer.emit(**other)
        assert len(writer.sent) == before + 1, other
    names = {event["metadata"]["name"] for _, _, event in writer.sent}
    assert len(names) == 4, "the same one has one name"


def test_an_event_that_exists_is_seen_again() -> None:
    writer = Writer(409, 200)
    writer.emit()
    (_, path, event), (method, again, patch) = writer.sent
    assert (method, again) == ("PATCH", f"{path}/{event['metadata']['name']}")
    assert list(patch) == ["lastTimestamp"]


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ((201,), ""),
        ((404,), ""),  # the object is gone meanwhile
        ((409, 404), ""),
        ((403,), "could not write an Event of ns/p: why"),
        ((409, 403), "could not write an Event of ns/p: why"),
        ((500,), "lost an Event of ns/p: why"),
        ((Unreachable("nobody there"),), "lost an Event of ns/p: nobody there"),
    ],
)
def test_what_is_logged(
    answers: Sequence[int | Exception], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(*answers)
    writer.emit()
    assert caplog.messages == ([says] if says else [])
    writer.emit()
    sent = len(answers) * (2 if says.startswith("lost") else 1)
    assert len(writer.sent) == sent, "only one that is lost is written again"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "_REMEMBERED_MOST", 10)
    writer = Writer()
    for number in range(100):
        writer.emit(message=str(number))
        assert len(writer.events._written) <= 11
    writer.emit(message="99")
    assert len(writer.sent) == 100


# --- news ----------------------------------------------------------------------


def test_reasons_against_the_rule() -> None:
    """New is a form that is not among the last 16 of the object, at most three in any minute."""
    dice = random.Random("news")
    for _ in range(40):
        reasons, told = NewReasons(), list[tuple[str, float]]()
        now = 0.0
        for _ in range(150):
            now += dice.choice((0.0, 1.0, 29.0, 30.0, 60.0))
            kind = "abcdefghijklmnopqrstuvwxyz"[dice.randrange(26)]
            known = [each for each, _ in told][-FORMS_MOST:]
            lately = sum(now - at < 60 for _, at in told)
            expected = kind not in known and lately < PER_MINUTE
            assert reasons.is_new("u", f"{kind} 7", now) == expected
            told += [(kind, now)] * expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2 of 8 GPUs free", "7 of 16 GPUs free"),
        ("1 pod", "2 pods"),
        ("1 node, 1 GPU, 1 slice", "3 nodes, 4 GPUs, 2 slices"),
        ("needs 1.5Gi", "needs 300Mi"),
        ("for less than a minute", "for about 3 h"),
        ("for about 2 days", "for about 10 min"),
    ],
)
def test_other_numbers_are_the_same_form(one: str, other: str) -> None:
    assert form(one) == form(other)
    assert form(one) != form(f"{other}!")


def test_objects_are_told_apart_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(new_reasons, "_OBJECTS_MOST", 3)
    reasons = NewReasons()
    assert [reasons.is_new(uid, "a", 0.0) for uid in "xyzx"] == [True, True, True, False]
    assert reasons.is_new("w", "a", 0.0), "y is forgotten, which was asked for last"
    assert [reasons.is_new(uid, "a", 0.0) for uid in "xzw"] == [False, False, False]
    assert reasons.is_new("y", "a", 0.0)
