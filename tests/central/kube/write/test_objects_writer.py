"""Objects are created, changed and deleted once, and only if the uid matches."""

import base64
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from central.kube.transport.http_client import Client
from central.kube.write import objects_writer
from central.kube.write.executor import DecisionExecutor
from central.model.decisions import Create, Delete, Patch, SetStatus
from central.model.facts import Answered, Fact
from tests.central.kube.api_fixtures import GROUPS, group
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.eventually import eventually

Run = Callable[..., list[Fact]]
Connected = Callable[[str], Client]
Make = Callable[[str, dict[str, Any]], dict[str, Any]]
CLAIMS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


class Open:
    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        go()


@pytest.fixture
def run() -> Iterator[Run]:
    started: list[DecisionExecutor] = []

    def act(
        client: Client, *asked: objects_writer.ObjectDecision, retry_for_s: float = 10.0
    ) -> list[Fact]:
        facts: list[Fact] = []
        effects = DecisionExecutor(client, facts.append, Open(), workers=1, retry_for_s=retry_for_s)
        started.append(effects)
        effects.submit(asked)
        eventually(lambda: len(facts) == len(asked))
        return facts

    yield act
    for effects in started:
        effects.stop()


def settings(name: str, owner: str = "") -> Create:
    meta: dict[str, Any] = {"name": name}
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": owner, "controller": True}
        ]
    return Create("ConfigMap", "default", name, {"metadata": meta, "data": {"a": "1"}})


def test_an_object_is_created(client: Client, run: Run) -> None:
    [fact] = run(client, settings("c"))
    there = client.get(f"{CLAIMS}/c")
    assert fact == Answered("Create", "ConfigMap", "default", "c", uid=there["metadata"]["uid"])
    assert there["data"] == {"a": "1"}


def test_our_existing_object_counts_as_created(client: Client, run: Run) -> None:
    """The reply was lost, or the scheduler was restarted in between."""
    [first] = run(client, settings("c", owner="me"))
    assert run(client, settings("c", owner="me")) == [first]


def test_an_object_of_another_controller_is_left_alone(client: Client, run: Run) -> None:
    run(client, settings("c", owner="you"), settings("d"))
    for name in ("c", "d"):
        [fact] = run(client, settings(name, owner="me"))
        assert isinstance(fact, Answered)
        assert (fact.why, fact.code) == (
            f"ConfigMap {name} exists and is owned by another controller",
            409,
        )


def test_an_object_to_renew_gets_the_new_body(client: Client, run: Run) -> None:
    [first] = run(client, settings("c", owner="me"))
    new = settings("c", owner="me")
    new = replace(new, body={**new.body, "data": {"a": "2"}}, renew=True)
    assert run(client, new) == [first]
    assert client.get(f"{CLAIMS}/c")["data"] == {"a": "2"}


def test_ssh_keys_are_generated_once_and_belong_together(client: Client, run: Run) -> None:
    body = {**settings("k", owner="me").body, "stringData": {"config": "Host *"}}
    body.pop("data")
    asked = Create("Secret", "default", "k", body, keys=True)
    run(client, asked)
    data = client.get(f"{SECRETS}/k")["data"]
    decoded = {name: base64.b64decode(text).decode() for name, text in data.items()}
    assert decoded.keys() == {"config", "id_rsa", "id_rsa.pub", "authorized_keys"}
    private = serialization.load_pem_private_key(decoded["id_rsa"].encode(), None)
    public = serialization.load_ssh_public_key(decoded["authorized_keys"].encode())
    assert isinstance(private, rsa.RSAPrivateKey)
    assert private.public_key() == public
    assert run(client, asked) == [Answered("Create", "Secret", "default", "k")]
    assert client.get(f"{SECRETS}/k")["data"] == data, "existing keys are kept"


def test_a_coordinators_credentials_are_generated_once(client: Client, run: Run) -> None:
    body = {**settings("k", owner="me").body, "stringData": {}}
    body.pop("data")
    asked = Create("Secret", "default", "k", body, certificate=("c.train",))
    run(client, asked)
    data = client.get(f"{SECRETS}/k")["data"]
    assert data.keys() == {"token", "ca.crt", "tls.crt", "tls.key"}
    assert run(client, asked) == [Answered("Create", "Secret", "default", "k")]
    assert client.get(f"{SECRETS}/k")["data"] == data, "existing credentials are kept"


def test_only_the_object_with_the_uid_is_changed(client: Client, made: Make, run: Run) -> None:
    uid = made(GROUPS, group("g"))["metadata"]["uid"]
    where = ("PodGroup", "default", "g")
    status = {"phase": "Running", "running": 2}
    assert run(client, SetStatus(*where, uid, status)) == [Answered("SetStatus", *where, uid=uid)]
    run(client, SetStatus(*where, uid, {"phase": "Completed"}))
    run(client, Patch(*where, uid, {"spec": {"minMember": 3}}))
    there = client.get(f"{GROUPS}/g")
    assert there["status"] == {"phase": "Completed"}, "the whole status is replaced"
    assert there["spec"]["minMember"] == 3

    for asked in (
        SetStatus(*where, "of-another-life", {"phase": "Running"}),
        Patch(*where, "of-another-life", {"spec": {"minMember": 9}}),
    ):
        [fact] = run(client, asked)
        assert isinstance(fact, Answered)
        assert fact.why
    assert run(client, Delete(*where, "of-another-life", "no")) == [Answered("Delete", *where)]
    there = client.get(f"{GROUPS}/g")
    assert (there["status"], there["spec"]["minMember"]) == ({"phase": "Completed"}, 3)

    assert run(client, Delete(*where, uid, "it is over")) == [Answered("Delete", *where)]
    assert run(client, Delete(*where, uid, "it is over")) == [Answered("Delete", *where)]
    assert client.get(GROUPS)["items"] == []


def test_a_rejection_is_an_outcome(connected: Connected, run: Run) -> None:
    def answer(call: Call) -> Answer:
        return failure(403, "exceeded quota: small", reason="Forbidden")

    with Scripted(answer) as server:
        [fact] = run(connected(server.url), settings("c"))
    assert fact == Answered(
        "Create", "ConfigMap", "default", "c", why="exceeded quota: small", code=403
    )


def test_an_unavailable_server_is_retried(connected: Connected, run: Run) -> None:
    troubles = [failure(500, "etcd is away"), Answer(hang_up=True)]

    def answer(call: Call) -> Answer:
        return troubles.pop() if troubles else Answer(201, {"metadata": {"uid": "u"}})

    with Scripted(answer) as server:
        [fact] = run(connected(server.url), settings("c"))
    assert fact == Answered("Create", "ConfigMap", "default", "c", uid="u")


def test_a_lasting_outage_is_an_outcome(connected: Connected, run: Run) -> None:
    with Scripted(lambda call: failure(500, "etcd is away")) as server:
        [fact] = run(connected(server.url), settings("c"), retry_for_s=0.3)
    assert fact == Answered("Create", "ConfigMap", "default", "c", why="etcd is away")


def annotate(name: str = "p") -> Patch:
    return Patch("Pod", "default", name, "u", {"metadata": {"annotations": {"a": "b", "c": None}}})


def test_annotations_of_a_pod_are_merged_under_its_uid(run: Run, connected: Connected) -> None:
    answer = Answer(200, {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}})
    with Scripted(lambda _: answer) as api:
        [fact] = run(connected(api.url), annotate())
    assert fact == Answered("Patch", "Pod", "default", "p", uid="u")
    [call] = api.calls
    assert (call.method, call.path) == ("PATCH", "/api/v1/namespaces/default/pods/p/status")
    assert call.body == {"metadata": {"annotations": {"a": "b", "c": None}, "uid": "u"}}


def test_annotations_that_nobody_answers_hold_up_no_deletion(
    run: Run, connected: Connected
) -> None:
    """However many there are, and however long they take."""
    held = threading.Event()

    def answer(call: Call) -> Answer:
        if call.method == "PATCH":
            held.wait(20)
        return Answer(200, {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}})

    with Scripted(answer) as api:
        facts: list[Fact] = []
        effects = DecisionExecutor(connected(api.url), facts.append, Open(), workers=1)
        try:
            effects.submit([annotate(f"p{number}") for number in range(100)])
            effects.submit([Delete("Pod", "default", "p", "u", "it leaves")])
            eventually(lambda: bool(facts))
            assert facts == [Answered("Delete", "Pod", "default", "p")]
        finally:
            held.set()
            effects.stop()
