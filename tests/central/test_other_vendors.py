"""GPUs of other device plugins: a plugin's socket, the scheduler and each view of one moment."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from central.cli.jobs import job_table
from central.controllers.composite import new_scheduler
from central.kube.decode import pod_annotations
from central.kube.decode.fields import FieldError
from central.model.facts import Fact, NodeSeen, PodSeen, QueueSeen
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU, GPU_MODEL, OTHER_GPUS, RACK
from tests.central import factories
from tests.central.server.stats.every_view import EveryView, Written
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.machines import machine
from tests.fakes.nodebox import NodeBox
from tests.fakes.nodebox import pod as whole_gpus
from tests.fakes.plugin import Plugin

AMD = "amd.com/gpu"
MODEL = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}


@pytest.fixture
def kubelet() -> Iterator[HollowKubelet]:
    with tempfile.TemporaryDirectory(prefix="ls-") as name, HollowKubelet(Path(name)) as made:
        yield made


def plugin_of(resource: str, kubelet: HollowKubelet) -> Plugin:
    made = Plugin(8)
    made.resource, made.endpoint = resource, "vendor.sock"
    made.serve(kubelet)
    eventually(lambda: kubelet.allocatable.get(resource) == 8)
    return made


def node(name: str, kubelet: HollowKubelet, rack: str) -> NodeSeen:
    plain = factories.node(name, gpus=0, rack=rack, labels=MODEL)
    return replace(plain, allocatable={**plain.allocatable, **kubelet.allocatable})


def pod(name: str, resource: str, count: int, **other: object) -> PodSeen:
    plain = factories.pod(name, **other)  # type: ignore[arg-type]  # a test's shorthand
    requests = tuple(sorted({**dict(plain.spec.requests), resource: count}.items()))
    return replace(plain, spec=replace(plain.spec, requests=requests))


def admitted(seen: PodSeen, resource: str, kubelet: HollowKubelet) -> int:
    """The number of devices that its container gets."""
    count = dict(seen.spec.requests)[resource]
    kubelet.add_pod(
        KubeletPod(seen.uid, "ns", seen.name, (Container("main", ((resource, count),)),))
    )
    return len(kubelet.held()["ns", seen.name, "main"][resource])


@pytest.mark.parametrize("resource", sorted(OTHER_GPUS))
def test_a_gang_on_another_vendors_gpus(resource: str, kubelet: HollowKubelet) -> None:
    """It is placed in one rack, counted in each view and against its queue, and its kubelet has the devices."""
    plugin = plugin_of(resource, kubelet)
    scheduler, written = new_scheduler(factories.LEVELS), Written()
    members = [pod(f"g-{at}", resource, 4, gang="g") for at in range(2)]
    facts: list[Fact] = [
        QueueSeen("default", uid="d", capability=((GPU, 12),)),
        node("far", kubelet, "r1"),
        node("near", kubelet, "r2"),
        pod("held", resource, 8, node="far", phase="Running", ours=False),
        factories.gang("g", 2, topology_required=RACK),
        *members,
        *(pod(f"late-{at}", resource, 3, gang="late") for at in range(2)),
        factories.gang("late", 2),
    ]
    written.cycle(scheduler, facts, 10.0)
    assert {scheduler.state.pods[each.uid].node for each in members} == {"near"}
    assert [admitted(each, resource, kubelet) for each in members] == [4, 4]
    written.settle(scheduler, 20.0)
    views = EveryView(scheduler, written)
    assert set(views.gpus().values()) == {(16, 16, 0)}
    assert {*views.of_queue("default").values()} == {(8, 1, 1)}
    (late,) = [row for row in views.pending if row["gang"] == "late"]
    assert "queue default uses 8 of its capability of 12 GPUs; 6 more are needed" in late["reason"]
    (shown,) = [view for view in views.topology.nodes if view.name == "near"]
    assert ([each.pod for each in shown.holders], shown.trouble) == (["g-0", "g-1"], "")
    assert views.survey.nodes["near"].model == MODEL["amd.com/gpu.product-name"]
    plugin.stop()


def test_devices_that_the_plugin_withdraws_are_missing_by_name(kubelet: HollowKubelet) -> None:
    plugin = plugin_of(AMD, kubelet)
    plugin.change(0, 1)
    eventually(lambda: kubelet.allocatable[AMD] == 6)
    scheduler, written = new_scheduler(factories.LEVELS), Written()
    written.cycle(scheduler, [node("n", kubelet, "r1"), pod("p", AMD, 8)], 10.0)
    written.settle(scheduler, 20.0)
    (waiting,) = EveryView(scheduler, written).pending
    assert "can never start" in waiting["reason"]
    assert AMD in waiting["reason"]
    plugin.stop()


def test_both_vendors_on_one_node() -> None:
    """The agent's GPUs come from its report, the others from the kubelet."""
    with (
        tempfile.TemporaryDirectory(prefix="ls-") as name,
        HollowKubelet(Path(name)) as kubelet,
        ExitStack() as ended,
    ):
        box = NodeBox(Path(name), machine(4), kubelet)
        ended.callback(box.agent.stop)
        box.start()
        ended.callback(plugin_of(AMD, kubelet).stop)
        kubelet.add_pod(whole_gpus("mine", 2))
        scheduler, written = new_scheduler(factories.LEVELS), Written()
        facts: list[Fact] = [
            node("n", kubelet, "r1"),
            factories.report("n", factories.topology(4)),
            factories.pod("mine", 2, node="n", phase="Running"),
            pod("theirs", AMD, 3),
        ]
        written.cycle(scheduler, facts, 10.0)
        written.settle(scheduler, 20.0)
        assert admitted(pod("theirs", AMD, 3), AMD, kubelet) == 3
        assert set(EveryView(scheduler, written).gpus().values()) == {(12, 5, 7)}


def test_job_list_counts_them() -> None:
    limits = {AMD: "4", "lockstep.dev/gpu-share": "50"}
    containers = [{"name": "m", "resources": {"limits": {key: limits[key]}}} for key in limits]
    task = {"replicas": 3, "template": {"spec": {"containers": containers}}}
    assert job_table.gpus({"spec": {"tasks": [task]}}) == "13.5"


@pytest.mark.parametrize(("resource", "fits"), [(AMD, True), ("example.com/fpga", False)])
def test_their_models_can_be_asked_for(resource: str, fits: bool) -> None:
    spec = pod("p", resource, 1).spec
    if not fits:
        with pytest.raises(FieldError, match="no container asks for GPUs"):
            pod_annotations._gpu_model({GPU_MODEL: "MI300X"}, spec)
        return
    asked = pod_annotations._gpu_model({GPU_MODEL: "MI300X"}, spec)
    scheduler, written = new_scheduler(factories.LEVELS), Written()
    nodes = [factories.node(name, gpus=0, labels=labels) for name, labels in NODES.items()]
    offered = [replace(one, allocatable={**one.allocatable, AMD: 8}) for one in nodes]
    written.cycle(scheduler, [*offered, replace(pod("p", AMD, 1), spec=asked)], 10.0)
    assert scheduler.state.pods["uid-p"].node == "mi300x"


NODES = {
    "mi210": {"amd.com/gpu.product-name": "AMD_Instinct_MI210"},
    "mi300x": MODEL,
    "unlabelled": {},
}
