"""When the status of a gang is written, and what: on virtual time, with a client whose answers are set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import Reply, Unreachable
from central.kube.write import status_writer
from central.kube.write.status_writer import StatusWriter
from central.model.decisions import PODS_SHOWN, EmitWarning, Evict, UpdateGangStatus
from tests.simulation.nemesis.virtual_runtime import Kernel

Put = tuple[float, UpdateGangStatus]
Sent = tuple[float, str, str]  # at, of which object, what
DOWN = Unreachable("https://api: no answer")
FAILED = Reply(500, orjson.dumps({"kind": "Status", "message": "no"}), 0.0)
GONE = Reply(404, orjson.dumps({"kind": "Status", "reason": "NotFound", "details": {"name": "g"}}), 0.0)  # fmt: skip
POD_GONE = Reply(404, orjson.dumps({"kind": "Status", "reason": "NotFound", "details": {"kind": "pods", "name": "b"}}), 0.0)  # fmt: skip
REFUSED = Reply(403, orjson.dumps({"kind": "Status", "reason": "Forbidden"}), 0.0)


def gang(
    phase: str = "Pending", running: int = 0, name: str = "g", **more: Any
) -> UpdateGangStatus:
    waits = "capacity" if phase in ("Pending", "Unknown") else ""
    told = {"reason": f"{phase.lower()} {name}", "cause": waits}
    given = {"has_object": True, "running": running, **told, **more}
    return UpdateGangStatus("ns", name, phase, **given)


@dataclass
class Course:
    """A writer, updates at their times, and the answers to patches of PodGroups, of which the last is repeated."""

    puts: Sequence[Put]
    answers: Sequence[Reply | Exception | None] = (None,)  # None: the object
    takes_s: dict[str, float] = field(default_factory=dict)  # by a part of the path
    bindings_until_s: float = 0.0  # some wait for a worker until then
    leads: Callable[[float], bool] = lambda _: True
    gone: str = ""  # names of pods
    stop_at: float | None = None
    begin: Callable[[StatusWriter], None] = lambda _: None
    sent: list[Sent] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)  # of PodGroups

    def request(self, method: str, path: str, content: Any = None, *_: Any) -> Reply:
        for part, seconds in self.takes_s.items():
            if part in path:
                self.runtime.sleep(seconds)
        parts, body = path.split("/"), orjson.loads(content) if content else {}
        at = round(self.kernel.now, 2)
        if "events" in parts:
            involved = body.get("involvedObject", {})
            self.sent.append((at, str(involved.get("name")), f"{body.get('type')} {body.get('reason')}: {body.get('message')}"))  # fmt: skip
            return self._found("Event", "e")
        kind, name = parts[parts.index("ns") + 1], parts[parts.index("ns") + 2]
        if kind == "pods":
            self.sent.append((at, name, "condition" if method == "PATCH" else method))
            return POD_GONE if name in self.gone else self._found("Pod", name)
        status = body["status"]
        self.bodies.append(body)
        self.sent.append((at, name, f"{status['phase']} {status['running']}"))
        before = len(self.of(name)) - 1
        answer = self.answers[min(before, len(self.answers) - 1)]
        if isinstance(answer, Exception):
            raise answer
        return answer or self._found("PodGroup", name)

    @staticmethod
    def _found(kind: str, name: str) -> Reply:
        return Reply(200, orjson.dumps({"kind": kind, "metadata": {"name": name, "uid": f"u-{name}"}}), 0.0)  # fmt: skip

    server = "https://api"

    def run(self, until_s: float = 2000.0) -> "Course":
        self.kernel = Kernel(1)
        self.runtime = self.kernel.process("p").runtime

        def main() -> None:
            writer = StatusWriter(
                self,  # type: ignore[arg-type]
                bindings_wait=lambda: self.kernel.now < self.bindings_until_s,
                may_act=lambda: self.leads(self.kernel.now),
                runtime=self.runtime,
            )
            self.begin(writer)
            for at, update in self.puts:
                self.runtime.sleep(at - self.kernel.now)
                writer.put(update)
            if self.stop_at is not None:
                self.runtime.sleep(self.stop_at - self.kernel.now)
                writer.stop()

        self.runtime.thread(main, "main").start()
        try:
            self.kernel.run(until_s)
        finally:
            self.kernel.end()
        return self

    def of(self, name: str = "g") -> list[tuple[float, str]]:
        """What was written of the PodGroup, or of the pod."""
        return [(at, what) for at, one, what in self.sent if one == name and ":" not in what]

    def events(self) -> list[tuple[str, str]]:
        return [(name, what) for _, name, what in self.sent if ":" in what]


TIMES: dict[str, tuple[list[Put], list[tuple[float, str]]]] = {
    "a pending gang": ([(0, gang())], [(0.3, "Pending 0")]),
    "what comes while its pods are created": (
        [(0, gang()), (0.1, gang(reason="b")), (0.29, gang(failed=1))],
        [(0.3, "Pending 0")],
    ),
    "a pending gang whose reason changes": (
        [(0, gang()), (1, gang(reason="b")), (2, gang(reason="c")), (6, gang(reason="d"))],
        [(0.3, "Pending 0"), (5.3, "Pending 0"), (10.3, "Pending 0")],
    ),
    "a reason that changes late": (
        [(0, gang()), (100, gang(reason="b"))],
        [(0.3, "Pending 0"), (100.3, "Pending 0")],
    ),
    "the same state again": ([(0, gang()), (10, gang()), (20, gang())], [(0.3, "Pending 0")]),
    "another one and back": (
        [(0, gang()), (1, gang(reason="b")), (2, gang())],
        [(0.3, "Pending 0")],
    ),
    "a gang that is being created": ([(0, gang("Inqueue"))], [(1.0, "Inqueue 0")]),
    "a gang that starts": ([(0, gang("Running", 2))], [(1.0, "Running 2")]),
    "its pods start one by one": (
        [(0.2 * number, gang("Running", number)) for number in range(1, 6)],
        [(1.2, "Running 5")],
    ),
    "it starts, then its pods run": (
        [(0, gang("Running")), (0.8, gang("Running", 1)), (1.7, gang("Running", 2))],
        [(1.8, "Running 2")],
    ),
    "further pods": (
        [(0, gang("Running", 1)), (1.5, gang("Running", 2)), (20, gang("Running", 3))],
        [(1.0, "Running 1"), (2.5, "Running 2"), (21.0, "Running 3")],
    ),
    "pending, then it starts at once": (
        [(0, gang()), (0.1, gang("Running", 1))],
        [(1.1, "Running 1")],
    ),
    "pending, then it starts": (
        [(0, gang()), (2, gang("Running", 1))],
        [(0.3, "Pending 0"), (3.0, "Running 1")],
    ),
    "running, then pending": (
        [(0, gang("Running", 1)), (2, gang())],
        [(1.0, "Running 1"), (2.3, "Pending 0")],
    ),
    "an end": (
        [(0, gang("Running", 1)), (2, gang("Completed"))],
        [(1.0, "Running 1"), (3.0, "Completed 0")],
    ),
    "a Job of which nothing runs yet": ([(0, gang("Running", of_job=True))], [(5.0, "Running 0")]),
    "a Job whose first pod runs": (
        [(0, gang("Running", of_job=True)), (2, gang("Running", 1, of_job=True))],
        [(3.0, "Running 1")],
    ),
    "further pods of a Job": (
        [(0, gang("Running", 1, of_job=True)), (1.5, gang("Running", 2, of_job=True))],
        [(1.0, "Running 1"), (6.0, "Running 2")],
    ),
    "a Job whose pods wait": ([(0, gang(of_job=True))], [(0.3, "Pending 0")]),
    "a Job that ends before it ran": (
        [(0, gang("Running", of_job=True)), (0.5, gang("Completed", of_job=True))],
        [(1.0, "Completed 0")],
    ),
}


@pytest.mark.parametrize("what", TIMES)
def test_when_a_state_is_written(what: str) -> None:
    puts, expected = TIMES[what]
    assert Course(puts).run().of() == expected


def test_a_failed_write_is_repeated_less_and_less_often() -> None:
    for trouble in (DOWN, FAILED, REFUSED, Reply(200, b"<html>", 0.0), RuntimeError("a bug")):
        course = Course([(0, gang())], [trouble]).run()
        waits = [0.3, 5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300]
        at = [round(sum(waits[: number + 1]), 2) for number in range(len(waits))]
        assert [each for each, _ in course.of()] == at, trouble


def test_after_a_success_the_next_failure_is_the_first() -> None:
    puts = [(0, gang()), (100, gang(reason="b"))]
    course = Course(puts, [DOWN, DOWN, None, DOWN, None]).run()
    assert [at for at, _ in course.of()] == [0.3, 5.3, 15.3, 100.3, 105.3]


def test_the_newest_state_is_repeated() -> None:
    puts = [(0, gang()), (2, gang("Running", 1)), (2.5, gang("Running", 2))]
    course = Course(puts, [DOWN, None]).run()
    assert course.of() == [(0.3, "Pending 0"), (3.0, "Running 2")]


def test_what_comes_while_a_write_is_under_way_is_written_after_it() -> None:
    puts = [(0, gang("Running", 1)), (1.5, gang("Running", 2)), (3.0, gang("Completed"))]
    course = Course(puts, takes_s={"podgroups": 4.0}).run()
    assert [what for _, what in course.of()] == ["Running 1", "Completed 0"]
    first, second = (at for at, _ in course.of())
    assert first == 5.0
    assert 9.0 <= second < 9.1, "as soon as the first is over"


def test_an_object_that_is_gone_is_not_written_again() -> None:
    course = Course([(0, gang(pods=("a",)))], [GONE]).run()
    assert [each[1:] for each in course.sent] == [
        ("g", "Pending 0"),
        ("g", "Pending 0"),  # where the CRD has no status of its own
        ("a", "condition"),
        ("a", "Warning FailedScheduling: pending g"),
    ]


def test_bindings_go_first_but_not_for_ever() -> None:
    for until_s, written_at in ((0.1, 0.3), (2.0, 2.0), (100.0, 5.0)):
        [(at, _)] = Course([(0, gang())], bindings_until_s=until_s).run().of()
        assert written_at <= at < written_at + 0.1
    course = Course([(0, gang()), (3, gang("Running", 1))], bindings_until_s=100.0).run()
    [(at, _)] = course.of()
    assert 5.0 <= at < 5.1, "the oldest update that is not written counts"


def test_a_crowd_of_running_gangs_is_written_less_often() -> None:
    """With more than 20 that wait for a write, each comes after as many seconds as there are twenties, up to five."""
    for count, apart_s in ((1, 1.0), (20, 1.0), (60, 3.0), (90, 4.5), (100, 5.0)):
        names = [f"g{number}" for number in range(count)]
        puts = [(0.0, gang("Running", 1, name, quiet=True)) for name in names]
        puts += [(1.01, gang("Running", 2, name, quiet=True)) for name in names]
        course = Course(puts).run()
        first, second = course.of(names[0])
        assert first[0] == pytest.approx(1.0, abs=0.1)
        assert second[0] == pytest.approx(max(2.01, 1.0 + apart_s), abs=0.15), count


def test_a_replica_without_the_lease_writes_when_it_has_it() -> None:
    course = Course([(0, gang())], leads=lambda now: now > 10.0).run()
    assert course.of() == [(15.3, "Pending 0")]


def test_running_gangs_are_written_while_pending_ones_wait() -> None:
    """50 requests in a second for all pending gangs, after the first 50; 500, after the first 100, for the others."""
    puts = [(100.0, gang(name=f"p{number}", quiet=True)) for number in range(200)]
    puts += [(100.0, gang("Running", 1, f"r{number}", quiet=True)) for number in range(600)]
    course = Course(puts).run()

    def written(letter: str, until_s: float) -> int:
        return sum(name.startswith(letter) and at < until_s for at, name, _ in course.sent)

    assert [written("p", 100.305 + seconds) for seconds in (0, 1, 2, 3)] == [50, 100, 150, 200]
    assert written("r", 101.001) == pytest.approx(101, abs=1)
    assert written("r", 101.505) == pytest.approx(350, abs=2)
    assert written("r", 102.01) == 600


def test_what_is_written_of_a_podgroup() -> None:
    def body(update: UpdateGangStatus) -> Any:
        [found] = Course([(0, update)]).run().bodies
        for condition in found["status"]["conditions"]:
            assert condition.pop("lastTransitionTime").endswith("Z")
            assert condition.pop("transitionID")
        return found["status"]

    counts: Any = {"running": 2, "succeeded": 3, "failed": 4}
    for phase, kind, why in (
        ("Running", "Scheduled", "GangScheduled"),
        ("Completed", "Scheduled", "GangScheduled"),
        ("Pending", "Unschedulable", "Unschedulable"),
        ("Unknown", "Unschedulable", "Unschedulable"),
    ):
        condition = {"type": kind, "status": "True", "reason": why, "message": f"{phase.lower()} g"}
        expected = {"phase": phase, **counts, "conditions": [condition]}
        assert body(gang(phase, **counts)) == expected
    assert body(gang("Inqueue")) == {"phase": "Inqueue", "running": 0, "succeeded": 0, "failed": 0, "conditions": []}  # fmt: skip


def test_evictions_and_warnings_are_events() -> None:
    def begin(writer: StatusWriter) -> None:
        writer.evicting(Evict("u", "ns", "p", "n1", "gang ns/x needs it"))
        writer.evicting(
            Evict("v", "ns", "q", "n1", "gang ns/x needs it", public="another gang needs it")
        )
        writer.warn(
            EmitWarning("ns", "g", "u-g", "u-p", "p", why="GPU 3 is lost", reason="GpuUnhealthy")
        )
        writer.warn(
            EmitWarning("ns", "", "", "u-r", "r", why="GPU 4 is lost", reason="GpuUnhealthy")
        )

    assert Course([], begin=begin).run().events() == [
        ("p", "Warning Evicted: gang ns/x needs it"),
        ("q", "Warning Evicted: another gang needs it"),
        ("p", "Warning GpuUnhealthy: GPU 3 is lost"),
        ("g", "Warning GpuUnhealthy: GPU 3 is lost"),
        ("r", "Warning GpuUnhealthy: GPU 4 is lost"),
    ]


def test_after_the_end_nothing_is_written() -> None:
    course = Course([(0, gang()), (1, gang(name="h"))], stop_at=1.1).run()
    assert course.of() == [(0.3, "Pending 0")]
    assert course.of("h") == []


# --- conditions and Events -------------------------------------------------------


def test_the_first_pods_of_a_pending_gang_get_the_condition_and_an_event() -> None:
    pods = tuple(f"p{number}" for number in range(PODS_SHOWN + 3))
    course = Course([(0, gang(pods=pods)), (10, gang(pods=pods, reason="other"))]).run()
    known = pods[:PODS_SHOWN]
    first = [(name, what) for at, name, what in course.sent if at < 10]
    assert [name for name, what in first if what == "condition"] == list(pods)
    says = "Warning FailedScheduling: pending g"
    assert [each for each in first if ":" in each[1]] == [(name, says) for name in (*known, "g")]
    again = [name for at, name, what in course.sent if at > 10 and ":" in what]
    assert again == [*known, "g"], "another reason"


def test_pods_that_are_gone_hear_nothing() -> None:
    course = Course([(0, gang(pods=("a", "b", "c"), has_object=False))], gone="b").run()
    assert [name for _, name, what in course.sent if what == "condition"] == ["a", "b", "c"]
    assert [name for name, _ in course.events()] == ["c", "a"]
    course = Course([(0, gang(pods=("b",), has_object=False))], gone="b").run()
    assert [each[1:] for each in course.sent] == [("b", "condition")], "nor is it tried again"


def test_what_is_written_is_forgotten_when_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "_REMEMBERED_MOST", 3)
    puts = [(0.0, gang(name=f"g{number}")) for number in range(3)]
    for count, written in ((3, 1), (4, 2)):
        more = [(1.0, gang(name=f"h{number}")) for number in range(count - 3)]
        course = Course([*puts, *more, (100.0, gang(name="g0"))]).run()
        assert len(course.of("g0")) == written, "it is not known any more"


def test_a_reason_that_an_object_has_heard_is_no_event() -> None:
    puts = [(0, gang(reason="2 of 8 GPUs")), (10, gang(reason="3 of 8 GPUs", pods=("a",)))]
    course = Course(puts).run()
    assert course.events() == [
        ("g", "Warning FailedScheduling: 2 of 8 GPUs"),
        ("a", "Warning FailedScheduling: 3 of 8 GPUs"),
    ]


def test_a_gang_that_starts_while_its_pods_get_the_condition() -> None:
    pods = tuple(f"p{number}" for number in range(5))
    course = Course([(0, gang(pods=pods)), (1, gang("Running", 1))], takes_s={"/pods/": 0.4}).run()
    assert [name for _, name, what in course.sent if what == "condition"] == ["p0", "p1"]
    assert ("p1", "Warning FailedScheduling: pending g") not in course.events(), "it is placed"
    course = Course([(0, gang(pods=pods)), (1, gang(reason="b"))], takes_s={"/pods/": 0.4}).run()
    assert [name for _, name, what in course.sent if what == "condition"][:5] == list(pods)


@pytest.mark.parametrize(
    ("update", "says"),
    [
        (gang(), [("g", "Warning FailedScheduling: pending g")]),
        (gang(""), [("g", "Warning StatusChanged:  g")]),
        (gang("Running", 1), [("g", "Normal Running: running g")]),
        (gang("Completed"), [("g", "Normal Completed: completed g")]),
        (gang("Inqueue"), []),
        (gang(quiet=True), []),
        (gang("Running", 1, quiet=True), []),
        (gang(reason=""), []),
        (gang("Running", 1, reason=""), []),
        (gang(has_object=False, pods=("g",)), [("g", "Warning FailedScheduling: pending g")]),
        (gang("Running", 1, has_object=False, pods=("g",)), [("g", "Normal Running: running g")]),
        (gang("Running", 1, has_object=False), []),
    ],
)
def test_the_events_of_a_state(update: UpdateGangStatus, says: list[tuple[str, str]]) -> None:
    course = Course([(0, update)]).run()
    assert course.events() == says
    assert (course.of()[:1] != []) == (update.has_object or bool(update.pods))
