"""A gang's state, told to its people: the PodGroup's status, the pods' PodScheduled condition, an Event.

Of a gang only the newest state counts: what was not written yet is replaced. Good news has a lane of
its own; waiting gangs share a slow one, so that ten thousand of them do not drown the API server.
"""

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from central.kube.resource_paths import BY_KIND, ResourcePath
from central.kube.transport.http_client import MERGE, STRATEGIC, Client, Reply, Unreachable
from central.kube.transport.workers import RateLimiter, WorkerPool
from central.model.decisions import EmitWarning, Evict, UpdateGangStatus
from central.model.event_reasons import EVICTED, FAILED_SCHEDULING, STATUS_CHANGED
from central.model.json_types import Json
from central.model.timestamps import stamp

log = logging.getLogger(__name__)

Key = tuple[str, str, bool]

GROUP, EVENT, POD = BY_KIND["PodGroup"], BY_KIND["Event"], BY_KIND["Pod"]
INQUEUE = "Inqueue"  # let in, and not tried yet: neither good nor bad
TOLD_PODS = 8  # of a waiting gang's pods so many carry the sentence
SAME_PHASE_S = 5.0  # a sentence that only changes its words is written this often at most
RUNNING_S = 1.0  # the counts of a gang that runs, likewise,
CROWD = 20  # and less often where more than so many have news, but
COUNTS_LATE_S = 10.0  # within this
GOOD_S = 1.0  # by then most pods of the gang run: one write says both
LATE_S = 5.0  # bindings go first; news that is so old waits for them no longer
SETTLE_S = 0.3  # a gang's pods are created one by one: its first words wait for the others
FAILED_S = 5.0
EVENT_AGAIN_S = 600.0
_REMEMBERED = 100_000


class StatusWriter:
    def __init__(
        self,
        client: Client,
        *,
        waiting_per_s: float = 50.0,
        failed_s: float = FAILED_S,
        same_phase_s: float = SAME_PHASE_S,
        settle_s: float = SETTLE_S,
        good_s: float = GOOD_S,
        late_s: float = LATE_S,
        behind: Callable[[], bool] = lambda: False,
    ) -> None:
        """behind: whether bindings wait for others to be made."""
        self._client = client
        self._failed_s = failed_s
        self._same_phase_s = same_phase_s
        self._settle_s = settle_s
        self._good_s = good_s
        self._late_s = late_s
        self._behind = behind
        self._lock = threading.Lock()
        self._next: dict[Key, UpdateGangStatus] = {}
        self._since: dict[Key, float] = {}  # when the oldest word that was not written came
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._written: dict[Key, tuple[float, UpdateGangStatus]] = {}
        self._events: dict[str, float] = {}
        self._status_path = "/status"
        self._good = (WorkerPool("tell", 2), RateLimiter(500.0, 100))
        self._waiting = (WorkerPool("tell-waiting", 1), RateLimiter(waiting_per_s, 50))
        self._stopped = threading.Event()

    def put(self, tell: UpdateGangStatus) -> None:
        key = (tell.namespace, tell.gang, tell.has_object)
        with self._lock:
            self._next[key] = tell
            self._since.setdefault(key, time.monotonic())
            again = key in self._queued and not _is_good(tell)
            self._queued.add(key)
        if not again:
            delay_s = self._good_s if _is_good(tell) else self._settle_s
            self._lane(tell)[0].put_later(partial(self._work, key), delay_s)

    def evicting(self, evict: Evict) -> None:
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": evict.namespace,
            "name": evict.name,
            "uid": evict.pod,
        }
        lane, pace = self._waiting
        lane.put(partial(self._event, involved, EVICTED, evict.why, "Warning", pace))

    def warn(self, warn: EmitWarning) -> None:
        place = {"namespace": warn.namespace}
        whom = [{"apiVersion": "v1", "kind": "Pod", **place, "name": warn.name, "uid": warn.pod}]
        if warn.gang:
            gang = {"apiVersion": GROUP.api_version, "kind": GROUP.kind, **place}
            whom.append({**gang, "name": warn.gang, "uid": warn.gang_uid})
        lane, pace = self._waiting
        for each in whom:
            lane.put(partial(self._event, each, warn.reason, warn.why, "Warning", pace))

    def stop(self) -> None:
        self._stopped.set()
        for lane, _ in (self._good, self._waiting):
            lane.stop()

    def _lane(self, tell: UpdateGangStatus) -> tuple[WorkerPool, RateLimiter]:
        return self._good if _is_good(tell) else self._waiting

    def _work(self, key: Key) -> None:
        """Write the newest state of the gang, unless it is too early or somebody is at it."""
        self._let_bindings_pass(key)
        with self._lock:
            self._queued.discard(key)
            tell = self._next.get(key)
            if tell is None:
                return
            lane, pace = self._lane(tell)
            when, last = self._written.get(key, (0.0, None))
            if last == tell:
                self._take(key)
                return
            rest_s = when + self._apart_s(tell) - time.monotonic()
            if key in self._busy:
                self._again(lane, key, 0.05)
                return
            if last is not None and last.phase == tell.phase and rest_s > 0:
                self._again(lane, key, rest_s)
                return
            self._take(key)
            self._busy.add(key)
        try:
            self._tell(tell, pace)
            with self._lock:
                if len(self._written) > _REMEMBERED:
                    self._written.clear()
                self._written[key] = (time.monotonic(), tell)
        except Unreachable as error:
            log.warning("%s/%s was not told: %s", tell.namespace, tell.gang, error)
            with self._lock:
                self._next.setdefault(key, tell)
                self._since.setdefault(key, time.monotonic())
                self._again(lane, key, self._failed_s)
        finally:
            with self._lock:
                self._busy.discard(key)

    def _apart_s(self, tell: UpdateGangStatus) -> float:
        if not _is_good(tell):
            return self._same_phase_s
        crowded_s = RUNNING_S * max(1.0, len(self._next) / CROWD)
        return min(crowded_s, COUNTS_LATE_S, self._same_phase_s)

    def _let_bindings_pass(self, key: Key) -> None:
        """Both ask the same API server, and a pod that runs is worth more than the word of it."""
        late = self._since.get(key, 0.0) + self._late_s
        while self._behind() and time.monotonic() < late and not self._stopped.wait(0.05):
            pass

    def _take(self, key: Key) -> None:
        del self._next[key]
        self._since.pop(key, None)

    def _again(self, lane: WorkerPool, key: Key, delay_s: float) -> None:
        if key not in self._queued:
            self._queued.add(key)
            lane.put_later(partial(self._work, key), delay_s)

    def _tell(self, tell: UpdateGangStatus, pace: RateLimiter) -> None:
        involved: Json | None = None
        if tell.has_object:
            involved = self._status(tell, pace)
        waits = not _is_good(tell)
        if waits:
            for name in tell.pods[:TOLD_PODS]:
                if self._is_old(tell):
                    return  # the pods may be bound by now: no word that they wait
                told = self._condition(tell, name, pace)
                involved = involved or told
        if involved is None and tell.pods and not waits:
            reply = self._ask(pace, "GET", POD.path(tell.namespace, tell.pods[0]))
            involved = _reference(reply, POD, tell.namespace, tell.pods[0])
        if involved is not None and tell.reason and tell.phase != INQUEUE and not tell.quiet:
            reason = (FAILED_SCHEDULING if waits else tell.phase) if tell.phase else STATUS_CHANGED
            self._event(involved, reason, tell.reason, "Warning" if waits else "Normal", pace)

    def _is_old(self, tell: UpdateGangStatus) -> bool:
        with self._lock:
            newer = self._next.get((tell.namespace, tell.gang, tell.has_object))
        return newer is not None and newer.phase != tell.phase

    def _status(self, tell: UpdateGangStatus, pace: RateLimiter) -> Json | None:
        condition = {
            "type": "Scheduled" if _is_good(tell) else "Unschedulable",
            "status": "True",
            "reason": "GangScheduled" if _is_good(tell) else "Unschedulable",
            "message": tell.reason,
            "lastTransitionTime": stamp(time.time()),
            "transitionID": str(uuid.uuid4()),
        }
        status = {
            "phase": tell.phase,
            "conditions": [condition] if tell.phase != INQUEUE else [],
            "running": tell.running,
            "succeeded": tell.succeeded,
            "failed": tell.failed,
        }
        path = GROUP.path(tell.namespace, tell.gang)
        patch = {"status": status}
        reply = self._ask(pace, "PATCH", path + self._status_path, patch, MERGE)
        if reply.status == 404 and self._status_path:
            whole = self._ask(pace, "PATCH", path, patch, MERGE)
            if whole.ok:  # an older CRD, without the status subresource
                self._status_path = ""
            reply = whole
        _complain(reply, "PodGroup", tell.namespace, tell.gang)
        return _reference(reply, GROUP, tell.namespace, tell.gang)

    def _condition(self, tell: UpdateGangStatus, name: str, pace: RateLimiter) -> Json | None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": tell.reason,
            "lastTransitionTime": stamp(time.time()),
        }
        path = POD.path(tell.namespace, name) + "/status"
        patch = {"status": {"conditions": [condition]}}
        reply = self._ask(pace, "PATCH", path, patch, STRATEGIC)
        _complain(reply, "pod", tell.namespace, name)
        return _reference(reply, POD, tell.namespace, name)

    def _event(
        self, involved: Json, reason: str, message: str, kind: str, pace: RateLimiter
    ) -> None:
        """One Event object per object, reason and sentence, however often it is told."""
        told = "\n".join((involved.get("uid") or "", reason, message))
        digest = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
        if time.monotonic() - self._events.get(digest, -EVENT_AGAIN_S) < EVENT_AGAIN_S:
            return
        if len(self._events) > _REMEMBERED:
            self._events.clear()
        self._events[digest] = time.monotonic()
        namespace, name = involved["namespace"], f"{involved['name'][:200]}.{digest}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved,
            "reason": reason,
            "message": message[:1000],
            "type": kind,
            "source": {"component": "lockstep"},
            "firstTimestamp": stamp(time.time()),
            "lastTimestamp": stamp(time.time()),
            "count": 1,
        }
        try:
            reply = self._ask(pace, "POST", EVENT.path(namespace), event)
            if reply.status == 409:
                seen = {"lastTimestamp": stamp(time.time())}
                reply = self._ask(pace, "PATCH", EVENT.path(namespace, name), seen, MERGE)
            _complain(reply, "Event of", namespace, involved["name"])
        except Unreachable as error:
            self._events.pop(digest, None)
            log.warning("an Event of %s/%s was lost: %s", namespace, involved["name"], error)

    def _ask(
        self,
        pace: RateLimiter,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
    ) -> Reply:
        if self._stopped.wait(pace.wait_s()):
            raise Unreachable("stopping")
        reply = self._client.request(method, path, orjson.dumps(body) if body else None, kind)
        if reply.status in {401, 408, 429} or reply.status >= 500:
            raise Unreachable(reply.error().message)
        return reply


def _is_good(tell: UpdateGangStatus) -> bool:
    return tell.phase in {"Running", "Completed"}


def _reference(reply: Reply, of: ResourcePath, namespace: str, name: str) -> Json | None:
    """Of the object that the answer holds, as Events refer to it."""
    if not reply.ok:
        return None
    uid = (reply.json().get("metadata") or {}).get("uid") or ""
    place = {"namespace": namespace, "name": name, "uid": uid}
    return {"apiVersion": of.api_version, "kind": of.kind, **place}


def _complain(reply: Reply, what: str, namespace: str, name: str) -> None:
    if not reply.ok and reply.status != 404:  # gone meanwhile: nobody to tell
        log.warning("%s %s/%s was not told: %s", what, namespace, name, reply.error())
