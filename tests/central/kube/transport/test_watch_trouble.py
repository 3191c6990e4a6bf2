"""What a watch says of itself when it is out of sync, listed again or stopped, and the facts that it delivers."""

from collections.abc import Sequence
from functools import partial

import pytest

from central.kube.transport import watch
from central.model.facts import Fact, PodGone, PodSeen
from central.model.json_types import Json
from tests.central.kube.transport.test_watch_course import (
    DOWN,
    LASTS,
    event,
    page,
    raw_pod,
    refused,
)
from tests.central.kube.transport.watch_course import Answer, Course, Line, kind


def test_since_when_it_is_out_of_sync() -> None:
    course = Course([DOWN, page(), [7.0], DOWN, DOWN, LASTS, LASTS]).run()
    late_s = [round(sum(late for late, _ in each.late.values()), 3) for each in course.requests]
    assert late_s == [0.0, 0.2, 0.0, 0.0, 0.4, 1.2, 0.0]
    course = Course([page(), [7.0], DOWN, [2.0], DOWN, [2.0]]).run()
    late_s = [round(sum(late for late, _ in each.late.values()), 3) for each in course.requests]
    assert late_s == [0.0, 0.0, 0.0, 0.2, 0.0, 0.4], "a watch that is answered is in sync"
    course = Course([DOWN, DOWN])
    course.meanwhile[0] = partial(course.clock.sleep, 3.0)
    lost_s, why = course.run().requests[1].late["pods"]
    assert (round(lost_s, 3), why) == (3.2, "https://api: connection refused")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"code": 500, "message": "etcd is away"}, "https://api: 500 etcd is away"),
        ({"code": 500}, "https://api: 500 {'code': 500}"),
        ({"message": "odd"}, "https://api: 500 odd"),
    ],
    ids=str,
)
def test_why_a_watch_has_ended(status: Json, why: str) -> None:
    course = Course([page(), [event("ERROR", status)], page()]).run()
    assert course.requests[-1].late["pods"][1] == why


def test_the_problem_is_the_kind_that_is_out_of_sync_for_longest() -> None:
    away = refused(500, message="etcd is away")
    course = Course([away], kind("pods"), kind("nodes"))
    course.run(0)
    course.clock.now = 1000.0 + watch.OUT_OF_SYNC_S
    assert course.watches.problem() == ""
    course.answers = [page(), LASTS, refused(500, message="later")]
    course.run(1)
    assert set(course.watches.out_of_sync()) == {"pods", "nodes"}
    course.clock.now += 1.0
    assert course.watches.problem() == (
        "pods are out of sync for 63 s: https://api: 500 etcd is away"
    )
    course.clock.now += 100.0
    assert course.watches.problem().startswith("pods are out of sync for 163 s")
    first, second = Course([away], kind("nodes"), kind("pods")), Course([page()])
    first.run(0)
    first.answers, first.clock.now = [page(), LASTS, away], 1010.0
    first.run(1)
    first.clock.now = 1100.0
    assert first.watches.problem().startswith("nodes are out of sync for 100 s")
    assert second.run().watches.problem() == ""


def test_waiting_for_the_first_list() -> None:
    course = Course([page(), LASTS])
    began = course.clock.now
    assert not course.watches.wait_synced(5.0)
    assert course.clock.now == began + 5.0
    assert not course.watches.wait_synced(0.0)
    assert course.run().watches.wait_synced(None)


# --- told from outside -------------------------------------------------------


def test_list_again_and_stop() -> None:
    course, others = Course([]), list[bool]()

    def again() -> None:
        course.watches.list_again("nodes")
        others.append(course.requests[-1].stream.closed)  # type: ignore[union-attr]
        course.watches.list_again("pods")

    missed: list[Line] = [2.0, again, event("ADDED", raw_pod("late", "8"))]
    stops: list[Line] = [1.5, course.watches.stop]
    course.answers = [page(), missed, page(version="9"), LASTS, stops]
    course.run()
    assert [where for _, where in course.steps()] == ["list", "7", "list", "9", "9"]
    assert course.facts == []
    assert course.requests[-1].stream is not None
    assert course.requests[-1].stream.closed
    assert course.clock.threads[0].joined
    assert others == [False]


def test_list_again_while_a_list_or_a_watch_begins() -> None:
    """From another thread, in the moment in which no stream can be closed."""
    for request in (0, 1):
        course = Course([page(), [100.0], page(), LASTS])
        course.meanwhile[request] = partial(course.watches.list_again, "pods")
        course.run()
        assert [where for _, where in course.steps()] == ["list", "7", "list", "7"]
        assert course.pauses() == [0.0, 0.5, 0.0], "it does not wait for the next event"


def test_stop_while_a_watch_begins() -> None:
    course = Course([page(), [event("ADDED", raw_pod())]])
    course.meanwhile[1] = course.watches.stop
    assert (course.run().facts, course.answers) == ([], [])
    course = Course([page(), DOWN])
    course.meanwhile[1] = course.watches.stop
    assert course.run().clock.now == 1000.0, "no pause"


def test_stop_while_pages_are_left() -> None:
    """The objects of the other pages are not gone."""
    listed = page(raw_pod("a"), raw_pod("b"))
    course = Course([listed, refused(410), page(raw_pod("a"), token="x"), page()])
    course.meanwhile[2] = course.watches.stop
    course.run()
    assert [type(each) for each in course.facts] == [PodSeen, PodSeen]
    assert (len(course.requests), len(course.answers)) == (3, 1), "nothing more is asked"


# --- facts -------------------------------------------------------------------


def told(*answers: Answer) -> Sequence[Fact]:
    return Course(answers).run().facts


def test_facts_of_a_pod() -> None:
    bound, pending = raw_pod(version="8", nodeName="n"), raw_pod(version="8")
    newer = {**raw_pod(version="9"), "status": {"phase": "Running"}}
    kinds = [type(each) for each in told(page(pending), [event("MODIFIED", newer), 2.0])]
    assert kinds == [PodSeen, PodSeen]
    again = told(page(pending), [event("MODIFIED", raw_pod(version="9")), 2.0])
    assert [type(each) for each in again] == [PodSeen], "nothing that is read has changed"
    restored = told(page(bound), refused(410), page(pending))
    assert [type(each) for each in restored] == [PodSeen, PodGone, PodSeen]
    for later in (bound, raw_pod(nodeName="m")):
        assert PodGone("p") not in told(page(pending), refused(410), page(later))
        assert PodGone("p") not in told(page(bound), refused(410), page(later))
    gone = told(
        page(pending),
        [event("DELETED", raw_pod(version="9")), event("ADDED", raw_pod(version="10"))],
    )
    assert [type(each) for each in gone] == [PodSeen, PodGone, PodSeen]


def test_a_list_removes_what_it_does_not_have() -> None:
    facts = told(page(raw_pod("a"), raw_pod("b")), refused(410), page(raw_pod("b"), raw_pod("c")))
    assert [getattr(each, "uid", "") for each in facts] == ["a", "b", "a", "c"]
    assert facts[2] == PodGone("a")
    odd = {"metadata": {"name": "odd", "uid": "u", "namespace": "default"}}
    seen = told(page(odd, raw_pod("a")), [event("ADDED", odd), event("ADDED", raw_pod("b", "9"))])
    assert [getattr(each, "uid", "") for each in seen] == ["a", "b"]
