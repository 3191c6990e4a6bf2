"""What a user may do, as the API server says."""

from collections.abc import Callable
from typing import Any

import pytest

from central.kube.transport.access_review import AccessReviewer, AccessUnknown
from central.kube.transport.http_client import Client
from central.model.identity import Identity
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure

Connected = Callable[[str], Client]
JANE = Identity("jane", uid="u1", groups=("team-a",), extra=(("scopes", ("x", "y")),))


def allowed(yes: object) -> Answer:
    return Answer(201, {"status": {"allowed": yes}})


def test_the_review_says_who_asks_for_what(connected: Connected) -> None:
    asked: list[Any] = []

    def answer(call: Call) -> Answer:
        asked.append((call.method, call.path, call.body))
        return allowed(True)

    with Scripted(answer) as server:
        reviewer = AccessReviewer(connected(server.url))
        assert reviewer.may(JANE, "get", "jobs.batch.volcano.sh", "team-a")
    [(method, path, body)] = asked
    assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
    assert body["kind"] == "SubjectAccessReview"
    assert body["spec"] == {
        "user": "jane",
        "uid": "u1",
        "groups": ["team-a"],
        "extra": {"scopes": ["x", "y"]},
        "resourceAttributes": {
            "verb": "get",
            "group": "batch.volcano.sh",
            "resource": "jobs",
            "namespace": "team-a",
        },
    }


def test_answers_are_cached_by_user_and_question(connected: Connected) -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Answer:
        calls.append(call)
        return allowed(call.body["spec"]["resourceAttributes"]["namespace"] == "team-a")

    with Scripted(answer) as server:
        reviewer = AccessReviewer(connected(server.url))
        bob = Identity("bob")
        for _ in range(5):
            assert reviewer.may(bob, "get", "pods", "team-a")
            assert not reviewer.may(bob, "get", "pods", "team-b")
        assert len(calls) == 2
        reviewer.may(JANE, "get", "pods", "team-b")
        assert len(calls) == 3
        briefly = AccessReviewer(connected(server.url), allowed_s=0.0, denied_s=0.0)
        for _ in range(2):
            briefly.may(bob, "get", "pods", "team-a")
        assert len(calls) == 5


@pytest.mark.parametrize(
    "odd", [allowed("yes"), allowed(None), Answer(201, {}), Answer(201, {"status": []})]
)
def test_only_a_clear_yes_is_one(connected: Connected, odd: Answer) -> None:
    with Scripted(lambda _: odd) as server:
        assert not AccessReviewer(connected(server.url)).may(JANE, "get", "pods", "a")


@pytest.mark.parametrize("odd", [failure(403, "forbidden"), failure(500, "x"), Answer(201, "[1]")])
def test_no_answer_is_none(connected: Connected, odd: Answer) -> None:
    with Scripted(lambda _: odd) as server:
        reviewer = AccessReviewer(connected(server.url))
        for _ in range(2):  # and it is not cached
            with pytest.raises(AccessUnknown):
                reviewer.may(JANE, "get", "pods", "a")
    with pytest.raises(AccessUnknown, match="unreachable"):
        reviewer.may(JANE, "get", "pods", "a")
