"""Agents -> facts: the Fleet service, who may speak for which node, and who has fallen silent.

intents = Intents()                          # central.intents: what agents should grant
intake = Intake(inbox, reviewer.agent, intents)
server = serving.serve(listen, credentials, [intake.add_to, desk.add_to])
facts = intake.silent(now)                   # the loop asks, time.monotonic()
intake.forget("n1")                          # after NodeGone went to the inbox
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

from central.model.facts import Fact, MemoryExceeded, NodeReported, NodeSilent, RdmaUsed
from central.model.identity import Review
from central.server.grpc.auth import Context, Door
from central.server.grpc.plans import Intents
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.stubs import fleet_pb2_grpc
from protos.topology import LEVELS, NodeTopology, RdmaUse

log = logging.getLogger(__name__)

LONGEST_POLL_S = 120.0
_NVLINK = re.compile(r"NV\d{1,3}", re.ASCII)
_LOOK_EVERY_S = 1.0


class Malformed(ValueError):
    """Names the field."""


@dataclass(slots=True)
class _Heard:
    boot: str
    generation: int
    at: float
    topology: NodeTopology
    topology_of: int  # the generation that it came with
    silent: bool = False
    rdma_use: tuple[RdmaUse, ...] = ()  # as it was last told


class Intake(fleet_pb2_grpc.FleetServicer):
    def __init__(
        self,
        inbox: Callable[[Fact], None],
        review: Review,
        intents: Intents,
        silent_after_s: float = 30.0,
    ) -> None:
        self._inbox = inbox
        self._door = Door(review)
        self._intents = intents
        self._silent_after_s = silent_after_s
        self._lock = threading.Lock()
        self._heard: dict[str, _Heard] = {}
        self._next_look = 0.0

    def add_to(self, server: grpc.aio.Server) -> None:
        fleet_pb2_grpc.add_FleetServicer_to_server(self, server)

    def silent(self, now: float) -> list[NodeSilent]:
        """Agents that have not been heard for too long, each once until it speaks again."""
        if now < self._next_look:
            return []
        self._next_look = now + _LOOK_EVERY_S
        found = []
        with self._lock:
            for node, heard in self._heard.items():
                if not heard.silent and now - heard.at > self._silent_after_s:
                    heard.silent = True
                    found.append(NodeSilent(node))
        for fact in found:
            log.warning(
                "node %s: its agent has been silent for %gs", fact.node, self._silent_after_s
            )
        return found

    def forget(self, node: str) -> None:
        """The cluster has forgotten it: should its agent live on, it is asked for everything again."""
        with self._lock:
            self._heard.pop(node, None)

    async def Report(self, request: pb.NodeReport, context: Context) -> pb.ReportAck:
        await self._door.admit_agent(request.node, context)
        try:
            _check(request)
            earlier = self._earlier(request)
            fact = None if request.heartbeat else _fact(request, earlier)
        except ValueError as error:
            log.warning("node %s: its report is refused: %s", request.node, error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        with self._lock:
            heard = self._heard.get(request.node)
            known = (
                heard is not None
                and not heard.silent
                and (heard.boot, heard.generation) == (request.boot_id, request.generation)
            )
            if heard is not None and known:
                heard.at = time.monotonic()
            elif fact is not None:
                self._heard[request.node] = _Heard(
                    request.boot_id,
                    request.generation,
                    time.monotonic(),
                    fact.topology,
                    request.topology_of or request.generation,
                    rdma_use=heard.rdma_use if heard is not None else (),
                )
        if fact is not None:
            self._inbox(fact)
        if request.memory_over:
            over = wire.from_memory_over(request.memory_over)
            self._inbox(MemoryExceeded(request.node, over))
        self._used(request)
        return pb.ReportAck(want_full=fact is None and not known)

    def _used(self, request: pb.NodeReport) -> None:
        """Heartbeats say it, too; most say what the last one said. With a report it is told again: the
        cluster may have forgotten the node in between."""
        used = wire.from_rdma_use(request.rdma_use)
        with self._lock:
            heard = self._heard.get(request.node)
            if heard is None or (heard.rdma_use == used and (request.heartbeat or not used)):
                return
            heard.rdma_use = used
        self._inbox(RdmaUsed(request.node, used))

    def _earlier(self, request: pb.NodeReport) -> NodeTopology | None:
        """The topology that the report leaves out because we have it."""
        with self._lock:
            heard = self._heard.get(request.node)
        if heard is None or heard.silent or request.topology_of != heard.topology_of:
            return None
        return heard.topology if request.boot_id == heard.boot else None

    async def Intents(self, request: pb.IntentsRequest, context: Context) -> pb.IntentList:
        await self._door.admit_agent(request.node, context)
        if not math.isfinite(request.wait_s) or request.wait_s < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"wait_s: {request.wait_s} is not a time"
            )
        wait_s = min(request.wait_s, LONGEST_POLL_S)
        version, grants = await self._intents.fetch(request.node, request.version, wait_s)
        return pb.IntentList(version=version, intents=wire.to_grants(grants))


def _check(request: pb.NodeReport) -> None:
    if not request.boot_id:
        raise Malformed("boot_id: it is empty")
    if not request.generation:
        raise Malformed("generation: it begins at 1")
    if not (request.heartbeat or request.topology_of or request.HasField("topology")):
        raise Malformed("topology: a full report has one")


def _fact(request: pb.NodeReport, earlier: NodeTopology | None) -> NodeReported | None:
    """None: it leaves out a topology that we don't have."""
    if request.topology_of:
        return None if earlier is None else _reported(request, earlier)
    try:
        topology = wire.from_topology(request.topology)
    except ValueError as error:
        raise Malformed(f"topology: {error}") from error
    for row in topology.links:
        for word in row:
            if word not in LEVELS and not _NVLINK.fullmatch(word):
                raise Malformed(f"topology.links: {word!r:.40} is not a word of a link")
    held = [gpu for island in topology.islands for gpu in island]
    if len(held) != len(set(held)):
        raise Malformed("topology.islands: a GPU is on two islands")
    return _reported(request, topology)


def _reported(request: pb.NodeReport, topology: NodeTopology) -> NodeReported:
    return NodeReported(
        request.node,
        request.boot_id,
        request.generation,
        topology,
        wire.from_grants(request.grants),
        request.agent_version,
    )
