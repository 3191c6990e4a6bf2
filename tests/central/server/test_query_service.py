"""Users' queries over a real TLS socket."""

from collections.abc import Iterator, Sequence

import grpc
import pytest

from central.server.grpc.query_service import Explanation, Holder, NodeView, PodView
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import DeskStub
from protos.wire import from_topology
from tests.central.scheduler_process import SchedulerServer, auth, refusal, topology

USER = auth("user")


class CannedAnswers:
    levels = ("zone", "rack")
    troubles = ("HyperNode s1: member s0 does not exist",)

    def node_views(self, node: str) -> Sequence[NodeView]:
        holder = Holder("default", "p", 0b10, confirmed=True)
        views = [
            NodeView("n1", ("z", "r1"), topology(), (holder,), 2, 1),
            NodeView("n2", ("z", ""), trouble="no agent has reported"),
        ]
        return [view for view in views if node in ("", view.name)]

    def explain(self, namespace: str, name: str) -> Explanation | None:
        if name == "busy":
            raise TimeoutError
        if (namespace, name) != ("default", "g"):
            return None
        pods = (PodView("g-0", "n1", 0b11, phase="Running"), PodView("g-1"))
        return Explanation("default", "g", "Pending", "does not fit", pods, 2, "default", "rack r1")


@pytest.fixture
def desk() -> Iterator[DeskStub]:
    scheduler = SchedulerServer(CannedAnswers())
    with scheduler.channel() as channel:
        yield DeskStub(channel)
    scheduler.server.stop()


def test_every_node(desk: DeskStub) -> None:
    reply = desk.Topology(pb.TopologyQuery(), metadata=USER)
    first, second = reply.nodes
    assert list(reply.levels) == ["zone", "rack"]
    assert from_topology(first.topology) == topology()
    assert (first.gpus_allocatable, first.gpus_used, list(first.domains)) == (2, 1, ["z", "r1"])
    [holder] = first.holders
    assert (holder.pod, list(holder.gpus), holder.confirmed) == ("p", [1], True)
    assert not second.HasField("topology")
    assert second.trouble == "no agent has reported"


def test_one_node_or_none(desk: DeskStub) -> None:
    assert len(desk.Topology(pb.TopologyQuery(node="n2"), metadata=USER).nodes) == 1
    missing = refusal(lambda: desk.Topology(pb.TopologyQuery(node="n3"), metadata=USER))
    assert missing == (grpc.StatusCode.NOT_FOUND, 'node "n3" not found')


def test_explain(desk: DeskStub) -> None:
    reply = desk.Explain(pb.ExplainQuery(name="g"), metadata=USER)  # in default, as kubectl has it
    assert (reply.found, reply.phase, reply.reason) == (True, "Pending", "does not fit")
    assert (reply.min_member, reply.queue, reply.closest) == (2, "default", "rack r1")
    assert [(pod.name, pod.node, list(pod.gpus)) for pod in reply.pods] == [
        ("g-0", "n1", [0, 1]),
        ("g-1", "", []),
    ]
    unknown = desk.Explain(pb.ExplainQuery(namespace="x", name="g"), metadata=USER)
    assert (unknown.found, unknown.namespace, unknown.name) == (False, "x", "g")
    with pytest.raises(grpc.RpcError, match="name: must not be empty"):
        desk.Explain(pb.ExplainQuery(), metadata=USER)
    with pytest.raises(grpc.RpcError, match="busy; try again"):
        desk.Explain(pb.ExplainQuery(name="busy"), metadata=USER)


def test_unauthenticated_callers_get_no_answer(desk: DeskStub) -> None:
    for metadata in ((), auth("forged"), auth("expired")):
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            desk.Topology(pb.TopologyQuery(), metadata=metadata)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            desk.Explain(pb.ExplainQuery(name="g"), metadata=metadata)
