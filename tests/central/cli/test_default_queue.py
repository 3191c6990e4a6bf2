"""What the queue default uses where it has no object: only the scheduler knows."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from central.cli.jobs.scheduler_view import use_of_default
from central.server.grpc.query_service import Holder, NodeView
from protos.stubs import fleet_pb2 as pb
from tests.central.cli.run_cli import AskedScheduler, Lockstep
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


class TwoQueues(CannedAnswers):
    def node_views(self, node: str) -> Sequence[NodeView]:
        whole = Holder("default", "p", 0b1111, True, queue="default")
        part = Holder("default", "s", 0b10000, True, share=50, queue="default")
        other = Holder("default", "o", 0b1100000, True, queue="research")
        return [NodeView("n1", holders=(whole, part, other))]


@pytest.fixture
def scheduler(asked_scheduler: AskedScheduler) -> None:
    asked_scheduler(TwoQueues())


def row(text: str) -> list[str]:
    [found] = [line for line in text.splitlines() if "default" in line]
    return found.split()


@pytest.mark.usefixtures("scheduler")
def test_the_scheduler_says_what_it_uses(lockstep: Lockstep) -> None:
    assert row(lockstep("queue", "tree"))[:2] == ["default", "4.5"]
    assert "nvidia.com/gpu=4.5" in lockstep("queue", "list", "-o", "wide")


@pytest.mark.usefixtures("scheduler")
def test_an_object_comes_first(lockstep: Lockstep, put: Callable[[str, Json], Json]) -> None:
    allocated = {"allocated": {"nvidia.com/gpu": "3"}}
    put(QUEUES, {"metadata": {"name": "default"}, "spec": {}, "status": allocated})
    assert row(lockstep("queue", "tree"))[:2] == ["default", "3"]


def test_without_the_scheduler_it_is_unknown(
    lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row(lockstep("queue", "tree"))[:2] == ["default", "-"]
    monkeypatch.setenv("LOCKSTEP_SERVER", "127.0.0.1:1")
    assert row(lockstep("queue", "tree"))[:2] == ["default", "-"]


def test_what_is_not_all_is_not_told() -> None:
    assert use_of_default(pb.TopologyReply()) == {"nvidia.com/gpu": "0"}
    reply = pb.TopologyReply()
    node = reply.nodes.add(name="n")
    node.holders.add(pod="p", gpus=[0])  # of a scheduler that does not know queues here
    assert use_of_default(reply) is None
    node.holders[0].queue = "default"
    assert use_of_default(reply) == {"nvidia.com/gpu": "1"}
    node.hidden_holders = 1
    assert use_of_default(reply) is None
