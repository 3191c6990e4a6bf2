"""Authentication of gRPC calls by the caller's bearer token, before anything of the message is read.

    calls = {"Report": GuardedCall("agent", pb.NodeReport, self.report)}
    server.add_generic_rpc_handlers((authenticator.handlers("lockstep.v1.Fleet", calls),))

A method gets the message, the caller and the context, and may raise CallRefused. What a refused caller can cause in the
log is bounded.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from central.model.identity import NO_TOKEN, AuthFailure, Identity, Role, TokenReview, bearer_token
from central.server.grpc.connection_limits import Owner
from central.server.grpc.token_cache import TokenCache
from central.server.throttled_log import ThrottledLog
from protos.printing import brief

SENTENCE = 700  # characters
log = logging.getLogger(__name__)

MESSAGE_S = 10.0  # until the whole message has arrived

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Identity, Context], Awaitable[Message]]


class Connections(Protocol):
    """Connections by their port: central.server.grpc.tcp_proxy."""

    def peer(self, port: int) -> str: ...
    def owner(self, port: int) -> Owner | None: ...
    def admit(self, port: int, owner: Owner) -> None: ...
    def refuse(self, port: int) -> None: ...


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A method of a service: who may call it, its message's class, and its implementation."""

    role: Role
    message: type[Message]
    method: Method
    unfit: Callable[[Identity], str] = lambda caller: ""  # why a known caller may not call it


class CallRefused(Exception):
    """Ends a call: with a code, and a sentence for the caller, which may repeat what it sent."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        why = brief(why, SENTENCE)
        super().__init__(why)
        self.code = code
        self.why = why


class Authenticator:
    """connections is set by the server that it belongs to, before its first call."""

    def __init__(self, reviewer: TokenReview) -> None:
        self.connections: Connections | None = None
        self._tokens = TokenCache(reviewer)
        self._quiet = ThrottledLog(log)

    def handlers(self, service: str, calls: Mapping[str, GuardedCall]) -> grpc.GenericRpcHandler:
        # With the kind stream_unary, gRPC reads a message when the method asks for it, and not before. Callers
        # see no difference.
        return grpc.method_handlers_generic_handler(
            service,
            {
                name: grpc.stream_unary_rpc_method_handler(self._guarded(f"{service}/{name}", call))
                for name, call in calls.items()
            },
        )

    def forbidden(self, context: Context, caller: Identity, why: str) -> CallRefused:
        """Returns the error to raise if the caller is known but may not do this."""
        return self._refused(context, AuthFailure(why, authenticated=True), caller.user)

    def _guarded(
        self, name: str, call: GuardedCall
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
        async def guarded(messages: AsyncIterator[bytes], context: Context) -> bytes:
            try:
                caller = await self._caller(call, context)
                request = await self._read(call.message, messages)
                return (await call.method(request, caller, context)).SerializeToString()
            except CallRefused as refused:
                code, why = refused.code, refused.why
            except Exception as error:  # noqa: BLE001 - logged, at most once a minute
                self._quiet.exception(f"{name} {type(error)}", "%s failed (bug)", name)
                code, why = grpc.StatusCode.INTERNAL, "internal error; see the log"
            try:
                await context.abort(code, why)
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError as gone:  # the client has hung up
                raise asyncio.CancelledError from gone

        return guarded

    async def _caller(self, call: GuardedCall, context: Context) -> Identity:
        """Raises CallRefused unless the call's token is valid for the role."""
        role = call.role
        port = _port(context)
        token = bearer_token(context.invocation_metadata())
        if not token:
            raise self._refused(context, NO_TOKEN)
        connections = self.connections
        owner = connections.owner(port) if connections else None
        vouched = role == "agent" and owner is not None and owner.role == "agent"
        answer = await self._tokens.identify(token, role, self._peer(context), vouched=vouched)
        if isinstance(answer, AuthFailure):
            raise self._refused(context, answer)
        if role == "agent" and not answer.node:
            raise self.forbidden(context, answer, "only an agent may call this")
        if why := call.unfit(answer):
            raise self.forbidden(context, answer, why)
        if connections:
            connections.admit(port, Owner(answer.user, answer.node, answer.pod_uid))
        return answer

    async def _read(self, kind: type[Message], messages: AsyncIterator[bytes]) -> Message:
        """Raises CallRefused unless the call has a message of this kind."""
        message = kind()
        try:
            async with asyncio.timeout(MESSAGE_S):
                message.ParseFromString(await anext(messages))
        except StopAsyncIteration:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message") from None
        except TimeoutError:
            raise CallRefused(
                grpc.StatusCode.DEADLINE_EXCEEDED, "the message is incomplete"
            ) from None
        except DecodeError:
            raise CallRefused(
                grpc.StatusCode.INVALID_ARGUMENT, f"the message is no {kind.DESCRIPTOR.name}"
            ) from None
        return message

    def _refused(self, context: Context, refusal: AuthFailure, user: str = "") -> CallRefused:
        if refusal.busy:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        elif refusal.transient:
            code = grpc.StatusCode.UNAVAILABLE
        elif refusal.authenticated:
            code = grpc.StatusCode.PERMISSION_DENIED
        else:
            code = grpc.StatusCode.UNAUTHENTICATED
        why = refusal.why[:500]
        peer = self._peer(context)
        caller = f"{peer} ({user})" if user else peer
        self._quiet.warning(f"{user} {why}", "refused %s: %s", caller, why)
        if self.connections and not (refusal.transient or refusal.busy or user):
            self.connections.refuse(_port(context))
        return CallRefused(code, why)

    def _peer(self, context: Context) -> str:
        known = self.connections.peer(_port(context)) if self.connections else ""
        return known or str(context.peer())


def _port(context: Context) -> int:
    """Returns the client's port as the gRPC server sees it: ipv4:127.0.0.1:40000."""
    _, _, port = context.peer().rpartition(":")
    return int(port) if port.isdecimal() else 0
