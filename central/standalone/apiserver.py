"""A Kubernetes API in memory, over HTTP on the loopback: the part that Lockstep, kubectl and Kubernetes clients use.
It runs its own event loop in its own thread:

    with StandaloneApi() as api:
        print(api.url)

Design: docs/design/simulation.md
"""

import asyncio
import json
import threading
from pathlib import Path
from typing import Self

import orjson
from aiohttp import web

from central.standalone import (
    api_errors,
    api_request,
    discovery,
    openapi,
    scale_subresource,
    watch_stream,
)
from central.standalone.api_verbs import Service
from central.standalone.served_kinds import ResourceKey

HOST = "127.0.0.1"
HEALTH = ("/healthz", "/readyz", "/livez")


class StandaloneApi:
    """port 0: any free port. history: how many events per resource a watch can go back. start() raises OSError if the
    port is in use."""

    def __init__(self, *, port: int = 0, history: int = 10_000, bookmark_s: float = 10.0) -> None:
        self._port = port
        self._bookmark_s = bookmark_s
        self._notifier = watch_stream.Notifier()
        self._service = Service(history=history, on_event=self._notify)
        self._thread = threading.Thread(target=self._run, name="standalone-api", daemon=True)
        self._ready = threading.Event()
        self._failed: OSError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def kubeconfig(self) -> str:
        """Text of a kubeconfig for this server (JSON, which is YAML)."""
        name = "lockstep-standalone"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        return json.dumps(config, indent=1) + "\n"

    def write_kubeconfig(self, path: Path) -> Path:
        path.write_text(self.kubeconfig())
        path.chmod(0o600)
        return path

    # --- in the server's thread

    def _notify(self, key: ResourceKey) -> None:
        self._notifier.notify(key)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._failed = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = web.Server(self._handle, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, HOST, self._port, backlog=1024)
            await site.start()
            self._port = runner.addresses[0][1]
            self._ready.set()
            await self._stop.wait()
            self._notifier.close()
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except api_errors.ApiError as refused:
            return _json(refused.code, orjson.dumps(refused.status()))
        except web.HTTPRequestEntityTooLarge:
            large = api_errors.ApiError(413, "RequestEntityTooLarge", "the body is too large")
            return _json(413, orjson.dumps(large.status()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # The body does not have the form of its kind. A check per field is not worth its code.
            message = f"the request is not well formed: {type(error).__name__}: {error}"
            return _json(400, orjson.dumps(api_errors.bad_request(message).status()))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path.rstrip("/"), request.method
        body = await request.read() if request.body_exists else b""
        if method == "GET" and (simple := self._about(path)) is not None:
            return simple
        if method == "POST" and (review := self._review(path)):
            return _json(*self._service.review(review, orjson.loads(body)))
        resource, namespace, name, subresource = api_request.target(self._service.registry, path)
        call = api_request.Call(
            method=method,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query=request.query,
            accept=request.headers.get("Accept", ""),
            content_type=request.headers.get("Content-Type", ""),
            body=body,
        )
        if method == "GET" and call.flag("watch") and not name:
            watch = watch_stream.watch(
                self._service, self._notifier, request, call, self._bookmark_s
            )
            try:
                return await watch
            except ConnectionError:  # the client has gone
                return web.StreamResponse()
        if method == "GET" and call.subresource == "log":
            return web.Response(text=self._service.log(call))
        if call.subresource == "scale":
            return _json(*scale_subresource.answer(call, self._service.store))
        return _json(*self._service.answer(call))

    def _about(self, path: str) -> web.Response | None:
        if path in HEALTH:
            return web.Response(text="ok")
        if path == "/version":
            return _json(200, orjson.dumps(discovery.VERSION))
        if path == "/openapi/v2":
            # An empty document in protobuf, as kubectl requests it, so that kubectl does not validate.
            return web.Response(body=b"", content_type="application/octet-stream")
        if path == "/openapi/v3" or path.startswith("/openapi/v3/"):
            described = openapi.document(path[len("/openapi/v3/") :], self._service.registry)
            return None if described is None else _json(200, orjson.dumps(described))
        steps = path.lstrip("/").split("/")
        if steps[0] in ("api", "apis") and len(steps) < 4:
            document = discovery.document(steps, self._service.registry)
            if document is not None:
                return _json(200, orjson.dumps(document))
        return None

    @staticmethod
    def _review(path: str) -> str:
        for group, version, plural, _ in discovery.REVIEWS:
            if path == f"/apis/{group}/{version}/{plural}":
                return plural
        return ""


def _json(code: int, body: bytes) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json")
