"""Lists and watches each kind in a thread of its own, and puts the decoded facts into the inbox.

Broken connections, restarts of the API server and a restored etcd are handled here: after a new list, objects
that have disappeared become Gone facts. A fact that equals the last one of its object is dropped.

    decoder = Decoder(scheduler_names, levels)
    watches = start(api_kinds.kinds(decoder), client, inbox)
    watches.wait_synced(timeout_s); ...; watches.stop()

A kind is listed again (a consistent read, without a resourceVersion) when its watch cannot be trusted to continue:
after every error of the API server but 429, as client-go does, when a resourceVersion goes back, and when
neither an event nor a bookmark comes in time. A connection that breaks is resumed where it was.

Design: docs/design/api-server.md
"""

import logging
from collections.abc import Callable, Sequence

from central.kube.decode.api_kinds import Kind
from central.kube.transport import deep_json
from central.kube.transport.http_client import Client, Silent, StatusError, Stream, Unreachable
from central.kube.transport.list_pages import PAGE, pages
from central.kube.transport.runtime import RUNTIME, Runtime
from central.model.facts import Fact, PodSeen
from central.model.json_types import Json

log = logging.getLogger(__name__)

WATCH_S = 300  # after which the server ends a watch
SILENCE_S = WATCH_S + 30.0  # without an event, after which a watch counts as dead
# The API server sends a bookmark each minute. Where it does, this much silence is enough.
BOOKMARKS_S, SILENCE_WITH_BOOKMARKS_S = 70.0, 90.0
OUT_OF_SYNC_S = 60.0  # without a watch, after which the replica is not ready
RECHECK_S = 30.0
GANGS_RECHECK_S = 5.0  # of kinds whose objects make gangs: their pods wait a little longer for them
LASTING_S = 10.0  # a watch that lasts this long has worked
NOT_FOUND_MOST, GANGS_NOT_FOUND_MOST = 8, 16  # within about 20 s
BACKOFF_S = (0.2, 10.0)  # first, longest
GANGS_BACKOFF_S = (0.2, GANGS_RECHECK_S / 2)  # until another version of such a kind is found


class _Untrusted(Exception):
    """Raised if the watch cannot continue from its version: the kind must be listed again."""


class Watches:
    def __init__(self, reflectors: Sequence["_Reflector"], runtime: Runtime = RUNTIME) -> None:
        self._reflectors = reflectors
        self._runtime = runtime

    def wait_synced(self, timeout_s: float | None = None) -> bool:
        """Returns whether the first list of every kind has been delivered in time. Kinds that the API server does not
        serve count as empty."""
        now = self._runtime.monotonic
        deadline = None if timeout_s is None else now() + timeout_s
        for reflector in self._reflectors:
            left = None if deadline is None else max(0.0, deadline - now())
            if not reflector.synced.wait(left):
                return False
        return True

    def out_of_sync(self) -> dict[str, tuple[float, str]]:
        """Returns by kind the seconds since which it has no working list or watch, and the reason; kinds in sync are
        left out."""
        return {
            each.kind_name: (late_s, each.problem)
            for each in self._reflectors
            if (late_s := each.out_of_sync_s()) > 0
        }

    def problem(self) -> str:
        """The kind that is out of sync for too long, as a clause; empty: none."""
        late = {kind: it for kind, it in self.out_of_sync().items() if it[0] > OUT_OF_SYNC_S}
        if not late:
            return ""
        kind = max(late, key=lambda each: late[each][0])
        seconds, why = late[kind]
        return f"{kind} are out of sync for {seconds:.0f} s: {why}"

    def list_again(self, plural: str) -> None:
        """Lists the kind with this plural again as soon as possible: its watch has missed a change."""
        for reflector in self._reflectors:
            if reflector.plural == plural:
                reflector.list_again()

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()
        for reflector in self._reflectors:
            reflector.thread.join(5.0)


def start(
    kinds: Sequence[Kind],
    client: Client,
    inbox: Callable[[Fact], None],
    *,
    page: int = PAGE,
    recheck_s: float = RECHECK_S,
    runtime: Runtime = RUNTIME,
) -> Watches:
    """inbox is called from one thread per kind and must not block."""
    reflectors = [
        _Reflector(kind, client, inbox, page=page, recheck_s=recheck_s, runtime=runtime)
        for kind in kinds
    ]
    for reflector in reflectors:
        reflector.thread.start()
    return Watches(reflectors, runtime)


class _Reflector:
    def __init__(
        self,
        kind: Kind,
        client: Client,
        inbox: Callable[[Fact], None],
        *,
        page: int,
        recheck_s: float,
        runtime: Runtime,
    ) -> None:
        self.plural = kind.resource.plural
        self.kind_name = kind.full_name
        self.thread = runtime.thread(self._run, f"watch-{self.kind_name}")
        self.synced = runtime.flag()
        self.problem = ""  # why it is out of sync
        self._in_sync = False  # a list or a watch is under way without trouble
        self._lost_at = runtime.monotonic()
        self._runtime = runtime
        self._kind = kind
        self._client = client
        self._inbox = inbox
        self._page = page
        self._recheck_s = recheck_s
        self._delivered: dict[Fact, Fact] = {}  # Gone fact of an object -> its last fact
        self._version = ""
        self._missing = False
        self._seeks_version = False  # the next step is to ask which version of the kind is served
        self._not_found = 0  # in a row
        self._failures = 0
        self._missed = False  # somebody has noticed that the watch missed something
        self._ending = runtime.flag()
        self._stream: Stream | None = None
        self._bookmarks_come = False  # each minute or so
        self._quiet_since = 0.0  # when the watch began, or the last bookmark came

    def stop(self) -> None:
        self._ending.set()
        if (stream := self._stream) is not None:
            stream.close()

    def list_again(self) -> None:
        """Closes the watch and lists again. Called from any thread."""
        self._missed = True
        if (stream := self._stream) is not None:
            stream.close()

    def out_of_sync_s(self) -> float:
        return 0.0 if self._in_sync else self._runtime.monotonic() - self._lost_at

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._follow()
            except _Untrusted as why:
                self._version = ""
                self._list_soon(str(why))
            except StatusError as refused:
                self._refused(refused)
            except Unreachable as unreachable:
                if isinstance(unreachable, Silent):
                    self._version, self._bookmarks_come = "", False
                    self._client.close()  # what is idle is likely as dead, and the list must not wait for it
                self._pause(str(unreachable))
            except Exception as error:  # whatever it is, this thread must go on
                log.exception("%s: unhandled exception in a watch (bug)", self.kind_name)
                self._version = ""
                self._pause(f"{type(error).__name__}: {error}")

    def _follow(self) -> None:
        """Lists if needed, and watches until the watch ends."""
        if self._seeks_version:
            found = self._served_version()
            self._seeks_version = False
            if found is None and not self._may_come_back():
                self._absent()
                return
            self._kind = found or self._kind
        if not self._version or self._must_list():
            self._missed, self._version = False, ""
            self._list()
            if self._ending.is_set():
                return
        began = self._runtime.monotonic()
        self._watch()
        lasted_s = self._runtime.monotonic() - began
        if lasted_s < 1.0:  # the server closes watches at once
            self._ending.wait(0.5)
        elif lasted_s > LASTING_S:
            self._failures = 0

    def _must_list(self) -> bool:
        """Returns whether list_again() was called, possibly by another thread in this moment."""
        return self._missed

    def _set_in_sync(self, now: bool, why: str = "") -> None:
        if self._in_sync and not now:
            self._lost_at = self._runtime.monotonic()
        self._in_sync, self.problem = now, why

    def _refused(self, refused: StatusError) -> None:
        watched, too_many = bool(self._version), refused.status == 429
        if not too_many:
            self._version = ""
        if refused.status == 404 and not watched:
            self._not_found += 1
        if refused.status == 410:
            self._list_soon(str(refused))
        elif refused.status == 404 and (watched or self._may_come_back()):
            limits = GANGS_BACKOFF_S if self._kind.dispensable else BACKOFF_S
            self._pause(f"{self._client.server}: {refused.message}", limits)
            self._seeks_version = self._kind.in_version is not None
        elif refused.status == 404 and self._kind.in_version is not None:
            self._seeks_version = True
        elif refused.status == 404 and self._kind.optional:
            self._absent()
        elif refused.status == 403 and self._may_be_forbidden() and not self._delivered:
            self._not_allowed(refused.message)
        else:
            self._pause(f"{self._client.server}: {refused.status} {refused.message}")

    def _served_version(self) -> Kind | None:
        """The kind in the version that the API server puts first; None: it serves no version."""
        here = self._kind.resource
        try:
            for version in self._discovered(f"/apis/{here.group}", "versions", "version"):
                path = f"/apis/{here.group}/{version}"
                if here.plural in self._discovered(path, "resources", "name"):
                    assert self._kind.in_version is not None
                    found = self._kind.in_version(version)
                    log.info("%s: using %s", found.full_name, found.path)
                    return found
        except StatusError as refused:
            if refused.status != 404:
                raise
        return None

    def _discovered(self, path: str, field: str, key: str) -> list[str]:
        """Returns the values of a key in the entries of a discovery document. Raises Unreachable if the answer is
        another document."""
        entries = self._client.get(path).get(field)
        found = [each.get(key) for each in entries or () if isinstance(each, dict)]
        if not isinstance(entries, list) or not all(isinstance(each, str) for each in found):
            raise Unreachable(
                f"{self._client.server}: the answer for {path} has no list of {field}"
            )
        return [str(each) for each in found]

    def _may_be_forbidden(self) -> bool:
        return bool(self._kind.namespace) or self._kind.dispensable

    def _not_allowed(self, why: str) -> None:
        """Treats a namespace without a binding of the role as empty, so that it delays no other. So does a kind
        that an older role does not name."""
        if not self.synced.is_set():
            log.warning("%s: %s; checking again every %gs", self.kind_name, why, self._recheck_s)
        self._set_in_sync(True)
        self.synced.set()
        self._ending.wait(self._recheck_s)

    def _list_soon(self, why: str) -> None:
        """Lists at once, and after a pause if that repeats."""
        if self._failures:
            self._pause(why)
        else:
            self._failures = 1
            log.info("%s: %s; listing again", self.kind_name, why)

    def _may_come_back(self) -> bool:
        """Returns whether a kind that was served may be served again: an API server that starts does not know its
        CRDs yet. The objects of a kind count as gone only after several refusals in a row."""
        most = GANGS_NOT_FOUND_MOST if self._kind.dispensable else NOT_FOUND_MOST
        return self.synced.is_set() and not self._missing and self._not_found < most

    def _absent(self) -> None:
        again_s = self._recheck_s
        if self._kind.dispensable:
            again_s = min(again_s, GANGS_RECHECK_S)
        if not self._missing:
            log.info("%s: not installed; checking again every %gs", self._kind.full_name, again_s)
        self._missing = True
        self._replace({})
        self._set_in_sync(True)
        self.synced.set()
        self._ending.wait(again_s)

    def _pause(self, why: str, limits: tuple[float, float] = BACKOFF_S) -> None:
        """limits: the first pause and the longest, in s."""
        if self._ending.is_set():
            return
        self._set_in_sync(False, why)
        first, longest = limits
        pause = min(longest, first * 2**self._failures) * self._runtime.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 10)
        log.warning("%s: %s; retrying in %.1fs", self._kind.full_name, why, pause)
        self._ending.wait(pause)

    def _list(self) -> None:
        """All objects, page by page. If a page's token expires, the list starts again."""
        found: dict[Fact, Fact] = {}
        kind = self._kind
        for page in pages(self._client, kind.path, self._page, metadata_only=kind.metadata_only):
            items, version = self._checked(page)
            if self._ending.is_set():
                return  # the objects of the pages that are left are not gone
            for raw in items:
                self._read(raw, found)
        if self._missing:
            log.info("%s: is now installed", self._kind.full_name)
            self._missing = False
        self._replace(found)
        self._version = version
        self._not_found = 0  # _failures goes on until a watch has worked
        self._set_in_sync(True)
        self.synced.set()

    def _checked(self, page: Json) -> tuple[list[Json], str]:
        """Returns the page's items and resourceVersion. Raises Unreachable if it is not a list: an
        empty object is not an empty list, which would remove everything."""
        meta, items = page.get("metadata"), page.get("items", "")
        kind = str(page.get("kind", "List"))
        version = str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""
        is_list = items is None or isinstance(items, list)
        if not isinstance(meta, dict) or not version or not is_list or not kind.endswith("List"):
            raise Unreachable(
                f"{self._client.server}: the answer is not a list of {self.kind_name}"
            )
        return items or [], version

    def _replace(self, found: dict[Fact, Fact]) -> None:
        for gone in [each for each in self._delivered if each not in found]:
            del self._delivered[gone]
            self._inbox(gone)
        for gone, fact in found.items():
            self._deliver(gone, fact)

    def _read(self, raw: Json, into: dict[Fact, Fact]) -> None:
        try:
            into[self._kind.gone(raw)] = self._kind.seen(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("skipping malformed %s: %s", self._kind.full_name, error)

    def _deliver(self, gone: Fact, fact: Fact) -> None:
        before = self._delivered.get(gone)
        if before == fact:
            return
        if _is_unbound(before, fact):
            self._inbox(gone)
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
        version = self._version
        path = (
            f"{self._kind.path}?watch=1&allowWatchBookmarks=true"
            f"&resourceVersion={version}"
            f"&timeoutSeconds={int(WATCH_S * self._runtime.uniform(0.8, 1.0))}"
        )
        silence_s = SILENCE_WITH_BOOKMARKS_S if self._bookmarks_come else SILENCE_S
        with self._client.stream(path, silence_s, metadata_only=self._kind.metadata_only) as stream:
            self._stream = stream
            if self._ending.is_set() or self._must_list():
                return
            self._set_in_sync(True)
            self._quiet_since = self._runtime.monotonic()
            try:
                for line in stream:
                    self._event(line)
                    if self._must_list():
                        return
                    if self._bookmarks_come:
                        stream.set_silence(SILENCE_WITH_BOOKMARKS_S)
            finally:
                self._stream = None

    def _event(self, line: bytes) -> None:
        try:
            event = deep_json.loads(line)
            kind, raw = event["type"], event["object"]
            meta = raw.get("metadata") or {}
            version = str(meta.get("resourceVersion") or "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _Untrusted(
                f"{self._client.server}: a line of the watch is not an event"
            ) from error
        if kind == "ERROR":
            self._error(raw)
        elif kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}:
            raise _Untrusted(f"{self._client.server}: unknown event {kind!r:.40}")
        if _is_before(version, self._version) and kind != "DELETED":
            raise _Untrusted(f"resourceVersion went back from {self._version} to {version}")
        if kind in {"ADDED", "MODIFIED"}:
            read: dict[Fact, Fact] = {}
            self._read(raw, read)
            for gone, fact in read.items():
                self._deliver(gone, fact)
        elif kind == "DELETED":
            self._forget(raw)
        elif kind == "BOOKMARK":
            self._on_bookmark()
        if version and not _is_before(version, self._version):
            self._version = version
        self._failures = 0

    def _error(self, status: Json) -> None:
        """An event that ends the watch. Raises StatusError, which says how to continue."""
        code, reason = status.get("code"), str(status.get("reason") or "")
        if code == 410 or reason in {"Gone", "Expired"}:
            raise _Untrusted(status.get("message") or "too old")
        message = str(status.get("message") or status)
        raise StatusError(code if isinstance(code, int) else 500, reason, message)

    def _on_bookmark(self) -> None:
        now = self._runtime.monotonic()
        # Older API servers send one shortly before the end of the watch only.
        self._bookmarks_come = now - self._quiet_since <= BOOKMARKS_S
        self._quiet_since = now


def _is_unbound(before: Fact | None, now: Fact) -> bool:
    """Returns whether a pod that was bound is pending: etcd was restored from before the binding."""
    if not isinstance(before, PodSeen) or not isinstance(now, PodSeen):
        return False
    return bool(before.node) and not now.node


def _is_before(one: str, other: str) -> bool:
    """Compares two resourceVersions of one kind, which API servers count up."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
