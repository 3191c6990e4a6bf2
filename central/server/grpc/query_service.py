"""The gRPC service for users (Desk): `lockstep topology` and `lockstep explain`, for every authenticated
user of the cluster."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from central.model.identity import ReviewToken
from central.server.grpc.auth import Authenticator, Context
from central.server.version import version
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.stubs import fleet_pb2_grpc
from protos.topology import NodeTopology, RdmaUse, indices_of

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class HeldSlice:
    uuid: str
    profile: str = ""  # empty: the node no longer has this slice
    gpu: int = 0


@dataclass(frozen=True, slots=True)
class Holder:
    namespace: str
    pod: str
    gpus: int  # mask
    confirmed: bool  # pod-resources reports the same devices
    share: int = 0  # hundredths of its one GPU; 0: whole GPUs
    slices: tuple[HeldSlice, ...] = ()  # from pod-resources


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    domains: tuple[str, ...] = ()  # widest level first; empty: the node lacks this label
    topology: NodeTopology | None = None  # None: no agent has reported
    holders: tuple[Holder, ...] = ()
    gpus_allocatable: int = 0
    gpus_used: int = 0
    trouble: str = ""
    gpus_shared: int = 0
    shares_used: int = 0  # hundredths of the shared GPUs
    slices_used: int = 0
    cards: tuple[RdmaUse, ...] = ()  # of pods with RDMA NICs; -1: unknown
    agent_version: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    name: str
    node: str = ""
    gpus: int = 0  # mask
    confirmed: bool = False
    phase: str = ""
    share: int = 0
    slices: tuple[HeldSlice, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    namespace: str
    name: str
    phase: str
    reason: str
    pods: tuple[PodView, ...] = ()
    min_member: int = 0
    queue: str = ""
    closest: str = ""
    cards: tuple[RdmaUse, ...] = ()


class Queries(Protocol):
    """Called from a worker thread. Each call may block until the scheduling cycle ends."""

    @property
    def levels(self) -> tuple[str, ...]: ...
    @property
    def troubles(self) -> tuple[str, ...]:
        """Problems of HyperNodes."""

    def node_views(self, node: str) -> Sequence[NodeView]:
        """One node (empty if it is unknown), or every node if the name is empty."""

    def explain(self, namespace: str, name: str) -> Explanation | None: ...


class QueryService(fleet_pb2_grpc.DeskServicer):
    def __init__(self, queries: Queries, review: ReviewToken) -> None:
        self._queries = queries
        self._auth = Authenticator(review)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="queries")

    def add_to(self, server: grpc.aio.Server) -> None:
        fleet_pb2_grpc.add_DeskServicer_to_server(self, server)

    async def Topology(self, request: pb.TopologyQuery, context: Context) -> pb.TopologyReply:
        await self._auth.admit_user(context)
        views = await self._ask(partial(self._queries.node_views, request.node), context)
        if request.node and not views:
            await context.abort(grpc.StatusCode.NOT_FOUND, f'node "{request.node:.253}" not found')
        return pb.TopologyReply(
            nodes=map(_node, views),
            levels=self._queries.levels,
            troubles=self._queries.troubles,
            version=version(),
        )

    async def Explain(self, request: pb.ExplainQuery, context: Context) -> pb.ExplainReply:
        await self._auth.admit_user(context)
        if not request.name:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name: must not be empty")
        namespace = request.namespace or "default"
        found = await self._ask(partial(self._queries.explain, namespace, request.name), context)
        if found is None:
            return pb.ExplainReply(found=False, namespace=namespace, name=request.name)
        return pb.ExplainReply(
            found=True,
            namespace=found.namespace,
            name=found.name,
            phase=found.phase,
            reason=found.reason,
            pods=map(_pod, found.pods),
            min_member=found.min_member,
            queue=found.queue,
            closest=found.closest,
            cards=wire.to_rdma_use(found.cards),
        )

    async def _ask(self, question: Callable[[], Answer], context: Context) -> Answer:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, question)
        except TimeoutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the scheduler is busy; try again")


def _node(view: NodeView) -> pb.NodeView:
    message = pb.NodeView(
        name=view.name,
        domains=view.domains,
        holders=[
            pb.Holder(
                namespace=holder.namespace,
                pod=holder.pod,
                gpus=indices_of(holder.gpus),
                confirmed=holder.confirmed,
                share=holder.share,
                slices=_slices(holder.slices),
            )
            for holder in view.holders
        ],
        gpus_allocatable=view.gpus_allocatable,
        gpus_used=view.gpus_used,
        trouble=view.trouble,
        gpus_shared=view.gpus_shared,
        shares_used=view.shares_used,
        slices_used=view.slices_used,
        cards=wire.to_rdma_use(view.cards),
        agent_version=view.agent_version,
    )
    if view.topology is not None:
        message.topology.CopyFrom(wire.to_topology(view.topology))
    return message


def _pod(view: PodView) -> pb.PodView:
    return pb.PodView(
        name=view.name,
        node=view.node,
        gpus=indices_of(view.gpus),
        confirmed=view.confirmed,
        phase=view.phase,
        share=view.share,
        slices=_slices(view.slices),
    )


def _slices(held: Iterable[HeldSlice]) -> list[pb.HeldSlice]:
    return [pb.HeldSlice(uuid=each.uuid, profile=each.profile, gpu=each.gpu) for each in held]
