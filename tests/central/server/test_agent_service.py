"""Agents over real TLS sockets: reports become facts, unauthorized callers are refused, and long polls
return the planned devices."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from central.model.facts import GpusIdle, NodeOffers, NodeReported, NodeSilent, RdmaUsed
from central.scheduler.inventory.cluster_node import NodePlan
from central.server.gpu_uses import LEAST_S
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import FleetStub
from protos.topology import ClaimDevice, ClaimPlan, GpuUse, Grant, RdmaLimit, RdmaUse
from tests.central.scheduler_process import SchedulerServer, auth, refusal, report, topology
from tests.fakes.eventually import eventually

GRANT = Grant("default", "p", "main", "nvidia.com/gpu", ("GPU-0",))


@pytest.fixture
def scheduler() -> Iterator[SchedulerServer]:
    scheduler = SchedulerServer()
    yield scheduler
    scheduler.server.stop()


@pytest.fixture
def fleet(scheduler: SchedulerServer) -> Iterator[FleetStub]:
    with scheduler.channel() as channel:
        yield FleetStub(channel)


def poll(version: int = 0, node: str = "n1", wait_s: float = 5.0) -> pb.IntentsRequest:
    return pb.IntentsRequest(node=node, boot_id="b", version=version, wait_s=wait_s)


def has_open_poll(scheduler: SchedulerServer, node: str) -> bool:
    state = scheduler.plans._nodes.get(node)
    return state is not None and state.polls > 0


def test_a_report_is_a_fact(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    ack = fleet.Report(report(), metadata=auth("agent-n1"))
    assert not ack.want_full
    assert scheduler.facts == [NodeReported("n1", "b", 1, topology())]


def test_a_report_says_how_claims_are_served(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    fleet.Report(report(claims="beside"), metadata=auth("agent-n1"))
    assert scheduler.facts == [NodeReported("n1", "b", 1, topology(), claims="beside")]


def test_pods_that_have_been_idle_for_long_are_a_fact(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    message = report(heartbeat=True)
    message.gpu_use.add(namespace="ns", pod="p", container="c", utilization=0.01, memory=1)
    message.gpu_use.add(namespace="ns", pod="q", container="c", utilization=0.9, memory=1)
    long_ago = time.monotonic() - LEAST_S - 1.0
    scheduler.uses.record("n1", wire.values(GpuUse, message.gpu_use), long_ago)
    fleet.Report(message, metadata=auth("agent-n1"))
    ((namespace, pod, idle_s),) = [
        pod for fact in scheduler.facts if isinstance(fact, GpusIdle) for pod in fact.pods
    ]
    assert (namespace, pod, idle_s >= LEAST_S) == ("ns", "p", True)


def test_an_agent_that_is_newer(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    """Unknown fields are ignored, and an unknown enforcement counts as none."""
    message = report(agent_version="9.0.0")
    message.topology.gpus[0].enforcement = "quantum"
    unknown = bytes((0xC2, 0x3E, 3)) + b"new"  # field 1000, a text
    gpu = message.topology.gpus[1].SerializeToString() + unknown
    message.topology.gpus[1].ParseFromString(gpu)
    message.ParseFromString(message.SerializeToString() + unknown)
    fleet.Report(message, metadata=auth("agent-n1"))
    assert scheduler.facts == [NodeReported("n1", "b", 1, topology(), version="9.0.0")]


def test_an_agent_that_is_older(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    """Its reports have the first fields only."""
    whole = report()
    gpus = [
        pb.Gpu(index=gpu.index, uuid=gpu.uuid, model=gpu.model, numa=gpu.numa, healthy=gpu.healthy)
        for gpu in whole.topology.gpus
    ]
    old = pb.Topology(gpus=gpus, links=whole.topology.links, islands=whole.topology.islands)
    message = pb.NodeReport(node="n1", boot_id="b", generation=1, topology=old)
    fleet.Report(message, metadata=auth("agent-n1"))
    (fact,) = scheduler.facts
    assert isinstance(fact, NodeReported)
    assert fact.topology.shape() == topology().shape()
    assert fact.topology.pcie_switches == (), "unknown"
    assert [gpu.enforcement for gpu in fact.topology.gpus] == ["none", "none"]


def test_heartbeats_are_no_facts(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    agent = auth("agent-n1")
    assert fleet.Report(report(heartbeat=True), metadata=agent).want_full
    fleet.Report(report(), metadata=agent)
    assert not fleet.Report(report(heartbeat=True), metadata=agent).want_full
    assert fleet.Report(report(heartbeat=True, generation=2), metadata=agent).want_full
    assert fleet.Report(report(heartbeat=True, boot_id="other"), metadata=agent).want_full
    assert len(scheduler.facts) == 1
    scheduler.agents.forget("n1")
    assert fleet.Report(report(heartbeat=True), metadata=agent).want_full


def test_rdma_usage_is_a_fact_when_it_changes(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    agent = auth("agent-n1")

    def beat(handles: int | None) -> None:
        use = RdmaUse("ns", "p", "mlx5_0", RdmaLimit(handles or 0, 7), RdmaLimit(8, -1))
        message = report(heartbeat=True)
        message.rdma_use.extend(wire.messages(pb.RdmaUse, [use] if handles is not None else []))
        fleet.Report(message, metadata=agent)

    beat(3)  # before the first report
    fleet.Report(report(), metadata=agent)
    for handles in (3, 3, 4, None, None):
        beat(handles)
    used = [fact for fact in scheduler.facts if isinstance(fact, RdmaUsed)]
    assert [[use.current.hca_handle for use in fact.pods] for fact in used] == [[3], [4], []]
    assert used[0].pods[0].limit == RdmaLimit(8, -1)
    whole = report(generation=2)
    whole.rdma_use.extend(wire.messages(pb.RdmaUse, used[1].pods))
    for _ in range(2):
        fleet.Report(whole, metadata=agent)
    assert [fact for fact in scheduler.facts if isinstance(fact, RdmaUsed)][3:] == [
        used[1],
        used[1],
    ]


def test_a_partial_report_leaves_out_the_topology(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    agent = auth("agent-n1")

    def delta(generation: int, of: int, boot: str = "b") -> pb.NodeReport:
        message = report(generation=generation, boot_id=boot, topology_of=of)
        message.ClearField("topology")
        return message

    assert fleet.Report(delta(2, 1), metadata=agent).want_full, "nothing is known yet"
    fleet.Report(report(), metadata=agent)
    assert not fleet.Report(delta(2, 1), metadata=agent).want_full
    assert not fleet.Report(delta(3, 1), metadata=agent).want_full
    assert scheduler.facts == [NodeReported("n1", "b", number, topology()) for number in (1, 2, 3)]
    assert fleet.Report(delta(4, 2), metadata=agent).want_full, "2 left it out itself"
    assert fleet.Report(delta(4, 1, "other"), metadata=agent).want_full, "another run"
    fleet.Report(report(generation=5), metadata=agent)
    assert fleet.Report(delta(6, 1), metadata=agent).want_full, "late"
    assert not fleet.Report(delta(6, 5), metadata=agent).want_full
    scheduler.agents.silent(time.monotonic() + 60)
    assert fleet.Report(delta(7, 5), metadata=agent).want_full, "it was silent"


def test_devices_that_the_kubelet_does_not_have(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    agent = auth("agent-n1")

    def send(*, offered: bool, **fields: Any) -> list[object]:
        known = len(scheduler.facts)
        fleet.Report(report(not_offered=not offered, **fields), metadata=agent)
        return list(scheduler.facts[known:])

    away, back = NodeOffers("n1", offered=False), NodeOffers("n1", offered=True)
    assert send(offered=False, heartbeat=True) == [], "the node is not known"
    first, whole = send(offered=False)
    assert first == away, "before a cycle can see the report"
    assert isinstance(whole, NodeReported)
    assert send(offered=False, heartbeat=True) == []
    assert send(offered=True, heartbeat=True) == [back]
    assert send(offered=True, heartbeat=True) == []
    assert send(offered=False, heartbeat=True) == [away], "the last report of an agent"
    assert send(offered=False, heartbeat=True, boot_id="next") == []
    assert send(offered=False, boot_id="next")[0] == away
    assert send(offered=True, heartbeat=True, boot_id="next") == [back]


def test_an_agent_that_never_comes_back_is_silent(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    agent, now = auth("agent-n1"), time.monotonic()
    fleet.Report(report(), metadata=agent)
    for boot in ("b", "next"):  # the next one says that it starts, and no more
        fleet.Report(report(not_offered=True, heartbeat=True, boot_id=boot), metadata=agent)
    assert scheduler.agents.silent(now + 40) == [NodeSilent("n1")]
    known = len(scheduler.facts)
    fleet.Report(report(not_offered=True, heartbeat=True, boot_id="third"), metadata=agent)
    assert scheduler.facts[known:] == [], "nobody would notice that no other follows"
    fleet.Report(report(not_offered=True, boot_id="third"), metadata=agent)
    assert scheduler.facts[known] == NodeOffers("n1", offered=False)


def test_silence(
    fleet: FleetStub, scheduler: SchedulerServer, caplog: pytest.LogCaptureFixture
) -> None:
    agent, now = auth("agent-n1"), time.monotonic()
    fleet.Report(report(), metadata=agent)
    assert scheduler.agents.silent(now + 29) == []
    assert scheduler.agents.silent(now + 32) == [NodeSilent("n1")]
    assert scheduler.agents.silent(now + 40) == []
    assert "node n1: no report from its agent for 30 s" in caplog.text
    # When it comes back, it must send a full report.
    assert fleet.Report(report(heartbeat=True), metadata=agent).want_full
    fleet.Report(report(), metadata=agent)
    assert not fleet.Report(report(heartbeat=True), metadata=agent).want_full
    assert len(scheduler.facts) == 2


@pytest.mark.parametrize(
    ("metadata", "code", "why"),
    [
        ((), grpc.StatusCode.UNAUTHENTICATED, "no bearer token"),
        ((("authorization", "Basic eA=="),), grpc.StatusCode.UNAUTHENTICATED, "no bearer token"),
        (auth("forged"), grpc.StatusCode.UNAUTHENTICATED, "rejects the token"),
        (auth("expired"), grpc.StatusCode.UNAUTHENTICATED, "rejects the token"),
        (auth("other-account"), grpc.StatusCode.PERMISSION_DENIED, "someone else's account"),
        (auth("user"), grpc.StatusCode.PERMISSION_DENIED, "only an agent may call this"),
        (auth("agent-"), grpc.StatusCode.PERMISSION_DENIED, "only an agent may call this"),
        (
            auth("agent-n2"),
            grpc.StatusCode.PERMISSION_DENIED,
            "the agent of node n2 may not report for node 'n1'",
        ),
        (auth("unasked"), grpc.StatusCode.UNAVAILABLE, "can't be asked"),
    ],
)
def test_unauthorized_callers_are_refused_and_logged_once(
    *,
    scheduler: SchedulerServer,
    fleet: FleetStub,
    caplog: pytest.LogCaptureFixture,
    metadata: tuple[tuple[str, str], ...],
    code: grpc.StatusCode,
    why: str,
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: fleet.Report(report(), metadata=metadata),
        lambda: fleet.Report(report(heartbeat=True), metadata=metadata),
        lambda: fleet.Intents(poll(), metadata=metadata),
    ]
    for call in calls:
        status, why_refused = refusal(call)
        assert status == code
        assert why in why_refused
    assert scheduler.facts == []
    [warning] = [r for r in caplog.records if r.levelno == logging.WARNING]  # once for all three
    assert why in warning.message
    assert "127.0.0.1" in warning.message
    for _, value in metadata:
        assert value.partition(" ")[2] not in warning.message or "agent" in value


def test_a_report_without_a_node(fleet: FleetStub) -> None:
    with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
        fleet.Report(report(node=""), metadata=auth("agent-n1"))


def odd(change: Callable[[pb.NodeReport], object]) -> pb.NodeReport:
    message = report()
    change(message)
    return message


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (report(boot_id=""), "boot_id: "),
        (report(generation=0), "generation: "),
        (odd(lambda m: m.ClearField("topology")), "topology: a full report must have one"),
        (odd(lambda m: m.topology.gpus[1].ClearField("index")), "topology: GPU indices"),
        (odd(lambda m: m.topology.links.pop()), "topology: links is not a square"),
        (
            odd(lambda m: m.topology.islands[0].gpus.append(9)),
            "topology: an island has an unknown GPU",
        ),
        (odd(lambda m: m.topology.islands[0].gpus.append(1)), "topology.islands: a GPU is in two"),
        (
            odd(lambda m: m.topology.links[0].cells.__setitem__(1, "FAST")),
            "topology.links: 'FAST' is not a link type",
        ),
    ],
)
def test_a_malformed_report_names_its_field(
    *,
    scheduler: SchedulerServer,
    fleet: FleetStub,
    caplog: pytest.LogCaptureFixture,
    message: pb.NodeReport,
    why: str,
) -> None:
    code, details = refusal(lambda: fleet.Report(message, metadata=auth("agent-n1")))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith(why)
    assert scheduler.facts == []
    assert f"node n1: invalid report: {why}" in caplog.text


def test_a_connection_without_tls_is_refused(scheduler: SchedulerServer) -> None:
    with grpc.insecure_channel(scheduler.address) as channel, pytest.raises(grpc.RpcError):
        FleetStub(channel).Report(report(), metadata=auth("agent-n1"), timeout=5)


def test_intents_by_long_poll(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    agent = auth("agent-n1")
    first = fleet.Intents(poll(), metadata=agent)  # answered at once: it has no version yet
    assert (list(first.intents), first.version > 0) == ([], True)
    later = fleet.Intents.future(poll(first.version), metadata=agent)
    scheduler.plans.publish({"n1": NodePlan(), "n2": NodePlan((GRANT,))})  # no change for n1
    with pytest.raises(grpc.FutureTimeoutError):
        later.result(timeout=0.1)
    scheduler.plans.publish({"n1": NodePlan((GRANT,))})
    answer = later.result(timeout=5)
    assert [intent.device_ids for intent in answer.intents] == [["GPU-0"]]
    assert answer.version > first.version
    again = fleet.Intents(poll(answer.version, wait_s=0.05), metadata=agent)  # after its timeout
    assert again == answer


def test_an_agent_gets_all_claims_of_its_node(scheduler: SchedulerServer, fleet: FleetStub) -> None:
    agent = auth("agent-n1")
    first = fleet.Intents(poll(), metadata=agent)
    claims = tuple(
        ClaimPlan("team", f"c{n}", f"u{n}", (ClaimDevice("main", f"gpu-{n}"),)) for n in range(2)
    )
    scheduler.plans.publish({"n1": NodePlan((GRANT,), claims)})
    answer = fleet.Intents(poll(first.version), metadata=agent)
    assert wire.values(ClaimPlan, answer.claims) == claims
    scheduler.plans.publish({"n1": NodePlan((GRANT,), claims[1:])})
    later = fleet.Intents(poll(answer.version), metadata=agent)
    assert [each.uid for each in later.claims] == ["u1"]
    assert later.version > answer.version


@pytest.mark.parametrize("wait_s", [float("nan"), -1.0, float("inf")])
def test_an_invalid_wait_is_refused(fleet: FleetStub, wait_s: float) -> None:
    with pytest.raises(grpc.RpcError, match="wait_s"):
        fleet.Intents(poll(wait_s=wait_s), metadata=auth("agent-n1"))


class Held:
    def __init__(self, scheduler: SchedulerServer, at_most_s: float, node: str = "n1") -> None:
        self.went = threading.Event()
        self.began = time.monotonic()
        self.after_s = 0.0
        scheduler.plans.hold(node, at_most_s, self._go)

    def _go(self) -> None:
        assert not self.went.is_set()
        self.after_s = time.monotonic() - self.began
        self.went.set()


def test_a_bind_waits_until_the_agent_asks_again(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    agent = auth("agent-n1")
    first = fleet.Intents(poll(), metadata=agent)
    open_poll = fleet.Intents.future(poll(first.version), metadata=agent)
    eventually(lambda: has_open_poll(scheduler, "n1"))
    assert Held(scheduler, 5.0).went.is_set()  # it has what there is
    scheduler.plans.publish({"n1": NodePlan((GRANT,))})
    held = Held(scheduler, 60.0)
    answer = open_poll.result(timeout=60)
    fleet.Intents(poll(first.version), metadata=agent)  # the answer got lost: it asks as before
    assert not held.went.is_set()
    acknowledged = fleet.Intents.future(poll(answer.version), metadata=agent)
    assert held.went.wait(30), "it waits for no more than the acknowledgement"
    acknowledged.cancel()


def test_a_bind_does_not_wait_for_absent_or_slow_agents(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    scheduler.plans.publish({"n1": NodePlan((GRANT,)), "n2": NodePlan((GRANT,))})
    assert Held(scheduler, 5.0).went.is_set()  # no agent has ever asked
    fleet.Intents(poll(), metadata=auth("agent-n1"))
    slow = Held(scheduler, 0.2)  # answered a moment ago, it should be back soon
    assert not slow.went.is_set()
    assert slow.went.wait(60)
    assert slow.after_s >= 0.2


def test_an_agent_that_hangs_up_holds_nothing_up(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    agent = auth("agent-n1")
    first = fleet.Intents(poll(), metadata=agent)
    answer = fleet.Intents.future(poll(first.version), metadata=agent)
    eventually(lambda: has_open_poll(scheduler, "n1"))
    answer.cancel()
    eventually(lambda: not has_open_poll(scheduler, "n1"))
    scheduler.plans.publish({"n1": NodePlan((GRANT,))})
    assert Held(scheduler, 5.0).went.is_set()


def test_after_the_server_has_stopped_nothing_is_held(
    scheduler: SchedulerServer, fleet: FleetStub
) -> None:
    fleet.Intents(poll(), metadata=auth("agent-n1"))
    scheduler.server.stop()
    scheduler.plans.publish({"n1": NodePlan((GRANT,))})
    assert Held(scheduler, 60.0).went.is_set()


def test_two_hundred_long_polls_at_once(scheduler: SchedulerServer) -> None:
    """One thread serves all polls, and each gets the plans of its own node soon after they are published."""
    nodes = [f"n{number}" for number in range(200)]
    before = threading.active_count()

    async def ask() -> list[pb.IntentList]:
        async with AsyncExitStack() as stack:
            channels = [scheduler.aio_channel() for _ in range(20)]
            for channel in channels:
                await stack.enter_async_context(channel)
            stubs = dict(zip(nodes, map(FleetStub, 10 * channels), strict=True))

            async def one(node: str, version: int) -> pb.IntentList:
                message, agent = poll(version, node, 50), auth(f"agent-{node}")
                answer: pb.IntentList = await stubs[node].Intents(message, metadata=agent)
                return answer

            firsts = await asyncio.gather(*(one(node, 0) for node in nodes))
            polls = [
                asyncio.create_task(one(node, first.version))
                for node, first in zip(nodes, firsts, strict=True)
            ]
            while not all(has_open_poll(scheduler, node) for node in nodes):
                await asyncio.sleep(0.01)
            assert threading.active_count() - before < 30
            scheduler.plans.publish(
                {
                    n: NodePlan((Grant("default", n, "main", "nvidia.com/gpu", ("G",)),))
                    for n in nodes
                }
            )
            # Long before the polls end by themselves: the publication answers them.
            return await asyncio.wait_for(asyncio.gather(*polls), 25)

    answers = asyncio.run(ask())
    assert [answer.intents[0].pod for answer in answers] == nodes
