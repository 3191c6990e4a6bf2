"""Every field of every message that a stranger with a token may send, as bytes over the real gRPC service: an answer,
or a refusal with a sentence; never an exception that nobody expected, and honest calls go on."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from central.controllers.job.training_plan import TrainingPlan
from central.model.identity import AuthFailure, Identity, Role
from central.server.grpc.query_service import Explanation, NodeView
from protos.stubs import fleet_pb2 as pb
from tests.central.poison.by_field.message_walk import changed
from tests.central.poison.by_field.test_hostile_messages import rich
from tests.central.scheduler_process import SchedulerServer, TokenTable, auth

CALL_S = 20.0  # of processor time
CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,  # of a long poll
}


class Answers:
    """Of a scheduler that knows whatever it is asked for, and says it back."""

    levels = ("zone",)
    troubles = ()

    def node_views(self, node: str) -> list[NodeView]:
        return [NodeView(node or "n0")]

    def explain(self, namespace: str, name: str) -> Explanation | None:
        return Explanation(namespace, name, "Pending", f"{name} waits")

    def queue_tenants(self, name: str) -> tuple[pb.QueueReply, list[str]]:
        return pb.QueueReply(), []


class Usage:
    def usage(
        self, keys: Any, since: float, until: float, sees: Callable[[str], bool]
    ) -> pb.UsageReply:
        return pb.UsageReply()


class ManyUsers(TokenTable):
    """A token user-N is that of user N, so that no rate is met."""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        if token.startswith("user-") and role == "user":
            return Identity(token)
        return super().review(token, role)


def training_report() -> pb.TrainingReport:
    report = pb.TrainingReport(
        plan=5 << 32 | 7, members="0-1,3", step=4, checkpoint="c", restored="b", set_aside_why="w"
    )
    report.progress.members.add(member=1, rank=0, step=3)
    report.progress.queues.add(name="q", todo=1)
    report.progress.pause.generation = 1
    report.progress.gpu_seconds["training"] = 1.0
    report.progress.speeds.add(members=2, nodes=1, per_s=1.0)
    return report


CALLS: dict[str, Callable[[], Message]] = {
    "Fleet/Report": rich,
    "Fleet/Intents": lambda: pb.IntentsRequest(node="n0", boot_id="b", version=1),
    "Desk/Topology": lambda: pb.TopologyQuery(node="n0"),
    "Desk/Explain": lambda: pb.ExplainQuery(namespace="ns", name="g"),
    "Desk/Usage": lambda: pb.UsageQuery(since=1.0, until=2.0, by=["queue"]),
    "Desk/Queue": lambda: pb.QueueQuery(name="default"),
    "Training/Plan": lambda: pb.PlanRequest(version=0, wait_s=0.0),
    "Training/Report": training_report,
    "Training/LoadState": pb.StateRequest,
    "Training/SaveState": lambda: pb.StateUpdate(run=1, state=b"x"),
}
NO_STATES = "this scheduler keeps no states"
PLAN = TrainingPlan("team", "train", "uid", 7, (0, 1, 3), (), 2)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[SchedulerServer]:
    made = SchedulerServer(Answers(), reviewer=ManyUsers(), usage=Usage(), term=5)
    many = {f"pod{number}": PLAN for number in range(2000)}
    made.training_plans.publish({("team", "train"): many}, time.time())
    yield made
    made.server.stop()


def token(call: str, number: int) -> str:
    service = call.partition("/")[0]
    return {
        "Fleet": "agent-n0",
        "Desk": f"user-{number // 5}",
        "Training": f"coordinator-pod{number // 3}",
    }[service]


@pytest.mark.parametrize("name", CALLS)
def test_every_field_of_a_call(name: str, scheduler: SchedulerServer) -> None:
    seen = answered = 0
    with scheduler.channel() as channel:
        call: Any = channel.unary_unary(f"/lockstep.v1.{name}")
        for number, one in enumerate(changed(CALLS[name], many=5000)):
            began = time.process_time()
            why = refusal(call, one.data, token(name, number), one.where)
            assert time.process_time() - began < CALL_S, one.where
            answered += not why
            seen += 1
        honest = CALLS[name]().SerializeToString()
        assert refusal(call, honest, token(name, 5999), "as it is") in ("", NO_STATES)
    assert seen > 3 or name == "Training/LoadState"
    assert answered or name.startswith("Training/")


def refusal(call: Any, data: bytes, token: str, where: str) -> str:
    """Why it is refused, empty if it is not."""
    try:
        call(data, metadata=auth(token), timeout=5)
    except grpc.RpcError as error:
        found: Any = error
        why = str(found.details())
        assert found.code() in CODES, f"{where}: {found.code()}: {why}"
        assert why.isprintable(), f"{where}: {why!r}"
        assert len(why) < 1000, f"{where}: {len(why)} characters"
        return why
    return ""
