"""What the scheduler assumes and no watch confirms is compared with the API server."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.transport.http_client import Client, connect
from central.kube.transport.runtime import RUNTIME
from central.model.decisions import Bind
from central.model.facts import BindFailed, EvictDone, Fact, PodSeen
from central.scheduler import cycle
from central.scheduler.inventory.pods import EVICTED
from central.scheduler.scheduler import Scheduler
from central.server.assumption_audit import APART_S, OLD_S, READS_MOST, AssumptionAudit
from central.standalone.apiserver import StandaloneApi
from tests.central import factories
from tests.central.kube.api_fixtures import PODS, kubeconfig, pod
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.still_clock import StillClock


class Loop:
    """The scheduler, asked at once."""

    def __init__(self) -> None:
        self.scheduler = new_scheduler(factories.LEVELS)
        self.facts: list[Fact] = []
        self.asked = 0
        self.before_correction: Callable[[], None] = lambda: None

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 10.0) -> Any:
        self.asked += 1
        if self.asked % 2 == 0:
            self.before_correction()
        return question(self.scheduler)

    def put(self, fact: Fact) -> None:
        self.facts.append(fact)


class Tickets:
    def __init__(self) -> None:
        self.open: set[str] = set()

    def is_open(self, uid: str) -> bool:
        return uid in self.open


def seen_pod(uid: str, **fields: Any) -> PodSeen:
    return replace(factories.pod("p", 1), uid=uid, namespace="default", **fields)


class Box:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.loop, self.tickets, self.clock = Loop(), Tickets(), StillClock(RUNTIME)
        self.clock.now = 1000.0
        self.lists = 0
        self.audit = AssumptionAudit(client, self.loop, self.tickets, self._again, self.clock)

    def _again(self) -> None:
        self.lists += 1

    def assume(self, uid: str) -> str:
        """A pod with this uid that the scheduler has just bound. Returns the node."""
        facts: list[Fact] = [factories.node("n1", gpus=8), seen_pod(uid)]
        decisions = cycle.schedule_once(self.loop.scheduler, facts, 0.0)
        (bind,) = [each for each in decisions if isinstance(each, Bind)]
        return bind.node

    def check(self, after_s: float) -> list[Fact]:
        self.clock.now += after_s
        self.loop.asked = 0
        self.audit.check()
        found, self.loop.facts = self.loop.facts, []
        return found


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with StandaloneApi() as api:
        client = connect(kubeconfig(tmp_path, api.url))
        yield Box(client)
        client.close()


def make(client: Client, **spec: Any) -> str:
    reply = client.request("POST", PODS, json.dumps(pod("p", **spec)).encode())
    return str(reply.json()["metadata"]["uid"])


def test_a_binding_that_never_was(box: Box) -> None:
    uid = make(box.client)
    box.assume(uid)
    assert box.check(0.0) == []
    assert box.check(OLD_S - 1) == []
    (fact,) = box.check(2.0)
    assert fact == BindFailed(uid, "n1", "nothing bound it within 30 s")
    assert box.audit.outcomes["wrong"] == 1
    cycle.apply_facts(box.loop.scheduler, [fact], 40.0)
    assert box.check(60.0) == []


def test_a_binding_that_the_watch_does_not_show(box: Box) -> None:
    uid = make(box.client, nodeName="n1")
    box.assume(uid)
    box.check(0.0)
    assert box.check(OLD_S) == []
    assert (box.audit.old, box.audit.outcomes["holds"], box.lists) == (1, 1, 1)


def test_a_request_under_way_is_left_alone(box: Box) -> None:
    """Volumes may take minutes."""
    uid = make(box.client)
    box.assume(uid)
    box.tickets.open = {uid}
    box.check(0.0)
    assert box.check(OLD_S) == []
    box.tickets.open.clear()
    assert len(box.check(1.0)) == 1


def test_an_eviction_that_never_was(box: Box) -> None:
    uid = make(box.client, nodeName="n1")
    scheduler = box.loop.scheduler
    seen = seen_pod(uid, node="n1", phase="Running")
    cycle.apply_facts(scheduler, [factories.node("n1", gpus=8), seen], 0.0)
    scheduler.state.pods[uid].advance(EVICTED)
    box.check(0.0)
    (fact,) = box.check(OLD_S)
    assert fact == EvictDone(uid, "nothing evicted it within 30 s", unknown=True)
    cycle.apply_facts(scheduler, [fact], 40.0)
    assert not scheduler.state.pods[uid].evicting
    box.client.request("DELETE", f"{PODS}/p")
    scheduler.state.pods[uid].advance(EVICTED)
    box.check(0.0)
    assert box.check(OLD_S) == []


def test_an_api_server_that_does_not_answer(tmp_path: Path) -> None:
    """Then nothing is given up."""
    with Scripted(lambda _: failure(500, "etcd is away")) as server:
        client = connect(kubeconfig(tmp_path, server.url))
        box = Box(client)
        box.assume("u")
        box.check(0.0)
        assert box.check(OLD_S) == []
        assert box.audit.outcomes["unreadable"] == 1
        client.close()


def test_reads_are_bounded(tmp_path: Path) -> None:
    with Scripted(lambda _: failure(500, "etcd is away")) as server:
        client = connect(kubeconfig(tmp_path, server.url))
        box = Box(client)
        pods = [replace(seen_pod(f"u{i}"), name=f"p{i}", spec=factories.spec(0)) for i in range(80)]
        cycle.schedule_once(box.loop.scheduler, [factories.node("n1"), *pods], 0.0)
        box.check(0.0)
        began = box.clock.now
        box.check(OLD_S)
        assert len(server.calls) == READS_MOST
        assert box.clock.now - began >= READS_MOST * APART_S
        client.close()


def test_what_changes_while_it_is_read_is_left_alone(box: Box) -> None:
    """A request that has begun, or a later decision, has an answer of its own."""
    uid = make(box.client)
    box.assume(uid)
    box.check(0.0)

    def begin() -> None:
        box.tickets.open = {uid}

    def end() -> None:
        failed = BindFailed(uid, "n1", "no", final=False)
        cycle.apply_facts(box.loop.scheduler, [failed], 1.0)

    for meanwhile in (begin, end):
        box.tickets.open = set()
        box.loop.before_correction = meanwhile
        assert box.check(OLD_S) == []
    assert sum(box.audit.outcomes.values()) == 0
    assert box.lists == 0


def answered(answer: Answer, _: Call) -> Answer:
    return answer


def test_an_eviction_whose_pod_is_gone_or_leaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    """It holds, and the watch is late."""
    pod_gone = failure(404, "no", reason="NotFound", details={"kind": "pods", "name": "p"})
    body = {"kind": "Pod", "metadata": {"name": "p", "uid": "u", "deletionTimestamp": "now"}}
    for answer in (pod_gone, Answer(200, body)):
        with Scripted(partial(answered, answer)) as server:
            client = connect(kubeconfig(tmp_path, server.url))
            box = Box(client)
            seen = seen_pod("u", node="n1", phase="Running")
            cycle.apply_facts(box.loop.scheduler, [factories.node("n1", gpus=8), seen], 0.0)
            box.loop.scheduler.state.pods["u"].advance(EVICTED)
            box.check(0.0)
            assert box.check(OLD_S) == []
            assert (box.audit.outcomes["holds"], box.lists) == (1, 1)
            client.close()
    said = "the eviction of pod default/p is 30 s old, and the watch does not show it: listing pods again"
    assert caplog.messages == [said, said]


def test_which_rounds_list_the_pods_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that have learnt something, not those in which nothing could be read."""
    pending = {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "spec": {}}
    for answer, lists, said in (
        (failure(500, "etcd is away"), 0, "could not read pod default/p: etcd is away"),
        (failure(403, "forbidden"), 0, "could not read pod default/p: forbidden"),
        (
            Answer(200, pending),
            1,
            "the binding of pod default/p was assumed and is not so: nothing bound it within 30 s",
        ),
    ):
        with Scripted(partial(answered, answer)) as server:
            client = connect(kubeconfig(tmp_path, server.url))
            box = Box(client)
            box.assume("u")
            box.check(0.0)
            assert box.audit.old == 0
            box.check(OLD_S)
            assert box.lists == lists
            assert said in caplog.messages
            client.close()
