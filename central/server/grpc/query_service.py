"""The gRPC service for users (Desk): `lockstep topology` and `lockstep explain`. Each user gets what RBAC lets them
see (central.server.grpc.visibility), and questions are bounded per user and in all."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar

import grpc
import grpc.aio
import orjson

from central.kube.transport.access_review import AccessUnknown
from central.model.gpu_count import NO_GPUS, GpuCount
from central.model.identity import Identity
from central.model.json_types import Json
from central.server.grpc import usage_query
from central.server.grpc.auth import Authenticator, CallRefused, Context, GuardedCall
from central.server.grpc.job_progress import JobProgress
from central.server.grpc.rates import PeerRates, Rate
from central.server.grpc.usage_query import UsageSource
from central.server.grpc.visibility import Access, Viewer
from central.server.version import version
from protos import wire
from protos.common.http_server import RequestRefused
from protos.common.picked import picked
from protos.stubs import fleet_pb2 as pb
from protos.topology import NodeTopology, RdmaUse

Answer = TypeVar("Answer")

READERS = 4  # threads
QUESTIONS = 64  # waiting
PER_USER = 4  # at a time
TENANTS_MOST = 500  # of a queue, in one answer
RATES = Rate(10.0, 50), Rate(50.0, 200)  # per user, in all
TURN_S, LONGEST_TURN_S = 0.1, 5.0
FORBIDDEN = 403
STATUSES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
}  # by that of HTTP


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    domains: tuple[str, ...] = ()  # widest level first; empty: the node lacks this label
    topology: NodeTopology | None = None  # None: no agent has reported
    holders: tuple[pb.Holder, ...] = ()
    gpus_allocatable: int = 0
    count: GpuCount = NO_GPUS
    trouble: str = ""
    gpus_shared: int = 0
    shares_used: int = 0  # hundredths of the shared GPUs
    slices_used: int = 0
    cards: tuple[RdmaUse, ...] = ()  # of pods with RDMA NICs; -1: unknown
    agent_version: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    namespace: str
    name: str
    phase: str
    reason: str
    pods: tuple[pb.PodView, ...] = ()
    min_member: int = 0
    queue: str = ""
    closest: str = ""
    cards: tuple[RdmaUse, ...] = ()
    namespaces: frozenset[str] = frozenset()  # that its sentences may name
    owner: str = ""  # of the gang, such as job/sweep
    place: int = 0  # among the pending gangs of its queue, from 1; 0: it does not wait
    pending: int = 0  # gangs of its queue that wait
    start: float = inf  # expected, Unix time; inf: unknown
    priority: int = 0
    size: str = ""  # of an elastic Job: its size, why it is not larger, its checkpoint, its tasks
    job: str = ""  # the Lockstep Job whose pods they are
    cause: str = ""  # of pending_causes.CAUSES; empty: it does not wait
    wanted_nodes: tuple[
        tuple[int, Mapping[str, float]], ...
    ] = ()  # how many, and what each must have


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

    def queue_tenants(self, name: str) -> tuple[pb.QueueReply, Sequence[str]]:
        """Returns the limits with all tenants that have one, those that use the most first; and the tenants'
        namespaces: empty of a user, but not of pods without one, which count together as a user."""


class Hidden(Exception):
    """The user may not see it: a sentence for the user."""


class QueryService:
    """usage: None, where no history is kept. progress: None, where no coordinators report. pages: the console's data by
    path, as JSON (central/server/web/web_api.py)."""

    def __init__(
        self,
        queries: Queries,
        authenticator: Authenticator,
        access: Access,
        usage: UsageSource | None = None,
        progress: JobProgress | None = None,
        *,
        pages: Callable[[str, Mapping[str, str], Viewer], Json] | None = None,
    ) -> None:
        self._queries = queries
        self._progress, self._pages = progress, pages
        self._usage = usage
        self._auth = authenticator
        self._access = access
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="queries")
        self._rates = PeerRates(*RATES)
        self._asking: Counter[str] = Counter()

    def add_to(self, server: grpc.aio.Server) -> None:
        calls = {
            "Topology": GuardedCall("user", pb.TopologyQuery, self.topology),
            "Explain": GuardedCall("user", pb.ExplainQuery, self.explain),
            "Usage": GuardedCall("user", pb.UsageQuery, self.usage),
            "Queue": GuardedCall("user", pb.QueueQuery, self.queue),
            "Page": GuardedCall("user", pb.PageQuery, self.page),
        }
        server.add_generic_rpc_handlers((self._auth.handlers("lockstep.v1.Desk", calls),))

    async def topology(
        self, request: pb.TopologyQuery, caller: Identity, context: Context
    ) -> pb.TopologyReply:
        reply = await self._ask(lambda viewer: self._topology(request, viewer), caller, context)
        if request.node and not reply.nodes:
            raise CallRefused(grpc.StatusCode.NOT_FOUND, f'node "{request.node:.253}" not found')
        return reply

    async def explain(
        self, request: pb.ExplainQuery, caller: Identity, context: Context
    ) -> pb.ExplainReply:
        if not request.name:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "name: must not be empty")
        return await self._ask(lambda viewer: self._explain(request, viewer), caller, context)

    async def usage(
        self, request: pb.UsageQuery, caller: Identity, context: Context
    ) -> pb.UsageReply:
        if self._usage is None:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, usage_query.NO_HISTORY)
        if why := usage_query.mistake(request):
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, why)
        usage = self._usage

        def ask(viewer: Viewer) -> pb.UsageReply:
            viewer.sees_everything()
            return usage.usage(list(request.by), request.since, request.until, viewer.sees)

        try:
            return await self._ask(ask, caller, context)
        except OSError as error:
            why = f"the history can't be read now: {error}"
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, why) from error

    async def queue(
        self, request: pb.QueueQuery, caller: Identity, context: Context
    ) -> pb.QueueReply:
        return await self._ask(lambda viewer: self._queue(request, viewer), caller, context)

    async def page(self, request: pb.PageQuery, caller: Identity, context: Context) -> pb.PageReply:
        pages = self._pages
        if pages is None:
            raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "the scheduler has no pages")
        try:
            found = await self._ask(
                lambda viewer: pages(request.path, request.query, viewer), caller, context
            )
        except RequestRefused as refused:
            if refused.status == FORBIDDEN:
                raise self._auth.forbidden(context, caller, refused.why) from None
            status = STATUSES.get(refused.status, grpc.StatusCode.UNAVAILABLE)
            raise CallRefused(status, refused.why) from None
        return pb.PageReply(json=orjson.dumps(found))

    def _queue(self, request: pb.QueueQuery, viewer: Viewer) -> pb.QueueReply:
        if not viewer.sees_queues():
            raise Hidden("you may not get queues")
        viewer.sees_everything()
        return _seen_by(viewer, *self._queries.queue_tenants(request.name))

    def _topology(self, request: pb.TopologyQuery, viewer: Viewer) -> pb.TopologyReply:
        if not viewer.sees_nodes():
            raise Hidden("you may not get nodes")
        viewer.sees_everything()
        return pb.TopologyReply(
            nodes=[_node(view, viewer) for view in self._queries.node_views(request.node)],
            levels=self._queries.levels,
            troubles=self._queries.troubles,
            version=version(),
        )

    def _explain(self, request: pb.ExplainQuery, viewer: Viewer) -> pb.ExplainReply:
        namespace = request.namespace or "default"
        if not viewer.sees(namespace):
            raise Hidden(
                f'you may get neither pods nor podgroups nor jobs in namespace "{namespace:.63}"'
            )
        found = self._queries.explain(namespace, request.name)
        if found is None:
            return pb.ExplainReply(found=False, namespace=namespace, name=request.name)
        return pb.ExplainReply(
            found=True,
            reason=viewer.redacted(found.reason, found.namespaces),
            closest=viewer.redacted(found.closest, found.namespaces),
            cards=wire.messages(pb.RdmaUse, found.cards),
            start=found.start if found.start < inf else 0.0,
            size=viewer.redacted(found.size, found.namespaces),
            training=self._training(found, viewer),
            wanted_nodes=[pb.WantedNodes(nodes=n, each=each) for n, each in found.wanted_nodes],
            **picked(
                found,
                "namespace name phase pods min_member queue owner place pending priority cause",
            ),
        )

    def _training(self, found: Explanation, viewer: Viewer) -> pb.TrainingView | None:
        if self._progress is None or not found.job:
            return None
        view = self._progress.of_job(found.namespace, found.job, time.monotonic())
        for change in view.changes if view is not None else ():
            change.reason = viewer.redacted(change.reason, found.namespaces)
        return view

    async def _ask(
        self, question: Callable[[Viewer], Answer], caller: Identity, context: Context
    ) -> Answer:
        """Answers in a thread, because the answer takes a scheduling cycle and requests to the API server."""
        user = caller.user
        if self._asking[user] >= PER_USER or self._asking.total() >= QUESTIONS:
            raise _too_many()
        self._asking[user] += 1
        try:
            await self._turn(user)
            asked = asyncio.get_running_loop().run_in_executor(
                self._readers, question, Viewer(self._access, caller)
            )
        except BaseException:
            self._answered(user)
            raise
        asked.add_done_callback(lambda _: self._answered(user))
        try:
            return await asyncio.shield(asked)
        except TimeoutError:
            raise CallRefused(
                grpc.StatusCode.UNAVAILABLE, "the scheduler is busy; try again"
            ) from None
        except AccessUnknown as unknown:
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, str(unknown)) from unknown
        except Hidden as hidden:
            raise self._auth.forbidden(context, caller, str(hidden)) from None

    async def _turn(self, user: str) -> None:
        """Waits until the rates allow one more question."""
        for _ in range(int(LONGEST_TURN_S / TURN_S)):
            if self._rates.take(user, time.monotonic()):
                return
            await asyncio.sleep(TURN_S)
        raise _too_many()

    def _answered(self, user: str) -> None:
        self._asking[user] -= 1
        if not self._asking[user]:
            del self._asking[user]


def _too_many() -> CallRefused:
    return CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many questions; try again later")


def _node(view: NodeView, viewer: Viewer) -> pb.NodeView:
    holders = [holder for holder in view.holders if viewer.sees(holder.namespace)]
    message = pb.NodeView(
        holders=holders,
        hidden_holders=len(view.holders) - len(holders),
        count=pb.GpuCount(**picked(view.count, "gpus used free")),
        cards=wire.messages(pb.RdmaUse, [use for use in view.cards if viewer.sees(use.namespace)]),
        **picked(
            view,
            "name domains gpus_allocatable trouble gpus_shared shares_used slices_used agent_version",
        ),
    )
    if view.topology is not None:
        message.topology.CopyFrom(wire.to_topology(view.topology))
    return message


def _seen_by(viewer: Viewer, found: pb.QueueReply, namespaces: Sequence[str]) -> pb.QueueReply:
    """Returns the reply without tenants that the user may not see: namespaces by the usual rights, and of users only
    oneself."""
    seen = [
        each
        for each, namespace in zip(found.tenants[:TENANTS_MOST], namespaces, strict=False)
        if (viewer.sees(namespace) if namespace else viewer.is_user(each.name))
    ]
    found.hidden_tenants = len(found.tenants) - len(seen)
    del found.tenants[:]
    found.tenants.extend(seen)
    return found
