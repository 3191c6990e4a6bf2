"""Pods on the kubelet's own managers of 1.37: plans beside another client of pod-resources, and init containers from
the scheduler's plan to its books. A real agent process and the scheduler's core, real sockets."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random

import grpc
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeReported, PodGone, PodSeen
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.standalone.hollow_kubelet import KubeletPod
from protos import wire
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of
from protos.stubs import podresources_pb2 as pb
from protos.stubs import podresources_pb2_grpc as rpc
from protos.topology import Grant, NodeTopology, indices_of
from tests.agent.resources.test_init_books import manifest
from tests.agent.resources.test_init_containers import any_shapes
from tests.central import factories
from tests.central.kube.raw_objects import reader
from tests.e2e.test_kubelet_managers import Node, node
from tests.fakes.eventually import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

PODS = int(os.environ.get("INIT_PODS", "40"))


@contextmanager
def neighbour(socket: Path, per_s: float) -> Iterator[list[int]]:
    """Another client of the node, which calls List so often: answered and rejected calls."""
    stop, calls = threading.Event(), [0, 0]

    def ended(call: "grpc.Future[pb.ListPodResourcesResponse]") -> None:
        calls[call.exception() is not None] += 1

    def run() -> None:
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{socket}", options) as channel:
            stub = rpc.PodResourcesListerStub(channel)
            due = time.monotonic()
            while not stop.is_set():
                stub.List.future(pb.ListPodResourcesRequest()).add_done_callback(ended)
                due += 1 / per_s
                stop.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.parametrize("per_s", [200, 1000])
def test_plans_are_kept_beside_a_busy_client_of_pod_resources(per_s: int) -> None:
    order = Random(7)
    plans = [sorted(order.sample(range(8), order.randint(1, 4))) for _ in range(37)]
    with node() as here, here.agent():
        socket = here.folder / "pod-resources/kubelet.sock"
        with neighbour(socket, per_s) as calls:
            eventually(lambda: calls[1] > 20)
            found = [(plan, here.admit(plan)) for plan in plans]
    assert [here.has(admitted) for _, admitted in found if admitted.ok] == plans


@dataclass(slots=True)
class Cluster:
    """The node in the scheduler's core. gpus: of each pod, as the kubelet has them."""

    here: Node
    resource: str
    core: Scheduler = field(default_factory=lambda: new_scheduler(factories.LEVELS))
    gpus: dict[str, set[int]] = field(default_factory=dict)
    topology: NodeTopology = field(default_factory=NodeTopology)
    heard: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def tell(self, *facts: Fact) -> None:
        schedule_once(self.core, facts, float(next(self._numbers)))

    def hear(self) -> None:
        """What the agent has reported since."""
        for each in self.here.fleet.reports[self.heard :]:
            self.heard += 1
            if each.heartbeat:
                continue
            if each.HasField("topology"):
                self.topology = wire.from_topology(each.topology)
            grants = wire.from_grants(each.grants)
            self.tell(NodeReported("n", each.boot_id, each.generation, self.topology, grants))

    def books(self) -> dict[str, set[int]]:
        self.hear()
        return {uid: set(indices_of(pod.gpus)) for uid, pod in self.core.state.pods.items()}

    def plan(self) -> None:
        version = self.here.fleet.plan(*self.core.state.planned_devices("n"))
        eventually(lambda: set(self.here.fleet.seen.values()) == {version})

    def _cgroup(self, uid: str) -> Path:
        folder = self.here.hardware.sysfs / "fs/cgroup/kubepods/burstable" / f"pod{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "cgroup.events"

    def ends(self, uid: str) -> None:
        self.here.kubelet.remove(uid)
        self._cgroup(uid).write_text("populated 0\n")
        names = {uid, self.core.state.pods[uid].seen.name}
        eventually(lambda: names.isdisjoint(each.pod for each in self._last()))
        del self.gpus[uid]
        self.tell(PodGone(uid))
        self.hear()

    def _last(self) -> tuple[Grant, ...]:
        reports = [each for each in self.here.fleet.reports if not each.heartbeat]
        return wire.from_grants(reports[-1].grants)

    def runs(self, random: Random, raw: Json) -> None:
        """Places the pod, for which others end at random, admits it and starts it."""
        pod: PodSeen = reader().pod(raw)
        self.tell(pod)
        while not self.core.state.pods[pod.uid].node:
            self.ends(random.choice(sorted(self.gpus)))
            self.tell()
        self.tell(replace(pod, node="n"))
        self.plan()
        planned = self.books()[pod.uid]
        admitted = self.here.kubelet.admit(KubeletPod.from_object(raw))
        assert admitted.ok, admitted
        held = [ids for each in admitted.devices.values() for ids in each.get(self.resource, [])]
        gpus = {self.here.uuids.index(device_of(each)) for each in held}
        assert gpus == planned, raw
        self.gpus[pod.uid] = gpus
        self._cgroup(pod.uid).write_text("populated 1\n")
        self.tell(replace(pod, node="n", phase="Running"))
        eventually(lambda: self.books() == self.gpus and self.core.state.pods[pod.uid].observed)


@pytest.mark.parametrize(
    ("resource", "each"), [(GPU, 1), pytest.param(GPU_SHARE, 12, marks=pytest.mark.nightly)]
)
def test_init_containers_get_their_pods_plan_and_are_in_the_books(resource: str, each: int) -> None:
    random = Random(5)
    with node() as here, here.agent("--report-every=0.5"):
        cluster = Cluster(here, resource)
        eventually(lambda: bool(here.fleet.reports))
        cluster.tell(factories.node("n", shares=resource == GPU_SHARE))
        cluster.hear()
        for number, pod in enumerate(any_shapes(random, PODS)):
            sized = [replace(part, size=part.size * each) for part in pod]
            cluster.runs(random, manifest(f"p{number}", sized, resource))
