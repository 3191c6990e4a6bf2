"""What each reply to a binding or an eviction means, with a client that answers from a table."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Reply, Unreachable
from central.kube.transport.runtime import OsRuntime
from central.kube.write import pod_requests, retrying
from central.kube.write.pod_requests import BLOCKED_BY_BUDGET, GONE, Evictor, Refused
from central.kube.write.retrying import Retry
from central.kube.write.tickets import Tickets
from central.model.decisions import GPU_MEMORY, INCOMPLETE, PREEMPTION, RECLAIM, Bind, Create, Evict
from central.model.facts import Answered, BindDone, BindFailed, EvictDone
from central.model.json_types import Json

POD = BY_KIND["Pod"]
UNREACHABLE = Reply(0, b"")
SUCCESS = Reply(201, b'{"kind":"Status","status":"Success"}')


def reply(status: int, body: Any, after_s: float = 0.0) -> Reply:
    return Reply(status, json.dumps(body).encode(), after_s)


def failure(status: int, message: str = "no", **more: Any) -> Reply:
    return reply(status, {"kind": "Status", "status": "Failure", "message": message, **more})


def gone(name: str = "p", **more: Any) -> Reply:
    details = {"kind": "pods", "name": name}
    return failure(404, f'pods "{name}" not found', reason="NotFound", details=details, **more)


def pod(uid: str = "u", node: str = "", **meta: Any) -> Json:
    spec = {"nodeName": node} if node else {}
    return {"kind": "Pod", "metadata": {"name": "p", "uid": uid, **meta}, "spec": spec}


class Table:
    """answers: by method, and by the API version that an eviction names; the last one is repeated."""

    server = "https://api"

    def __init__(self, **answers: Reply | list[Reply]) -> None:
        self._answers = {
            key: list(each) if isinstance(each, list) else [each] for key, each in answers.items()
        }
        self.asked: list[tuple[str, str, Any]] = []
        self.contents: list[bytes | None] = []

    def request(self, method: str, path: str, content: bytes | None, kind: str) -> Reply:
        body: Any = json.loads(content) if content else None
        self.asked.append((method, path, body))
        self.contents.append(content)
        key = method
        if path.partition("?")[0].endswith("/eviction"):
            key = body["apiVersion"].partition("/")[2]
        found = self._answers[key]
        one = found.pop(0) if len(found) > 1 else found[0]
        if one is UNREACHABLE:
            raise Unreachable("no route")
        return one


def client(**answers: Reply | list[Reply]) -> tuple[Client, Table]:
    table = Table(**answers)
    return cast("Client", table), table


def outcome(work: Callable[[], object]) -> object:
    """What it returns, or the sentence of the error after its kind."""
    try:
        return work()
    except (Retry, Refused) as error:
        return f"{type(error).__name__}: {error}"


# Whether a request is repeated


@pytest.mark.parametrize("status", [401, 408, 429, 500, 502, 503, 504, 599])
def test_what_may_be_another_answer_soon_is_repeated(status: int) -> None:
    answer = reply(status, {"message": "busy"}, 3.0)
    with pytest.raises(Retry, match="busy") as error:
        retrying.call(client(GET=answer)[0], "GET", "/x")
    assert (error.value.after_s, error.value.why) == (3.0, "busy")
    final = retrying.call(client(GET=answer)[0], "GET", "/x", is_final=lambda _: True)
    assert final is answer


@pytest.mark.parametrize(
    "status", [200, 201, 202, 299, 400, 402, 403, 404, 407, 409, 410, 422, 499]
)
def test_what_stays_is_not_repeated(status: int) -> None:
    answer = reply(status, {"message": "no"})
    assert retrying.call(client(GET=answer)[0], "GET", "/x") is answer


@pytest.mark.parametrize("status", [100, 199, 300, 302, 399])
def test_a_status_that_no_api_server_sends_is_repeated(status: int) -> None:
    with pytest.raises(Retry, match=f"unexpected status {status}"):
        retrying.call(client(GET=reply(status, {}))[0], "GET", "/x")


def test_no_answer_is_repeated() -> None:
    with pytest.raises(Retry, match="no route"):
        retrying.call(client(GET=UNREACHABLE)[0], "GET", "/x")


def test_a_request_without_a_body_has_none() -> None:
    made, table = client(POST=SUCCESS, GET=SUCCESS)
    retrying.call(made, "GET", "/x")
    retrying.call(made, "POST", "/x", {})
    assert table.contents == [None, b"{}"]


# What is believed


@pytest.mark.parametrize(
    ("body", "believed"),
    [
        (pod(), True),
        ({"metadata": {"name": "p", "uid": "u"}}, True),  # without a kind, as in lists
        ({"metadata": {"uid": "u"}}, True),
        ({**pod(), "spec": None, "status": None}, True),
        ({**pod(), "kind": "Node"}, False),
        ({**pod(), "metadata": {"name": "q", "uid": "u"}}, False),
        ({**pod(), "metadata": {"name": "p"}}, False),
        ({**pod(), "metadata": {"name": "p", "uid": ""}}, False),
        ({**pod(), "metadata": []}, False),
        ({**pod(), "spec": "x"}, False),
        ({**pod(), "status": ["x"]}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
def test_an_object_is_the_one_that_was_asked_for(body: Any, believed: bool) -> None:
    answer = reply(200, body)
    if believed:
        assert retrying.object_of(answer, POD, "p") == body
    else:
        with pytest.raises(Retry, match="the answer"):
            retrying.object_of(answer, POD, "p")


@pytest.mark.parametrize(
    ("body", "success"),
    [
        ({"kind": "Status", "status": "Success"}, True),
        ({"kind": "Status", "status": "Failure"}, False),
        ({"kind": "Pod", "status": "Success"}, False),
        ({"kind": "Status"}, False),
    ],
)
def test_a_status_says_whether_it_succeeded(body: Json, success: bool) -> None:
    assert retrying.is_success(reply(200, body)) == success
    said = outcome(lambda: retrying.check_success(reply(200, body)))
    assert (said is None) == success


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (gone(), True),
        (gone("q"), False),
        (failure(404, 'pods "p" not found'), True),
        (failure(404, 'pods "p" not found', reason="NotFound"), True),
        (failure(404, 'pods "p" not found', reason="Other"), False),
        (failure(404, 'namespaces "p" not found', reason="NotFound"), False),
        (failure(404, "x", reason="NotFound", details={"name": "p"}), True),
        (failure(404, "x", reason="NotFound", details={"name": "p", "kind": "Pod"}), True),
        (failure(404, "x", reason="NotFound", details={"name": "p", "kind": "nodes"}), False),
        (failure(410, 'pods "p" not found', reason="NotFound"), False),
        (Reply(404, b"<html>not found</html>"), False),
    ],
)
def test_a_404_about_the_object_itself(answer: Reply, said: bool) -> None:
    assert retrying.says_gone(answer, POD, "p") == said


# Bindings

BIND = Bind("u", "ns", "p", "n1")


@pytest.mark.parametrize(
    ("posted", "read", "expected"),
    [
        (SUCCESS, None, BindDone("u", "n1")),
        (reply(200, {"kind": "Status", "status": "Failure"}), None, "Retry: the answer does"),
        (Reply(200, b"<html>"), None, "Retry: the answer is not JSON"),
        (failure(403, "not you"), None, "Refused: not you"),
        (failure(404, "no such pod"), None, "Refused: no such pod"),
        (failure(409, "x"), reply(200, pod(node="n1")), BindDone("u", "n1")),
        (
            failure(409, "x"),
            reply(200, pod(node="n2")),
            BindFailed("u", "n1", "the pod is already bound to n2", final=True),
        ),
        (failure(409, "x"), gone(), BindFailed("u", "n1", GONE, final=True)),
        (failure(409, "x"), reply(200, pod("other")), BindFailed("u", "n1", GONE, final=True)),
        (
            failure(409, "x"),
            reply(200, pod(deletionTimestamp="2026-01-01T00:00:00Z")),
            BindFailed("u", "n1", "the pod is being deleted", final=True),
        ),
        (failure(409, "x"), reply(200, pod()), "Retry: x"),
        (failure(409, "x"), failure(404, "of a proxy"), "Retry: of a proxy"),
        (failure(409, "x"), failure(403, "not you"), "Refused: not you"),
    ],
)
def test_what_a_binding_came_to(posted: Reply, read: Reply | None, expected: object) -> None:
    made, table = client(POST=posted, **({"GET": read} if read else {}))
    found = outcome(lambda: pod_requests.bind(made, BIND))
    if isinstance(expected, str):
        assert str(found).startswith(expected)
    else:
        assert found == expected
    path = "/api/v1/namespaces/ns/pods/p"
    asked = [("POST", f"{path}/binding"), *([("GET", path)] if read else [])]
    assert [each[:2] for each in table.asked] == asked


def test_a_binding_names_the_pod_and_its_domains() -> None:
    made, table = client(POST=SUCCESS)
    pod_requests.bind(made, Bind("u", "ns", "p", "n1", domains=(("rack", "r1"),)))
    pod_requests.bind(made, BIND)
    (method, path, body), (_, _, plain) = table.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    meta = {"name": "p", "namespace": "ns", "uid": "u"}
    assert body["metadata"] == {**meta, "annotations": {"rack": "r1"}}
    assert plain["metadata"] == meta
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (reply(200, pod(node="n1")), BindDone("u", "n1")),
        # It counts as bound although it is being deleted: its node has it.
        (reply(200, pod(node="n1", deletionTimestamp="x")), BindDone("u", "n1")),
        (reply(200, pod()), BindFailed("u", "n1", "late", final=False)),
        (reply(200, {**pod(), "spec": None}), BindFailed("u", "n1", "late", final=False)),
        (reply(200, pod("v", "n1")), BindFailed("u", "n1", GONE, final=True)),
    ],
)
def test_the_pod_says_what_became_of_a_binding(read: Reply, expected: object) -> None:
    assert pod_requests.settle(client(GET=read)[0], BIND, "late") == expected


# Evictions

EVICT = Evict("u", "ns", "p", "n1", "")
NOT_SERVED = Reply(404, b"404 page not found")
BUDGET = failure(429, "Cannot evict pod as it would violate the pod's disruption budget.")


@pytest.mark.parametrize(
    ("answer", "read", "expected"),
    [
        (SUCCESS, None, ""),
        (reply(200, {}), None, "Retry: the answer does"),
        (BUDGET, None, BLOCKED_BY_BUDGET),
        (failure(429, "overloaded"), None, "Retry: overloaded"),
        (failure(500, "no disruption budget can be read"), None, "Retry: no disruption budget"),
        (gone(), None, ""),
        (failure(403, "not you"), None, "not you"),
        (failure(409, "x"), gone(), ""),
        (failure(409, "x"), reply(200, pod("other")), ""),
        (failure(409, "x"), reply(200, pod(deletionTimestamp="x")), ""),
        (failure(409, "x"), reply(200, pod()), "Retry: x"),
    ],
)
def test_what_an_eviction_came_to(answer: Reply, read: Reply | None, expected: str) -> None:
    made, _ = client(v1=answer, **({"GET": read} if read else {}))
    found = outcome(lambda: Evictor(made).evict(EVICT))
    if expected.startswith("Retry"):
        assert str(found).startswith(expected)
    else:
        assert found == EvictDone("u", expected)


def test_a_grace_that_is_cut_is_sent() -> None:
    made, table = client(v1=SUCCESS)
    Evictor(made).evict(Evict("u", "ns", "p", "n1", "", grace_s=600))
    sent = {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 600}
    assert table.asked[0][2]["deleteOptions"] == sent


def test_a_trial_changes_nothing() -> None:
    made, table = client(v1=SUCCESS)
    assert Evictor(made).evict(Evict("u", "ns", "p", "n1", "", trial=True)) == EvictDone(
        "u", "", True
    )
    Evictor(made).evict(EVICT)
    path = "/api/v1/namespaces/ns/pods/p/eviction"
    assert [each[1] for each in table.asked] == [f"{path}?dryRun=All", path]
    assert table.asked[0][2]["deleteOptions"] == {"preconditions": {"uid": "u"}}


def test_victims_of_others_get_the_condition_of_kube_scheduler() -> None:
    made, table = client(v1=SUCCESS, PATCH=UNREACHABLE)
    evictor = Evictor(made, lambda: 5.0)
    public = Evict("u", "ns", "p", "n1", "for x/y", cause=PREEMPTION, public="for another gang")
    assert evictor.evict(public) == EvictDone("u"), "whatever the answer to the condition"
    (_, path, body) = table.asked[-1]
    assert path == "/api/v1/namespaces/ns/pods/p/status"
    assert body["metadata"] == {"uid": "u"}, "not of another pod of that name"
    assert body["status"]["conditions"] == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "for another gang",
            "lastTransitionTime": "1970-01-01T00:00:05Z",
        }
    ]


@pytest.mark.parametrize("other", [{"trial": True}, {"cause": INCOMPLETE}, {"cause": GPU_MEMORY}])
def test_no_other_pods_get_it(other: dict[str, Any]) -> None:
    made, table = client(v1=SUCCESS)
    Evictor(made).evict(replace(Evict("u", "ns", "p", "n1", "", cause=RECLAIM), **other))
    assert len(table.asked) == 1


def test_a_pod_that_is_not_evicted_does_not_get_it() -> None:
    made, table = client(v1=failure(422, "no"))
    Evictor(made).evict(Evict("u", "ns", "p", "n1", "", cause=RECLAIM))
    assert len(table.asked) == 1


# Tickets


def test_a_ticket_is_answered_once_and_its_pod_is_open_until_then() -> None:
    facts: list[object] = []
    tickets = Tickets(facts.append)
    assert (tickets.open_count(), tickets.oldest_s()) == (0, 0.0)
    bind, evict = tickets.issue(BIND, 10.0), tickets.issue(EVICT, 10.0)
    assert bind.number != evict.number
    assert 9.0 < bind.deadline - bind.issued_at < 11.0
    assert (tickets.open_count(), tickets.is_open("u"), tickets.is_open("v")) == (2, True, False)
    tickets.answer(bind, BindDone("u", "n1"))
    assert tickets.is_open("u")  # its eviction has no answer
    tickets.answer(bind, BindDone("u", "n1"))  # a bug elsewhere: dropped
    assert tickets.is_open("u")
    tickets.answer(evict, EvictDone("u", ""))
    assert (tickets.open_count(), tickets.is_open("u"), tickets.oldest_s()) == (0, False, 0.0)
    assert facts == [BindDone("u", "n1"), EvictDone("u", "")]


class Clock(OsRuntime):
    now = 5.0

    def monotonic(self) -> float:
        return self.now


def test_the_age_of_the_oldest_open_ticket() -> None:
    clock = Clock()
    tickets = Tickets(lambda _: None, clock)
    first = tickets.issue(BIND, 10.0)
    assert (first.issued_at, first.deadline) == (5.0, 15.0)
    clock.now = 7.0
    tickets.issue(EVICT, 10.0)
    clock.now = 8.0
    assert tickets.oldest_s() == 3.0
    tickets.answer(first, BindDone("u", "n1"))
    assert tickets.oldest_s() == 1.0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Reply(200, b"x" * 500), f"the answer is not JSON: '{'x' * 100}'"),
        (Reply(200, b"\xff"), "the answer is not JSON: '\ufffd'"),
        (Reply(200, b"[]"), "the answer is not a JSON object: '[]'"),
    ],
)
def test_an_answer_that_is_no_object_is_shown_in_part(answer: Reply, said: str) -> None:
    with pytest.raises(Retry) as error:
        retrying.is_success(answer)
    assert error.value.why == said


@pytest.mark.parametrize("decision", [BIND, EVICT])
def test_a_pod_counts_as_open_while_its_answer_is_delivered(decision: Bind | Evict) -> None:
    seen: list[bool] = []
    tickets = Tickets(lambda _: seen.append(tickets.is_open("u")))
    tickets.answer(tickets.issue(decision, 10.0), BindDone("u", "n1"))
    assert seen == [True]
    assert not tickets.is_open("u")


def test_a_decision_about_another_object_opens_no_pod() -> None:
    tickets = Tickets(lambda _: None)
    decision = Create("Pod", "ns", "p", {})
    ticket = tickets.issue(decision, 10.0)
    assert tickets.open_count() == 1
    assert not any(map(tickets.is_open, ("", "p", "Pod")))
    tickets.answer(ticket, Answered("Create", "Pod", "ns", "p"))
    assert tickets.open_count() == 0
