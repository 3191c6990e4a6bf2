"""Bytes that strangers and members may send to an HTTP port, with the coordinator's bounds, instead of a request: each
connection gets one answer or is closed, nothing is kept beyond the bounds, and a member is served meanwhile."""

import asyncio
import json
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from central.coordinator.member_port import BOUNDS
from central.server import tls
from protos.common.http_server import HttpAnswer, HttpRequest, HttpServer, RequestRefused, listen

MEMBERS = 3  # connections that they may have
MOST_BODY, MOST_HEAD = BOUNDS.body, BOUNDS.head
BEARER = "Bearer secret"
KNOWN = b"Authorization: Bearer secret\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
JOIN = b"POST /v1/join HTTP/1.1\r\n" + KNOWN
PROBE = b"GET /healthz HTTP/1.1\r\n"
GOOD = JOIN + b'Content-Length: 13\r\n\r\n{"member": 0}'
LONG = b"a" * (MOST_HEAD + 1)
ANSWERS = {b"200", b"400", b"401", b"413", b"431"}
CASES: dict[str, tuple[bytes, bytes]] = {  # what is sent, and the status; b"": closed without one
    "a request": (GOOD, b"200 13"),
    "a request in chunks": (JOIN + CHUNKED + b"\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"200 5"),
    "a probe": (PROBE + b"\r\n", b"200 0"),
    "an extension of a chunk": (JOIN + CHUNKED + b"\r\n2;x=1\r\nde\r\n0\r\n\r\n", b"400"),
    "a trailer": (JOIN + CHUNKED + b"\r\n2\r\nde\r\n0\r\nX: trailer\r\n\r\n", b"400"),
    "no token": (b"GET /v1/status HTTP/1.1\r\n\r\n", b"401"),
    "another token": (b"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 9999\r\n\r\n{", b"401"),
    "the token in a trailer": (b"POST /v1/join HTTP/1.1\r\n" + CHUNKED + b"\r\n0\r\n" + KNOWN + b"\r\n", b"401"),
    "the token for another path": (b"GET /v1x HTTP/1.1\r\n\r\n", b"401"),
    "the largest body": (JOIN + b"Content-Length: %d\r\n\r\n" % MOST_BODY + b"x" * MOST_BODY, b"200 %d" % MOST_BODY),
    "a byte more": (JOIN + b"Content-Length: %d\r\n\r\n" % (MOST_BODY + 1), b"413"),
    "a body of 10^12": (JOIN + b"Content-Length: 999999999999\r\n\r\n", b"413"),
    "a body of digits": (JOIN + b"Content-Length: " + b"9" * 500 + b"\r\n\r\n", b"413"),
    "leading zeros": (JOIN + b"Content-Length: " + b"0" * 5000 + b"1\r\n\r\nx", b"400"),
    "a body of -1": (JOIN + b"Content-Length: -1\r\n\r\n", b"400"),
    "two lengths": (JOIN + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
    "a length and chunks": (JOIN + b"Content-Length: 1\r\n" + CHUNKED + b"\r\n", b"400"),
    "chunks that are too many": (JOIN + CHUNKED + b"\r\n" + b"10000\r\n" + b"x" * 0x10000 + b"\r\n40000\r\n" + b"x" * 0x40000, b"400"),
    "a chunk of 2^64": (JOIN + CHUNKED + b"\r\nffffffffffffffffff\r\n", b"400"),
    "a chunk of -1": (JOIN + CHUNKED + b"\r\n-1\r\n", b"400"),
    "chunks of a byte without end": (JOIN + CHUNKED + b"\r\n" + b"1\r\na\r\n" * 20_000, b""),
    "an extension of a chunk without end": (JOIN + CHUNKED + b"\r\n1;x=" + LONG, b""),
    "a trailer without end": (JOIN + CHUNKED + b"\r\n0\r\nX: " + LONG, b"400"),
    "trailers without end": (JOIN + CHUNKED + b"\r\n0\r\n" + b"X: a\r\n" * 10_000, b"400"),
    "a body of a stranger": (b"POST /healthz HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", b"413"),
    "chunks of a stranger": (b"POST /healthz HTTP/1.1\r\n" + CHUNKED + b"\r\n1\r\nx\r\n", b"413"),
    "a trailer of a stranger": (PROBE + CHUNKED + b"\r\n0\r\nX: " + LONG, b"413"),
    "a path without end": (b"GET /" + b"a" * 40_000, b""),
    "a header without end": (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000, b""),
    "headers without end": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 10_000, b""),
    "the hello of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    "HTTP/9.9": (b"GET /healthz HTTP/9.9\r\n\r\n", b"400"),
    "no method": (b"\r\n\r\nGRAB /healthz HTTP/1.1\r\n\r\n", b"400"),
    "NUL in a header": (b"GET /healthz HTTP/1.1\r\nX: \x00\r\n\r\n", b"400"),
    "a header on two lines": (b"GET /healthz HTTP/1.1\r\nX: a\r\n b\r\n\r\n", b"400"),
    "an upgrade": (PROBE + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"200 0"),
    "a tunnel": (b"CONNECT x:1 HTTP/1.1\r\n\r\n", b"400"),
    "a query that is no ASCII": (PROBE.replace(b"healthz", b"healthz?a=\xff") + b"\r\n", b"400"),
    "17 fields": (PROBE.replace(b"healthz", b"healthz?" + b"a=1&" * 16 + b"a=1") + b"\r\n", b"400"),
    "16 fields": (PROBE.replace(b"healthz", b"healthz?" + b"a=1&" * 15 + b"a=1") + b"\r\n", b"200 0"),
    "two requests at once": (GOOD + GOOD, b"200 13"),
    "two probes at once": (PROBE + b"\r\n" + PROBE + b"\r\n", b"200 0"),
    "nothing but line ends": (b"\r\n" * 3, b"400"),
}  # fmt: skip


class Served:
    """A site whose members show BEARER; strangers may ask for /healthz."""

    def __init__(self, **bounds: float) -> None:
        limits = replace(BOUNDS.unknown, unknown_s=1.0)
        chosen = {"known": MEMBERS, "unknown": limits, **bounds}
        self.server = HttpServer(self, replace(BOUNDS, **chosen))  # type: ignore[arg-type]
        self.failures: list[dict[str, Any]] = []
        self.port = 0
        self.asked, self.gate = asyncio.Event(), asyncio.Event()  # of answers that come later
        self.cancelled = 0
        self.open = 0  # requests that were not cleaned up

    async def admit(self, request: HttpRequest) -> bool:
        self.open += 1
        request.cleanup.callback(self._ended)
        if request.path == "/healthz":
            return False
        if request.headers.get("Authorization") != BEARER:
            raise RequestRefused(401, "no token")
        return True

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        assert len(request.body) <= MOST_BODY
        if request.path == "/v1/empty":
            return HttpAnswer(204, retry_after_s=7)
        if request.path == "/v1/late":
            self.asked.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return HttpAnswer(200, json.dumps(request.query).encode())
        return HttpAnswer(200, str(len(request.body)).encode())

    def _ended(self) -> None:
        self.open -= 1

    def problem(self, status: int, why: str) -> HttpAnswer:
        assert 0 < len(why) < 200
        return HttpAnswer(status, why.encode())

    async def told(self, *pieces: bytes) -> bytes:
        """The answer to these bytes; empty if there is none before the connection ends. Nothing follows a last
        answer."""
        async with connected(self) as (reader, writer):
            try:
                for piece in pieces:
                    writer.write(piece)
                    if len(pieces) > 1:
                        await asyncio.sleep(0)
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"Content-Length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                if b"Connection: close" in head:
                    assert await reader.read() == b""
            except (ConnectionError, asyncio.IncompleteReadError):
                return b""
            return head + body

    async def serves_members(self) -> bool:
        return status(await self.told(GOOD)) == b"200 13"


def status(answer: bytes) -> bytes:
    """Of the answer; with its body if it is 200."""
    head, _, body = answer.partition(b"\r\n\r\n")
    found = head[9:12]
    return b"200 " + body if found == b"200" else found


def serve(
    story: Callable[[Served], Awaitable[None]],
    context: ssl.SSLContext | None = None,
    **bounds: float,
) -> None:
    async def run() -> None:
        served = Served(**bounds)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: served.failures.append(context))
        listener = listen("127.0.0.1:0")
        served.port = listener.getsockname()[1]
        served.server.serve(listener, context)
        try:
            await story(served)
            assert context is not None or await served.serves_members()
            for _ in range(100):
                if not served.server.streams:
                    break
                await asyncio.sleep(0.01)
            assert not served.server.streams, "all are closed, and none is kept"
            assert served.open == 0, "requests are cleaned up, however they ended"
        finally:
            await served.server.close()
        assert not served.failures, served.failures

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.long
def test_hostile_bytes_get_one_answer() -> None:
    async def story(served: Served) -> None:
        async def case(raw: bytes, expected: bytes) -> bytes | None:
            found = status(await served.told(raw))
            cut_off = found == b"" and len(raw) > MOST_HEAD and not expected.startswith(b"200")
            return None if cut_off or found == expected else found

        found = await asyncio.gather(*(case(*each) for each in CASES.values()))
        wrong = {what: each for what, each in zip(CASES, found, strict=True) if each is not None}
        assert not wrong

    serve(story, known=len(CASES), body_s=1.0)


@pytest.mark.parametrize("what", ["a request", "a request in chunks", "a probe", "no token"])
def test_where_a_request_is_cut_makes_no_difference(what: str) -> None:
    raw, expected = CASES[what]

    async def story(served: Served) -> None:
        for at in range(1, len(raw)):
            assert status(await served.told(raw[:at], raw[at:])) == expected, at

    serve(story)


def test_a_member_keeps_its_connection_and_a_stranger_does_not() -> None:
    async def story(served: Served) -> None:
        async with connected(served) as (reader, writer):
            for _ in range(3):
                writer.write(GOOD)
                assert await read_answer(reader) == (
                    "200 OK",
                    {"content-type": "application/json"},
                    b"13",
                )
            writer.write(b"GET /v1/empty HTTP/1.1\r\n" + KNOWN + b"\r\n")
            assert await read_answer(reader) == ("204 No Content", {"retry-after": "7"}, b"")
            served.gate.set()
            writer.write(b"GET /v1/late?a=1&b= HTTP/1.1\r\n" + KNOWN + b"\r\n")
            assert (await read_answer(reader))[2] == b'{"a": "1", "b": ""}'
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert (await read_answer(reader))[1].get("connection") is None, "it is a member's"
            writer.write(JOIN + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
            assert (await read_answer(reader))[1]["connection"] == "close"
            assert await reader.read() == b""
        async with connected(served) as (reader, writer):
            writer.write(PROBE + b"\r\n")
            assert (await read_answer(reader))[1]["connection"] == "close"
            assert await reader.read() == b""

    serve(story)


@pytest.mark.long
def test_a_request_that_comes_before_the_answer_waits_unread() -> None:
    """What a client sends meanwhile stays in its kernel, but for some KiB."""

    async def story(served: Served) -> None:
        late = b"GET /v1/late HTTP/1.1\r\n" + KNOWN + b"\r\n"
        async with connected(served) as (reader, writer):
            writer.write(late + GOOD)
            await served.asked.wait()
            served.gate.set()
            assert (await read_answer(reader))[2] == b"{}"
            assert (await read_answer(reader))[2] == b"13"
            served.asked.clear()
            served.gate.clear()
            writer.write(late)
            await served.asked.wait()
            writer.write(b"x" * (64 << 20))
            for _ in range(1000):
                await asyncio.sleep(0)
            assert not served.gate.is_set()
            transport = writer.transport
            assert transport.get_write_buffer_size() > 32 << 20, "it is not read"
            transport.abort()
            served.gate.set()

    serve(story)


def test_members_have_places_and_leave_them() -> None:
    async def story(served: Served) -> None:
        async with AsyncExitStack() as held:
            for _ in range(MEMBERS):
                reader, writer = await held.enter_async_context(connected(served))
                for _ in range(2):
                    writer.write(GOOD)
                    assert (await read_answer(reader))[0] == "200 OK"
            answer = await served.told(GOOD)
            assert answer.endswith(b"more than 3 connections; try again later")
            assert status(answer) == b"429"
            assert status(await served.told(PROBE + b"\r\n")) == b"200 0", "probes are answered"
            writer.write(GOOD)
            assert (await read_answer(reader))[0] == "200 OK"
        while served.server.streams:
            await asyncio.sleep(0)

    serve(story)


@pytest.mark.parametrize("sent", [b"", GOOD[:20], GOOD[:-1]])
def test_a_silent_member_is_disconnected(sent: bytes) -> None:
    """Between two requests, in a head, and in a body."""

    async def story(served: Served) -> None:
        async with connected(served) as (reader, writer):
            writer.write(GOOD)
            await read_answer(reader)
            writer.write(sent)
            with suppress(ConnectionError):
                assert await reader.read() == b""

    serve(story, idle_s=0.3, body_s=0.3)


@pytest.mark.long
def test_a_slow_client_is_disconnected_until_it_is_known() -> None:
    """One after another: the limit is for each. A member may be slow."""

    async def story(served: Served) -> None:
        async with connected(served) as (member, asking):
            asking.write(GOOD)
            await read_answer(member)
            for _ in range(2):
                async with connected(served) as (reader, writer):
                    with suppress(ConnectionError):
                        while not reader.at_eof():
                            writer.write(b"G")
                            await asyncio.sleep(0.01)
            asking.write(GOOD)
            assert (await read_answer(member))[0] == "200 OK"

    serve(story)


def test_a_head_has_a_greatest_length() -> None:
    async def story(served: Served) -> None:
        for more, expected in ((0, b"200 0"), (1, b"")):
            head = PROBE + b"X: %s\r\n\r\n"
            text = b"a" * (MOST_HEAD - len(head % b"") + more)
            assert status(await served.told(head % text)) == expected

    serve(story)


@pytest.mark.parametrize("sent", [b"", GOOD[:-1], b"GET /v1/late HTTP/1.1\r\n" + KNOWN + b"\r\n"])
def test_a_client_that_ends_its_half_is_gone(sent: bytes) -> None:
    """Before, in and after its request."""

    async def story(served: Served) -> None:
        async with connected(served) as (reader, writer):
            writer.write(sent)
            if b"late" in sent:
                await served.asked.wait()
            writer.write_eof()
            with suppress(ConnectionError):
                assert await reader.read() == b""
        assert served.cancelled == (b"late" in sent)

    serve(story, body_s=100.0)


@pytest.mark.long
def test_an_answer_takes_as_long_as_it_takes() -> None:
    async def story(served: Served) -> None:
        async with connected(served) as (reader, writer):
            writer.write(b"GET /v1/late HTTP/1.1\r\n" + KNOWN + b"\r\n")
            await served.asked.wait()
            await asyncio.sleep(0.5)
            served.gate.set()
            assert (await read_answer(reader))[0] == "200 OK"

    serve(story, idle_s=0.2, body_s=0.2, write_s=0.2)


@asynccontextmanager
async def connected(
    served: Served,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Its status, its other headers by lower-case name, and its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:-2])
    body = await reader.readexactly(int(headers.pop("content-length", "0")))
    return head[0].removeprefix("HTTP/1.1 "), headers, body


@pytest.mark.long
def test_changed_requests_are_answered_or_closed() -> None:
    dice = random.Random("http")
    parts = [raw for raw, _ in CASES.values() if len(raw) < 300]

    def changed() -> bytes:
        raw = bytearray(dice.choice(parts))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(raw) + 1)
            other = dice.choice(parts)
            piece = other[(start := dice.randrange(len(other))) : start + dice.randrange(30)]
            raw[at : at + dice.randrange(5)] = dice.choice((piece, dice.randbytes(2), b""))
        return bytes(raw)

    async def story(served: Served) -> None:
        async def case(raw: bytes) -> None:
            assert (await served.told(raw))[9:12] in ANSWERS | {b""}, raw

        for _ in range(4):
            await asyncio.gather(*(case(changed()) for _ in range(100)))

    serve(story, known=100, idle_s=1.0, body_s=1.0)


@pytest.mark.parametrize("head", [PROBE, JOIN])
def test_what_comes_after_the_body_is_not_kept(head: bytes) -> None:
    """A trailer without end, in pieces: the answer comes after the bound, and the connection is closed."""

    async def story(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + CHUNKED + b"\r\n0\r\nX: ")
        sent = 0
        while not reader.at_eof() and not writer.is_closing() and sent < 1 << 24:
            writer.write(b"a" * 4096)
            sent += 4096
            await asyncio.sleep(0)
        assert sent < 1 << 20
        with suppress(ConnectionError):
            assert (await reader.read(12))[9:12] in (b"400", b"413")
        writer.close()

    serve(story)


def test_a_certificate_is_replaced_under_the_server(tmp_path: Path) -> None:
    """Connections that there are go on; new ones get the new certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def trusted() -> ssl.SSLContext:
        """With a new certificate in the server's context."""
        issued = tls.issue("team", datetime.now(UTC))
        (tmp_path / "tls.crt").write_bytes(issued.certificate)
        (tmp_path / "tls.key").write_bytes(issued.key)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        return ssl.create_default_context(cadata=issued.ca.decode())

    async def story(served: Served) -> None:
        first = trusted()
        old = await asyncio.open_connection("localhost", served.port, ssl=first)
        second = trusted()
        new = await asyncio.open_connection("localhost", served.port, ssl=second)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("localhost", served.port, ssl=first)
        for reader, writer in (old, new):
            writer.write(GOOD)
            assert (await read_answer(reader))[0] == "200 OK"
            writer.transport.abort()

    serve(story, context)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"])
@pytest.mark.long
def test_half_a_handshake_ends_in_time(sent: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def story(served: Served) -> None:
        async with connected(served) as (reader, writer):
            writer.write(sent)
            with suppress(ConnectionError):
                await reader.read()

    serve(story, context)
