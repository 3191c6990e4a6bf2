"""Random pods with init containers, from the scheduler's plan to its books: the scheduler's core, a real agent and a
hollow kubelet, with real sockets between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeReported, PodGone, PodSeen
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.gpu_sharing import fold_shares
from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of
from tests.agent.resources.kubelet_reuse import Container, effective
from tests.agent.resources.test_init_containers import any_shapes
from tests.central import factories
from tests.central.kube.raw_objects import reader
from tests.central.scheduler.invariants import check_invariants
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box

PODS = 40


def manifest(name: str, pod: Sequence[Container], resource: str) -> Json:
    def made(each: Container) -> Json:
        limits = {resource: str(each.size)} if each.size else {}
        sidecar = {"restartPolicy": "Always"} if each.name[0] == "i" and not each.ends else {}
        return {"name": each.name, "resources": {"limits": limits}, **sidecar}

    inits = [made(each) for each in pod if each.name[0] == "i"]
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {
            "schedulerName": "lockstep",
            "initContainers": inits,
            "containers": [made(each) for each in pod if each.name[0] != "i"],
        },
    }


@dataclass(slots=True)
class Cluster:
    """One node. gpus: of each pod, as the kubelet's device manager has them."""

    box: NodeBox
    resource: str
    core: Scheduler = field(default_factory=lambda: new_scheduler(factories.LEVELS))
    pods: dict[str, PodSeen] = field(default_factory=dict)
    gpus: dict[str, set[int]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def tell(self, *facts: Fact) -> None:
        schedule_once(self.core, facts, float(next(self._numbers)))
        check_invariants(self.core)
        plans = self.core.state.planned_devices("n") if "n" in self.core.state.nodes else ()
        self.box.agent.node.set_intents(plans, next(self._numbers))

    def reports(self) -> None:
        """What the agent finds in a List of now."""
        assert self.box.agent._grants.refresh(60)  # the test's own
        state = self.box.agent.node.state
        grants = fold_shares(state.reported_grants())
        boot = self.box.agent.node.boot_id
        self.tell(NodeReported("n", boot, state.generation, state.topology, grants))

    def books(self) -> dict[str, set[int]]:
        return {
            uid: {gpu for gpu in range(8) if pod.gpus >> gpu & 1}
            for uid, pod in self.core.state.pods.items()
        }

    def _cgroup(self, uid: str) -> Path:
        folder = self.box.directory / "fs/cgroup/kubepods/burstable" / f"pod{uid}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "cgroup.events"

    def ends(self, uid: str) -> None:
        self._cgroup(uid).write_text("populated 0\n")
        self.box.kubelet.remove_pod(uid)
        del self.gpus[uid], self.pods[uid]
        self.tell(PodGone(uid))
        self.reports()

    def runs(self, random: Random, raw: Json) -> None:
        """Places the pod, for which others end at random, admits it and starts it."""
        pod = reader().pod(raw)
        self.tell(pod)
        while not self.core.state.pods[pod.uid].node:
            self.ends(random.choice(sorted(self.gpus)))
        self.tell(replace(pod, node="n"))
        planned = self.books()[pod.uid]
        admitted = self.box.kubelet.add_pod(raw)
        assert admitted.ok, admitted
        ids = {
            device_of(each)
            for container in admitted.containers
            for each in container.devices.get(self.resource, ())
        }
        assert {int(each[4:12]) for each in ids} == planned, raw
        self.gpus[pod.uid], self.pods[pod.uid] = planned, replace(pod, node="n", phase="Running")
        if random.random() < 0.5:
            self.reports()  # before its first process
            assert self.books() == self.gpus
        self._cgroup(pod.uid).write_text("populated 1\n")
        self.tell(self.pods[pod.uid])

    def restarts(self) -> None:
        """Agent and scheduler at once: no plan says whose the devices are."""
        offered = self.box.kubelet.allocatable[self.resource]
        self.box.agent.stop()
        eventually(lambda: not self.box.kubelet.allocatable[self.resource], 60)
        self.box.configure()
        self.box.agent.start()
        eventually(lambda: self.box.kubelet.allocatable[self.resource] == offered, 60)
        self.core = new_scheduler(factories.LEVELS)
        self.tell(factories.node("n", shares=self.resource == GPU_SHARE), *self.pods.values())


@pytest.mark.parametrize(("resource", "each"), [(GPU, 1), (GPU_SHARE, 12)])
def test_init_containers_get_their_pods_plan_and_are_in_the_books(resource: str, each: int) -> None:
    random = Random(3)
    with node_box() as box:
        box.configure(sysfs_root=box.directory, report_every_s=3600.0)
        box.start()
        cluster = Cluster(box, resource)
        cluster.tell(factories.node("n", shares=resource == GPU_SHARE))
        cluster.reports()
        for number, pod in enumerate(any_shapes(random, PODS)):
            sized = [replace(part, size=part.size * each) for part in pod]
            assert effective(sized) <= 100
            cluster.runs(random, manifest(f"p{number}", sized, resource))
            cluster.reports()
            assert cluster.books() == cluster.gpus
            if number % 10 == 9:
                cluster.restarts()
                cluster.reports()
                assert cluster.books() == cluster.gpus
