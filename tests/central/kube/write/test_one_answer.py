"""Each decision is answered once, whatever becomes of its request, and the answer is what the API server
says of the object. Over HTTP, with an API server that serves all but what a test breaks."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from central.kube.transport.http_client import Client, connect
from central.kube.write.executor import DecisionExecutor
from central.model.decisions import Bind, Create, Decision, Delete, Evict, Patch
from central.model.facts import Answered, BindDone, BindFailed, EvictDone, Fact
from tests.central.kube.api_fixtures import PODS, kubeconfig, pod
from tests.fakes.eventually import eventually
from tests.fakes.faulty_api import Fault, FaultyApi

RUBBISH = {
    "empty": b"",
    "html": b"<html>sign in</html>",
    "a list": b"[]",
    "an empty object": b"{}",
    "another kind": b'{"kind":"Node","metadata":{"name":"p","uid":"1"}}',
    "another object": b'{"kind":"Pod","metadata":{"name":"other","uid":"1"}}',
    "a failure": b'{"kind":"Status","status":"Failure"}',
    "cut off": b'{"kind":"Status","sta',
}
SENTENCES = {
    403: b'{"kind":"Status","status":"Failure","reason":"Forbidden","message":"not now","code":403}',
    404: b'{"kind":"Status","status":"Failure","reason":"NotFound","message":"not now","code":404}',
    410: b'{"kind":"Status","status":"Failure","reason":"Gone","message":"not now","code":410}',
    422: b'{"kind":"Status","status":"Failure","reason":"Invalid","message":"not now","code":422}',
}


class Box:
    """An API server, and an executor that uses it."""

    def __init__(self, folder: Path) -> None:
        self.faults: list[tuple[str, str, Fault]] = []  # method, end of the path; each is used once
        self.always: list[tuple[str, str, Fault]] = []
        self.facts: list[Fact] = []
        self.leads = True
        self.api = FaultyApi(faults=self._fault)
        self.api.start()
        self.client: Client = connect(kubeconfig(folder, self.api.url))
        self.executor = self.make_executor(30.0)

    def make_executor(self, retry_for_s: float) -> DecisionExecutor:
        return DecisionExecutor(
            self.client, self.facts.append, self, 4, retry_for_s, may_act=lambda: self.leads
        )

    def break_for_ever(self, *faults: tuple[str, str, Fault]) -> None:
        """From now on. The executor gives up soon."""
        self.always = list(faults)
        self.executor.stop()
        self.executor = self.make_executor(0.3)

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        go()

    def _fault(self, method: str, path: str) -> Fault | None:
        for kept in (self.faults, self.always):
            for one in kept:
                if one[0] == method and path.endswith(one[1]):
                    if kept is self.faults:
                        kept.remove(one)
                    return one[2]
        return None

    def make(self, name: str = "p", **spec: Any) -> str:
        reply = self.client.request("POST", PODS, json.dumps(pod(name, **spec)).encode())
        assert reply.ok, reply.body
        return str(reply.json()["metadata"]["uid"])

    def node_of(self, name: str = "p") -> str:
        return str(self.client.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))

    def outcome(self, decision: Decision) -> Fact:
        self.executor.submit([decision])
        eventually(lambda: self.facts)
        eventually(lambda: not self.executor.tickets.open_count())
        (fact,) = self.facts
        self.facts.clear()
        return fact

    def close(self) -> None:
        self.executor.stop()
        self.client.close()
        self.api.stop()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    yield made
    made.close()


def bind(uid: str, node: str = "n1") -> Bind:
    return Bind(uid, "default", "p", node)


@pytest.mark.parametrize("body", RUBBISH.values(), ids=RUBBISH.keys())
@pytest.mark.parametrize("executed", [True, False])
def test_an_answer_that_makes_no_sense(box: Box, body: bytes, executed: bool) -> None:
    """Bound or not: the pod says it."""
    uid = box.make()
    box.faults = [("POST", "/binding", Fault(200, body, executed=executed))]
    assert box.outcome(bind(uid)) == BindDone(uid, "n1")
    assert box.node_of() == "n1"


@pytest.mark.parametrize("body", RUBBISH.values(), ids=RUBBISH.keys())
def test_a_binding_that_is_never_executed(box: Box, body: bytes) -> None:
    uid = box.make()
    box.break_for_ever(("POST", "/binding", Fault(200, body)))
    box.faults = [("GET", "/p", Fault(200, body)), ("GET", "/p", Fault())]  # reading fails at first
    fact = box.outcome(bind(uid))
    assert isinstance(fact, BindFailed)
    assert not fact.final
    assert "answer" in fact.why
    assert box.node_of() == ""


@pytest.mark.parametrize("status", SENTENCES)
def test_a_refused_binding_is_no_end(box: Box, status: int) -> None:
    uid = box.make()
    box.faults = [("POST", "/binding", Fault(status, SENTENCES[status]))]
    assert box.outcome(bind(uid)) == BindFailed(uid, "n1", "not now")
    assert box.outcome(bind(uid)) == BindDone(uid, "n1")


@pytest.mark.parametrize("status", [0, 500, 503, *SENTENCES])
def test_a_binding_that_took_effect_is_done(box: Box, status: int) -> None:
    """A webhook or a proxy failed after it. Another node than the planned one is the truth, too."""
    uid = box.make()
    lost = Fault(status, SENTENCES.get(status, b""), executed=True)
    box.break_for_ever(("POST", "/binding", lost))
    assert box.outcome(bind(uid)) == BindDone(uid, "n1")
    other = box.outcome(bind(uid, "n2"))
    assert other == BindFailed(uid, "n2", "the pod is already bound to n1", final=True)


def test_a_pod_that_may_not_be_read(box: Box) -> None:
    """Then nothing more can be known, and the watch decides."""
    uid = box.make()
    box.break_for_ever(
        ("POST", "/binding", Fault(422, SENTENCES[422])), ("GET", "/p", Fault(403, SENTENCES[403]))
    )
    assert box.outcome(bind(uid)) == BindFailed(uid, "n1", "not now")


def test_404_of_a_path_is_not_the_end_of_a_pod(box: Box) -> None:
    uid = box.make()
    page = Fault(404, b"404 page not found")
    box.break_for_ever(("POST", "/binding", page))
    box.faults = [("GET", "/p", page)]
    assert box.outcome(bind(uid)) == BindFailed(uid, "n1", "404 page not found")
    gone = BindFailed("another-life", "n1", "the pod is gone", final=True)
    assert box.outcome(bind("another-life")) == gone


def test_without_the_lease_nothing_is_sent(box: Box) -> None:
    """The process was stopped for a while. Another leader may have bound the pod meanwhile."""
    uid, other = box.make(), box.make("other", nodeName="n7")
    box.leads = False
    why = "not sent: this replica does not hold the lease"
    assert box.outcome(bind(uid)) == BindFailed(uid, "n1", why)
    bound = Bind(other, "default", "other", "n1")
    assert box.outcome(bound) == BindFailed(
        other, "n1", "the pod is already bound to n7", final=True
    )
    assert box.outcome(Bind(other, "default", "other", "n7")) == BindDone(other, "n7")
    evict = Evict(uid, "default", "p", "n1", "capacity is needed")
    assert box.outcome(evict) == EvictDone(uid, why, unknown=True)
    made = Create("ConfigMap", "default", "c", {"metadata": {"name": "c"}})
    assert box.outcome(made) == Answered("Create", "ConfigMap", "default", "c", why=why)
    assert box.node_of() == ""


class Broken(Client):
    """A client with a bug."""

    def __init__(self, real: Client) -> None:
        self.server, self._real, self.bugs = real.server, real, 0

    def request(self, *args: Any, **options: Any) -> Any:
        self.bugs -= 1
        if self.bugs >= 0:
            raise RuntimeError("a bug")
        return self._real.request(*args, **options)


@pytest.mark.parametrize(
    ("bugs", "expected"), [(1, "done"), (100, "RuntimeError: a bug")], ids=["once", "always"]
)
def test_a_worker_that_raises(box: Box, bugs: int, expected: str) -> None:
    uid = box.make()
    client = Broken(box.client)
    executor = DecisionExecutor(client, box.facts.append, box, 1, 30.0 if bugs == 1 else 0.3)
    for decision, done in (
        (bind(uid), BindDone(uid, "n1")),
        (Evict(uid, "default", "p", "n1", ""), EvictDone(uid)),
        (Delete("Pod", "default", "p", uid, ""), Answered("Delete", "Pod", "default", "p")),
    ):
        client.bugs = bugs
        executor.submit([decision])
        eventually(lambda: box.facts)
        (fact,) = box.facts
        box.facts.clear()
        assert fact == done if expected == "done" else getattr(fact, "why", "") == expected
    executor.stop()


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("body", RUBBISH.values(), ids=RUBBISH.keys())
def test_objects(box: Box, body: bytes, executed: bool) -> None:
    """Creations, patches, deletions and evictions are repeated, and none is done twice."""
    rubbish = Fault(200, body, executed=executed)
    box.faults = [
        ("POST", "/configmaps", rubbish),
        ("PATCH", "/c", rubbish),
        ("DELETE", "/c", rubbish),
        ("POST", "/eviction", rubbish),
    ]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": box.make(), "controller": True}
    meta = {"name": "c", "ownerReferences": [owner]}
    made = box.outcome(Create("ConfigMap", "default", "c", {"metadata": meta}))
    assert isinstance(made, Answered)
    assert made.uid == box.client.get("/api/v1/namespaces/default/configmaps/c")["metadata"]["uid"]
    uid = made.uid
    patch = Patch("ConfigMap", "default", "c", uid, {"data": {"a": "b"}})
    assert box.outcome(patch) == Answered("Patch", "ConfigMap", "default", "c", uid=uid)
    deletion = box.outcome(Delete("ConfigMap", "default", "c", uid, "it is over"))
    assert deletion == Answered("Delete", "ConfigMap", "default", "c")
    pod_uid = str(owner["uid"])
    evict = Evict(pod_uid, "default", "p", "n1", "capacity is needed")
    assert box.outcome(evict) == EvictDone(pod_uid)
    assert not box.faults
