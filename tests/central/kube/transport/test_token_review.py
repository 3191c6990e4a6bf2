"""Authentication: agents by their pod's token, users by any token of the API server."""

from collections.abc import Callable
from typing import Any

import pytest

from central.kube.transport.http_client import Client
from central.kube.transport.token_review import TokenReviewer
from central.model.identity import AuthFailure, Identity
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
    agent = TokenReviewer(client, names.NAMESPACE).review_agent(token(world, "agent-1"))
    assert agent == Identity("system:serviceaccount:lockstep-system:lockstep-agent", "n1")


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
    answer = TokenReviewer(client, names.NAMESPACE).review_agent(token(world, **asked))
    assert isinstance(answer, AuthFailure)
    assert (answer.authenticated, answer.transient) == (known, False)
    assert why in answer.why


def test_a_forged_token(client: Client, world: Make) -> None:
    genuine = token(world, "agent-1")
    reviewer = TokenReviewer(client, names.NAMESPACE)
    for forged in ("x", genuine[:-2], genuine + "\n", "ü"):
        assert isinstance(reviewer.review_agent(forged), AuthFailure)
        assert isinstance(reviewer.review_user(forged), AuthFailure)


def test_an_agents_namespace_is_ours(client: Client, world: Make) -> None:
    answer = TokenReviewer(client, "elsewhere").review_agent(token(world, "agent-1"))
    assert isinstance(answer, AuthFailure)
    assert answer.authenticated


def test_users_may_use_either_audience(client: Client, world: Make) -> None:
    user = TokenReviewer(client, names.NAMESPACE).review_user
    other = Identity("system:serviceaccount:lockstep-system:other")
    assert user(token(world, account="other", audience="")) == other
    assert user(token(world, account="other")) == other
    assert isinstance(user(token(world, account="other", audience="vault")), AuthFailure)


def test_reviews_are_cached(api: StandaloneApi, client: Client, world: Make) -> None:
    reviewer = TokenReviewer(client, names.NAMESPACE)
    seen, unseen = token(world, "agent-1"), token(world, "agent-2")
    known = reviewer.review_agent(seen)
    api.stop()
    assert reviewer.review_agent(seen) == known
    assert reviewer.review_agent(unseen) == AuthFailure(
        "the API server is unreachable, the token could not be reviewed", transient=True
    )
    assert seen not in repr(vars(reviewer))


def test_the_cache_expires(client: Client, world: Make) -> None:
    reviewer = TokenReviewer(client, names.NAMESPACE, keep_s=0.0)
    seen = token(world, "agent-1")
    assert isinstance(reviewer.review_agent(seen), Identity)
    client.request("DELETE", f"{NS}/pods/agent-1?gracePeriodSeconds=0")
    assert isinstance(reviewer.review_agent(seen), AuthFailure)


def test_a_server_that_ignores_audiences_authenticates_nobody(connected: Connected) -> None:
    def answer(call: Call) -> Answer:
        account = f"system:serviceaccount:{names.NAMESPACE}:{names.AGENT_ACCOUNT}"
        user = {"username": account, "extra": {"authentication.kubernetes.io/pod-name": ["p"]}}
        return Answer(201, {"status": {"authenticated": True, "user": user}})

    with Scripted(answer) as server:
        answered = TokenReviewer(connected(server.url), names.NAMESPACE).review_agent("t")
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
        answered = TokenReviewer(connected(server.url), names.NAMESPACE).review_agent("t")
        assert isinstance(answered, AuthFailure)
        assert "is gone" in answered.why


def test_a_failed_review_is_transient(connected: Connected) -> None:
    with Scripted(lambda _: failure(403, "tokenreviews is forbidden")) as server:
        answered = TokenReviewer(connected(server.url), names.NAMESPACE).review_agent("t")
        assert isinstance(answered, AuthFailure)
        assert answered.transient
