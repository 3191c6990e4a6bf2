"""Who leads and when, on virtual time: replicas on one API server, whose links break and whose processes end."""

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from central.kube.transport.http_client import MERGE, Reply
from central.server.leader_election import LeaderElection
from protos.names import NAMESPACE
from tests.simulation.nemesis.virtual_api import Link, VirtualApi, VirtualClient, Weather
from tests.simulation.nemesis.virtual_runtime import EPOCH, Kernel, Process

LEASE_S = 16
EVERY_S = LEASE_S / 8
HELD_S = LEASE_S * 2 / 3
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/lockstep-central"


@dataclass
class Replica:
    """A process that leads from when it has the Lease until it loses it."""

    world: "World"
    name: str
    process: Process
    link: Link
    elect: bool = True
    requests: list[str] = field(default_factory=list)
    led_at: float = -1.0
    lost: list[float] = field(default_factory=list)
    stopped: bool = False
    election: Any = None

    def start(self) -> "Replica":
        self.process.runtime.thread(self._main, "main").start()
        return self

    def _main(self) -> None:
        client = _Counted(self.world.api, self.process, self.link, self.requests)
        self.election = LeaderElection(
            client, NAMESPACE, self.name, elect=self.elect, lease_s=LEASE_S, runtime=self.process.runtime
        )  # fmt: skip
        if self.election.acquire(self._stopped):
            self.led_at = self.world.kernel.now
            self.election.start(lambda: self.lost.append(self.world.kernel.now))

    def _stopped(self, seconds: float) -> bool:
        self.process.runtime.sleep(seconds)
        return self.stopped

    @property
    def acts(self) -> bool:
        gone = self.election is None or self.process.killed
        return not gone and self.election.is_leader and self.election.may_act()

    def release(self) -> None:
        """Now, in a thread of its own."""
        release = self.election.release
        self.process.runtime.thread(release, "release").start()


class _Counted(VirtualClient):
    def __init__(self, api: VirtualApi, process: Process, link: Link, requests: list[str]) -> None:
        super().__init__(api, process, link)
        self._requests = requests

    def request(self, method: str, path: str, *rest: Any, **more: Any) -> Any:
        self._requests.append(f"{method} {path}")
        return super().request(method, path, *rest, **more)


class World:
    def __init__(self) -> None:
        self.kernel = Kernel(1)
        self.api = VirtualApi(self.kernel, lambda key, event: None)
        body = orjson.dumps({"metadata": {"name": NAMESPACE}})
        assert self.api.answer("POST", "/api/v1/namespaces", body, "application/json").ok
        self.replicas: list[Replica] = []
        self.acting: list[tuple[float, list[str]]] = []

    def replica(self, name: str, *, elect: bool = True) -> Replica:
        spec = {"schedulerName": "other", "containers": [{"name": "c", "image": "x"}]}
        if name:
            meta = {"name": name, "namespace": NAMESPACE}
            self.api.answer("POST", PODS, orjson.dumps({"metadata": meta, "spec": spec}), "application/json")  # fmt: skip
        process = self.kernel.process(name or "alone")
        made = Replica(self, name, process, Link(Weather(slow_s=0.01)), elect)
        self.replicas.append(made)
        return made

    def run(self, until_s: float) -> None:
        for tick in range(int(self.kernel.now * 10), int(until_s * 10)):
            self.kernel.at(tick / 10, self._look)
        self.kernel.run(until_s)

    def _look(self) -> None:
        acting = [each.name for each in self.replicas if each.acts]
        self.acting.append((self.kernel.now, acting))
        assert len(acting) <= 1, f"{acting} at {self.kernel.now}"

    def get(self, path: str) -> Any:
        return orjson.loads(self.api.answer("GET", path, None, "").body)

    def labelled(self) -> list[str]:
        pods = self.get(PODS)["items"]
        return [each["metadata"]["name"] for each in pods if (each["metadata"].get("labels") or {}).get("lockstep.dev/leads") == "true"]  # fmt: skip

    def label(self, pod: str) -> None:
        patch = orjson.dumps({"metadata": {"labels": {"lockstep.dev/leads": "true"}}})
        assert self.api.answer("PATCH", f"{PODS}/{pod}", patch, MERGE).ok

    def without_leader_s(self, since: float) -> float:
        """The longest time without a leader from then on."""
        longest = begun = 0.0
        for at, acting in self.acting:
            if at < since:
                continue
            begun = 0.0 if acting else begun or at
            longest = max(longest, at - begun if begun else 0.0)
        return longest


@pytest.fixture
def world() -> Any:
    made = World()
    yield made
    made.kernel.end()


def test_one_leads_and_the_other_stands_by(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first, second = world.replica("a").start(), world.replica("b")
    world.run(1.0)
    second.start()
    world.run(200.0)
    assert (first.acts, second.acts, second.led_at) == (True, False, -1.0)
    assert world.labelled() == ["a"]
    assert first.led_at < 0.2
    assert (first.lost, first.election.problem, first.election.term) == ([], "", 1)
    renewals = [each for each in first.requests if each == f"PUT {LEASE}"]
    assert len(renewals) == pytest.approx(200.0 / EVERY_S, abs=3)
    assert len([each for each in second.requests if each == f"GET {LEASE}"]) == pytest.approx(199.0 / EVERY_S, abs=3)  # fmt: skip
    assert not [each for each in second.requests if "PUT" in each or "POST" in each]
    standing = [each for each in caplog.messages if "standing by" in each]
    assert len(standing) == 1
    assert "the leader is a_" in standing[0]


def test_a_leader_that_dies_is_replaced_when_its_lease_is_over(world: World) -> None:
    first, second = world.replica("a").start(), world.replica("b").start()
    world.run(50.0)
    leader, other = (first, second) if first.acts else (second, first)
    leader.process.kill()
    world.run(120.0)
    assert other.acts
    assert world.labelled() == [other.name]
    assert other.election.term == 2
    assert LEASE_S < other.led_at - 50.0 + EVERY_S < LEASE_S + 3 * EVERY_S + 1.0


def test_a_leader_that_ends_is_replaced_at_once(world: World) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    second = world.replica("b").start()
    world.run(40.0)
    first.release()
    world.run(43.0)
    assert (first.acts, second.acts) == (False, True)
    assert world.labelled() == ["b"]
    assert first.lost == []
    spec = world.get(LEASE)["spec"]
    assert spec["holderIdentity"].startswith("b_")
    asked = len(first.requests)
    world.run(80.0)
    assert len(first.requests) == asked, "it renews nothing any more"


def test_a_leader_without_a_link_ends_before_another_one_acts(world: World, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    first = world.replica("a").start()
    world.run(20.0)
    second = world.replica("b").start()
    world.run(40.0)
    first.link.cut = True
    world.run(100.0)
    [lost_at] = first.lost
    assert HELD_S - EVERY_S < lost_at - 40.0 < LEASE_S < second.led_at - 40.0 + EVERY_S
    assert first.election.lost
    assert second.acts
    assert any("lost the lease: https://virtual: no answer in time" in each for each in caplog.messages)  # fmt: skip
    asked = len(first.requests)
    first.release()
    world.run(110.0)
    assert len(first.requests) == asked, "what is lost is not given back"


def test_a_few_errors_cost_no_lease(world: World) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    for begins in (20.0, 40.0, 60.0):
        world.run(begins)
        first.link.unleased = True
        world.run(begins + 2 * EVERY_S)
        assert first.acts
        assert first.election.problem
        first.link.unleased = False
        world.run(begins + 4 * EVERY_S)
        assert first.election.problem == ""
    assert first.lost == []
    assert world.without_leader_s(1.0) == 0.0


def test_a_bug_is_no_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    raised = first.election._lease.acquire
    bugs = iter([KeyError("x"), RuntimeError()])

    def broken() -> bool:
        for error in bugs:
            raise error
        return bool(raised())

    first.election._lease.acquire = broken
    world.run(20.0 + 0.75 * EVERY_S)
    assert first.election.problem == "'x'"
    world.run(20.0 + 1.75 * EVERY_S)
    assert first.election.problem == "RuntimeError"
    assert caplog.text.count("unhandled exception in the leader election (bug)") == 2
    world.run(40.0)
    assert (first.acts, first.lost, first.election.problem) == (True, [], "")


def test_a_replica_that_is_stopped_while_it_stands_by(world: World) -> None:
    world.replica("a").start()
    world.run(10.0)
    second = world.replica("b").start()
    world.run(20.0)
    second.stopped = True
    world.run(30.0)
    assert second.led_at == -1.0
    assert not second.election.is_leader
    asked = len(second.requests)
    second.release()
    world.run(60.0)
    assert len(second.requests) == asked


def test_the_next_process_of_the_same_pod_leads_at_once(world: World) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    first.process.kill()
    process = world.kernel.process("a2")
    again = Replica(world, "a", process, Link(Weather(slow_s=0.01)))
    world.replicas.append(again)
    again.start()
    world.run(23.0)
    assert again.acts


def test_a_label_that_cannot_be_set_is_tried_again(world: World) -> None:
    first = world.replica("a")
    first.link.weather.error = 1.0
    first.link.weather.slow_s = 0.01
    first.start()
    world.run(5.0)
    assert (first.acts, world.labelled()) == (False, [])
    first.link.weather.error = 0.0
    world.run(5.0 + EVERY_S + 1.0)
    assert (first.acts, world.labelled()) == (True, ["a"])
    world.run(60.0)
    assert sum("labelSelector" in each for each in first.requests) == 1, "once it is set, it stays"


def test_the_label_is_set_again_until_it_is_there(world: World) -> None:
    first = world.replica("a").start()
    original = world.api.answer
    refuse = [True]

    def without_pods(method: str, url: str, *rest: Any) -> Any:
        refused = refuse[0] and method == "PATCH" and "/pods/" in url
        return Reply(500, b"{}") if refused else original(method, url, *rest)

    world.api.answer = without_pods  # type: ignore[method-assign, assignment]
    world.run(10.0)
    assert (first.acts, world.labelled()) == (True, [])
    refuse[0] = False
    world.run(10.0 + EVERY_S + 0.5)
    assert world.labelled() == ["a"]


def test_without_an_election(world: World) -> None:
    alone = world.replica("", elect=False).start()
    world.run(50.0)
    assert (alone.led_at, alone.acts, alone.requests) == (0.0, True, [])
    assert alone.election.term == int(EPOCH)
    alone.release()
    world.run(55.0)
    assert alone.requests == []
    labelled = world.replica("p", elect=False).start()
    alone.process.kill()
    world.run(60.0)
    assert labelled.acts
    assert world.labelled() == ["p"]
    assert not any("/leases" in each for each in labelled.requests)


def test_a_replica_that_stands_by_has_no_label(world: World) -> None:
    """Of an earlier process of its pod: nobody must reach it."""
    first = world.replica("a")
    world.label("a")
    assert world.labelled() == ["a"]
    first.link.unleased = True
    first.start()
    world.run(5.0)
    assert (first.acts, world.labelled()) == (False, [])
    alone = world.replica("b", elect=False)
    world.label("b")
    alone.start()
    world.run(10.0)
    assert world.labelled() == ["b"]
    assert not [each for each in alone.requests if "PATCH" in each], "it has its label already"


def test_a_leader_that_ends_has_no_label(world: World) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    first.release()
    world.run(25.0)
    assert (world.labelled(), world.get(LEASE)["spec"]["holderIdentity"]) == ([], "")
    alone = world.replica("b", elect=False).start()
    world.run(30.0)
    alone.release()
    world.run(35.0)
    assert world.labelled() == ["b"], "without an election there is no other one"


def test_a_lease_that_another_one_holds(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    raw = world.get(LEASE)
    raw["spec"]["holderIdentity"] = "thief_1"
    assert world.api.answer("PUT", LEASE, orjson.dumps(raw), "application/json").ok
    world.run(40.0)
    [lost_at] = first.lost
    assert lost_at < 20.0 + EVERY_S + 0.5, "at once"
    assert "lost the lease: thief_1 holds it; exiting" in caplog.messages
    asked = len(first.requests)
    world.run(60.0)
    assert len(first.requests) == asked


def test_a_trouble_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.replica("a").start()
    world.run(20.0)
    refused = world.api.answer

    def forbid(method: str, url: str, *rest: Any) -> Any:
        return Reply(403, b'{"message": "no right"}') if "/leases" in url else refused(method, url, *rest)  # fmt: skip

    world.api.answer = forbid  # type: ignore[method-assign, assignment]
    world.run(20.0 + HELD_S - EVERY_S - 0.5)
    said = [each for each in caplog.messages if "could not take or renew the lease" in each]
    assert said == ["could not take or renew the lease: no right"]
    assert "bug" not in caplog.text
    assert first.acts
