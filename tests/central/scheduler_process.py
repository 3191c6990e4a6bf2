"""The scheduler's gRPC services on a real port, with a table of tokens, and what clients need."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import grpc
import grpc.aio

from central.model.facts import Fact
from central.model.identity import AuthFailure, Identity, Role, TokenReview
from central.server import tls
from central.server.gpu_uses import GpuUses
from central.server.grpc import grpc_server
from central.server.grpc.agent_service import AgentService
from central.server.grpc.auth import Authenticator
from central.server.grpc.connection_limits import Limits
from central.server.grpc.plans import PlannedDevices
from central.server.grpc.query_service import Queries, QueryService
from central.server.grpc.training_plans import TrainingPlans
from central.server.grpc.training_service import TrainingService
from central.server.grpc.usage_query import UsageSource
from central.server.grpc.visibility import Access
from protos import wire
from protos.stubs import fleet_pb2 as pb
from protos.topology import Gpu, NodeTopology

AGENT = "system:serviceaccount:lockstep-system:lockstep-agent"
TOKENS: dict[str, Identity | AuthFailure] = {
    "user": Identity("jane"),
    "other-account": AuthFailure("someone else's account", authenticated=True),
    "expired": AuthFailure("the API server rejects the token"),
    "unasked": AuthFailure("the API server can't be asked", transient=True),
}


class TokenTable:
    """The token "agent-NODE" is that of the node's agent, "coordinator-UID" that of a coordinator's pod."""

    def implausible(self, token: str, role: Role) -> str:
        return ""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        rejected = AuthFailure("the API server rejects the token")
        if token.startswith("agent-"):
            return Identity(AGENT, token.removeprefix("agent-"))
        if token.startswith("coordinator-") and role == "coordinator":
            uid = token.removeprefix("coordinator-")
            return Identity("system:serviceaccount:team:default", pod_uid=uid)
        found = TOKENS.get(token, rejected)
        if role == "agent" and isinstance(found, Identity):
            return AuthFailure("only an agent may call this", authenticated=True)
        return found


class EveryRight:
    """Everybody may do everything."""

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        return True


@cache
def credentials() -> tls.Credentials:
    return tls.issue("lockstep-system", datetime.now(UTC))


class SchedulerServer:
    def __init__(
        self,
        queries: Queries | None = None,
        silent_after_s: float = 30.0,
        access: Access | None = None,
        reviewer: TokenReview | None = None,
        *,
        limits: Limits | None = None,
        usage: UsageSource | None = None,
        term: int = 1,
    ) -> None:
        self.facts: list[Fact] = []
        self.plans = PlannedDevices()
        auth = Authenticator(reviewer or TokenTable())
        self.uses = GpuUses()
        self.agents = AgentService(self.facts.append, auth, self.plans, silent_after_s, self.uses)
        self.training_plans = TrainingPlans()
        self.training = TrainingService(self.facts.append, auth, self.training_plans, term, 1.0)
        services: list[Callable[[grpc.aio.Server], None]] = [self.agents.add_to]
        services.append(self.training.add_to)
        if queries is not None:
            progress = self.training.views
            access = access or EveryRight()
            pages = getattr(queries, "page", None)
            service = QueryService(queries, auth, access, usage, progress, pages=pages)
            services.append(service.add_to)
        self.server = grpc_server.serve("127.0.0.1:0", credentials(), services, auth, limits=limits)
        self.address = f"127.0.0.1:{self.server.port}"

    def channel(self) -> grpc.Channel:
        return grpc.secure_channel(
            self.address, grpc.ssl_channel_credentials(credentials().ca), _ALONE
        )

    def aio_channel(self) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(
            self.address, grpc.ssl_channel_credentials(credentials().ca), _ALONE
        )


_ALONE: Sequence[tuple[str, int]] = (("grpc.use_local_subchannel_pool", 1),)


def auth(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def topology(gpus: int = 2) -> NodeTopology:
    return NodeTopology(
        gpus=tuple(Gpu(i, f"GPU-{i}", "H100", 80 << 30, f"0000:0{i}:00.0") for i in range(gpus)),
        links=tuple(tuple("X" if i == j else "NV18" for j in range(gpus)) for i in range(gpus)),
        islands=(tuple(range(gpus)),),
    )


def report(node: str = "n1", generation: int = 1, **more: object) -> pb.NodeReport:
    message = pb.NodeReport(node=node, boot_id="b", generation=generation)
    if not more.pop("heartbeat", False):
        message.topology.CopyFrom(wire.to_topology(topology()))
    else:
        message.heartbeat = True
    for field, value in more.items():
        setattr(message, field, value)
    return message


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """The code and details with which the call is refused."""
    try:
        call()
    except grpc.RpcError as error:
        call_error: Any = error  # at run time it is the call, too
        return call_error.code(), call_error.details()
    raise AssertionError("it was not refused")
