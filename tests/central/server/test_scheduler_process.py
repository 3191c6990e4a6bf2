"""The whole path without a cluster: API server in memory, hollow kubelets, real agents, the scheduler as a
process, and processes that are killed at work."""

from collections.abc import Iterator

import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from protos.names import BLOCK, GPU, RACK, RDMA
from protos.stubs import fleet_pb2 as pb
from tests.central.local_clusters import started
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_kubelet import HollowKubelet

pytestmark = pytest.mark.slow

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def running() -> Iterator[FaultyCluster]:
    nodes = [
        HollowNode(f"n{i}", {RACK: f"r{i // 2}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for i in range(4)
    ]
    with started(nodes) as made:
        made.wait("the agents", lambda: reported(made))
        yield made


@pytest.fixture
def box(running: FaultyCluster) -> Iterator[FaultyCluster]:
    """The cluster with all GPUs free. Each test names its gangs anew."""
    yield running
    for path in (PODS, GROUPS):
        for each in running.client.get(path)["items"]:
            running.client.request("DELETE", f"{path}/{each['metadata']['name']}")
    running.wait("all GPUs to be free", lambda: not held(running) and idle(running))


def idle(box: FaultyCluster) -> bool:
    reply = box.topology()
    return reply is not None and not any(node.holders for node in reply.nodes)


def reported(box: FaultyCluster) -> bool:
    reply = box.topology()
    return reply is not None and all(node.gpus_allocatable == 8 for node in reply.nodes)


def registered(kubelet: HollowKubelet) -> bool:
    return kubelet.allocatable.get(GPU) == 8


def submit(
    box: FaultyCluster, name: str, pods: int, gpus: int, rdma: int = 0, **limits_by_kind: str
) -> None:
    group = {"metadata": {"name": name}, "spec": {"minMember": pods}}
    box.create(GROUPS, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group})
    limits = {GPU: str(gpus), **({RDMA: str(rdma)} if rdma else {})}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    for rank in range(pods):
        annotations = {"scheduling.k8s.io/group-name": name}
        annotations |= {
            f"lockstep.dev/rdma-hca-{key}": value for key, value in limits_by_kind.items()
        }
        box.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{rank}", "annotations": annotations},
                "spec": {"schedulerName": "lockstep", "containers": [container]},
            },
        )


def confirmed(box: FaultyCluster, name: str) -> pb.ExplainReply | None:
    """The explanation, once pod-resources confirms every pod's GPUs."""
    explained = box.explain(name)
    if explained is None or not explained.pods or not all(pod.confirmed for pod in explained.pods):
        return None
    return explained


def held(box: FaultyCluster) -> dict[str, tuple[str, ...]]:
    """By pod, the GPUs that its kubelet has given it."""
    return {
        pod: resources[GPU]
        for kubelet in box.hollow.kubelets.values()
        for (_, pod, _), resources in kubelet.held().items()
        if resources.get(GPU)
    }


def assert_devices_match(box: FaultyCluster) -> None:
    truth = held(box)
    given = [uuid for uuids in truth.values() for uuid in uuids]
    assert len(set(given)) == len(given), "a GPU was given twice"
    reply = box.topology()
    assert reply is not None
    for node in reply.nodes:
        uuids = [gpu.uuid for gpu in node.topology.gpus]
        for holder in node.holders:
            assert holder.confirmed
            assert {uuids[i] for i in holder.gpus} == set(truth[holder.pod])


def test_every_pod_gets_its_planned_gpus(box: FaultyCluster) -> None:
    """Twelve equal pods on four nodes at once. Each kubelet admits them in its own order."""
    for number in range(6):
        submit(box, f"g{number}", 2, 2)
    for number in range(6):
        explained = box.wait("every pod's GPUs", lambda name=f"g{number}": confirmed(box, name))  # type: ignore[misc]  # the loop's own name
        assert "in one island of node" in explained.reason
        pairs = [tuple(pod.gpus) for pod in explained.pods]
        assert all(b == a + 1 and a % 2 == 0 for a, b in pairs), pairs
    assert_devices_match(box)


def test_every_pod_gets_the_nic_beside_its_gpu(box: FaultyCluster) -> None:
    submit(box, "ring", 16, 1, rdma=1)
    box.wait("ring's GPUs", lambda: confirmed(box, "ring"))
    reply = box.topology()
    assert reply is not None
    seen = {node.name: node.topology for node in reply.nodes}
    pods = 0
    for name, kubelet in box.hollow.kubelets.items():
        topology = seen[name]
        gpus = [gpu.uuid for gpu in topology.gpus]
        cards = [hca.name for hca in topology.hcas]
        for resources in kubelet.held().values():
            (uuid,), (share,) = resources[GPU], resources[RDMA]
            row = topology.links[gpus.index(uuid)].cells
            assert row[len(gpus) + cards.index(share.partition("::")[0])] == "PXB"
            pods += 1
    assert pods == 16
    reported = {use.pod: use.card for node in reply.nodes for use in node.cards}
    truth = {
        pod: resources[RDMA][0].partition("::")[0]
        for kubelet in box.hollow.kubelets.values()
        for (_, pod, _), resources in kubelet.held().items()
    }
    assert reported == truth
    explained = box.explain("ring")
    assert explained is not None
    assert {use.pod: use.card for use in explained.cards} == truth
    submit(box, "limits", 1, 1, rdma=1, handles="8")
    box.wait(
        "why",
        lambda: (explained := box.explain("limits")) and "sets no RDMA limits" in explained.reason,
    )


def test_a_killed_scheduler_loses_nothing_and_repeats_nothing(box: FaultyCluster) -> None:
    submit(box, "before", 4, 8)
    box.wait("the first gang", lambda: confirmed(box, "before"))
    submit(box, "waiting", 2, 8)
    before = held(box)
    box.kill_scheduler()
    submit(box, "meanwhile", 2, 8)
    box.start_scheduler()
    box.wait("the centre", box.topology)
    waiting = box.wait("its sentence", lambda: pending(box, "waiting"))
    assert waiting.reason.startswith("needs 2 pods x 8 GPUs; the cluster fits 0")
    assert held(box) == before
    for rank in range(4):
        box.client.request("DELETE", f"{PODS}/before-{rank}")
    for name in ("waiting", "meanwhile"):
        box.wait(f"gang {name}", lambda name=name: confirmed(box, name))  # type: ignore[misc]  # the loop's own name
    assert_devices_match(box)


def pending(box: FaultyCluster, name: str) -> pb.ExplainReply | None:
    explained = box.explain(name)
    return (
        explained
        if explained is not None and explained.phase == "Pending" and "fits" in explained.reason
        else None
    )


def test_a_node_that_registers_again_has_its_gpus(box: FaultyCluster) -> None:
    """Its agent runs on and has nothing new to report, so it is asked for a full report."""
    node = box.client.request("GET", "/api/v1/nodes/n0").json()
    box.client.request("DELETE", "/api/v1/nodes/n0")
    box.wait("its end", lambda: (reply := box.topology()) and len(reply.nodes) == 3)
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        node["metadata"].pop(key, None)
    box.create("/api/v1/nodes", node)
    box.wait("its topology", lambda: (reply := box.topology()) and known(reply) == 4)
    submit(box, "wide", 4, 8)
    box.wait("a gang on all nodes", lambda: confirmed(box, "wide"))
    assert_devices_match(box)


def known(reply: pb.TopologyReply) -> int:
    return sum(node.gpus_allocatable == 8 == len(node.topology.gpus) for node in reply.nodes)


def test_restarts_of_kubelets_and_agents_keep_devices(box: FaultyCluster) -> None:
    submit(box, "steady", 4, 2)
    box.wait("the gang", lambda: confirmed(box, "steady"))
    before = held(box)
    for name, kubelet in box.hollow.kubelets.items():
        kubelet.restart()
        box.hollow.agents[name].stop()
        box.hollow.agents[name].start()
    box.wait("the plugins", lambda: all(registered(k) for k in box.hollow.kubelets.values()))
    submit(box, "after", 3, 6)
    box.wait("a gang on the rest", lambda: confirmed(box, "after"))
    now = held(box)
    assert {pod: gpus for pod, gpus in now.items() if pod in before} == before
    assert_devices_match(box)
