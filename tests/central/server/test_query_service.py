"""Users' queries over a real TLS socket."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import grpc
import pytest

from central.kube.transport.access_review import AccessUnknown
from central.model.gpu_count import GpuCount
from central.model.identity import Identity
from central.model.json_types import Json
from central.server.grpc.query_service import Explanation, NodeView
from central.server.grpc.visibility import Viewer
from protos.common.http_server import RequestRefused
from protos.names import GPU
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import DeskStub
from protos.topology import RdmaLimit, RdmaUse
from protos.wire import from_topology
from tests.central.scheduler_process import SchedulerServer, auth, refusal, topology
from tests.fakes.eventually import eventually

USER = auth("user")


class Rights:
    """may: who may get what in which namespace; "" for a resource without one, or for all namespaces."""

    def __init__(self, *may: tuple[str, str, str]) -> None:
        self.given = set(may)
        self.asked = 0
        self.away = False

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        assert verb == "get"
        self.asked += 1
        if self.away:
            raise AccessUnknown("the API server is unreachable")
        return (identity.user, resource, namespace) in self.given


def queue_row(name: str, gpus: float, **gangs: int) -> Json:
    nothing = dict.fromkeys(("deserved", "guarantee", "capability"), Json())
    row = {"name": name, "parent": "", "weight": 1, "state": "Open", "used": {GPU: gpus}}
    return {**row, **nothing, "gangs": gangs}


WAITS: Json = {
    "namespace": "team", "gang": "waits-7", "name": "job/waits", "queue": "research", "place": 1, "cause": "capacity",
    "reason": "needs 3 GPUs", "minimum": 3, "created": 1000.0,
}  # fmt: skip
PAGES: Json = {
    "/api/jobs": {"rows": [], "size": 0, "next": None},
    "/api/overview": {"pending": {"gangs": 1, "hidden": 2}, "may": {"nodes": True, "queues": True}},
    "/api/pending": {"rows": [WAITS], "next": None},
    "/api/queues": {
        "rows": [queue_row("default", 4.5, running=2), queue_row("research", 2.0, inqueue=1)],
        "next": None,
    },
}


class CannedAnswers:
    levels = ("zone", "rack")
    troubles = ("HyperNode s1: member s0 does not exist",)

    def node_views(self, node: str) -> Sequence[NodeView]:
        holder = pb.Holder(namespace="default", pod="p", gpus=[1], confirmed=True)
        others = [
            pb.Holder(namespace="team-b", pod="secret-b", gpus=[0], confirmed=True),
            pb.Holder(namespace="team-c", pod="secret-c", gpus=[2]),
        ]
        cards = [
            RdmaUse(space, pod, "mlx5_0", RdmaLimit(), RdmaLimit())
            for space, pod in (("default", "p"), ("team-b", "secret-b"))
        ]
        views = [
            NodeView(
                "n1",
                ("z", "r1"),
                topology(),
                (holder, *others),
                2,
                GpuCount(2, 1, 1),
                cards=tuple(cards),
            ),
            NodeView("n2", ("z", ""), trouble="no agent has reported"),
        ]
        return [view for view in views if node in ("", view.name)]

    def explain(self, namespace: str, name: str) -> Explanation | None:
        if name == "busy":
            raise TimeoutError
        if name == "held":
            why = "does not fit; reserved for job team-b/secret, team-c/hidden; nvidia.com/gpu"
            known = frozenset(("default", "team-b", "team-c"))
            near = "closest to team-b/secret"
            return Explanation(namespace, name, "Pending", why, closest=near, namespaces=known)
        if (namespace, name) != ("default", "g"):
            return None
        pods = (
            pb.PodView(name="g-0", node="n1", gpus=[0, 1], phase="Running"),
            pb.PodView(name="g-1"),
        )
        return Explanation("default", "g", "Pending", "does not fit", pods, 2, "default", "rack r1")

    def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
        """Of the console's data."""
        if not viewer.sees_queues():
            raise RequestRefused(403, "you may not get queues")
        if path not in PAGES:
            raise RequestRefused(404, f"there is no {path}")
        found: Json = PAGES[path]
        return found

    def queue_tenants(self, name: str) -> tuple[pb.QueueReply, list[str]]:
        if name != "research":
            return pb.QueueReply(found=False), []
        unnamed = "namespace team-b (pods without a user)"
        tenants = [
            ("default", False, "default", 2, 12.0),
            ("", True, "jane", 1, 8.0),
            ("team-b", False, "team-b", 1, 2.5),
            ("", True, "bob", 1, 2.0),
            ("team-b", True, unnamed, 1, 0.5),
        ]
        reply = pb.QueueReply(
            found=True,
            per_namespace=pb.TenantLimit(running_gangs=4, resources={GPU: 16.0}),
            per_user=pb.TenantLimit(resources={GPU: 8.0}),
            tenants=[
                pb.TenantUsage(is_user=user, name=n, running_gangs=gangs, resources={GPU: gpus})
                for _, user, n, gangs, gpus in tenants
            ],
        )
        return reply, [namespace for namespace, *_ in tenants]


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
    assert (first.gpus_allocatable, list(first.domains)) == (2, ["z", "r1"])
    assert (first.count.gpus, first.count.used, first.count.free) == (2, 1.0, 1.0)
    holder, *_ = first.holders
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


def test_pages_of_the_console(desk: DeskStub) -> None:
    reply = desk.Page(pb.PageQuery(path="/api/pending"), metadata=USER)
    assert json.loads(reply.json)["rows"] == [WAITS]
    code, why = refusal(lambda: desk.Page(pb.PageQuery(path="/api/none"), metadata=USER))
    assert (code, why) == (grpc.StatusCode.NOT_FOUND, "there is no /api/none")
    with asked_by(Rights()) as other:
        code, why = refusal(lambda: other.Page(pb.PageQuery(path="/api/pending"), metadata=USER))
        assert (code, why) == (grpc.StatusCode.PERMISSION_DENIED, "you may not get queues")


def test_unauthenticated_callers_get_no_answer(desk: DeskStub) -> None:
    for metadata in ((), auth("forged"), auth("expired")):
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            desk.Topology(pb.TopologyQuery(), metadata=metadata)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            desk.Explain(pb.ExplainQuery(name="g"), metadata=metadata)


@contextmanager
def asked_by(rights: Rights) -> Iterator[DeskStub]:
    scheduler = SchedulerServer(CannedAnswers(), access=rights)
    try:
        with scheduler.channel() as channel:
            yield DeskStub(channel)
    finally:
        scheduler.server.stop()


def test_nodes_are_for_those_who_may_get_nodes() -> None:
    with asked_by(Rights(("jane", "pods", ""))) as desk:
        for node in ("", "n1", "unknown"):
            asked = pb.TopologyQuery(node=node)
            code, why = refusal(lambda asked=asked: desk.Topology(asked, metadata=USER))  # type: ignore[misc]  # the loop's own query
            assert (code, why) == (grpc.StatusCode.PERMISSION_DENIED, "you may not get nodes")


@pytest.mark.parametrize(
    ("rights", "shown"),
    [
        ([], []),
        ([("jane", "pods", "default")], ["p"]),
        ([("jane", "podgroups.scheduling.volcano.sh", "team-b")], ["secret-b"]),
        ([("jane", "jobs.batch.volcano.sh", "team-c"), ("bob", "pods", "team-b")], ["secret-c"]),
        ([("jane", "pods", "")], ["p", "secret-b", "secret-c"]),
    ],
)
def test_pods_of_other_namespaces_are_only_counted(
    rights: list[tuple[str, str, str]], shown: list[str]
) -> None:
    with asked_by(Rights(("jane", "nodes", ""), *rights)) as desk:
        node, other = desk.Topology(pb.TopologyQuery(), metadata=USER).nodes
    assert [holder.pod for holder in node.holders] == shown
    assert node.hidden_holders == 3 - len(shown)
    assert {use.pod for use in node.cards} == set(shown) & {"p", "secret-b"}
    assert other.hidden_holders == 0
    names = {"p", "secret-b", "secret-c"} - set(shown) - {"p"}
    assert not any(name.encode() in node.SerializeToString() for name in names)


def test_gangs_are_for_those_who_may_get_something_of_the_namespace() -> None:
    with asked_by(Rights(("jane", "jobs.batch.volcano.sh", "default"))) as desk:
        assert desk.Explain(pb.ExplainQuery(name="g"), metadata=USER).found
        for name in ("g", "held", "unknown"):  # whether it exists is not said either
            asked = pb.ExplainQuery(namespace="team-b", name=name)
            code, why = refusal(lambda asked=asked: desk.Explain(asked, metadata=USER))  # type: ignore[misc]  # the loop's own query
            assert code == grpc.StatusCode.PERMISSION_DENIED
            assert why == 'you may get neither pods nor podgroups nor jobs in namespace "team-b"'


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ([], "reserved for another namespace; nvidia.com/gpu"),
        (["team-c"], "reserved for another namespace, team-c/hidden; nvidia.com/gpu"),
        (["team-b", "team-c"], "reserved for job team-b/secret, team-c/hidden; nvidia.com/gpu"),
    ],
)
def test_sentences_name_no_gang_that_the_asker_may_not_see(more: list[str], shown: str) -> None:
    rights = [("jane", "pods", namespace) for namespace in ("default", *more)]
    with asked_by(Rights(*rights)) as desk:
        reply = desk.Explain(pb.ExplainQuery(name="held"), metadata=USER)
    assert reply.reason == f"does not fit; {shown}"
    assert ("team-b/secret" in reply.closest) == ("team-b" in more)


def test_no_answer_of_the_api_server_is_no_permission() -> None:
    rights = Rights(("jane", "nodes", ""), ("jane", "pods", ""))
    rights.away = True
    with asked_by(rights) as desk:
        for ask in (
            lambda: desk.Topology(pb.TopologyQuery(), metadata=USER),
            lambda: desk.Explain(pb.ExplainQuery(name="g"), metadata=USER),
        ):
            assert refusal(ask)[0] == grpc.StatusCode.UNAVAILABLE


def test_tenants_of_a_queue() -> None:
    """Jane sees namespace default and herself, not others."""
    for rights, seen in (
        (("jane", "queues.scheduling.volcano.sh", ""), ["jane"]),
        (("jane", "pods", "default"), ["default", "jane"]),
        (("jane", "pods", ""), ["default", "jane", "team-b", "bob"]),
    ):
        may = Rights(("jane", "queues.scheduling.volcano.sh", ""), rights)
        scheduler = SchedulerServer(CannedAnswers(), access=may)
        with scheduler.channel() as channel:
            reply = DeskStub(channel).Queue(pb.QueueQuery(name="research"), metadata=USER)
        scheduler.server.stop()
        assert [each.name for each in reply.tenants][: len(seen)] == seen
        assert len(reply.tenants) + reply.hidden_tenants == 5
        assert reply.hidden_tenants == 5 - len(seen) - (len(seen) == 4)
    assert (reply.per_namespace.running_gangs, reply.per_user.resources[GPU]) == (4, 8.0)
    assert not reply.per_user.HasField("running_gangs")


def test_queues_are_for_those_who_may_get_them(desk: DeskStub) -> None:
    assert not desk.Queue(pb.QueueQuery(name="nothing"), metadata=USER).found
    scheduler = SchedulerServer(CannedAnswers(), access=Rights())
    with scheduler.channel() as channel:
        asked = DeskStub(channel)
        why = refusal(lambda: asked.Queue(pb.QueueQuery(name="research"), metadata=USER))
    scheduler.server.stop()
    assert why[0] == grpc.StatusCode.PERMISSION_DENIED
    assert "you may not get queues" in why[1]


def test_questions_are_bounded() -> None:
    """Of one user: others get their answers meanwhile."""

    class Slow(CannedAnswers):
        gate = threading.Event()

        def node_views(self, node: str) -> Sequence[NodeView]:
            self.gate.wait(20)
            return ()

    scheduler = SchedulerServer(Slow())
    try:
        with scheduler.channel() as channel:
            desk = DeskStub(channel)
            asked = [desk.Topology.future(pb.TopologyQuery(), metadata=USER) for _ in range(12)]
            eventually(lambda: sum(each.done() for each in asked) == 8)
            codes = {each.code() for each in asked if each.done()}
            assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            Slow.gate.set()
            assert [each.code() for each in asked].count(grpc.StatusCode.OK) == 4
    finally:
        Slow.gate.set()
        scheduler.server.stop()
