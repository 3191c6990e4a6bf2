"""The console's HTTP server, in a thread of its own.

It listens on the loopback, where `kubectl port-forward` reaches it: a user who may forward a port of the pod has shown
the API server who they are. Behind a proxy (front_proxy.py) it is served over TLS on the network. Each request for data
needs a bearer token or the proxy's word besides, and shows what its user may see.

What clients can take is bounded: connections, the size of a head, questions per user, and the life of a stream. A
connection without a valid token is closed for a new one, and one that does not take its answer is closed.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import orjson

from central.kube.transport.access_review import AccessUnknown
from central.model.identity import AuthFailure, Identity, TokenReview
from central.model.json_types import Json
from central.server.grpc.rates import PeerRates, Rate
from central.server.grpc.token_cache import TokenCache
from central.server.grpc.visibility import Access, Viewer
from central.server.optional_part import PartUnusable
from central.server.web.front_proxy import FrontProxy
from central.server.web.kube_events import KubeEvents
from central.server.web.web_api import MAY_ASK, WebApi
from central.server.web.web_request import BODY_MOST, SECURITY, Request, bearer_token, check
from central.server.web.what_if_process import WhatIfProcess, parse_change
from protos.common.http_server import Bounds, HttpAnswer, HttpRequest, RequestRefused
from protos.common.http_thread import HttpThread
from protos.common.unknown_connections import UnknownLimits

STATIC = Path(__file__).parent / "static"
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}  # fmt: skip
WHAT_IF, EVENTS, KUBE_EVENTS = "/api/what-if", "/api/events", "/api/kube-events"
OVERVIEW = Request("/api/overview")
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
CONNECTIONS, HEAD_BYTES, BODY_S = 128, 32 << 10, 5.0  # connections: unknown ones, and others
UNKNOWN = UnknownLimits(CONNECTIONS, CONNECTIONS, unknown_s=10.0, chance_s=0.0)
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
        events: KubeEvents | None = None,
        proxy: FrontProxy | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """what_if, events: None, if the console offers none. tls: for an address that is not on the loopback.
        Raises ConsoleUnservable."""
        self._proxy = proxy
        self._api, self._access, self._what_if, self._events = api, access, what_if, events
        self._tokens = TokenCache(reviewer)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="console")
        self._rates = PeerRates(*RATES)
        self._busy: Counter[str] = Counter()
        self._files = {f"/{file.name}": file for file in STATIC.iterdir()}
        self._files["/"] = STATIC / "index.html"
        if local := listen.rpartition(":")[0].strip("[]") in LOOPBACK:
            tls = None
        if not local and (proxy is None or tls is None):
            raise ConsoleUnservable(
                f"--console-listen {listen}: without --console-url the console is served on 127.0.0.1 only; reach it "
                "with kubectl port-forward"
            )
        bounds = Bounds(UNKNOWN, CONNECTIONS, HEAD_BYTES, BODY_MOST, body_s=BODY_S, write_s=write_s)
        try:
            self._thread = HttpThread("console", listen, self, bounds, SECURITY, tls=tls)
        except (OSError, ValueError) as error:
            raise ConsoleUnservable(f"--console-listen {listen}: {error}") from error

    @property
    def port(self) -> int:
        return self._thread.port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        self._readers.shutdown(wait=False, cancel_futures=True)

    # Called by the server, in its event loop

    async def admit(self, request: HttpRequest) -> bool:
        check(request, self._proxy)
        if not request.path.startswith("/api/"):
            return False
        request.caller = await self._caller(request)
        request.cleanup.enter_context(self._counted(request.caller.user))
        if (request.path == WHAT_IF) != (request.method == "POST"):
            raise RequestRefused(405, f"{WHAT_IF} is asked by POST, all others by GET")
        return True

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if request.caller is None:
            if self._proxy and request.path == self._proxy.path != "":
                return HttpAnswer(
                    308, location=f"{self._proxy.path}/"
                )  # the page's files are beside it
            file = self._files.get(request.path)
            if file is None:
                raise RequestRefused(404, f"there is no {request.path[:100]}")
            return HttpAnswer(200, file.read_bytes(), KINDS[file.suffix])
        if request.path == WHAT_IF:
            return HttpAnswer(200, await self._compare(request))
        token = bearer_token(request)
        if request.path == EVENTS:
            body = await self._ask(OVERVIEW, request.caller, token)
            return HttpAnswer(
                200, _event(body), "text/event-stream", more=self._more(request, body)
            )
        asked, events = Request(request.path, request.query), self._events
        if request.path != KUBE_EVENTS or events is None:
            return HttpAnswer(200, await self._ask(asked, request.caller, token))
        if not token:
            raise RequestRefused(
                403, "Events are read with the user's own token, and the proxy sends none"
            )
        body = await self._ask(
            asked, request.caller, token, lambda one, _: events.answer(one, token)
        )
        return HttpAnswer(200, body)

    def problem(self, status: int, why: str) -> HttpAnswer:
        return HttpAnswer(status, orjson.dumps({"error": why}))

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

    async def _compare(self, request: HttpRequest) -> bytes:
        """The process ends when the client does not wait any more."""
        change = parse_change(request.body)
        await self._ask(Request(MAY_ASK), request.caller, bearer_token(request))
        if self._what_if is None:
            raise RequestRefused(404, "the console offers no what-if (--console-what-if)")
        return await self._what_if.ask(change, request.caller.user, bearer_token(request))

    async def _caller(self, request: HttpRequest) -> Identity:
        token = bearer_token(request)
        if not token:
            named = self._proxy and self._proxy.user(request)
            if not named:
                raise RequestRefused(401, "no token")
            return named
        answer = await self._tokens.identify(token, "user", "console")
        if isinstance(answer, AuthFailure):
            status = 429 if answer.busy else 503 if answer.transient else 401
            raise RequestRefused(status, answer.why[:500])
        return answer

    async def _ask(
        self,
        request: Request,
        caller: Identity,
        token: str,
        read: Callable[[Request, Viewer], Json] | None = None,
    ) -> bytes:
        if not self._rates.take(caller.user, time.monotonic()):
            raise RequestRefused(429, "too many questions; try again later")
        viewer = Viewer(self._access, caller, has_token=bool(token))
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._readers, lambda: orjson.dumps((read or self._api.answer)(request, viewer))
            )
        except TimeoutError:
            raise RequestRefused(503, "the scheduler is busy; try again") from None
        except AccessUnknown as unknown:
            raise RequestRefused(503, str(unknown)) from unknown

    async def _more(self, request: HttpRequest, sent: bytes) -> AsyncGenerator[bytes, None]:
        """The overview whenever it changed. The client asks for what else it shows."""
        end = time.monotonic() + STREAM_S
        while time.monotonic() < end:
            await asyncio.sleep(TICK_S)
            caller = await self._caller(request)  # the token may have expired
            body = await self._ask(OVERVIEW, caller, bearer_token(request))
            yield b": still here\n\n" if body == sent else _event(body)
            sent = body


def _event(body: bytes) -> bytes:
    return b"data: " + body + b"\n\n"
