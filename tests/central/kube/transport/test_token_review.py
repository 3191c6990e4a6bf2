"""Authentication: agents by their pod's token, users by any token of the API server."""

import base64
import random
import time
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest

from central.kube.transport.http_client import Client
from central.kube.transport.token_review import TokenReviewer
from central.model.identity import AuthFailure, Identity, Role
from central.standalone.apiserver import StandaloneApi
from protos import names
from tests.central.kube.api_fixtures import pod
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure

Make = Callable[[str, dict[str, Any]], dict[str, Any]]
Connected = Callable[[str], Client]

NS = "/api/v1/namespaces/lockstep-system"


@pytest.fixture
def world(made: Make) -> Make:
    made("/api/v1/namespaces", {"metadata": {"name": "lockstep-system"}})
    for account in (names.AGENT_ACCOUNT, "other"):
        made(f"{NS}/serviceaccounts", {"metadata": {"name": account}})
    made(f"{NS}/pods", pod("agent-1", nodeName="n1", serviceAccountName=names.AGENT_ACCOUNT))
    made(f"{NS}/pods", pod("agent-2", serviceAccountName=names.AGENT_ACCOUNT))
    made(f"{NS}/pods", pod("other-1", nodeName="n1", serviceAccountName="other"))
    return made


def token(
    made: Make, pod: str = "", account: str = names.AGENT_ACCOUNT, audience: str = names.AUDIENCE
) -> str:
    spec: dict[str, Any] = {"audiences": [audience]} if audience else {}
    if pod:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod}
    issued = made(f"{NS}/serviceaccounts/{account}/token", {"spec": spec})
    return str(issued["status"]["token"])


def test_an_agent_reports_for_the_node_of_its_pod(client: Client, world: Make) -> None:
    agent = review(client, token(world, "agent-1"))
    assert isinstance(agent, Identity)
    assert agent.user == "system:serviceaccount:lockstep-system:lockstep-agent"
    assert agent.node == "n1"
    assert time.time() < agent.expires < time.time() + 3700


def review(
    client: Client, given: str, role: Role = "agent", namespace: str = names.NAMESPACE
) -> Identity | AuthFailure:
    """As the token cache does."""
    reviewer = TokenReviewer(client, namespace)
    if why := reviewer.implausible(given, role):
        return AuthFailure(why)
    return reviewer.review(given, role)


@pytest.mark.parametrize(
    ("asked", "known", "why"),
    [
        ({"account": "other", "pod": "other-1"}, True, "is not system:serviceaccount"),
        ({}, True, "not bound to a pod"),
        ({"pod": "agent-2"}, True, "is not bound to a node"),
        ({"pod": "agent-1", "audience": ""}, False, "rejects the token"),
        ({"pod": "agent-1", "audience": "vault"}, False, "rejects the token"),
    ],
)
def test_rejected_callers_get_a_reason(
    client: Client, world: Make, asked: dict[str, str], known: bool, why: str
) -> None:
    answer = review(client, token(world, **asked))
    assert isinstance(answer, AuthFailure)
    assert (answer.authenticated, answer.transient) == (known, False)
    assert why in answer.why


def test_a_forged_token(client: Client, world: Make) -> None:
    genuine = token(world, "agent-1")
    for forged in ("x", genuine[:-2], genuine + "\n", "ü"):
        assert isinstance(review(client, forged), AuthFailure)
        assert isinstance(review(client, forged, "user"), AuthFailure)


def test_an_agents_namespace_is_ours(client: Client, world: Make) -> None:
    answer = review(client, token(world, "agent-1"), namespace="elsewhere")
    assert isinstance(answer, AuthFailure)
    assert answer.authenticated


def test_users_may_use_either_audience(client: Client, world: Make) -> None:
    for audience in ("", names.AUDIENCE):
        user = review(client, token(world, account="other", audience=audience), "user")
        assert isinstance(user, Identity)
        assert user.user == "system:serviceaccount:lockstep-system:other"
        assert user.uid
        assert set(user.groups) >= {"system:authenticated", "system:serviceaccounts"}
    bound = review(client, token(world, "other-1", "other"), "user")
    assert isinstance(bound, Identity)
    assert dict(bound.extra)["authentication.kubernetes.io/pod-name"] == ("other-1",)
    assert isinstance(
        review(client, token(world, account="other", audience="vault"), "user"), AuthFailure
    )


def test_an_api_server_that_is_away_is_no_refusal(
    api: StandaloneApi, client: Client, world: Make
) -> None:
    reviewer, given = TokenReviewer(client, names.NAMESPACE), token(world, "agent-1")
    api.stop()
    assert reviewer.review(given, "agent") == AuthFailure(
        "the API server is unreachable, the token could not be reviewed", transient=True
    )
    assert given not in repr(vars(reviewer))


def test_a_server_that_ignores_audiences_authenticates_nobody(connected: Connected) -> None:
    def answer(call: Call) -> Answer:
        account = f"system:serviceaccount:{names.NAMESPACE}:{names.AGENT_ACCOUNT}"
        user = {"username": account, "extra": {"authentication.kubernetes.io/pod-name": ["p"]}}
        return Answer(201, {"status": {"authenticated": True, "user": user}})

    with Scripted(answer) as server:
        answered = TokenReviewer(connected(server.url), names.NAMESPACE).review("t", "agent")
        assert isinstance(answered, AuthFailure)
        assert "audience" in answered.why


def test_a_pod_of_the_same_name_is_another_pod(connected: Connected) -> None:
    extra = {
        "authentication.kubernetes.io/pod-name": ["agent-1"],
        "authentication.kubernetes.io/pod-uid": ["of-the-token"],
    }
    account = f"system:serviceaccount:{names.NAMESPACE}:{names.AGENT_ACCOUNT}"
    status = {
        "authenticated": True,
        "audiences": [names.AUDIENCE],
        "user": {"username": account, "extra": extra},
    }

    def answer(call: Call) -> Answer:
        if call.method == "POST":
            return Answer(201, {"status": status})
        return Answer(200, {"metadata": {"uid": "younger"}, "spec": {"nodeName": "n2"}})

    with Scripted(answer) as server:
        answered = TokenReviewer(connected(server.url), names.NAMESPACE).review("t", "agent")
        assert isinstance(answered, AuthFailure)
        assert "is gone" in answered.why


def test_a_failed_review_is_transient(connected: Connected) -> None:
    with Scripted(lambda _: failure(403, "tokenreviews is forbidden")) as server:
        answered = TokenReviewer(connected(server.url), names.NAMESPACE).review("t", "agent")
        assert isinstance(answered, AuthFailure)
        assert answered.transient


def test_a_coordinator_is_its_pod_of_whatever_account(client: Client, world: Make) -> None:
    told: dict[str, Any] = {"account": "other", "audience": names.COORDINATOR_AUDIENCE}
    found = review(client, token(world, "other-1", **told), "coordinator")
    assert isinstance(found, Identity)
    assert found.pod_uid == client.get(f"{NS}/pods/other-1")["metadata"]["uid"]
    assert (found.user, found.node) == ("system:serviceaccount:lockstep-system:other", "")
    unbound = review(client, token(world, **told), "coordinator")
    assert isinstance(unbound, AuthFailure)
    assert unbound.why == "the token is not bound to a pod"
    for audience in ("", names.AUDIENCE):
        other = token(world, "other-1", "other", audience)
        assert isinstance(review(client, other, "coordinator"), AuthFailure)


GOOD = {"username": "jane"}


@pytest.mark.parametrize(
    ("status", "transient"),
    [
        ({"authenticated": False, "user": GOOD}, False),
        ({"user": GOOD}, False),
        ({"authenticated": True}, False),
        ({"authenticated": True, "user": ["jane"]}, False),
        ({"authenticated": True, "user": {**GOOD, "groups": 5}}, True),
        ({"authenticated": True, "user": {**GOOD, "extra": ["x"]}}, True),
        (["authenticated"], True),
    ],
)
def test_an_answer_that_does_not_say_yes_is_a_no(
    connected: Connected, status: Any, transient: bool
) -> None:
    with Scripted(lambda _: Answer(201, {"kind": "TokenReview", "status": status})) as server:
        found = TokenReviewer(connected(server.url), names.NAMESPACE).review("t", "user")
        assert isinstance(found, AuthFailure)
        assert (found.transient, found.authenticated) == (transient, False)


def test_a_user_without_uid_and_groups(connected: Connected) -> None:
    status = {"authenticated": True, "user": GOOD}
    with Scripted(lambda _: Answer(201, {"kind": "TokenReview", "status": status})) as server:
        found = TokenReviewer(connected(server.url), names.NAMESPACE).review("t", "user")
    assert found == Identity("jane")


def jwt(**claims: object) -> str:
    body = {"iss": "x", "sub": "system:serviceaccount:a:b", "aud": [names.AUDIENCE], **claims}
    parts = ({"alg": "RS256"}, body)
    encoded = [base64.urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=").decode() for part in parts]
    return ".".join((*encoded, "c2lnbmF0dXJl"))


@pytest.mark.parametrize(
    ("given", "agent", "user"),
    [
        (jwt(), True, True),
        (jwt(exp=time.time() + 100_000), True, True),
        (jwt(exp=time.time() - 100), False, False),
        (lambda: jwt(exp=time.time() - 30), True, True),  # by our clock, which may be ahead
        (jwt(nbf=time.time() + 30), True, True),
        (jwt(nbf=time.time() + 100_000), False, False),
        (jwt(aud="vault"), False, True),
        (jwt(aud=names.AUDIENCE), True, True),
        (jwt(aud={"a": 1}), False, True),
        (jwt(sub=""), False, True),
        (jwt(sub=["x"]), False, False),
        (jwt(exp="soon"), False, False),
        (jwt(exp=True), False, False),
        (jwt(pad="x" * 20_000), False, False),
        (jwt() + ".x", False, True),
        (jwt().replace(".", ""), False, True),
        ("eyJ.eyJ.x", False, False),
        ("eyJ" + "[" * 8000 + ".eyJ.x", False, False),
        ("opaque-token-of-a-webhook", False, True),
        ("a\nb", False, False),
        ("ü", False, False),
        ("x" * 17_000, False, False),
    ],
)
def test_what_no_request_is_made_for(
    given: str | Callable[[], str], agent: bool, user: bool
) -> None:
    given = given() if callable(given) else given
    reviewer = TokenReviewer(cast(Client, None), names.NAMESPACE)
    assert (reviewer.implausible(given, "agent") == "") == agent
    assert (reviewer.implausible(given, "user") == "") == user


def test_random_tokens_are_never_plausible_agents() -> None:
    pick = random.Random(1)
    reviewer = TokenReviewer(cast(Client, None), names.NAMESPACE)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    for _ in range(2000):
        parts = ["".join(pick.choices(letters, k=pick.randrange(200))) for _ in range(3)]
        assert reviewer.implausible("eyJ" + ".".join(parts), "agent")
