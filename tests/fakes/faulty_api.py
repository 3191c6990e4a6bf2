"""An API server of central.standalone with faults that a test orders: what happens to one request instead of its
answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from central.standalone.apiserver import StandaloneApi
from central.standalone.served_kinds import ResourceKey


@dataclass(frozen=True, slots=True)
class Fault:
    """executed: the request takes effect all the same. status 0: no answer, the connection closes."""

    status: int = 0
    body: bytes = b""
    executed: bool = False


Faults = Callable[[str, str], Fault | None]  # by method and path; None: the request is served


def no_faults(method: str, path: str) -> Fault | None:
    return None


class FaultyApi(StandaloneApi):
    """faults: asked for each request."""

    def __init__(self, *, faults: Faults = no_faults, **more: Any) -> None:
        super().__init__(**more)
        self._faults = faults

    def forget_history(self, group: str, plural: str) -> None:
        """Every watch of this resource gets 410 Gone and must list again."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._forget, (group, plural))

    def _forget(self, key: ResourceKey) -> None:
        # The version counter grows, so that even the newest version that a client has seen is too old.
        self._service.store.version += 1
        collection = self._service.store.collection(self._service.registry.by_key(key))
        collection.forget()
        collection.oldest = self._service.store.version
        collection.dropped += 1
        self._notifier.notify(key)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self._faults(request.method, request.path)
        if fault is None:
            return await super()._handle(request)
        if fault.executed:
            await super()._handle(request)
        if not fault.status and request.transport is not None:
            request.transport.abort()
        status = fault.status or 500
        return web.Response(body=fault.body, status=status, content_type="application/json")
