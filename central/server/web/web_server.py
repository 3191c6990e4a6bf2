"""The console's HTTP server, in a thread of its own.

It listens on the loopback alone: `kubectl port-forward` reaches it there, and a user who may forward a port of the pod
has shown the API server who they are. Each request for data needs a bearer token besides, and shows what its user may
see. So nothing is sent in the clear over a network, and no certificate has to be trusted by a browser.

What clients can take is bounded: connections, the size of a head, questions per user, and the life of a stream. A
connection that has shown no valid token gives way to a new one, and one that does not take its answer is closed.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import orjson

from central.kube.transport.access_review import AccessUnknown
from central.model.identity import AuthFailure, Identity, TokenReview
from central.server.grpc.rates import PeerRates, Rate
from central.server.grpc.token_cache import TokenCache
from central.server.grpc.visibility import Access, Viewer
from central.server.optional_part import PartUnusable
from central.server.throttled_log import ThrottledLog
from central.server.web.web_api import MAY_ASK, WebApi
from central.server.web.web_request import (
    Request,
    RequestRefused,
    parse_head,
    render,
    render_stream_head,
)
from central.server.web.what_if_process import WhatIfProcess, parse_change
from protos.common.listener_thread import ListenerThread, stop_accepting

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}  # fmt: skip
JSON = "application/json"
WHAT_IF = "/api/what-if"
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
CONNECTIONS, HEAD_BYTES, HEAD_S = 128, 32 << 10, 5.0
READERS, PER_USER = 4, 8  # threads; requests of a user at a time, streams included
RATES = Rate(20.0, 100), Rate(100.0, 400)  # of questions: per user, in all
STREAM_S, TICK_S = (
    300.0,
    2.0,
)  # life of a stream, after which the client connects again; between events
WRITE_S = 10.0


class ConsoleUnservable(PartUnusable):
    """A sentence for the user."""


class WebServer:
    def __init__(
        self,
        listen: str,
        api: WebApi,
        reviewer: TokenReview,
        access: Access,
        *,
        write_s: float = WRITE_S,
        what_if: WhatIfProcess | None = None,
    ) -> None:
        """what_if: None, if the console offers none. Raises ConsoleUnservable."""
        self._write_s = write_s
        self._api, self._access, self._what_if = api, access, what_if
        self._tokens = TokenCache(reviewer)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="console")
        self._rates = PeerRates(*RATES)
        self._busy: Counter[str] = Counter()
        self._open = 0
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._files = {f"/{file.name}": file for file in STATIC.iterdir()}
        self._files["/"] = STATIC / "index.html"
        self._quiet = ThrottledLog(log)
        self._thread = ListenerThread("console", _listener(listen), self._serve)

    @property
    def port(self) -> int:
        return self._thread.port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, listener: socket.socket, ending: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, sock=listener, limit=HEAD_BYTES)
        await ending.wait()
        await stop_accepting(server)
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            await self._respond(reader, writer)
            writer.close()
            async with asyncio.timeout(self._write_s):
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError, asyncio.CancelledError):
            pass  # the client is too slow or gone, or the server ends
        finally:
            writer.transport.abort()  # what the client has not taken is dropped
            self._open -= 1
            self._strangers.pop(writer, None)

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises TimeoutError, OSError, EOFError."""
        try:
            self._enter(writer)
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(parse_head(head[:-4]), reader, writer)
        except RequestRefused as refused:
            await self._send(writer, render(refused.status, _sentence(refused.why), JSON))
        except asyncio.LimitOverrunError:
            await self._send(writer, render(431, _sentence("the request's head is too long"), JSON))
        except (TimeoutError, OSError, EOFError):
            raise
        except Exception as error:  # noqa: BLE001  a bug; others are served
            self._quiet.error(f"{type(error)}", error, "the console failed (bug)")
            await self._send(writer, render(500, _sentence("internal error; see the log"), JSON))

    def _enter(self, writer: asyncio.StreamWriter) -> None:
        """Raises RequestRefused."""
        if self._open > CONNECTIONS:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                raise RequestRefused(503, "too many connections; close other pages of the console")
            del self._strangers[oldest]
            oldest.transport.abort()
        self._strangers[writer] = None

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not request.path.startswith("/api/"):
            file = self._files.get(request.path)
            if file is None:
                raise RequestRefused(404, f"there is no {request.path[:100]}")
            await self._send(writer, render(200, file.read_bytes(), KINDS[file.suffix]))
            return
        caller = await self._caller(request)
        self._strangers.pop(writer, None)
        with self._counted(caller.user):
            if (request.path == WHAT_IF) != (request.body_bytes >= 0):
                raise RequestRefused(405, f"{WHAT_IF} is asked by POST, all others by GET")
            if request.path == WHAT_IF:
                await self._send(
                    writer, render(200, await self._compare(request, caller, reader), JSON)
                )
            elif request.path == "/api/events":
                await self._stream(request, caller, writer)
            else:
                await self._send(writer, render(200, await self._ask(request, caller), JSON))

    @contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        """One of the user's requests. Raises RequestRefused."""
        if self._busy[user] >= PER_USER:
            raise RequestRefused(
                429, "too many requests at a time; close other pages of the console"
            )
        self._busy[user] += 1
        try:
            yield
        finally:
            self._busy[user] -= 1
            if not self._busy[user]:
                del self._busy[user]

    async def _compare(
        self, request: Request, caller: Identity, reader: asyncio.StreamReader
    ) -> bytes:
        """The process ends when the client does not wait any more."""
        async with asyncio.timeout(HEAD_S):
            body = await reader.readexactly(request.body_bytes)
        change = parse_change(body)
        await self._ask(Request(MAY_ASK), caller)
        if self._what_if is None:
            raise RequestRefused(404, "the console offers no what-if (--console-what-if)")
        asking = asyncio.ensure_future(self._what_if.ask(change, caller.user, request.token))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((asking, gone), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise EOFError
            return asking.result()
        finally:
            gone.cancel()
            if not asking.cancelling():  # a second time would disturb how it ends its process
                asking.cancel()
            await asyncio.gather(asking, gone, return_exceptions=True)

    async def _caller(self, request: Request) -> Identity:
        if not request.token:
            raise RequestRefused(401, "no token")
        answer = await self._tokens.identify(request.token, "user", "console")
        if isinstance(answer, AuthFailure):
            status = 429 if answer.busy else 503 if answer.transient else 401
            raise RequestRefused(status, answer.why[:500])
        return answer

    async def _ask(self, request: Request, caller: Identity) -> bytes:
        if not self._rates.take(caller.user, time.monotonic()):
            raise RequestRefused(429, "too many questions; try again later")
        viewer = Viewer(self._access, caller)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._readers, lambda: orjson.dumps(self._api.answer(request, viewer))
            )
        except TimeoutError:
            raise RequestRefused(503, "the scheduler is busy; try again") from None
        except AccessUnknown as unknown:
            raise RequestRefused(503, str(unknown)) from unknown

    async def _stream(
        self, request: Request, caller: Identity, writer: asyncio.StreamWriter
    ) -> None:
        """Sends the overview whenever it changed. The client asks for what else it shows."""
        end = time.monotonic() + STREAM_S
        overview = Request("/api/overview")
        body = await self._ask(overview, caller)
        writer.write(render_stream_head())
        sent = b""
        while time.monotonic() < end:
            text = b": still here\n\n" if body == sent else b"data: " + body + b"\n\n"
            sent = body
            await self._send(writer, text)
            await asyncio.sleep(TICK_S)
            caller = await self._caller(request)  # the token may have expired
            body = await self._ask(overview, caller)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Raises TimeoutError, OSError."""
        writer.write(data)
        async with asyncio.timeout(self._write_s):
            await writer.drain()


def _listener(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if host not in LOOPBACK:
        raise ConsoleUnservable(
            f"--console-listen {listen}: the console is served without TLS, so only on 127.0.0.1; reach it with "
            "kubectl port-forward"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=128)
    except (OSError, ValueError, OverflowError) as error:
        raise ConsoleUnservable(f"--console-listen {listen}: {error}") from error


def _sentence(why: str) -> bytes:
    return orjson.dumps({"error": why})
