"""Who may call a method, and what the others are told: with contexts of a call that note how it ended."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from central.model.identity import AuthFailure, Identity, Role
from central.server.grpc import auth
from central.server.grpc.auth import Authenticator, CallRefused, GuardedCall
from central.server.grpc.connection_limits import Owner
from protos.stubs import fleet_pb2 as pb

CODE = grpc.StatusCode
AGENT, USER = Identity("system:agent", "n1"), Identity("jane")
COORDINATOR = Identity("system:job", pod_uid="u1")
MESSAGE = pb.NodeReport(node="n1").SerializeToString()


class Aborted(Exception):
    pass


class Context:
    def __init__(self, token: str | None = "t", port: int = 4000) -> None:
        self.said: tuple[grpc.StatusCode, str] | None = None
        self._token, self._port = token, port

    def peer(self) -> str:
        return f"ipv4:127.0.0.1:{self._port}"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._token is None else (("authorization", f"Bearer {self._token}"),)

    async def abort(self, code: grpc.StatusCode, why: str) -> None:
        self.said = code, why
        raise grpc.aio.AbortError


class Connections:
    def __init__(self) -> None:
        self.owners: dict[int, Owner] = {}
        self.admitted: list[tuple[int, Owner]] = []
        self.refused: list[int] = []

    def peer(self, port: int) -> str:
        return f"10.0.0.{port - 4000}" if port else ""

    def owner(self, port: int) -> Owner | None:
        return self.owners.get(port)

    def admit(self, port: int, owner: Owner) -> None:
        self.admitted.append((port, owner))

    def refuse(self, port: int) -> None:
        self.refused.append(port)


class Reviewer:
    def __init__(self, answer: Identity | AuthFailure) -> None:
        self.answer, self.asked = answer, list[tuple[str, Role]]()

    def implausible(self, token: str, role: Role) -> str:
        return ""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        self.asked.append((token, role))
        return self.answer


class Box:
    def __init__(self, answer: Identity | AuthFailure, role: Role = "agent", **call: Any) -> None:
        self.reviewer, self.connections = Reviewer(answer), Connections()
        self.auth = Authenticator(self.reviewer)
        self.auth.connections = self.connections
        self.called: list[tuple[Any, Identity]] = []
        self.error: Exception | None = None
        self.guarded = self.auth._guarded("S/M", GuardedCall(role, pb.NodeReport, self._method, **call))  # fmt: skip

    async def _method(self, request: Any, caller: Identity, context: Any) -> pb.ReportAck:
        self.called.append((request, caller))
        if self.error is not None:
            raise self.error
        return pb.ReportAck(want_full=True)

    def call(self, *messages: bytes, context: Context | None = None) -> tuple[grpc.StatusCode, str]:
        """How the call ended."""
        given = context or Context()

        async def sent() -> AsyncIterator[bytes]:
            for each in messages or (MESSAGE,):
                if each == b"never":
                    await asyncio.sleep(60)
                if each != b"none":
                    yield each

        async def run() -> tuple[grpc.StatusCode, str]:
            try:
                answer = await self.guarded(sent(), given)  # type: ignore[arg-type]
            except grpc.aio.AbortError:
                assert given.said is not None
                return given.said
            assert pb.ReportAck.FromString(answer).want_full
            return CODE.OK, ""

        return asyncio.run(run())


@pytest.mark.parametrize(
    ("role", "caller", "owner"),
    [
        ("agent", AGENT, Owner("system:agent", "n1")),
        ("user", USER, Owner("jane")),
        ("coordinator", COORDINATOR, Owner("system:job", pod_uid="u1")),
    ],
)
def test_a_caller_that_may(role: Role, caller: Identity, owner: Owner) -> None:
    box = Box(caller, role)
    assert box.call() == (CODE.OK, "")
    assert box.called == [(pb.NodeReport(node="n1"), caller)]
    assert box.reviewer.asked == [("t", role)]
    assert (box.connections.admitted, box.connections.refused) == ([(4000, owner)], [])
    alone = Box(caller, role)
    alone.auth.connections = None
    assert alone.call() == (CODE.OK, "")


LONG = "x" * 600
Refusal = tuple[Any, Context | None, grpc.StatusCode, str, bool]
REFUSALS: list[Refusal] = [
    (AGENT, Context(None), CODE.UNAUTHENTICATED, "", True),
    (AGENT, Context(""), CODE.UNAUTHENTICATED, "", True),
    (AuthFailure("expired"), None, CODE.UNAUTHENTICATED, "expired", True),
    (AuthFailure(LONG), None, CODE.UNAUTHENTICATED, LONG[:500], True),
    (AuthFailure("no agent", authenticated=True), None, CODE.PERMISSION_DENIED, "no agent", True),
    (AuthFailure("away", transient=True), None, CODE.UNAVAILABLE, "away", False),
    (AuthFailure("many", busy=True), None, CODE.RESOURCE_EXHAUSTED, "many", False),
    (USER, None, CODE.PERMISSION_DENIED, "only an agent may call this", False),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda one: str(one[0])[:40])
def test_a_caller_that_may_not(case: Refusal, caplog: pytest.LogCaptureFixture) -> None:
    """It counts against its connection if it has shown no valid token."""
    answer, context, code, why, counted = case
    box = Box(answer)
    ended, said = box.call(context=context)
    assert ended == code
    assert said == why or not why
    assert (box.called, box.connections.admitted) == ([], [])
    assert box.connections.refused == ([4000] if counted else [])
    assert len([each for each in caplog.messages if each.startswith("refused 10.0.0.0")]) == 1
    assert ("(jane)" in caplog.text) == (answer is USER)
    box.auth.connections = None
    caplog.clear()
    assert box.call(context=context)[0] == code


def test_who_is_unfit(caplog: pytest.LogCaptureFixture) -> None:
    box = Box(AGENT, unfit=lambda caller: f"{caller.node} is too old")
    assert box.call() == (CODE.PERMISSION_DENIED, "n1 is too old")
    assert (box.called, box.connections.admitted, box.connections.refused) == ([], [], [])
    assert "(system:agent)" in caplog.text


def test_other_roles_need_no_node() -> None:
    assert Box(USER, "user").call() == (CODE.OK, "")
    assert Box(USER, "coordinator").call() == (CODE.OK, "")


@pytest.mark.parametrize(
    ("messages", "code", "why"),
    [
        ((b"none",), CODE.INVALID_ARGUMENT, "the call has no message"),
        ((b"\xff",), CODE.INVALID_ARGUMENT, "the message is no NodeReport"),
        ((b"never",), CODE.DEADLINE_EXCEEDED, "the message is incomplete"),
    ],
)
def test_messages_that_are_none(messages: Any, code: grpc.StatusCode, why: str, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Of a known caller. One that is unknown gets as far as its token."""
    monkeypatch.setattr(auth, "MESSAGE_S", 0.05)
    box = Box(AGENT)
    assert box.call(*messages) == (code, why)
    assert box.called == []
    assert box.connections.admitted
    unknown = Box(AuthFailure("expired"))
    assert unknown.call(*messages) == (CODE.UNAUTHENTICATED, "expired")


def test_a_method_may_refuse_and_may_have_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    box = Box(AGENT)
    box.error = CallRefused(CODE.NOT_FOUND, "no such node")
    assert box.call() == (CODE.NOT_FOUND, "no such node")
    assert caplog.messages == []
    box.error = KeyError("x")
    for _ in range(3):
        assert box.call() == (CODE.INTERNAL, "internal error; see the log")
    assert caplog.messages == ["S/M failed (bug)"], "once in a minute"
    assert caplog.records[0].exc_info
    box.error = TypeError("y")
    box.call()
    assert len(caplog.messages) == 2


def test_a_client_that_has_hung_up() -> None:
    class Gone(Context):
        async def abort(self, code: grpc.StatusCode, why: str) -> None:
            raise grpc.aio.UsageError("gone")

    with pytest.raises(asyncio.CancelledError):
        Box(AuthFailure("expired")).call(context=Gone())


def test_agents_that_are_known_vouch_for_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that rotates waits behind no unknown one."""
    for owner, role, vouched in (
        (None, "agent", False),
        (Owner("system:agent", "n1"), "agent", True),
        (Owner("jane"), "agent", False),
        (Owner("system:agent", "n1"), "user", False),
    ):
        box = Box(AGENT, role)  # type: ignore[arg-type]
        if owner is not None:
            box.connections.owners[4000] = owner
        seen: list[Any] = []
        known = box.auth._tokens.identify

        async def noted(token: str, role: Role, peer: str, *, vouched: bool = False, seen: list[Any] = seen, known: Callable[..., Any] = known) -> Any:  # fmt: skip
            seen.append((peer, vouched))
            return await known(token, role, peer, vouched=vouched)

        monkeypatch.setattr(box.auth._tokens, "identify", noted)
        box.call()
        assert seen == [("10.0.0.0", vouched)]


def test_the_peer_is_that_of_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    """As the gRPC server sees it, all come from this machine."""
    caplog.set_level(logging.INFO)
    for context, peer in ((Context(port=4007), "10.0.0.7"), (Context(port=0), "ipv4:127.0.0.1:0")):
        Box(AuthFailure("expired")).call(context=context)
        assert f"refused {peer}: expired" in caplog.messages

    class Odd(Context):
        def peer(self) -> str:
            return "unix:socket"

    Box(AuthFailure("expired")).call(context=Odd())
    assert "refused unix:socket: expired" in caplog.messages


def test_a_refusal_to_raise() -> None:
    box = Box(AGENT)
    refused = box.auth.forbidden(Context(), USER, "not yours")  # type: ignore[arg-type]
    assert (refused.code, refused.why, str(refused)) == (CODE.PERMISSION_DENIED, "not yours", "not yours")  # fmt: skip
    assert box.connections.refused == []
