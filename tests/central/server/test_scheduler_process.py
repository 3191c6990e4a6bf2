"""The whole path without a cluster: API in memory, hollow kubelets, real agents, the centre as a
process of its own; and processes that are killed in the middle."""

import tempfile
from collections.abc import Iterator

import pytest

from central.standalone.hollow_kubelet import HollowKubelet
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, LocalCluster
from protos.names import BLOCK, GPU, RACK, RDMA
from protos.stubs import fleet_pb2 as pb

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    nodes = [
        HollowNode(f"n{i}", {RACK: f"r{i // 2}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for i in range(4)
    ]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    with LocalCluster(nodes) as made:
        made.start_api()
        made.start_centre()
        made.start_nodes()
        made.centre_ready()
        made.start_agents()
        made.wait("the agents", lambda: reported(made))
        yield made


def reported(box: LocalCluster) -> bool:
    reply = box.topology()
    return reply is not None and all(node.gpus_allocatable == 8 for node in reply.nodes)


def registered(kubelet: HollowKubelet) -> bool:
    return kubelet.allocatable.get(GPU) == 8


def submit(
    box: LocalCluster, name: str, pods: int, gpus: int, rdma: int = 0, **wishes: str
) -> None:
    group = {"metadata": {"name": name}, "spec": {"minMember": pods}}
    box.create(GROUPS, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group})
    limits = {GPU: str(gpus), **({RDMA: str(rdma)} if rdma else {})}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    for rank in range(pods):
        annotations = {"scheduling.k8s.io/group-name": name}
        annotations |= {f"lockstep.dev/rdma-hca-{key}": value for key, value in wishes.items()}
        box.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{rank}", "annotations": annotations},
                "spec": {"schedulerName": "lockstep", "containers": [container]},
            },
        )


def confirmed(box: LocalCluster, name: str) -> pb.ExplainReply | None:
    """The explanation, once pod-resources has confirmed every pod's GPUs."""
    told = box.explain(name)
    if told is None or not told.pods or not all(pod.confirmed for pod in told.pods):
        return None
    return told


def held(box: LocalCluster) -> dict[str, tuple[str, ...]]:
    """By pod, what its kubelet says it holds: the truth."""
    return {
        pod: resources[GPU]
        for kubelet in box.hollow.kubelets.values()
        for (_, pod, _), resources in kubelet.held().items()
        if resources.get(GPU)
    }


def assert_books_are_true(box: LocalCluster) -> None:
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


def test_every_pod_gets_the_gpus_that_were_chosen_for_it(box: LocalCluster) -> None:
    """Twelve equal pods on four machines at once: each kubelet admits them in an order of its own."""
    for number in range(6):
        submit(box, f"g{number}", 2, 2)
    for number in range(6):
        told = box.wait("every pod's GPUs", lambda name=f"g{number}": confirmed(box, name))  # type: ignore[misc]  # the loop's own name
        assert "in one island of node" in told.reason
        pairs = [tuple(pod.gpus) for pod in told.pods]
        assert all(b == a + 1 and a % 2 == 0 for a, b in pairs), pairs
    assert_books_are_true(box)


def test_every_pod_gets_the_network_card_beside_its_gpu(box: LocalCluster) -> None:
    submit(box, "ring", 16, 1, rdma=1)
    box.wait("ring's GPUs", lambda: confirmed(box, "ring"))
    reply = box.topology()
    assert reply is not None
    seen = {node.name: node.topology for node in reply.nodes}
    found = 0
    for name, kubelet in box.hollow.kubelets.items():
        topology = seen[name]
        gpus = [gpu.uuid for gpu in topology.gpus]
        cards = [hca.name for hca in topology.hcas]
        for resources in kubelet.held().values():
            (uuid,), (share,) = resources[GPU], resources[RDMA]
            row = topology.links[gpus.index(uuid)].cells
            assert row[len(gpus) + cards.index(share.partition("::")[0])] == "PXB"
            found += 1
    assert found == 16
    told = {use.pod: use.card for node in reply.nodes for use in node.cards}
    truth = {
        pod: resources[RDMA][0].partition("::")[0]
        for kubelet in box.hollow.kubelets.values()
        for (_, pod, _), resources in kubelet.held().items()
    }
    assert told == truth
    explained = box.explain("ring")
    assert explained is not None
    assert {use.pod: use.card for use in explained.cards} == truth
    submit(box, "wish", 1, 1, rdma=1, handles="8")
    box.wait("why", lambda: (told := box.explain("wish")) and "sets no RDMA limits" in told.reason)


def test_a_centre_that_is_killed_loses_nothing_and_repeats_nothing(box: LocalCluster) -> None:
    submit(box, "before", 4, 8)
    box.wait("the first gang", lambda: confirmed(box, "before"))
    submit(box, "waiting", 2, 8)
    before = held(box)
    box.kill_centre()
    submit(box, "meanwhile", 2, 8)
    box.start_centre()
    box.wait("the centre", box.topology)
    waiting = box.wait("its sentence", lambda: pending(box, "waiting"))
    assert waiting.reason.startswith("needs 2 pods x 8 GPUs at once; the cluster has room for 0")
    assert held(box) == before
    for rank in range(4):
        box.client.request("DELETE", f"{PODS}/before-{rank}")
    for name in ("waiting", "meanwhile"):
        box.wait(f"gang {name}", lambda name=name: confirmed(box, name))  # type: ignore[misc]  # the loop's own name
    assert_books_are_true(box)


def pending(box: LocalCluster, name: str) -> pb.ExplainReply | None:
    told = box.explain(name)
    return told if told is not None and told.phase == "Pending" and "room" in told.reason else None


def test_a_node_that_is_deleted_and_registers_again_has_its_gpus(box: LocalCluster) -> None:
    """Its agent lives on and has nothing new to tell: it is asked."""
    node = box.client.request("GET", "/api/v1/nodes/n0").json()
    box.client.request("DELETE", "/api/v1/nodes/n0")
    box.wait("its end", lambda: (reply := box.topology()) and len(reply.nodes) == 3)
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        node["metadata"].pop(key, None)
    box.create("/api/v1/nodes", node)
    box.wait("its topology", lambda: (reply := box.topology()) and known(reply) == 4)
    submit(box, "wide", 4, 8)
    box.wait("a gang on all nodes", lambda: confirmed(box, "wide"))
    assert_books_are_true(box)


def known(reply: pb.TopologyReply) -> int:
    return sum(node.gpus_allocatable == 8 == len(node.topology.gpus) for node in reply.nodes)


def test_a_kubelet_and_an_agent_that_start_again_keep_what_is_given(box: LocalCluster) -> None:
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
    assert_books_are_true(box)
