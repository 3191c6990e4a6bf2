"""Lists and watches each kind in a thread of its own, and puts the decoded facts into the inbox.

Broken connections, 410 Gone and restarts of the API server are handled here: after a new list, objects
that have disappeared become Gone facts. A fact that equals the last one of its object is dropped.

    decoder = Decoder(scheduler_names, levels)
    watches = start(api_kinds.kinds(decoder), client, inbox)
    watches.wait_synced(timeout_s); ...; watches.stop()
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

import orjson

from central.kube.decode.api_kinds import Kind
from central.kube.transport.http_client import Client, StatusError, Stream, Unreachable
from central.model.facts import Fact
from central.model.json_types import Json

log = logging.getLogger(__name__)


PAGE = 1000
WATCH_S = 300  # after which the server ends a watch
SILENCE_S = WATCH_S + 30.0
RECHECK_S = 30.0
BACKOFF_S = (0.2, 10.0)  # first, longest


class _Expired(Exception):
    """The resource version is too old for a watch."""


class Watches:
    def __init__(self, reflectors: Sequence["_Reflector"]) -> None:
        self._reflectors = reflectors

    def wait_synced(self, timeout_s: float | None = None) -> bool:
        """Whether the first list of every kind has been delivered in time. Kinds that the API server
        does not serve count as empty."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for reflector in self._reflectors:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not reflector.synced.wait(left):
                return False
        return True

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()
        for reflector in self._reflectors:
            reflector.join(5.0)


def start(
    kinds: Sequence[Kind],
    client: Client,
    inbox: Callable[[Fact], None],
    *,
    page: int = PAGE,
    recheck_s: float = RECHECK_S,
) -> Watches:
    """inbox is called from one thread per kind and must not block."""
    reflectors = [_Reflector(kind, client, inbox, page, recheck_s) for kind in kinds]
    for reflector in reflectors:
        reflector.start()
    return Watches(reflectors)


class _Reflector(threading.Thread):
    def __init__(
        self, kind: Kind, client: Client, inbox: Callable[[Fact], None], page: int, recheck_s: float
    ) -> None:
        super().__init__(name=f"watch-{kind.resource.full_name}", daemon=True)
        self.synced = threading.Event()
        self._kind = self._preferred = kind
        self._client = client
        self._inbox = inbox
        self._page = page
        self._recheck_s = recheck_s
        self._delivered: dict[Fact, Fact] = {}  # Gone fact of an object -> its last fact
        self._version = ""
        self._missing = False
        self._failures = 0
        self._ending = threading.Event()
        self._stream: Stream | None = None

    def stop(self) -> None:
        self._ending.set()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                if not self._version:
                    self._list()
                began = time.monotonic()
                self._watch()
                if time.monotonic() - began < 1.0:  # the server closes watches at once
                    self._ending.wait(0.5)
            except _Expired as expired:
                log.info("%s: %s; listing again", self._kind.resource.full_name, expired)
                self._version = ""
            except StatusError as refused:
                self._refused(refused)
            except Unreachable as unreachable:
                self._pause(str(unreachable))

    def _refused(self, refused: StatusError) -> None:
        if refused.status == 410:
            log.info("%s: %s; listing again", self._kind.resource.full_name, refused)
            self._version = ""
        elif refused.status == 404 and self._kind.fallback is not None:
            self._kind = self._kind.fallback
            log.info("%s: using %s", self._kind.resource.full_name, self._kind.resource.path())
        elif refused.status == 404 and self._kind.optional:
            self._absent()
        else:
            self._pause(f"{self._client.server}: {refused.status} {refused.message}")

    def _absent(self) -> None:
        if not self._missing:
            log.info(
                "%s: not installed; checking again every %gs",
                self._kind.resource.full_name,
                self._recheck_s,
            )
        self._missing = True
        self._version = ""
        self._replace({})
        self.synced.set()
        self._ending.wait(self._recheck_s)
        self._kind = self._preferred

    def _pause(self, why: str) -> None:
        if self._ending.is_set():
            return
        first, longest = BACKOFF_S
        pause = min(longest, first * 2**self._failures) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 10)
        log.warning("%s: %s; retrying in %.1fs", self._kind.resource.full_name, why, pause)
        self._ending.wait(pause)

    def _list(self) -> None:
        """All objects, page by page. If a page's token expires, the list starts again."""
        found: dict[Fact, Fact] = {}
        token = ""
        while True:
            path = f"{self._kind.resource.path()}?limit={self._page}"
            if token:
                path += f"&continue={quote(token, safe='')}"
            page = self._client.get(path, metadata_only=self._kind.metadata_only)
            for raw in page.get("items") or ():
                self._read(raw, found)
            meta = page.get("metadata") or {}
            token = meta.get("continue") or ""
            if not token or self._ending.is_set():
                break
        if self._missing:
            log.info("%s: is now installed", self._kind.resource.full_name)
            self._missing = False
        self._replace(found)
        self._version = meta.get("resourceVersion") or "0"
        self._failures = 0
        self.synced.set()

    def _replace(self, found: dict[Fact, Fact]) -> None:
        for gone in self._delivered.keys() - found.keys():
            del self._delivered[gone]
            self._inbox(gone)
        for gone, fact in found.items():
            self._deliver(gone, fact)

    def _read(self, raw: Json, into: dict[Fact, Fact]) -> None:
        try:
            into[self._kind.gone(raw)] = self._kind.seen(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("skipping malformed %s: %s", self._kind.resource.full_name, error)

    def _deliver(self, gone: Fact, fact: Fact) -> None:
        if self._delivered.get(gone) != fact:
            self._delivered[gone] = fact
            self._inbox(fact)

    def _forget(self, raw: Json) -> None:
        try:
            gone = self._kind.gone(raw)
        except KeyError:
            return  # without a name, no fact was delivered
        self._delivered.pop(gone, None)
        self._inbox(gone)

    def _watch(self) -> None:
        path = (
            f"{self._kind.resource.path()}?watch=1&allowWatchBookmarks=true"
            f"&resourceVersion={self._version}"
            f"&timeoutSeconds={int(WATCH_S * random.uniform(0.8, 1.0))}"
        )
        with self._client.stream(path, SILENCE_S, metadata_only=self._kind.metadata_only) as stream:
            self._stream = stream
            if self._ending.is_set():
                return
            try:
                for line in stream:
                    self._event(line)
            finally:
                self._stream = None

    def _event(self, line: bytes) -> None:
        try:
            event = orjson.loads(line)
            kind, raw = event["type"], event["object"]
            meta = raw.get("metadata") or {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreachable(
                f"{self._client.server}: a line of the watch is not an event"
            ) from error
        if kind == "ERROR":
            if raw.get("code") == 410:
                raise _Expired(raw.get("message") or "too old")
            raise Unreachable(f"{self._client.server}: {raw.get('message') or raw}")
        if kind in {"ADDED", "MODIFIED"}:
            read: dict[Fact, Fact] = {}
            self._read(raw, read)
            for gone, fact in read.items():
                self._deliver(gone, fact)
        elif kind == "DELETED":
            self._forget(raw)
        version = meta.get("resourceVersion")
        if version:
            self._version = version
        self._failures = 0
