"""One watch: the events of a resource since a version, as JSON lines, until the client disconnects, the watch times
out, or the server stops. An object that no longer matches the selector is DELETED for this client."""

import asyncio
import time
from dataclasses import dataclass

import orjson
from aiohttp import web

from central.standalone import api_errors
from central.standalone.api_request import Call
from central.standalone.api_verbs import Service
from central.standalone.object_store import Item, WatchEvent
from central.standalone.query_selectors import Test
from central.standalone.served_kinds import ResourceKey

LONGEST_S = 1800.0


class Notifier:
    """Wakes the watches of a resource when it has a new event."""

    def __init__(self) -> None:
        self._waiting: dict[ResourceKey, list[asyncio.Future[None]]] = {}
        self.closing = False

    def notify(self, key: ResourceKey) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        self.closing = True
        for key in list(self._waiting):
            self.notify(key)

    async def wait_for_event(self, key: ResourceKey, within_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        await asyncio.wait([future], timeout=within_s)


async def watch(
    service: Service, bell: Notifier, request: web.BaseRequest, call: Call, bookmark_s: float
) -> web.StreamResponse:
    one = _Watch(service, bell, call, service.test(call), bookmark_s)
    position, lines = one.start(call.query.get("resourceVersion", ""))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await one.follow(response, position, lines)
    return response


@dataclass(frozen=True, slots=True)
class _Watch:
    service: Service
    bell: Notifier
    call: Call
    test: Test
    bookmark_s: float

    def start(self, asked: str) -> tuple[int | None, list[bytes]]:
        """The position in the history to start from, and lines to send before it."""
        store, resource = self.service.store, self.call.resource
        collection = store.collection(resource)
        if asked in ("", "0"):
            listed = store.list(resource, self.call.namespace)
            return collection.end, [
                self._line("ADDED", item) for item in listed if self.test(item.obj)
            ]
        if not asked.isdigit():
            raise api_errors.bad_request(f"Invalid value: {asked!r}: not a resourceVersion")
        if int(asked) > store.version:
            raise api_errors.future_version(int(asked), store.version)
        return collection.position(int(asked)), []

    async def follow(
        self, response: web.StreamResponse, position: int | None, lines: list[bytes]
    ) -> None:
        collection = self.service.store.collection(self.call.resource)
        asked_s = float(self.call.query.get("timeoutSeconds") or LONGEST_S)
        marked_at = time.monotonic()
        ends_at = marked_at + min(asked_s, LONGEST_S)
        bookmarks = self.call.flag("allowWatchBookmarks")
        while True:
            events = None if position is None else collection.after(position)
            if position is None or events is None:
                status = api_errors.gone("too old resource version: list again").status()
                await response.write(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")
                return
            position += len(events)
            lines += [line for event in events if (line := self._seen(event))]
            now = time.monotonic()
            over = now >= ends_at or self.bell.closing
            if bookmarks and (over or now - marked_at >= self.bookmark_s):
                lines.append(self._bookmark())
                marked_at = now
            if lines:
                await response.write(b"".join(lines))
                lines = []
            if over:
                return
            if collection.end == position:
                until = min(ends_at, marked_at + self.bookmark_s) if bookmarks else ends_at
                await self.bell.wait_for_event(self.call.resource.key, max(0.001, until - now))

    def _seen(self, event: WatchEvent) -> bytes | None:
        """The event as this client sees it, or None."""
        namespace = self.call.namespace
        if namespace and event.item.obj["metadata"]["namespace"] != namespace:
            return None
        before = event.before is not None and self.test(event.before.obj)
        after = event.type != "DELETED" and self.test(event.item.obj)
        if after:
            return self._line("MODIFIED" if before else "ADDED", event.item)
        return self._line("DELETED", event.item) if before else None

    def _line(self, kind: str, item: Item) -> bytes:
        shown = self.service.shown(self.call, item)
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), shown)

    def _bookmark(self) -> bytes:
        mark = {
            "kind": self.call.resource.kind,
            "apiVersion": self.call.resource.api_version,
            "metadata": {"resourceVersion": str(self.service.store.version)},
        }
        return orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n"
