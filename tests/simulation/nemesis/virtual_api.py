"""The in-memory API server on virtual time, and links to it that lose, delay, double and spoil what they carry."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import orjson

from central.kube.transport.http_client import Client, Reply, Silent, StatusError, Unreachable
from central.standalone import api_errors, api_request
from central.standalone.api_verbs import Service
from central.standalone.object_store import Collection, Item, WatchEvent
from central.standalone.served_kinds import ResourceKey
from tests.simulation.nemesis.virtual_runtime import EPOCH, Kernel, Process, VirtualFlag

BOOKMARK_S = 60.0
NO_SPACE = api_errors.ApiError(500, "InternalError", "etcdserver: mvcc: database space exceeded")
RUBBISH = (b"", b"<html>sign in</html>", b"{}", b"[]", b'{"kind":"Status","status":"Failure"}')
ERRORS = (
    (403, "Forbidden"),
    (404, "NotFound"),
    (410, "Gone"),
    (422, "Invalid"),
    (429, "TooManyRequests"),
    (500, "InternalError"),
    (503, "ServiceUnavailable"),
    (504, "Timeout"),
)


@dataclass
class Backup:
    version: int
    items: dict[ResourceKey, dict[tuple[str, str], Item]]


class VirtualApi:
    """on_event is called after each change with the kind of event, the object as JSON, and its resource."""

    def __init__(self, kernel: Kernel, on_event: Callable[[ResourceKey, WatchEvent], None]) -> None:
        self._kernel, self._on_event = kernel, on_event
        self._uids = 0
        self.down = False  # nobody answers
        self.full = False  # etcd's disk
        self.streams: list[_VirtualStream] = []
        self.service = Service(
            on_event=self._event, clock=lambda: EPOCH + kernel.now, uid=self._uid
        )
        self.event_times: dict[int, float] = {}  # by version

    def _uid(self) -> str:
        self._uids += 1
        return f"{self._uids:08x}-0000-4000-8000-000000000000"

    def _event(self, key: ResourceKey) -> None:
        if not hasattr(self, "service"):
            return  # the namespaces that it begins with
        collection = self.collection(key)
        event = collection.events[-1]
        self.event_times[event.item.version] = self._kernel.now
        self._on_event(key, event)
        for stream in self.streams:
            stream.bell.set()

    def collection(self, key: ResourceKey) -> Collection:
        return self.service.store.collection(self.service.registry.by_key(key))

    def answer(self, method: str, url: str, body: bytes | None, content_type: str) -> Reply:
        """What the API server makes of the request."""
        parts = urlsplit(url)
        try:
            if self.full and method != "GET":
                raise NO_SPACE
            call = self.parse(method, url, body, content_type)
            status, content = self.service.answer(call)
        except api_errors.ApiError as refused:
            return Reply(refused.code, orjson.dumps(refused.status()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AssertionError(f"{method} {parts.path}: {body!r}") from error
        return Reply(status, content)

    def parse(
        self, method: str, url: str, body: bytes | None = None, content_type: str = ""
    ) -> api_request.Call:
        parts = urlsplit(url)
        target = api_request.target(self.service.registry, parts.path)
        resource, namespace, name, subresource = target
        return api_request.Call(
            method=method,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query=dict(parse_qsl(parts.query)),
            accept="",
            content_type=content_type,
            body=body or b"",
        )

    # --- what happens to etcd --------------------------------------------------------

    def backup(self) -> Backup:
        found = {each.key: dict(self.collection(each.key).items) for each in self.service.registry}
        return Backup(self.service.store.version, found)

    def restore(self, backup: Backup, *, bump: int) -> None:
        """bump: as etcdutl --bump-revision --mark-compacted; 0: revisions go back."""
        store = self.service.store
        store.version = store.version + bump if bump else backup.version
        for resource in self.service.registry:
            collection = self.collection(resource.key)
            collection.items = dict(backup.items.get(resource.key, {}))
            collection.dropped += len(collection.events) + 1
            collection.events = []
            collection.oldest = store.version
        for stream in list(self.streams):
            stream.break_off()

    def forget_history(self, key: ResourceKey) -> None:
        collection, store = self.collection(key), self.service.store
        store.version += 1
        collection.dropped += len(collection.events) + 1
        collection.events = []
        collection.oldest = store.version


@dataclass
class Weather:
    """Probabilities of faults for each request of a link."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    doubled: float = 0.0
    late: float = 0.0  # executed after the client has given up
    error: float = 0.0
    error_after: float = 0.0  # executed, and answered with an error
    rubbish: float = 0.0
    slow_s: float = 0.05
    watch_lag_s: float = 0.0
    watch_breaks: float = 0.0  # for each event


@dataclass
class Link:
    """Between one process and the API server."""

    weather: Weather = field(default_factory=Weather)
    cut: bool = False
    stalled: bool = False  # watches stay open and bring nothing
    unleased: bool = False  # all goes well but the requests for the lease
    late_until: float = 0.0  # until when late requests may still arrive


class VirtualClient(Client):
    """The client of one process. Everything above HTTP is the program's own."""

    def __init__(self, api: VirtualApi, process: Process, link: Link) -> None:
        self.server = "https://virtual"
        self._api, self._link, self._kernel = api, link, process.kernel
        self._runtime = process.runtime

    @property
    def parts(self) -> tuple[VirtualApi, Link, Kernel]:
        return self._api, self._link, self._kernel

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
        *,
        accept: bytes = b"",
        most_bytes: int | None = None,
    ) -> Reply:
        weather, dice = self._link.weather, self._kernel.dice
        self._runtime.sleep(dice.uniform(0.001, weather.slow_s))
        fate = self._fate(method, path)
        if fate in {"cut", "lost_request"}:
            self._runtime.sleep(timeout_s)
            raise Unreachable(f"{self.server}: no answer in time")
        if self._api.down:
            raise Unreachable(f"{self.server}: connection refused")
        if fate == "late":
            delay_s = dice.uniform(timeout_s, 2 * timeout_s)
            self._link.late_until = max(self._link.late_until, self._kernel.now + delay_s)
            self._kernel.at(
                self._kernel.now + delay_s,
                lambda: self._execute_late(method, path, body, content_type),
            )
            self._runtime.sleep(timeout_s)
            raise Unreachable(f"{self.server}: no answer in time")
        if fate in {"error", "rubbish"}:
            return self._spoiled(fate)
        reply = self._api.answer(method, path, body, content_type)
        if fate == "doubled":
            reply = self._api.answer(method, path, body, content_type)
        self._runtime.sleep(dice.uniform(0.001, weather.slow_s))
        if fate == "lost_answer" or self._link.cut:
            self._runtime.sleep(timeout_s)
            raise Unreachable(f"{self.server}: no answer in time")
        return self._spoiled(fate) if fate == "error_after" else reply

    def _execute_late(self, method: str, path: str, body: bytes | None, content_type: str) -> None:
        if not self._api.down:
            self._api.answer(method, path, body, content_type)

    def _fate(self, method: str, path: str) -> str:
        if self._link.cut:
            return "cut"
        if self._link.unleased and "/leases" in path:
            return "error"
        weather, draw = self._link.weather, self._kernel.dice.random()
        for fate in ("lost_request", "error", "rubbish"):
            if (draw := draw - getattr(weather, fate)) < 0:
                return fate
        if method != "GET":
            for fate in ("lost_answer", "doubled", "late", "error_after"):
                if (draw := draw - getattr(weather, fate)) < 0:
                    return fate
        return ""

    def _spoiled(self, fate: str) -> Reply:
        if fate == "rubbish":
            return Reply(200, self._kernel.dice.choice(RUBBISH))
        status, reason = self._kernel.dice.choice(ERRORS)
        body = {"kind": "Status", "status": "Failure", "reason": reason, "message": "bad weather"}
        return Reply(status, orjson.dumps({**body, "code": status}))

    def counts(self) -> dict[tuple[str, str], int]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""

    def stream(self, path: str, timeout_s: float, *, metadata_only: bool = False) -> Any:
        self._runtime.sleep(self._kernel.dice.uniform(0.001, self._link.weather.slow_s))
        if self._link.cut:
            self._runtime.sleep(min(timeout_s, 30.0))
            raise Unreachable(f"{self.server}: no answer in time")
        if self._api.down:
            raise Unreachable(f"{self.server}: connection refused")
        fate = self._fate("GET", path)
        if fate == "error":
            raise self._spoiled(fate).error()
        return _VirtualStream(self, path, timeout_s)


class _VirtualStream:
    """A watch."""

    def __init__(self, client: VirtualClient, path: str, silence_s: float) -> None:
        self._api, self._link, self._kernel = api, _, kernel = client.parts
        self._silence_s = silence_s
        self._call = api.parse("GET", path)
        store = api.service.store
        asked = int(self._call.query["resourceVersion"])
        if asked > store.version:
            message = f"Timeout: Too large resource version: {asked}, current: {store.version}"
            raise StatusError(504, "Timeout", message)
        self._collection = store.collection(self._call.resource)
        self._position = self._collection.position(asked)
        self._ends_at = kernel.now + float(self._call.query["timeoutSeconds"])
        self._marked_at = self._heard_at = kernel.now
        self._broken = False
        self.bell = VirtualFlag(kernel)
        api.streams.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self in self._api.streams:
            self._api.streams.remove(self)

    def set_silence(self, seconds: float) -> None:
        self._silence_s = seconds

    def close(self) -> None:
        self._broken = True
        self.bell.set()

    break_off = close

    def __iter__(self) -> Iterator[bytes]:
        while True:
            if self._broken:
                raise Unreachable("the connection is closed")
            if self._kernel.now - self._heard_at >= self._silence_s:
                raise Silent("no answer in time")
            if not self._link.cut and not self._link.stalled:
                for line in self._due():
                    self._heard_at = self._kernel.now
                    if self._kernel.dice.random() < self._link.weather.watch_breaks:
                        raise Unreachable("the connection is closed")
                    yield line
                if self._position is None or self._kernel.now >= self._ends_at:
                    return
            self.bell.clear()
            self.bell.wait(self._next_s())

    def _next_s(self) -> float:
        """When to look again: lag and the end of a cut are not announced."""
        link, now = self._link, self._kernel.now
        silent_s = self._heard_at + self._silence_s - now
        if link.cut or link.stalled:
            return max(0.001, min(silent_s, 1.0))
        marked_s, ends_s = self._marked_at + BOOKMARK_S - now, self._ends_at - now
        look_s = 1.0 if link.weather.watch_lag_s else marked_s
        return max(0.001, min(silent_s, marked_s, ends_s, look_s))

    def _due(self) -> list[bytes]:
        events = None if self._position is None else self._collection.after(self._position)
        if events is None:
            self._position = None
            status = api_errors.gone("too old resource version").status()
            return [_line("ERROR", orjson.dumps(status))]
        lag_s, lines = self._link.weather.watch_lag_s, []
        assert self._position is not None
        for event in events:
            if self._api.event_times[event.item.version] + lag_s > self._kernel.now:
                break
            self._position += 1
            lines.append(_line(event.type, event.item.raw))
        if self._kernel.now - self._marked_at >= BOOKMARK_S and len(lines) == len(events):
            self._marked_at = self._kernel.now
            version = str(self._api.service.store.version)
            mark: Mapping[str, Any] = {"metadata": {"resourceVersion": version}}
            lines.append(_line("BOOKMARK", orjson.dumps(mark)))
        return lines


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw)
