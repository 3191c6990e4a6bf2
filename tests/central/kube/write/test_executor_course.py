"""When the executor sends a request again, when it gives up, and what it says then: on virtual time, with a client
whose answers are set."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Reply, Unreachable
from central.kube.write.executor import DecisionExecutor
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    Patch,
    SetStatus,
    UpdateGangStatus,
)
from central.model.device_claims import ClaimAllocation
from central.model.facts import Answered, BindDone, BindFailed, EvictDone, Fact
from tests.simulation.nemesis.virtual_runtime import Kernel

BIND = Bind("u", "ns", "p", "n1")
EVICT = Evict("u", "ns", "p", "n1", "capacity is needed")
CREATE = Create("ConfigMap", "ns", "c", {"metadata": {"name": "c"}})
DELETE = Delete("ConfigMap", "ns", "c", "u", "over")
PATCH = Patch("ConfigMap", "ns", "c", "u", {"data": {"a": "b"}})
STATUS = SetStatus("Job", "ns", "c", "u", {"state": "Running"})
ANNOTATE = Patch("Pod", "ns", "p", "u", {"metadata": {"annotations": {"a": "b"}}})
DOWN = Unreachable("https://api: no answer")


def reply(code: int, after_s: float = 0.0, **body: Any) -> Reply:
    return Reply(code, orjson.dumps(body), after_s)


def failure(status: int, message: str = "no", after_s: float = 0.0) -> Reply:
    return reply(status, after_s, kind="Status", status="Failure", message=message)


SUCCESS = reply(201, kind="Status", status="Success")
PENDING = reply(200, kind="Pod", metadata={"name": "p", "uid": "u"}, spec={})
BOUND = reply(200, kind="Pod", metadata={"name": "p", "uid": "u"}, spec={"nodeName": "n1"})
CONFIG = reply(200, kind="ConfigMap", metadata={"name": "c", "uid": "u"})
GONE = reply(404, kind="Status", reason="NotFound", details={"kind": "configmaps", "name": "c"})
Answer = Reply | Exception


class _Longest:
    def uniform(self, low: float, high: float) -> float:
        assert (low, high) == (0.5, 1.0)
        return high


@dataclass
class Course:
    """An executor, and answers by method, of which the last is repeated."""

    posts: Sequence[Answer] = (SUCCESS,)  # to all but GET
    gets: Sequence[Answer] = (PENDING,)
    volumes: Answer = SUCCESS
    retry_for_s: float = 10.0
    leads: bool = True
    takes_s: dict[str, float] = field(default_factory=dict)  # by a part of the path
    held: list[tuple[str, float, Callable[[], None]]] = field(default_factory=list)
    server: str = "https://api"

    def __post_init__(self) -> None:
        self.kernel = Kernel(1)
        self.kernel.jitter = _Longest()  # type: ignore[assignment]
        self.process = self.kernel.process("p")
        self.sent: list[tuple[float, str, str]] = []  # at, method, path
        self.events: list[str] = []
        self.facts: list[Fact] = []
        self.answered_at: list[float] = []
        self.executor: DecisionExecutor | None = None

    def request(self, method: str, path: str, *rest: Any, **more: Any) -> Reply:
        for part, seconds in self.takes_s.items():
            if part in path:
                self.process.runtime.sleep(seconds)
        if path.endswith("/events"):
            self.events.append(path)
            return CONFIG
        self.sent.append((round(self.kernel.now, 3), method, path))
        if "/persistentvolume" in path or "/resourceclaims/" in path:
            self.sent.pop()
            return self._say(self.volumes)
        answers = self.gets if method == "GET" else self.posts
        before = sum((each[1] == "GET") == (method == "GET") for each in self.sent) - 1
        return self._say(answers[min(before, len(answers) - 1)])

    @staticmethod
    def _say(answer: Answer) -> Reply:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        self.held.append((node, at_most_s, go))

    def run(self, *decisions: Decision, until_s: float = 1000.0) -> "Course":
        def inbox(fact: Fact) -> None:
            self.facts.append(fact)
            self.answered_at.append(round(self.kernel.now, 3))

        def main() -> None:
            self.executor = DecisionExecutor(
                self,  # type: ignore[arg-type]
                inbox,
                self,
                workers=4,
                retry_for_s=self.retry_for_s,
                may_act=lambda: self.leads,
                runtime=self.process.runtime,
            )
            self.executor.submit(decisions)

        self.alive = self.process.play(main, until_s)
        return self

    def times(self, *methods: str) -> list[float]:
        return [at for at, method, _ in self.sent if method in methods]


def backoff(longest: float, count: int) -> Iterator[float]:
    at = 0.0
    for number in range(count):
        yield round(at, 3)
        at += min(longest, 0.1 * 2**number)


UNKNOWN = [DOWN, failure(500), failure(503), failure(429), failure(408), failure(401), reply(200)]
UNKNOWN += [Reply(200, b"<html>"), Reply(302, b""), RuntimeError("a bug")]


@pytest.mark.parametrize("trouble", UNKNOWN, ids=lambda one: str(getattr(one, "status", one)))
@pytest.mark.parametrize("decision", [EVICT, DELETE, PATCH, STATUS, ANNOTATE], ids=lambda one: type(one).__name__)  # fmt: skip
def test_an_unknown_outcome_is_repeated_for_ten_seconds(
    trouble: Answer, decision: Decision
) -> None:
    """0.1, 0.2, 0.4 s and so on apart, 2 s at most; no attempt begins after the end."""
    course = Course([trouble]).run(decision)
    assert course.times("POST", "PATCH", "DELETE") == list(backoff(2.0, 9))
    assert course.answered_at == [9.1]
    [fact] = course.facts
    assert isinstance(fact, EvictDone | Answered)
    assert fact.why
    if isinstance(fact, EvictDone):
        assert fact.unknown


@pytest.mark.parametrize("done", range(1, 5))
def test_it_ends_with_the_first_success(done: int) -> None:
    for decision, success in ((EVICT, SUCCESS), (DELETE, SUCCESS), (PATCH, CONFIG)):
        course = Course([DOWN] * done + [success]).run(decision)
        assert course.times("POST", "PATCH", "DELETE") == list(backoff(2.0, done + 1))
        [fact] = course.facts
        assert isinstance(fact, EvictDone | Answered)
        assert (fact.why, getattr(fact, "unknown", False)) == ("", False)


@pytest.mark.parametrize(
    ("asked_s", "waited_s"), [(0.0, 0.1), (0.05, 0.1), (3.0, 3.0), (5.0, 5.0), (60.0, 5.0)]
)
def test_the_server_may_ask_for_more_time(asked_s: float, waited_s: float) -> None:
    course = Course([failure(429, after_s=asked_s), CONFIG]).run(PATCH)
    assert course.times("PATCH") == [0.0, waited_s]


def test_a_refusal_is_not_repeated() -> None:
    for decision in (EVICT, DELETE, PATCH, CREATE):
        course = Course([failure(403, "forbidden")]).run(decision)
        assert (course.times("POST", "PATCH", "DELETE"), course.answered_at) == ([0.0], [0.0])
        [fact] = course.facts
        assert isinstance(fact, EvictDone | Answered)
        assert (fact.why, getattr(fact, "unknown", False)) == ("forbidden", False)


# --- bindings: the pod has the last word -------------------------------------


def test_a_binding_with_an_unknown_outcome() -> None:
    """It is repeated as others are; then the pod is read, until it says what it is."""
    course = Course([DOWN], [DOWN] * 9 + [PENDING]).run(BIND)
    assert course.times("POST") == list(backoff(2.0, 9))
    reads = list(backoff(5.0, 10))
    assert course.times("GET") == [round(9.1 + at, 3) for at in reads]
    assert course.facts == [BindFailed("u", "n1", str(DOWN))]
    assert Course([DOWN], [BOUND]).run(BIND).facts == [BindDone("u", "n1")]


def test_a_pod_is_read_until_it_can_be() -> None:
    course = Course([failure(422, "odd")], [DOWN]).run(BIND, until_s=300.0)
    assert course.facts == []
    assert course.times("POST") == [0.0]
    assert course.times("GET") == [at for at in backoff(5.0, 100) if at <= 300.0]
    assert course.executor is not None
    assert course.executor.tickets.is_open("u")


def test_a_refused_binding_is_settled_at_once() -> None:
    for status in (400, 403, 404, 410, 422):
        course = Course([failure(status, "not now")], [PENDING]).run(BIND)
        assert [(at, method) for at, method, _ in course.sent] == [(0.0, "POST"), (0.0, "GET")]
        assert course.facts == [BindFailed("u", "n1", "not now")]
    course = Course([failure(403, "not now")], [failure(403, "nor that")]).run(BIND)
    assert course.facts == [BindFailed("u", "n1", "not now")]


def test_a_bug_while_a_pod_is_read_counts_as_failure_after_some_times() -> None:
    course = Course([failure(403, "not now")], [RuntimeError("a bug")]).run(BIND)
    assert course.times("GET") == list(backoff(5.0, 4))
    assert course.facts == [BindFailed("u", "n1", "not now")]
    course = Course([failure(403, "not now")], [RuntimeError("a bug")] * 3 + [BOUND]).run(BIND)
    assert course.facts == [BindDone("u", "n1")]


def test_volumes_take_their_time() -> None:
    """They are bound before the pod, and may be provisioned for minutes."""
    for claims, answered_at in (((), 9.1), ((("c", "v"),), 179.1)):
        decision = Bind("u", "ns", "p", "n1", claims=claims)
        course = Course([DOWN], volumes=DOWN).run(decision)
        assert course.answered_at == [pytest.approx(answered_at)]
        assert bool(course.times("POST")) != bool(claims), "no pod is bound without its volumes"
    lost = reply(404, kind="Status", reason="NotFound", details={"kind": "persistentvolumeclaims", "name": "c"})  # fmt: skip
    course = Course(volumes=lost).run(decision)
    assert (course.answered_at, course.times("POST")) == ([0.0], [])
    [fact] = course.facts
    assert isinstance(fact, BindFailed)
    assert "claim c" in fact.why


def test_devices_that_do_not_become_ready_fail_the_binding() -> None:
    """After ten minutes, as kube-scheduler does."""
    device = {"driver": "d", "pool": "p", "device": "x", "bindingConditions": ["Attached"]}
    unready = reply(
        200,
        kind="ResourceClaim",
        metadata={"name": "c", "uid": "7"},
        status={
            "allocation": {"devices": {"results": [device]}},
            "reservedFor": [{"resource": "pods", "uid": "u"}],
        },
    )
    decision = BIND._replace(device_claims=(ClaimAllocation("c", "7"),))
    course = Course(volumes=unready).run(decision)
    why = "ResourceClaim c: device d/p/x is not ready: condition Attached is not True"
    assert course.facts == [BindFailed("u", "n1", why)]
    assert course.answered_at[0] == pytest.approx(599, abs=1.5)
    assert not course.times("POST")


def test_without_the_lease_nothing_is_sent() -> None:
    for decision in (EVICT, DELETE, PATCH, CREATE, STATUS, ANNOTATE):
        course = Course(leads=False).run(decision)
        assert (course.sent, course.answered_at) == ([], [0.0])
        [fact] = course.facts
        assert isinstance(fact, EvictDone | Answered)
        assert fact.why == "not sent: this replica does not hold the lease"
    course = Course(leads=False, gets=[DOWN, PENDING]).run(BIND)
    assert [(at, method) for at, method, _ in course.sent] == [(0.0, "GET"), (0.1, "GET")]
    assert course.facts == [BindFailed("u", "n1", "not sent: this replica does not hold the lease")]


# --- what waits for what -----------------------------------------------------


def test_a_binding_with_gpus_waits_for_its_agent() -> None:
    whole = Bind("u", "ns", "p", "n1", gpus=1)
    course = Course().run(whole)
    assert (course.sent, course.facts) == ([], [])
    [(node, at_most_s, _)] = course.held
    assert (node, at_most_s) == ("n1", 0.3)
    assert Course().run(BIND).facts == [BindDone("u", "n1")]


SLOW_S = 50.0
CREATES = [Create("ConfigMap", "ns", f"c{index}", {}) for index in range(40)]
ANNOTATIONS = [Patch("Pod", "ns", f"a{index}", "u", {}) for index in range(5)]


def test_neither_creations_nor_annotations_delay_a_binding() -> None:
    """Each kind has workers of its own."""
    course = Course()
    course.takes_s = {"/configmaps": SLOW_S, "/pods/a": SLOW_S}
    course.run(*CREATES, *ANNOTATIONS, BIND, EVICT, STATUS, until_s=SLOW_S * 10)
    at = {path.rpartition("/")[2]: at for at, _, path in course.sent}
    assert (at["binding"], at["eviction"]) == (0.0, 0.0)
    created = sorted(at for at, _, path in course.sent if path.endswith("/configmaps"))
    assert [created.count(SLOW_S * turn) for turn in (1, 2, 3)] == [16, 16, 8]
    annotated = [at for at, _, path in course.sent if "/pods/a" in path]
    assert annotated == [SLOW_S, SLOW_S, 2 * SLOW_S, 2 * SLOW_S, 3 * SLOW_S]


@pytest.mark.parametrize("trial", [True, False])
def test_an_eviction_that_is_tried_makes_no_event(trial: bool) -> None:
    course = Course().run(Evict("u", "ns", "p", "n1", "capacity is needed", trial=trial))
    assert course.events == ([] if trial else ["/api/v1/namespaces/ns/events"])


UPDATE = UpdateGangStatus("ns", "g", "Running", "placed", has_object=True, running=2)
WARNING = EmitWarning("ns", "", "", "u", "p", "its GPU is ill")


def test_statuses_and_warnings() -> None:
    course = Course(posts=[reply(200, kind="PodGroup", metadata={"name": "g", "uid": "u"})])
    course.run(UPDATE, WARNING)
    assert [path.rpartition("/")[2] for _, _, path in course.sent] == ["status"]
    assert len(course.events) == 2
    assert course.facts == []
    course = Course(leads=False).run(UPDATE, WARNING, until_s=60.0)
    assert (course.sent, course.events) == ([], [])


def test_bindings_go_before_statuses() -> None:
    """As long as some wait for a worker, for 5 s at most."""
    for count, status_at in ((0, 1.0), (12, 2.0), (400, 5.0)):
        course = Course(takes_s={"/binding": 1.0})
        binds = [Bind(f"u{index}", "ns", f"p{index}", "n1") for index in range(count)]
        course.run(*binds, UPDATE, until_s=20.0)
        at = min(at for at, _, path in course.sent if path.endswith("/status"))
        assert at == pytest.approx(status_at, abs=0.06), count


@pytest.mark.parametrize(
    ("answer", "decision", "level"),
    [
        (failure(403), BIND, "WARNING"),
        (failure(403), EVICT, "WARNING"),
        (failure(403), PATCH, "WARNING"),
        (GONE, PATCH, "INFO"),
        (CONFIG, PATCH, ""),
        (SUCCESS, BIND, ""),
        (SUCCESS, EVICT, ""),
    ],
)
def test_what_is_logged_of_an_answer(answer: Answer, decision: Decision, level: str, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    """Each failure, with the object. That an object is gone is expected."""
    caplog.set_level("INFO")
    Course([answer]).run(decision)
    found = [each for each in caplog.records if each.name.endswith("executor")]
    assert [each.levelname for each in found] == ([level] if level else [])
    verb = {"Bind": "bind pod ns/p to n1", "Evict": "evict pod ns/p from n1", "Patch": "Patch of ConfigMap ns/c"}  # fmt: skip
    assert all(verb[type(decision).__name__] in each.message for each in found)


def test_a_pod_that_cannot_be_read_is_logged_about_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    Course([failure(403)], [DOWN]).run(BIND, until_s=300.0)
    said = [each for each in caplog.records if "reading the pod again" in each.message]
    assert len(said) == 5


def test_after_the_end_nothing_is_begun() -> None:
    course = Course([DOWN], [DOWN])

    def stop() -> None:
        assert course.executor is not None
        course.executor.stop()

    course.kernel.at(1.0, lambda: course.process.runtime.thread(stop, "stop").start())
    course.run(PATCH, BIND)
    assert course.times("PATCH") == [at for at in backoff(2.0, 9) if at < 1.0]
    assert course.facts == []
    assert course.alive == []
