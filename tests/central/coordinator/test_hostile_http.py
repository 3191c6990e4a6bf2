"""Bytes that strangers and members may send to the coordinator's port instead of a request: each connection gets one
answer or is closed, nothing is kept beyond the bounds, and a member is served meanwhile."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from central.coordinator.http_server import (
    IDLE_S,
    MOST_BODY,
    MOST_HEAD,
    REQUEST_S,
    HttpAnswer,
    HttpRequest,
    HttpServer,
)

MEMBERS = 3  # connections that they may have
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
    "a request in chunks": (JOIN + CHUNKED + b"\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nX: trailer\r\n\r\n", b"200 5"),
    "a probe": (PROBE + b"\r\n", b"200 0"),
    "no token": (b"GET /v1/status HTTP/1.1\r\n\r\n", b"401"),
    "another token": (b"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 9999\r\n\r\n{", b"401"),
    "the token in a trailer": (b"POST /v1/join HTTP/1.1\r\n" + CHUNKED + b"\r\n0\r\n" + KNOWN + b"\r\n", b"401"),
    "the token for another path": (b"GET /v1x HTTP/1.1\r\n\r\n", b"401"),
    "the largest body": (JOIN + b"Content-Length: %d\r\n\r\n" % MOST_BODY + b"x" * MOST_BODY, b"200 %d" % MOST_BODY),
    "a byte more": (JOIN + b"Content-Length: %d\r\n\r\n" % (MOST_BODY + 1), b"413"),
    "a body of 10^12": (JOIN + b"Content-Length: 999999999999\r\n\r\n", b"413"),
    "a body of digits": (JOIN + b"Content-Length: " + b"9" * 500 + b"\r\n\r\n", b"400"),
    "leading zeros": (JOIN + b"Content-Length: " + b"0" * 5000 + b"1\r\n\r\nx", b"200 1"),
    "a body of -1": (JOIN + b"Content-Length: -1\r\n\r\n", b"400"),
    "two lengths": (JOIN + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
    "a length and chunks": (JOIN + b"Content-Length: 1\r\n" + CHUNKED + b"\r\n", b"400"),
    "chunks that are too many": (JOIN + CHUNKED + b"\r\n" + b"10000\r\n" + b"x" * 0x10000 + b"\r\n40000\r\n" + b"x" * 0x40000, b"413"),
    "a chunk of 2^64": (JOIN + CHUNKED + b"\r\nffffffffffffffffff\r\n", b"400"),
    "a chunk of -1": (JOIN + CHUNKED + b"\r\n-1\r\n", b"400"),
    "chunks of a byte without end": (JOIN + CHUNKED + b"\r\n" + b"1\r\na\r\n" * 20_000, b"431"),
    "an extension of a chunk without end": (JOIN + CHUNKED + b"\r\n1;x=" + LONG, b"431"),
    "a trailer without end": (JOIN + CHUNKED + b"\r\n0\r\nX: " + LONG, b"431"),
    "trailers without end": (JOIN + CHUNKED + b"\r\n0\r\n" + b"X: a\r\n" * 10_000, b"431"),
    "a body of a stranger": (b"POST /healthz HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", b"413"),
    "chunks of a stranger": (b"POST /healthz HTTP/1.1\r\n" + CHUNKED + b"\r\n1\r\nx\r\n", b"413"),
    "a trailer of a stranger": (PROBE + CHUNKED + b"\r\n0\r\nX: " + LONG, b"431"),
    "a path without end": (b"GET /" + b"a" * 40_000, b"431"),
    "a header without end": (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000, b"431"),
    "headers without end": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 10_000, b"431"),
    "the hello of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    "HTTP/9.9": (b"GET /healthz HTTP/9.9\r\n\r\n", b"400"),
    "no method": (b"\r\n\r\nGRAB /healthz HTTP/1.1\r\n\r\n", b"400"),
    "NUL in a header": (b"GET /healthz HTTP/1.1\r\nX: \x00\r\n\r\n", b"400"),
    "a header on two lines": (b"GET /healthz HTTP/1.1\r\nX: a\r\n b\r\n\r\n", b"400"),
    "an upgrade": (PROBE + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"400"),
    "a tunnel": (b"CONNECT x:1 HTTP/1.1\r\n\r\n", b"400"),
    "a query that is no ASCII": (PROBE.replace(b"healthz", b"healthz?a=\xff") + b"\r\n", b"400"),
    "17 fields": (PROBE.replace(b"healthz", b"healthz?" + b"a=1&" * 17) + b"\r\n", b"400"),
    "16 fields": (PROBE.replace(b"healthz", b"healthz?" + b"a=1&" * 15 + b"a=1") + b"\r\n", b"200 0"),
    "two requests at once": (GOOD + GOOD, b"200 13"),
    "two probes at once": (PROBE + b"\r\n" + PROBE + b"\r\n", b"200 0"),
    "nothing but line ends": (b"\r\n" * 3, b""),
}  # fmt: skip


class Served:
    def __init__(self) -> None:
        self.server = HttpServer(self.handle, self.authorize, self.error, most=MEMBERS)
        self.failures: list[dict[str, Any]] = []
        self.port = 0
        self.asked, self.gate = asyncio.Event(), asyncio.Event()  # of answers that come later

    def handle(self, request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        assert len(request.body) <= MOST_BODY
        if request.path == "/v1/empty":
            return HttpAnswer(204, retry_after_s=7)
        if request.path == "/v1/late":
            return self.late(HttpAnswer(200, json.dumps(request.query).encode()))
        return HttpAnswer(200, str(len(request.body)).encode())

    async def late(self, answer: HttpAnswer) -> HttpAnswer:
        self.asked.set()
        await self.gate.wait()
        return answer

    @staticmethod
    def authorize(path: str, given: str) -> bool:
        return path == "/healthz" or given == BEARER

    @staticmethod
    def error(status: int, why: str) -> HttpAnswer:
        assert 0 < len(why) < 200
        return HttpAnswer(status, why.encode())

    async def answer(self, *pieces: bytes) -> bytes:
        """To these bytes, up to the end of the stream: the client ends its half."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                if len(pieces) > 1:
                    await asyncio.sleep(0)
            writer.write_eof()
            return await reader.read()
        except ConnectionError:
            return b""  # closed before all was read
        finally:
            writer.close()

    async def serves_members(self) -> bool:
        return status(await self.answer(GOOD)) == b"200 13"


def status(answer: bytes) -> bytes:
    """Of the answer; with its body if it is 200."""
    assert answer.count(b"HTTP/1.1 ") <= 1, answer
    head, _, body = answer.partition(b"\r\n\r\n")
    found = head[9:12]
    return b"200 " + body if found == b"200" else found


def serve(story: Callable[[Served], Awaitable[None]]) -> None:
    async def run() -> None:
        served = Served()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: served.failures.append(context))
        served.port = await served.server.start("127.0.0.1", 0, None)
        try:
            await story(served)
            assert await served.serves_members()
            for _ in range(100):
                if not served.server._connections:
                    break
                await asyncio.sleep(0.01)
            assert not served.server._connections, "all are closed, and none is kept"
        finally:
            await served.server.close()
        assert not served.failures, served.failures

    asyncio.run(asyncio.wait_for(run(), 60))


def test_hostile_bytes_get_one_answer() -> None:
    async def story(served: Served) -> None:
        wrong = {}
        for what, (raw, expected) in CASES.items():
            found = status(await served.answer(raw))
            cut_off = found == b"" and len(raw) > MOST_HEAD and not expected.startswith(b"200")
            if found != expected and not cut_off:
                wrong[what] = found
        assert not wrong

    serve(story)


@pytest.mark.parametrize("what", ["a request", "a request in chunks", "a probe", "no token"])
def test_where_a_request_is_cut_makes_no_difference(what: str) -> None:
    raw, expected = CASES[what]

    async def story(served: Served) -> None:
        for at in range(1, len(raw)):
            assert status(await served.answer(raw[:at], raw[at:])) == expected, at

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


def test_who_sends_the_next_request_before_the_answer_is_disconnected() -> None:
    async def story(served: Served) -> None:
        late = b"GET /v1/late HTTP/1.1\r\n" + KNOWN + b"\r\n"
        async with connected(served) as (reader, writer):
            writer.write(late)
            await served.asked.wait()
            writer.write(late)
            with suppress(ConnectionError):
                assert await reader.read() == b""

    serve(story)


def test_members_have_places_and_leave_them() -> None:
    async def story(served: Served) -> None:
        async with AsyncExitStack() as held:
            for _ in range(MEMBERS):
                reader, writer = await held.enter_async_context(connected(served))
                for _ in range(2):
                    writer.write(GOOD)
                    assert (await read_answer(reader))[0] == "200 OK"
            refused = served.server.refused
            answer = await served.answer(GOOD)
            assert answer.endswith(b"more than 3 connections")
            assert status(answer) == b"429"
            assert served.server.refused == refused + 1
            assert status(await served.answer(PROBE + b"\r\n")) == b"200 0", "probes are answered"
            writer.write(GOOD)
            assert (await read_answer(reader))[0] == "200 OK"
        while served.server._connections:
            await asyncio.sleep(0)

    serve(story)


def test_how_long_a_connection_may_be_silent() -> None:
    async def story(served: Served) -> None:
        async with connected(served) as (reader, writer):
            writer.write(GOOD)
            await read_answer(reader)
            [one] = served.server._connections.values()
            now = asyncio.get_running_loop().time()
            assert (one.is_late(now + IDLE_S - 1), one.is_late(now + IDLE_S + 1)) == (False, True)
            writer.write(GOOD[:-1])
            while not one._reading:
                await asyncio.sleep(0)
            now = asyncio.get_running_loop().time()
            assert not one.is_late(now + REQUEST_S - 1), "from its first byte on"
            assert one.is_late(now + REQUEST_S + 1)
            writer.write(GOOD[-1:])
            await read_answer(reader)
            assert not one.is_late(now + REQUEST_S + 1), "it is answered"
            writer.write(b"GET /v1/late HTTP/1.1\r\n" + KNOWN + b"\r\n")
            await served.asked.wait()
            assert not one.is_late(now + 10 * IDLE_S), "an answer takes as long as it takes"

    serve(story)


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


def test_changed_requests_are_answered_or_closed() -> None:
    dice = random.Random("http")
    parts = [raw for raw, _ in CASES.values() if len(raw) < 300]

    async def story(served: Served) -> None:
        for _ in range(400):
            raw = bytearray(dice.choice(parts))
            for _ in range(dice.randint(1, 4)):
                at = dice.randrange(len(raw) + 1)
                other = dice.choice(parts)
                piece = other[(start := dice.randrange(len(other))) : start + dice.randrange(30)]
                raw[at : at + dice.randrange(5)] = dice.choice((piece, dice.randbytes(2), b""))
            found = (await served.answer(bytes(raw)))[9:12]
            assert found in ANSWERS | {b""}, bytes(raw)

    serve(story)


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
            if served.server.refused:
                break
        assert sent < 1 << 20
        assert (await reader.read(12))[9:12] == b"431"
        writer.close()

    serve(story)
