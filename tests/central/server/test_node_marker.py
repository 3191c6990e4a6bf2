"""Rounds of marks on nodes: what is written, when, and what failures do to the others."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.kube.decode.device_claim_decoder import decode_slice
from central.kube.transport.http_client import Client, connect
from central.model.device_claims import SliceGone, SliceSeen
from central.model.facts import Fact, NodeGone, NodeSilent, Taint
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.server import node_marker
from central.server.node_marker import AGAIN_S, REPORTED_WITHIN_S, MarkerOptions, NodeMarker
from central.standalone.apiserver import StandaloneApi
from tests.agent.train.workers import wait_for
from tests.central import factories
from tests.central.kube.api_fixtures import kubeconfig, node
from tests.fakes.still_clock import StillClock

NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TAINT = Taint("lockstep.dev/gpu-unhealthy", "", "NoSchedule")
ALL = MarkerOptions(True, ("GpuUnhealthy", "True"), TAINT)


class Cluster:
    """The in-memory API, and a scheduler that is told of its nodes."""

    def __init__(self, client: Client, options: MarkerOptions) -> None:
        self.client, self.clock, self.leads = client, StillClock(), True
        self.scheduler = new_scheduler(factories.LEVELS)
        self.decoder = Decoder(("lockstep",), factories.LEVELS)
        runtime: Any = self.clock
        self.marker = NodeMarker(client, self, options, may_act=lambda: self.leads, runtime=runtime)
        self.generation = 0
        self.slices: dict[str, SliceSeen] = {}

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 10.0) -> Any:
        return question(self.scheduler)

    def add(self, *names: str) -> None:
        for name in names:
            assert self.client.request("POST", NODES, json.dumps(node(name)).encode()).ok
        self.watch()

    def watch(self) -> None:
        """What a watch of the nodes and of ResourceSlices would bring."""
        facts: list[Fact] = [self.decoder.node(item) for item in self.client.get(NODES)["items"]]
        there = {each.name: each for each in map(decode_slice, self.client.get(SLICES)["items"])}
        facts += [SliceGone(name) for name in self.slices.keys() - there.keys()]
        facts += there.values()
        self.slices = there
        cycle.apply_facts(self.scheduler, facts, 0.0)

    def report(self, name: str, *sick: int, claims: str = "") -> None:
        self.generation += 1
        topology = replace(factories.topology(8, sick=sick), driver_version="550.54.15")
        fact = replace(factories.report(name, topology, self.generation), claims=claims)
        cycle.apply_facts(self.scheduler, [fact], 0.0)

    def generations(self) -> dict[str, int]:
        """Of each node's pool."""
        return {each.pool: each.generation for each in self.slices.values()}

    def round(self) -> int:
        done = self.marker.check()
        self.watch()
        return done

    def read(self, name: str) -> Any:
        return self.client.get(f"{NODES}/{name}")

    def status(self, name: str) -> str:
        found = self.read(name).get("status", {}).get("conditions", ())
        return next((each["status"] for each in found if each["type"] == "GpuUnhealthy"), "")

    def taints(self, name: str) -> list[str]:
        return [each["key"] for each in self.read(name).get("spec", {}).get("taints", ())]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with StandaloneApi() as api:
        made = connect(kubeconfig(tmp_path, api.url))
        yield made
        made.close()


@pytest.fixture
def cluster(client: Client) -> Cluster:
    return Cluster(client, ALL)


def test_a_gpu_fails_and_recovers(cluster: Cluster) -> None:
    cluster.add("n1", "n2")
    cluster.report("n1")
    assert cluster.round() == 2  # labels and a condition; n2 has no report
    labels = cluster.read("n1")["metadata"]["labels"]
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["nvidia.com/cuda.driver-version.full"] == "550.54.15"
    assert (cluster.status("n1"), cluster.taints("n1")) == ("False", [])
    assert cluster.round() == 0

    cluster.report("n1", 3)
    assert cluster.round() == 2
    assert (cluster.status("n1"), cluster.taints("n1")) == ("True", [TAINT.key])
    assert cluster.round() == 0
    cluster.report("n1")
    assert cluster.round() == 2
    assert (cluster.status("n1"), cluster.taints("n1")) == ("False", [])
    assert "labels" not in cluster.read("n2")["metadata"]


def test_a_silent_agent_leaves_the_taint_as_it_is(cluster: Cluster) -> None:
    cluster.add("n1")
    cluster.report("n1", 3)
    cluster.round()
    cycle.apply_facts(cluster.scheduler, [NodeSilent("n1")], 0.0)
    assert cluster.round() == 1
    assert (cluster.status("n1"), cluster.taints("n1")) == ("Unknown", [TAINT.key])
    cluster.report("n1")
    cluster.round()
    assert (cluster.status("n1"), cluster.taints("n1")) == ("False", [])


def test_what_somebody_removes_comes_back(cluster: Cluster) -> None:
    cluster.add("n1")
    cluster.report("n1", 3)
    cluster.round()
    meta = {"metadata": {"labels": {"nvidia.com/gpu.count": None}}, "spec": {"taints": []}}
    body = json.dumps(meta).encode()
    kind = "application/merge-patch+json"
    assert cluster.client.request("PATCH", f"{NODES}/n1", body, kind).ok
    cluster.watch()
    assert cluster.round() == 2
    assert cluster.taints("n1") == [TAINT.key]
    assert cluster.read("n1")["metadata"]["labels"]["nvidia.com/gpu.count"] == "8"
    cluster.clock.now = AGAIN_S
    assert cluster.round() == 1  # the condition, which no watch shows


def test_other_tools_have_other_words(client: Client) -> None:
    """AcceleratedHardwareReady is False in case of a problem."""
    options = MarkerOptions(condition=("AcceleratedHardwareReady", "False"))
    cluster = Cluster(client, options)
    cluster.add("n1")
    for sick, status in (((), "True"), ((1,), "False")):
        cluster.report("n1", *sick)
        cluster.round()
        (found,) = cluster.read("n1")["status"]["conditions"]
        assert (found["type"], found["status"]) == ("AcceleratedHardwareReady", status)
    assert "labels" not in cluster.read("n1")["metadata"]
    assert cluster.taints("n1") == []


def test_a_replica_that_does_not_lead_writes_nothing(cluster: Cluster) -> None:
    cluster.add("n1")
    cluster.report("n1")
    cluster.leads = False
    assert cluster.round() == 0
    assert "labels" not in cluster.read("n1")["metadata"]


def test_nodes_that_fail_leave_the_others_their_turn(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n0 to n3 are gone, and the scheduler has not heard of it."""
    monkeypatch.setattr(node_marker, "WRITES_MOST", 3)
    names = [f"n{number}" for number in range(8)]
    cluster.add(*names)
    for name in names:
        cluster.report(name)
    for name in names[:4]:
        assert cluster.client.request("DELETE", f"{NODES}/{name}").ok
    for _ in range(8):
        assert cluster.marker.check() <= 3
    for name in names[4:]:
        assert cluster.status(name) == "False"
        assert cluster.read(name)["metadata"]["labels"]["nvidia.com/gpu.count"] == "8"


def test_rounds_go_on_where_the_last_one_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, whatever the order in which the nodes came."""
    monkeypatch.setattr(node_marker, "WRITES_MOST", 2)
    cluster = Cluster(client, MarkerOptions(condition=("GpuUnhealthy", "True")))
    names = [f"n{number}" for number in (3, 0, 4, 1, 2)]
    for name in names:
        cluster.add(name)
    written: list[str] = []
    for sick in ((), (), (1,), (1,), (1,), (1,)):
        for name in names:
            cluster.report(name, *sick)
        before = {name: cluster.status(name) for name in names}
        assert cluster.round() <= 2
        written += [name for name in sorted(names) if cluster.status(name) != before[name]]
    # n4 has its first status in the third round, beside the second one of n0
    assert [sorted(written[at : at + 2]) for at in range(0, len(written), 2)] == [
        ["n0", "n1"],
        ["n2", "n3"],
        ["n0", "n4"],
        ["n1", "n2"],
        ["n3"],
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (MarkerOptions(), False),
        (MarkerOptions(labels=True), True),
        (MarkerOptions(condition=("a", "True")), True),
        (MarkerOptions(taint=TAINT), True),
    ],
)
def test_without_anything_to_mark_there_are_no_rounds(
    options: MarkerOptions, *, wanted: bool
) -> None:
    assert options.wanted is wanted


def test_the_thread_marks_until_it_is_stopped(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_marker, "EVERY_S", 0.01)
    cluster = Cluster(client, ALL)
    cluster.add("n1")
    cluster.report("n1")
    cluster.marker.start()
    wait_for(lambda: cluster.status("n1") == "False", "a round")
    cluster.marker.stop()
    cluster.marker._thread.join(20)
    assert not cluster.marker._thread.is_alive()


def test_a_node_that_is_gone_is_forgotten(cluster: Cluster) -> None:
    cluster.add("n1")
    cluster.report("n1")
    cluster.round()
    assert cluster.client.request("DELETE", f"{NODES}/n1").ok
    cycle.apply_facts(cluster.scheduler, [NodeGone("n1")], 0.0)
    assert cluster.marker.check() == 0
    cluster.add("n1")
    cluster.report("n1")
    assert cluster.round() == 2


def test_the_devices_of_agents_that_serve_claims_are_published(client: Client) -> None:
    cluster = Cluster(client, MarkerOptions())
    cluster.add("n1", "n2")
    cluster.report("n1", claims="beside")
    cluster.report("n2")
    assert cluster.round() == 1
    assert cluster.generations() == {"n1": 1}
    (made,) = cluster.slices.values()
    assert [each.name for each in made.devices] == [f"gpu-{n}" for n in range(8)]
    owner = client.get(f"{SLICES}/{made.name}")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == cluster.read("n1")["metadata"]["uid"]
    assert cluster.round() == 0

    cluster.report("n1", 3, claims="beside")
    assert cluster.round() == 1
    assert cluster.generations() == {"n1": 2}
    (made,) = cluster.slices.values()
    assert [each.name for each in made.devices if each.taints] == ["gpu-3"]
    assert cluster.round() == 0

    cycle.apply_facts(cluster.scheduler, [NodeSilent("n1")], 0.0)
    assert cluster.round() == 1
    assert cluster.generations() == {}
    assert cluster.round() == 0


def test_the_next_leader_waits_for_reports_before_it_withdraws_devices(client: Client) -> None:
    cluster = Cluster(client, MarkerOptions())
    cluster.add("n1", "n2")
    for name in ("n1", "n2"):
        cluster.report(name, claims="only")
    assert cluster.round() == 2
    other = Cluster(client, MarkerOptions())
    other.watch()
    assert other.round() == 0
    other.report("n1", 5, claims="only")
    assert other.round() == 1
    assert other.generations() == {"n1": 2, "n2": 1}
    other.clock.now += REPORTED_WITHIN_S
    assert other.round() == 1
    assert other.generations() == {"n1": 2}


def test_slices_of_others_stay(client: Client) -> None:
    cluster = Cluster(client, MarkerOptions())
    cluster.add("n1")
    cluster.report("n1", claims="beside")
    cluster.round()
    (made,) = cluster.slices.values()
    raw = client.get(f"{SLICES}/{made.name}")
    assert client.request("DELETE", f"{SLICES}/{made.name}").ok
    raw["spec"]["driver"] = "gpu.example.com"
    raw["metadata"] = {"name": made.name}
    assert client.request("POST", SLICES, json.dumps(raw).encode()).ok
    cluster.watch()
    cluster.round()
    assert [each.driver for each in cluster.slices.values()] == ["gpu.example.com"]


def test_what_somebody_deletes_or_edits_is_published_again(client: Client) -> None:
    cluster = Cluster(client, MarkerOptions())
    cluster.add("n1")
    cluster.report("n1", claims="beside")
    cluster.round()
    (name,) = cluster.slices
    assert client.request("DELETE", f"{SLICES}/{name}").ok
    cluster.watch()
    assert cluster.round() == 1
    assert cluster.generations() == {"n1": 1}
    raw = client.get(f"{SLICES}/{name}")
    del raw["spec"]["devices"][2]
    raw["spec"]["pool"]["generation"] = 7
    assert client.request("PUT", f"{SLICES}/{name}", json.dumps(raw).encode()).ok
    cluster.watch()
    assert cluster.round() == 1
    assert cluster.generations() == {"n1": 8}
    assert len(cluster.slices[name].devices) == 8


def test_taints_that_the_api_server_does_not_keep_are_not_written_in_each_round(
    client: Client,
) -> None:
    """As Kubernetes before 1.36 without the feature gate DRADeviceTaints."""
    cluster = Cluster(client, MarkerOptions())
    cluster.add("n1")
    cluster.report("n1", 3, claims="beside")

    def drop() -> None:
        for raw in client.get(SLICES)["items"]:
            for device in raw["spec"]["devices"]:
                device.pop("taints", None)
            path = f"{SLICES}/{raw['metadata']['name']}"
            assert client.request("PUT", path, json.dumps(raw).encode()).ok
        cluster.watch()

    cluster.round()
    drop()
    assert [cluster.round() for _ in range(3)] == [0, 0, 0]
    cluster.clock.now += AGAIN_S
    assert cluster.round() == 1
    drop()
    cluster.report("n1", 3, 4, claims="beside")
    assert cluster.round() == 1
