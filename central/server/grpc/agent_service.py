"""The gRPC service for agents (Fleet): turns their reports into facts, gives them the planned devices of
their node, and notices agents that have become silent.

    agents = AgentService(inbox, authenticator, plans)
    server = serve(listen, credentials, [agents.add_to, queries.add_to], authenticator)
    facts = agents.silent(now)             # called by the loop, with time.monotonic()
    agents.forget("n1")                    # after NodeGone is in the inbox
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from central.model import facts
from central.model.facts import Fact
from central.model.identity import Identity
from central.server.gpu_uses import GpuUses
from central.server.grpc import report_bounds
from central.server.grpc.auth import Authenticator, CallRefused, Context, GuardedCall
from central.server.grpc.plans import PlannedDevices
from central.server.grpc.report_bounds import MalformedReport
from central.server.throttled_log import ThrottledLog
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import LEVELS, ClaimPlan, GpuUse, MemoryOver, NodeTopology, RdmaUse

log = logging.getLogger(__name__)

LONGEST_POLL_S = 120.0
_NVLINK = re.compile(r"NV\d{1,3}", re.ASCII)
_CHECK_EVERY_S = 1.0


@dataclass(slots=True)
class _LastReport:
    boot: str
    generation: int
    at: float
    topology: NodeTopology
    topology_of: int  # the generation that carried this topology
    silent: bool = False
    rdma_use: tuple[RdmaUse, ...] = ()  # of the last fact
    offered: bool = True  # likewise; of a silent node it is true


class AgentService:
    def __init__(
        self,
        inbox: Callable[[Fact], None],
        authenticator: Authenticator,
        plans: PlannedDevices,
        silent_after_s: float = 30.0,
        uses: GpuUses | None = None,
    ) -> None:
        self._inbox = inbox
        self._auth = authenticator
        self._plans = plans
        self._silent_after_s = silent_after_s
        self._uses = uses or GpuUses()
        self._lock = threading.Lock()
        self._last: dict[str, _LastReport] = {}
        self._next_check = 0.0
        self._quiet = ThrottledLog(log)

    def add_to(self, server: grpc.aio.Server) -> None:
        calls = {
            "Report": GuardedCall("agent", pb.NodeReport, self.report),
            "Intents": GuardedCall("agent", pb.IntentsRequest, self.intents),
        }
        server.add_generic_rpc_handlers((self._auth.handlers("lockstep.v1.Fleet", calls),))

    def silent(self, now: float) -> list[facts.NodeSilent]:
        """Nodes whose agent has been silent for longer than silent_after_s, each once until its next
        report."""
        if now < self._next_check:
            return []
        self._next_check = now + _CHECK_EVERY_S
        found = []
        with self._lock:
            for node, last in self._last.items():
                if not last.silent and now - last.at > self._silent_after_s:
                    last.silent = last.offered = True
                    found.append(facts.NodeSilent(node))
        for fact in found:
            self._uses.forget(fact.node)
            log.warning(
                "node %s: no report from its agent for %g s", fact.node, self._silent_after_s
            )
        return found

    def forget(self, node: str) -> None:
        """The node was deleted. If its agent still runs, its next report must be a full one."""
        self._uses.forget(node)
        with self._lock:
            self._last.pop(node, None)

    async def report(
        self, request: pb.NodeReport, caller: Identity, context: Context
    ) -> pb.ReportAck:
        self._check_node(request.node, caller, context)
        try:
            _check(request)
            fact = None if request.heartbeat else _fact(request, self._earlier(request))
        except ValueError as error:
            self._quiet.warning(
                f"{caller.node} invalid", "node %s: invalid report: %.500s", caller.node, error
            )
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        known = self._record(request, fact)
        self._forward_offered(request)  # first: a cycle may come between the two
        if fact is not None:
            self._inbox(fact)
        if request.memory_over:
            over = wire.values(MemoryOver, request.memory_over)
            self._inbox(facts.MemoryExceeded(request.node, over))
        now = time.monotonic()
        self._uses.record(request.node, wire.values(GpuUse, request.gpu_use), now)
        if (idle := self._uses.idle_on(request.node, now)) is not None:
            self._inbox(facts.GpusIdle(request.node, idle))
        self._forward_rdma_use(request)
        return pb.ReportAck(want_full=fact is None and not known)

    def _check_node(self, node: str, caller: Identity, context: Context) -> None:
        """Raises CallRefused unless the caller is the agent of that node."""
        if node != caller.node:
            why = f"the agent of node {caller.node} may not report for node {node!r:.80}"
            raise self._auth.forbidden(context, caller, why)

    def _record(self, request: pb.NodeReport, fact: facts.NodeReported | None) -> bool:
        """Records the report. Returns whether it repeats the known generation."""
        with self._lock:
            last = self._last.get(request.node)
            if (
                last is not None
                and not last.silent
                and (last.boot, last.generation) == (request.boot_id, request.generation)
            ):
                last.at = time.monotonic()
                return True
            if fact is not None:
                self._last[request.node] = _LastReport(
                    request.boot_id,
                    request.generation,
                    time.monotonic(),
                    fact.topology,
                    request.topology_of or request.generation,
                    rdma_use=last.rdma_use if last is not None else (),
                    offered=last.offered if last is not None else True,
                )
            return False

    def _forward_rdma_use(self, request: pb.NodeReport) -> None:
        """RDMA usage also comes with heartbeats. It is forwarded when it changed, and always with a
        full report, because the cluster may have dropped the node meanwhile."""
        used = wire.values(RdmaUse, request.rdma_use)
        with self._lock:
            last = self._last.get(request.node)
            if last is None or (last.rdma_use == used and (request.heartbeat or not used)):
                return
            last.rdma_use = used
        self._inbox(facts.RdmaUsed(request.node, used))

    def _forward_offered(self, request: pb.NodeReport) -> None:
        """Passes on whether the devices are offered, also for a starting agent before its first full report, unless
        the lack of another report would go unnoticed."""
        offered = not request.not_offered
        with self._lock:
            last = self._last.get(request.node)
            if last is None or last.silent or (offered and last.offered):
                return
            if last.offered == offered and request.heartbeat:
                return
            last.offered = offered
        self._inbox(facts.NodeOffers(request.node, offered))

    def _earlier(self, request: pb.NodeReport) -> NodeTopology | None:
        """The topology that a partial report refers to; None: we don't have that one."""
        with self._lock:
            last = self._last.get(request.node)
        if last is None or last.silent or request.topology_of != last.topology_of:
            return None
        return last.topology if request.boot_id == last.boot else None

    async def intents(
        self, request: pb.IntentsRequest, caller: Identity, context: Context
    ) -> pb.IntentList:
        self._check_node(request.node, caller, context)
        if not math.isfinite(request.wait_s) or request.wait_s < 0:
            raise CallRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"wait_s: {request.wait_s} is not a number of seconds",
            )
        wait_s = min(request.wait_s, LONGEST_POLL_S)
        version, plan = await self._plans.fetch(request.node, request.version, wait_s)
        claims = wire.messages(pb.ClaimPlan, plan.claims)
        return pb.IntentList(version=version, intents=wire.to_grants(plan.grants), claims=claims)


def _check(request: pb.NodeReport) -> None:
    if not request.boot_id:
        raise MalformedReport("boot_id: must not be empty")
    if not request.generation:
        raise MalformedReport("generation: must be at least 1")
    if not (request.heartbeat or request.topology_of or request.HasField("topology")):
        raise MalformedReport("topology: a full report must have one")
    report_bounds.check(request)


def _fact(request: pb.NodeReport, earlier: NodeTopology | None) -> facts.NodeReported | None:
    """Converts the report; None if it refers to an unknown topology."""
    if request.topology_of:
        return None if earlier is None else _reported(request, earlier)
    try:
        topology = wire.from_topology(request.topology)
    except ValueError as error:
        raise MalformedReport(f"topology: {error}") from error
    for row in topology.links:
        for link in row:
            if link not in LEVELS and not _NVLINK.fullmatch(link):
                raise MalformedReport(f"topology.links: {link!r:.40} is not a link type")
    members = [gpu for island in topology.islands for gpu in island]
    if len(members) != len(set(members)):
        raise MalformedReport("topology.islands: a GPU is in two islands")
    members = [gpu for switch in topology.pcie_switches for gpu in switch]
    if len(members) != len(set(members)):
        raise MalformedReport("topology.pcie_switches: a GPU is below two switches")
    return _reported(request, topology)


def _reported(request: pb.NodeReport, topology: NodeTopology) -> facts.NodeReported:
    return facts.NodeReported(
        request.node,
        request.boot_id,
        request.generation,
        topology,
        wire.from_grants(request.grants),
        request.agent_version,
        request.claims,
        wire.values(ClaimPlan, request.prepared),
    )
