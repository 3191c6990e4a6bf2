"""What a watch asks of the API server and when: after each answer, the next requests and the pauses between them."""

from dataclasses import replace

import pytest

from central.kube.transport import watch
from central.kube.transport.connection import TooLong
from central.kube.transport.http_client import Silent, StatusError, Unreachable
from central.kube.transport.list_pages import PAGE_BYTES
from central.model.facts import GangGone, PodGone, PodSeen
from central.model.json_types import Json
from tests.central.kube.api_fixtures import group, pod
from tests.central.kube.transport.watch_course import RECHECK_S, Answer, Course, Line, kind

LASTS: list[Line] = [2.0]  # a watch that ends after two seconds
SPENT_S = 2.0
DOWN = Unreachable("https://api: connection refused")
GANGS, QUEUES = "jobsets.jobset.x-k8s.io", "queues.scheduling.volcano.sh"


def raw_pod(name: str = "p", version: str = "8", **spec: str) -> Json:
    found = pod(name, **spec)
    found["metadata"] |= {"uid": name, "namespace": "default", "resourceVersion": version}
    return found


def page(*items: Json, version: str = "7", token: str = "") -> Json:
    meta = {"resourceVersion": version, "continue": token}
    return {"kind": "PodList", "metadata": meta, "items": list(items)}


def event(kind: str, raw: Json) -> Json:
    return {"type": kind, "object": raw}


def bookmark(version: str) -> Json:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def refused(status: int, reason: str = "", message: str = "no") -> StatusError:
    return StatusError(status, reason, message)


def backoff(first: float, longest: float, count: int) -> list[float]:
    return [min(longest, first * 2**number) for number in range(count)]


# --- what follows an answer --------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "pause_s", "next_from"),
    [
        ([2.0], 0.0, "7"),
        ([1.0], 0.0, "7"),
        ([0.99], 0.5, "7"),
        ([], 0.5, "7"),
        (refused(429), 0.2, "7"),
        (refused(410), 0.0, "list"),
        (refused(400), 0.2, "list"),
        (refused(403), 0.2, "list"),
        (refused(404), 0.2, "list"),
        (refused(500), 0.2, "list"),
        (refused(504, "Timeout", "Too large resource version"), 0.2, "list"),
        (DOWN, 0.2, "7"),
        (Silent("quiet"), 0.2, "list"),
        (RuntimeError("a bug"), 0.2, "list"),
        ([DOWN], 0.2, "7"),
        ([Silent("quiet")], 0.2, "list"),
        ([event("ERROR", {"code": 410})], 0.0, "list"),
        ([event("ERROR", {"code": 500, "reason": "Expired"})], 0.0, "list"),
        ([event("ERROR", {"code": 500, "reason": "Gone"})], 0.0, "list"),
        ([event("ERROR", {"code": 500, "reason": "InternalError"})], 0.2, "list"),
        ([event("ERROR", {"code": 429})], 0.2, "7"),
        ([event("ERROR", {"code": "429"})], 0.2, "list"),
        ([event("ERROR", {})], 0.2, "list"),
        ([event("SURPRISE", {})], 0.0, "list"),
        ([b"<html>"], 0.0, "list"),
        ([b"[]"], 0.0, "list"),
        ([b'{"type": "ADDED"}'], 0.0, "list"),
        ([b'{"type": "ADDED", "object": 7}'], 0.0, "list"),
        ([event("ADDED", raw_pod("q", "6"))], 0.0, "list"),
        ([event("MODIFIED", raw_pod("p", "6"))], 0.0, "list"),
        ([bookmark("6")], 0.0, "list"),
        ([event("DELETED", raw_pod("p", "6")), 2.0], 0.0, "7"),
        ([event("ADDED", raw_pod("q", "7")), 2.0], 0.0, "7"),
        ([bookmark("7"), 2.0], 0.0, "7"),
        ([event("ADDED", raw_pod("q", "8")), 2.0], 0.0, "8"),
        ([event("DELETED", raw_pod("p", "8")), 2.0], 0.0, "8"),
        ([event("DELETED", raw_pod("p", "9")), event("ADDED", raw_pod("p", "8"))], 0.0, "list"),
        ([bookmark("10"), 2.0], 0.0, "10"),
        ([bookmark(""), 2.0], 0.0, "7"),
        ([bookmark("x"), 2.0], 0.0, "x"),
        ([bookmark("x"), bookmark("8"), 2.0], 0.0, "8"),
        ([event("ADDED", {"metadata": None}), 2.0], 0.0, "7"),
        ([event("DELETED", {"metadata": {}}), 2.0], 0.0, "7"),
    ],
    ids=lambda given: repr(given)[:70],
)
def test_after_an_answer(answer: Answer, pause_s: float, next_from: str) -> None:
    follows = page(raw_pod()) if next_from == "list" else LASTS
    course = Course([page(raw_pod()), answer, follows]).run()
    spent_s = sum(line for line in answer if isinstance(line, float)) if isinstance(answer, list) else 0.0  # fmt: skip
    assert course.steps()[:3] == [
        (0.0, "list"),
        (0.0, "7"),
        (round(spent_s + pause_s, 3), next_from),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"items": []},
        {"metadata": {}, "items": []},
        {"metadata": {"resourceVersion": ""}, "items": []},
        {"metadata": {"resourceVersion": "9"}},
        {"metadata": {"resourceVersion": "9"}, "items": {}},
        {"metadata": ["resourceVersion"], "items": []},
        {"kind": "Status", "metadata": {"resourceVersion": "9"}, "items": []},
    ],
    ids=str,
)
def test_what_is_no_list(body: Json) -> None:
    course = Course([page(raw_pod()), refused(500), body, page(raw_pod())]).run()
    assert course.pauses() == [0.0, 0.2, 0.4]
    [fact] = course.facts
    assert isinstance(fact, PodSeen)
    late_s, why = course.requests[-1].late["pods"]
    assert (round(late_s, 3), why) == (0.6, "https://api: the answer is not a list of pods")


@pytest.mark.parametrize("items", [None, []])
def test_an_empty_list(items: list[Json] | None) -> None:
    body = {"metadata": {"resourceVersion": "9"}, "items": items}  # null, as Go writes it
    course = Course([page(raw_pod()), refused(410), body, LASTS]).run()
    assert course.facts[1:] == [PodGone("p")]
    assert course.steps()[-1] == (0.0, "9")


# --- pauses ------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [DOWN, refused(500), refused(429), refused(404), {}], ids=repr)
def test_pauses_grow_to_ten_seconds(trouble: Answer) -> None:
    course = Course([trouble] * 14).run()
    assert course.pauses() == backoff(0.2, 10.0, 13)
    assert not course.watches.wait_synced(0)


def test_replicas_do_not_come_back_at_the_same_time() -> None:
    course = Course([DOWN, DOWN, page(), LASTS])
    course.clock.draws_least = True
    assert course.run().pauses() == [0.1, 0.2, 0.0]
    assert course.requests[-1].path.endswith("&timeoutSeconds=240")


@pytest.mark.parametrize(
    "trouble",
    [refused(410), [event("ERROR", {"code": 410})], [bookmark("6")], [b"?"]],
    ids=lambda given: repr(given)[:30],
)
def test_lists_that_lead_nowhere_become_rarer(trouble: Answer) -> None:
    course = Course([page(), trouble] * 12).run()
    assert course.pauses() == [
        0.0,
        0.0,
        *(p for s in backoff(0.4, 10.0, 10) for p in (0.0, s)),
        0.0,
    ]


@pytest.mark.parametrize(
    ("works", "forgets"),
    [([10.01], True), ([10.0], False), ([2.0], False), ([bookmark("8"), 2.0], True)],
    ids=str,
)
def test_a_watch_that_works_makes_the_next_pause_short(works: list[Line], forgets: bool) -> None:
    course = Course([DOWN, DOWN, page(), works, DOWN, works]).run()
    assert course.pauses()[:2] == [0.2, 0.4]
    assert course.pauses()[4] == (0.2 if forgets else 0.8)


def test_silence_closes_the_idle_connections() -> None:
    for trouble, closed in ((DOWN, 0), (refused(500), 0), (Silent("quiet"), 1)):
        follows = LASTS if trouble is DOWN else page()
        assert Course([page(), trouble, follows]).run().closed == closed


# --- bookmarks and silence ---------------------------------------------------

WATCH_S, QUIET_S, QUIET_WITH_BOOKMARKS_S = 300, 330.0, 90.0


@pytest.mark.parametrize(
    ("lines", "now", "next_watch"),
    [
        ([2.0], [QUIET_S], QUIET_S),
        ([event("ADDED", raw_pod()), 2.0], [QUIET_S], QUIET_S),
        ([70.0, bookmark("8")], [QUIET_S, QUIET_WITH_BOOKMARKS_S], QUIET_WITH_BOOKMARKS_S),
        ([70.1, bookmark("8")], [QUIET_S], QUIET_S),  # shortly before the end of the watch only
        (
            [60.0, bookmark("8"), 60.0, bookmark("9")],
            [QUIET_S, QUIET_WITH_BOOKMARKS_S, QUIET_WITH_BOOKMARKS_S],
            QUIET_WITH_BOOKMARKS_S,
        ),
        ([60.0, bookmark("8"), 71.0, bookmark("9")], [QUIET_S, QUIET_WITH_BOOKMARKS_S], QUIET_S),
        ([60.0, bookmark("8"), Silent("quiet")], [QUIET_S, QUIET_WITH_BOOKMARKS_S], QUIET_S),
    ],
    ids=lambda given: repr(given)[:50],
)
def test_the_longest_silence(lines: list[Line], now: list[float], next_watch: float) -> None:
    listed = [page(version="9")] if any(isinstance(each, Silent) for each in lines) else []
    course = Course([page(), lines, *listed, LASTS]).run()
    first, second = (each.stream for each in course.requests if each.stream)
    assert (first.silence_s, second.silence_s[0]) == (now, next_watch)


def test_the_time_between_bookmarks_counts_from_the_beginning_of_a_watch() -> None:
    course = Course([page(), [60.0, bookmark("8"), 50.0], [60.0, bookmark("9")], LASTS]).run()
    assert course.requests[-1].stream is not None
    assert course.requests[-1].stream.silence_s[0] == QUIET_WITH_BOOKMARKS_S


def test_what_a_watch_asks_for() -> None:
    course = Course([page(), LASTS], kind("pods")).run()
    assert course.requests[1].path == (
        "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300"
    )
    for only in (True, False):
        course = Course([page(), LASTS], replace(kind("pods"), metadata_only=only)).run()
        assert [each.metadata_only for each in course.requests] == [only, only]


def test_pages() -> None:
    first, second = page(raw_pod("a"), token="x/y="), page(raw_pod("b"), version="8")
    course = Course([first, second, LASTS]).run()
    assert [each.path for each in course.requests][:2] == [
        "/api/v1/pods?limit=1000",
        "/api/v1/pods?limit=1000&continue=x%2Fy%3D",
    ]
    assert [fact.uid for fact in course.facts if isinstance(fact, PodSeen)] == ["a", "b"]
    assert course.requests[2].version == "8"
    course = Course([first, refused(410), first, second, LASTS]).run()
    assert course.pauses() == [0.0] * 4, "a token that expired is no reason to wait"
    assert len(course.facts) == 2


def test_a_page_with_too_many_bytes_is_asked_for_again_with_half_as_many_objects() -> None:
    pages = [page(raw_pod(name), token=name) for name in "abcd"]
    course = Course([pages[0], TooLong(), TooLong(), *pages[1:], page(), LASTS]).run()
    asked = [each.path.partition("?limit=")[2].partition("&continue=") for each in course.requests]
    assert [limit for limit, _, _ in asked[:7]] == [
        "1000",
        "1000",
        "500",
        "250",
        "312",
        "390",
        "487",
    ]
    assert [token for _, _, token in asked[:7]] == ["", "a", "a", "a", "b", "c", "d"]
    assert course.pauses()[:6] == [0.0] * 6
    assert [fact.uid for fact in course.facts if isinstance(fact, PodSeen)] == [*"abcd"]


def test_a_page_of_one_object_may_have_any_size() -> None:
    """Else a kind with one such object could never be listed."""
    halved, two = [TooLong()] * 9, page(raw_pod("a"), token="x")
    course = Course([*halved, two, page(raw_pod("b")), LASTS]).run()
    assert course.requests[9].path == "/api/v1/pods?limit=1"
    assert course.requests[10].path == "/api/v1/pods?limit=2&continue=x"
    assert course.bounds == [PAGE_BYTES] * 9 + [None, PAGE_BYTES]


# --- kinds that are not there ------------------------------------------------


def test_a_kind_that_is_not_installed() -> None:
    for name, again_s in ((QUEUES, RECHECK_S), (GANGS, 5.0)):
        course = Course([*[refused(404)] * 3, page(), LASTS], kind(name)).run()
        assert course.pauses() == [again_s, again_s, again_s, 0.0]
        assert course.requests[-1].version == "7"
        assert [each.synced for each in course.requests] == [False, True, True, True, True]
        assert not any(each.late for each in course.requests[1:])
    course = Course([refused(404)] * 3, kind("pods")).run()
    assert course.pauses() == [0.2, 0.4], "pods are always there"
    assert not course.watches.wait_synced(0)


@pytest.mark.parametrize(
    ("name", "most", "limits"), [(QUEUES, 8, (0.2, 10.0)), (GANGS, 16, (0.2, 2.5))]
)
def test_a_kind_that_goes_away(name: str, most: int, limits: tuple[float, float]) -> None:
    """An API server that starts does not know its CRDs for a while, so the objects stay for some refusals in a row."""
    there = {"metadata": {"resourceVersion": "7"}, "items": [_named("x")]}
    back = {**there, "metadata": {"resourceVersion": "9"}}
    away: list[Answer] = [refused(404)] * most  # the watch, and lists
    course = Course([there, *away, refused(404), refused(404)], kind(name)).run()
    assert len(course.facts) == 2, "it is gone after the last one"
    waits = [*backoff(*limits, most), min(RECHECK_S, 5.0 if name == GANGS else RECHECK_S)]
    assert course.pauses()[1:] == waits
    course = Course([there, *away, back, *away, back, LASTS], kind(name)).run()
    assert len(course.facts) == 1, "the count begins anew with each list"
    course = Course([refused(404), there, *away, back, LASTS], kind(name)).run()
    assert len(course.facts) == 1, "also of a kind that was installed later"


def _named(name: str) -> Json:
    raw = group(name)
    raw["metadata"] |= {"namespace": "default", "uid": name}
    return raw


NATIVE = "podgroups.scheduling.k8s.io"
GROUP = "/apis/scheduling.k8s.io"
VERSIONS: Json = {"versions": [{"version": "v1"}, {"version": "v1beta2"}, {"version": "v1alpha2"}]}
CLASSES: Json = {"resources": [{"name": "priorityclasses"}]}
BOTH: Json = {"resources": [{"name": "priorityclasses"}, {"name": "podgroups"}]}


def _paths(course: Course) -> list[str]:
    return [each.path.partition("?")[0].removeprefix(GROUP) for each in course.requests]


def test_the_served_version_of_a_kind_is_found() -> None:
    served: dict[str, Answer] = {GROUP: VERSIONS, f"{GROUP}/v1": CLASSES, f"{GROUP}/v1beta2": BOTH}
    course = Course([refused(404), page(), LASTS], kind(NATIVE), served=served).run()
    assert course.discovered == [GROUP, f"{GROUP}/v1", f"{GROUP}/v1beta2"]
    assert _paths(course) == ["/v1beta1/podgroups", *["/v1beta2/podgroups"] * 2]
    assert course.pauses() == [0.0, 0.0]


def test_another_version_after_an_upgrade() -> None:
    served: dict[str, Answer] = {GROUP: VERSIONS, f"{GROUP}/v1": BOTH}
    course = Course([page(), refused(404), page(), LASTS], kind(NATIVE), served=served).run()
    assert _paths(course) == [*["/v1beta1/podgroups"] * 2, *["/v1/podgroups"] * 2]


@pytest.mark.parametrize("classes", [False, True], ids=["no group", "no such kind"])
def test_a_kind_that_is_served_in_no_version(classes: bool) -> None:
    paths = [f"{GROUP}/{each['version']}" for each in VERSIONS["versions"]]
    served: dict[str, Answer] = (
        {GROUP: VERSIONS, **dict.fromkeys(paths, CLASSES)} if classes else {}
    )
    course = Course([refused(404), refused(404), page()], kind(NATIVE), served=served).run()
    assert (
        course.pauses()
        == [watch.GANGS_RECHECK_S, watch.GANGS_RECHECK_S, 0.0][: len(course.pauses())]
    )
    assert course.discovered == [GROUP, *(paths if classes else ())] * 2


@pytest.mark.parametrize(
    "rubbish", [{}, {"versions": None}, {"versions": [{"version": 7}]}, {"versions": {"a": 1}}]
)
def test_rubbish_in_place_of_discovery_is_the_worlds_fault(
    rubbish: Json, caplog: pytest.LogCaptureFixture
) -> None:
    served: dict[str, Answer] = {GROUP: [rubbish, VERSIONS], f"{GROUP}/v1": BOTH}
    course = Course([refused(404), page(), LASTS], kind(NATIVE), served=served).run()
    assert _paths(course) == ["/v1beta1/podgroups", *["/v1/podgroups"] * 2]
    assert "has no list of versions" in caplog.text
    assert "(bug)" not in caplog.text


def test_an_error_of_discovery_is_tried_again() -> None:
    served: dict[str, Answer] = {GROUP: [refused(500), VERSIONS], f"{GROUP}/v1": BOTH}
    course = Course([refused(404), page(), LASTS], kind(NATIVE), served=served).run()
    assert course.discovered == [GROUP, GROUP, f"{GROUP}/v1"]
    assert _paths(course) == ["/v1beta1/podgroups", *["/v1/podgroups"] * 2]


@pytest.mark.parametrize(
    ("of", "may_be"),
    [
        (kind("pods"), False),
        (kind(QUEUES), False),
        (replace(kind("jobs.batch.volcano.sh"), namespace="a"), True),
        (kind("podgroups.scheduling.k8s.io"), True),
    ],
    ids=lambda given: getattr(given, "full_name", None),
)
def test_a_kind_that_may_not_be_read(of: object, may_be: bool) -> None:
    assert isinstance(of, type(kind("pods")))
    course = Course([refused(403)] * 3, of).run()
    assert course.pauses() == ([RECHECK_S] * 2 if may_be else [0.2, 0.4])
    assert course.requests[-1].synced == may_be
    assert bool(course.requests[-1].late) != may_be
    for trouble in (refused(500), refused(402), DOWN):
        assert Course([trouble] * 3, of).run().pauses() == [0.2, 0.4], "no other answer is like it"


def test_a_right_that_is_lost_keeps_what_is_known() -> None:
    """The objects are still there: a kind that cannot be read any more is out of sync, and not empty."""
    course = Course([page(_named("g")), *[refused(403)] * 3], kind(GANGS)).run()
    assert course.pauses() == [0.0, 0.2, 0.4]
    assert not any(isinstance(fact, GangGone) for fact in course.facts)
    assert course.requests[-1].late[GANGS][1] == "https://api: 403 no"


# --- out of sync -------------------------------------------------------------
