"""Every decision ends in one fact, whatever the API server answers."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from central.kube.transport.http_client import Client
from central.kube.write.executor import DecisionExecutor
from central.model.decisions import Bind, Evict
from central.model.facts import BindDone, BindFailed, EvictDone, Fact
from tests.central.kube.api_fixtures import PODS, pod
from tests.central.kube.scripted_api import SUCCESS, Answer, Call, Scripted, failure, pending_pod
from tests.fakes.eventually import eventually

Connected = Callable[[str], Client]
Make = Callable[[str, dict[str, Any]], dict[str, Any]]
Run = Callable[..., list[Fact]]


class PlanGate:
    """Holds all bindings back until it is opened."""

    def __init__(self) -> None:
        self.held: list[tuple[str, Callable[[], None]]] = []

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        self.held.append((node, go))


@pytest.fixture
def run() -> Iterator[Run]:
    """run(client, *decisions): their outcome facts, one for each."""
    started: list[DecisionExecutor] = []

    def act(client: Client, *decisions: Bind | Evict, retry_for_s: float = 10.0) -> list[Fact]:
        facts: list[Fact] = []
        effects = DecisionExecutor(
            client, facts.append, PlanGate(), workers=8, retry_for_s=retry_for_s
        )
        started.append(effects)
        effects.submit(decisions)
        eventually(lambda: len(facts) == len(decisions))
        return facts

    yield act
    for effects in started:
        effects.stop()


def bind(name: str = "p", uid: str = "u", node: str = "n1", **more: Any) -> Bind:
    return Bind(uid, "default", name, node, **more)


def evict(name: str = "p", uid: str = "u") -> Evict:
    return Evict(uid, "default", name, "n1", "room is needed")


def test_a_gang_is_bound(client: Client, made: Make, run: Run) -> None:
    uids = [made(PODS, pod(f"p-{i}"))["metadata"]["uid"] for i in range(20)]
    facts = run(client, *(bind(f"p-{i}", uid, f"n{i}") for i, uid in enumerate(uids)))
    assert set(facts) == {BindDone(uid, f"n{i}") for i, uid in enumerate(uids)}
    assert client.get(f"{PODS}/p-3")["spec"]["nodeName"] == "n3"


def test_a_binding_carries_the_pods_domains(client: Client, made: Make, run: Run) -> None:
    """In the same request, so that the kubelet never sees the pod without them."""
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    run(client, bind(uid=uid, domains=(("lockstep.dev/rack", "r1"),)))
    there = client.get(f"{PODS}/p")
    assert there["metadata"]["annotations"]["lockstep.dev/rack"] == "r1"


def test_bound_elsewhere_is_final(client: Client, made: Make, run: Run) -> None:
    uid = made(PODS, pod("p", nodeName="n9"))["metadata"]["uid"]
    assert run(client, bind(uid=uid)) == [
        BindFailed(uid, "n1", "the pod is already bound to n9", final=True)
    ]


def test_already_bound_to_that_node_is_done(client: Client, made: Make, run: Run) -> None:
    """A reply was lost, or the scheduler was restarted in between."""
    uid = made(PODS, pod("p", nodeName="n1"))["metadata"]["uid"]
    assert run(client, bind(uid=uid)) == [BindDone(uid, "n1")]


def test_a_pod_that_is_gone(client: Client, made: Make, run: Run) -> None:
    made(PODS, pod("p"))
    gone = BindFailed("of-another-life", "n1", "the pod is gone", final=True)
    assert run(client, bind("p", "of-another-life")) == [gone]
    assert run(client, bind("none", "of-another-life")) == [gone]


def test_a_pod_that_is_being_deleted(connected: Connected, run: Run) -> None:
    def answer(call: Call) -> Answer:
        if call.method == "POST":
            return failure(409, "pod p is being deleted, cannot be assigned to a host")
        return Answer(200, {"metadata": {"uid": "u", "deletionTimestamp": "now"}, "spec": {}})

    with Scripted(answer) as server:
        facts = run(connected(server.url), bind())
        assert facts == [BindFailed("u", "n1", "the pod is being deleted", final=True)]


def test_a_lost_reply(connected: Connected, run: Run) -> None:
    """The binding succeeded and the connection broke: the retry conflicts with our own binding."""
    posts: list[Call] = []

    def answer(call: Call) -> Answer:
        if call.method == "GET":
            return Answer(200, {"metadata": {"uid": "u"}, "spec": {"nodeName": "n1"}})
        posts.append(call)
        return Answer(hang_up=True) if len(posts) == 1 else failure(409, "already assigned")

    with Scripted(answer) as server:
        assert run(connected(server.url), bind()) == [BindDone("u", "n1")]
    assert posts[1].body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert posts[1].body["metadata"] == {"name": "p", "namespace": "default", "uid": "u"}


@pytest.mark.parametrize(
    "trouble",
    [
        failure(500, "etcd is away"),
        failure(503, "starting"),
        failure(401, "token turned"),
        Answer(429, {"message": "too many requests"}, {"Retry-After": "0"}),
        Answer(hang_up=True),
    ],
)
def test_temporary_errors_are_retried(connected: Connected, run: Run, trouble: Answer) -> None:
    answers = iter([trouble, trouble, SUCCESS])
    with Scripted(lambda _: next(answers)) as server:
        assert run(connected(server.url), bind()) == [BindDone("u", "n1")]


def test_a_lasting_error_is_not_final(connected: Connected, run: Run) -> None:
    def answer(call: Call) -> Answer:
        return pending_pod() if call.method == "GET" else failure(500, "etcd is away")

    with Scripted(answer) as server:
        facts = run(connected(server.url), bind(), evict(), retry_for_s=2.0)
        assert set(facts) == {
            BindFailed("u", "n1", "etcd is away"),
            EvictDone("u", "etcd is away", unknown=True),
        }
        assert len(server.of("POST", "/binding")) > 1


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, "forbidden"), (404, "page not found"), (410, "gone"), (422, "no such field")],
)
def test_rejections_are_not_final(
    connected: Connected, run: Run, status: int, message: str
) -> None:
    """The pod is read, and it is alive and has no node: it is tried again later."""

    def answer(call: Call) -> Answer:
        return pending_pod() if call.method == "GET" else failure(status, message)

    with Scripted(answer) as server:
        facts = run(connected(server.url), bind(), evict())
        assert set(facts) == {BindFailed("u", "n1", message), EvictDone("u", message)}


def test_retries_occupy_no_worker(connected: Connected, run: Run) -> None:
    """More failing bindings than workers."""

    def answer(call: Call) -> Answer:
        name = call.path.split("/")[6]
        if call.method == "GET":
            return pending_pod(name, f"b{name.removeprefix('bad-')}")
        return failure(500, "its webhook is away") if "/bad" in call.path else SUCCESS

    with Scripted(answer) as server:
        bad = [bind(f"bad-{i}", f"b{i}") for i in range(20)]
        good = [bind(f"good-{i}", f"g{i}") for i in range(20)]
        facts = run(connected(server.url), *bad, *good, retry_for_s=1.0)
        assert {type(fact) for fact in facts[:20]} == {BindDone}


def test_requests_run_in_parallel(connected: Connected, run: Run) -> None:
    together = threading.Barrier(8, timeout=5)

    def answer(_: Call) -> Answer:
        together.wait()
        return SUCCESS

    with Scripted(answer) as server:
        facts = run(connected(server.url), *(bind(f"p-{i}", f"u{i}") for i in range(16)))
        assert len(facts) == 16


def test_a_binding_waits_for_the_agents_plan(connected: Connected) -> None:
    gate, facts = PlanGate(), list[Fact]()
    with Scripted(lambda _: SUCCESS) as server:
        effects = DecisionExecutor(connected(server.url), facts.append, gate, workers=2)
        effects.submit([bind(gpus=0b11), bind("q", "v")])
        eventually(lambda: facts == [BindDone("v", "n1")])
        [(node, go)] = gate.held
        assert node == "n1"
        go()
        eventually(lambda: BindDone("u", "n1") in facts)
        effects.stop()


def test_evictions(client: Client, made: Make, run: Run) -> None:
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    assert run(client, evict("p", uid)) == [EvictDone(uid)]
    assert not client.request("GET", f"{PODS}/p").ok
    assert run(client, evict("p", uid)) == [EvictDone(uid)]  # gone: done
    other = made(PODS, pod("p"))["metadata"]["uid"]
    assert run(client, evict("p", uid)) == [EvictDone(uid)]  # its name is another pod's now
    assert client.get(f"{PODS}/p")["metadata"]["uid"] == other


def test_a_disruption_budget_forbids_an_eviction(client: Client, made: Make, run: Run) -> None:
    uid = made(PODS, pod("p", nodeName="n1"))["metadata"]["uid"]
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    patch = json.dumps(ready).encode()
    assert client.request("PATCH", f"{PODS}/p/status", patch, "application/merge-patch+json").ok
    made(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {
            "metadata": {"name": "keep"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        },
    )
    assert run(client, evict("p", uid)) == [
        EvictDone(uid, "a PodDisruptionBudget forbids the eviction")
    ]
    trial = replace(evict("p", uid), trial=True)
    assert run(client, trial) == [
        EvictDone(uid, "a PodDisruptionBudget forbids the eviction", trial=True)
    ]
    assert client.get(f"{PODS}/p")["metadata"].get("deletionTimestamp") is None


def test_what_a_queue_is_entitled_to_is_deleted_past_a_budget(
    client: Client, made: Make, run: Run
) -> None:
    uid = made(PODS, pod("p", nodeName="n1"))["metadata"]["uid"]
    made(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {
            "metadata": {"name": "keep"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        },
    )
    trial = replace(evict("p", uid), beyond_budgets=True, trial=True)
    assert run(client, trial) == [EvictDone(uid, trial=True)]
    assert client.get(f"{PODS}/p")["metadata"].get("deletionTimestamp") is None
    other = replace(evict("p", "another"), beyond_budgets=True)
    assert run(client, other) == [EvictDone("another")]
    assert client.get(f"{PODS}/p")["metadata"].get("deletionTimestamp") is None
    assert run(client, replace(evict("p", uid), beyond_budgets=True)) == [EvictDone(uid)]
    there = client.request("GET", f"{PODS}/p")
    assert there.status == 404 or "deletionTimestamp" in there.json()["metadata"]


def test_a_trial_eviction_evicts_nobody(client: Client, made: Make, run: Run) -> None:
    uid = made(PODS, pod("p"))["metadata"]["uid"]
    assert run(client, replace(evict("p", uid), trial=True)) == [EvictDone(uid, trial=True)]
    assert client.request("GET", f"{PODS}/p").ok
