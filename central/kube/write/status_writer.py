"""Gangs as users see them: the PodGroup's status, the PodScheduled condition of its pods, Events.

Only the newest state of a gang counts, so an update that is not written yet is replaced by the next one.
When the first and the following writes of a gang happen, with the times of StatusTiming:

    pending gang   update --settle 0.3 s--> write --same phase: after 5 s at the earliest--> write
    running gang   update --started 1 s---> write --counts: after 1 s, or up to 5 s if many wait--> write
    of a Job       update --1 s after the first pod runs, or 5 s--> write --counts: after 5 s--> write
    other phase    written as soon as a worker is free
    failed write   repeated after 5 s, 10 s, ... 5 min
    bindings       go first: while some wait for a worker, updates younger than 5 s are held back

Running and completed gangs have workers and a request rate of their own. Pending gangs share a slow one,
so that ten thousand of them neither delay the others nor overload the API server.
"""

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from central.kube.resource_paths import BY_KIND, ResourcePath
from central.kube.transport.http_client import MERGE, STRATEGIC, Client, Reply
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.transport.workers import RateLimiter, WorkerPool
from central.kube.write import native_status
from central.kube.write.event_writer import EventWriter, LimitedClient
from central.kube.write.new_reasons import NewReasons
from central.kube.write.retrying import Retry, object_of, says_gone
from central.model import past_turns
from central.model.decisions import PODS_SHOWN, EmitWarning, Evict, UpdateGangStatus
from central.model.event_reasons import EVICTED, FAILED_SCHEDULING, STATUS_CHANGED
from central.model.json_types import Json
from central.model.pending_causes import CAUSES
from central.model.phases import COMPLETED, INQUEUE, RUNNING
from central.model.timestamps import stamp
from protos.common.picked import picked

log = logging.getLogger(__name__)

StatusKey = tuple[str, str, bool]  # namespace, name, whether there is a PodGroup

PODGROUP, POD = BY_KIND["PodGroup"], BY_KIND["Pod"]
MANY_UPDATES = 20  # with more gangs waiting for a write, running ones are written less often
FAILED_MOST_S = 300.0
_REMEMBERED_MOST = 100_000
_BUSY_S = 0.05


@dataclass(frozen=True, slots=True)
class StatusTiming:
    """Times in seconds; the timeline above shows them."""

    settle_s: float = 0.3  # the pods of a gang are created one by one
    started_s: float = 1.0  # by then most pods run, and one write says both
    same_phase_s: float = 5.0
    counts_s: float = 1.0
    failed_s: float = 5.0
    bindings_first_s: float = 5.0
    pending_per_s: float = 50.0  # requests per second for all pending gangs


DEFAULT_TIMING = StatusTiming()


@dataclass(slots=True)
class _GangWrites:
    update: UpdateGangStatus | None = None  # the newest that is not written yet
    since: float = 0.0  # when the oldest update came that is not written yet
    starts_at: float = 0.0  # when a new phase may be written
    queued: bool = False
    writing: bool = False
    written: UpdateGangStatus | None = None
    written_at: float = 0.0
    failures: int = 0  # of writes, in a row


class StatusWriter:
    def __init__(
        self,
        client: Client,
        timing: StatusTiming = DEFAULT_TIMING,
        *,
        bindings_wait: Callable[[], bool] = lambda: False,
        may_act: Callable[[], bool] = lambda: True,
        runtime: Runtime = RUNTIME,
    ) -> None:
        """bindings_wait: whether bindings wait for a worker. may_act: see DecisionExecutor."""
        self._runtime = runtime
        self._timing = timing
        self._bindings_wait = bindings_wait
        self._lock = threading.Lock()
        self._gangs: dict[StatusKey, _GangWrites] = {}
        self._unwritten = 0  # gangs with an update
        self._events = EventWriter(runtime)
        self._reasons = NewReasons()
        self._status_path = "/status"
        self._stopped = runtime.flag()
        placed = RateLimiter(500.0, 100, runtime)
        pending = RateLimiter(timing.pending_per_s, 50, runtime)
        self._placed_pool = WorkerPool("status", 2, runtime)
        self._placed_client = LimitedClient(client, placed, self._stopped, may_act)
        self._pending_pool = WorkerPool("status-pending", 1, runtime)
        self._pending_client = LimitedClient(client, pending, self._stopped, may_act)

    def put(self, update: UpdateGangStatus) -> None:
        key = (update.namespace, update.gang, update.has_object)
        placed = _is_placed(update)
        with self._lock:
            gang = self._gangs.setdefault(key, _GangWrites())
            self._set_update(gang, update)
            if gang.queued and not placed:
                return
            gang.queued = True
        delay_s = self._timing.started_s if placed else self._timing.settle_s
        self._pool(update).put_later(partial(self._work, key), delay_s)

    def evicting(self, evict: Evict) -> None:
        involved = _pod(evict.namespace, evict.name, evict.pod)
        self._put_event(involved, EVICTED, evict.public or evict.why)

    def warn(self, warning: EmitWarning) -> None:
        namespace = warning.namespace
        involved = _object(BY_KIND[warning.kind], namespace, warning.name, warning.pod)
        self._put_event(involved, warning.reason, warning.why)
        if warning.gang:
            path, name = native_status.podgroup(warning.gang, warning.native_version)
            podgroup = _object(path, namespace, name, warning.gang_uid)
            self._put_event(podgroup, warning.reason, warning.why)

    def stop(self) -> None:
        self._stopped.set()
        self._placed_pool.stop()
        self._pending_pool.stop()

    def _put_event(self, involved: Json, reason: str, message: str) -> None:
        emit = self._events.emit
        client = self._pending_client
        self._pending_pool.put(partial(emit, client, involved, reason, message, "Warning"))

    def _pool(self, update: UpdateGangStatus) -> WorkerPool:
        return self._placed_pool if _is_placed(update) else self._pending_pool

    def _work(self, key: StatusKey) -> None:
        """Writes the gang's newest state, unless it is too early or another worker writes it."""
        self._let_bindings_pass(key)
        with self._lock:
            gang = self._gangs.setdefault(key, _GangWrites())
            gang.queued = False
            if (update := gang.update) is None:
                return
            if update != gang.written and (early_s := self._early_s(gang, update)) > 0:
                self._requeue(key, gang, update, early_s)
                return
            gang.update, gang.since = None, 0.0
            self._unwritten -= 1
            if update == gang.written:
                return
            gang.writing = True
        try:
            self._write(update)
            with self._lock:
                gang.written, gang.written_at = update, self._runtime.monotonic()
                gang.failures = 0
                self._forget_some()
        except Exception as error:
            if not isinstance(error, Retry):
                log.exception("unhandled exception in a status write (bug)")
            log.warning("could not update status of %s/%s: %s", key[0], key[1], error)
            with self._lock:
                self._put_back(gang, update)
                wait_s = min(FAILED_MOST_S, self._timing.failed_s * 2 ** min(gang.failures, 10))
                gang.failures += 1
                self._requeue(key, gang, update, wait_s)
        finally:
            with self._lock:
                gang.writing = False

    def _set_update(self, gang: _GangWrites, update: UpdateGangStatus) -> None:
        before = gang.update
        if before is None:
            gang.since = self._runtime.monotonic()
            self._unwritten += 1
        if before is None or _begun(before) != _begun(update):
            gang.starts_at = self._runtime.monotonic() + self._start_s(update)
        gang.update = update

    def _start_s(self, update: UpdateGangStatus) -> float:
        """Returns the delay of a starting gang's write, so that one write covers the following changes as well."""
        if update.phase not in {INQUEUE, RUNNING}:
            return 0.0
        is_starting = update.of_job and update.phase == RUNNING and not update.running
        return self._timing.same_phase_s if is_starting else self._timing.started_s

    def _put_back(self, gang: _GangWrites, update: UpdateGangStatus) -> None:
        if gang.update is None:  # otherwise a newer one has come
            self._set_update(gang, update)

    def _requeue(
        self, key: StatusKey, gang: _GangWrites, update: UpdateGangStatus, delay_s: float
    ) -> None:
        if not gang.queued:
            gang.queued = True
            self._pool(update).put_later(partial(self._work, key), delay_s)

    def _early_s(self, gang: _GangWrites, update: UpdateGangStatus) -> float:
        """Returns the seconds for which the update must still wait."""
        if gang.writing:
            return _BUSY_S
        if gang.written is None or gang.written.phase != update.phase:
            return gang.starts_at - self._runtime.monotonic()
        timing = self._timing
        apart_s = timing.same_phase_s
        if _is_placed(update) and not update.of_job:
            crowded_s = timing.counts_s * max(1.0, self._unwritten / MANY_UPDATES)
            apart_s = min(crowded_s, apart_s)
        return gang.written_at + apart_s - self._runtime.monotonic()

    def _let_bindings_pass(self, key: StatusKey) -> None:
        """Both use the same API server, and a running pod is worth more than its status."""
        gang = self._gangs.get(key)
        until = (gang.since if gang else 0.0) + self._timing.bindings_first_s
        while (
            self._bindings_wait()
            and self._runtime.monotonic() < until
            and not self._stopped.wait(_BUSY_S)
        ):
            pass

    def _forget_some(self) -> None:
        if len(self._gangs) > _REMEMBERED_MOST:
            self._gangs = {
                key: gang
                for key, gang in self._gangs.items()
                if gang.update is not None or gang.queued or gang.writing
            }

    def _write(self, update: UpdateGangStatus) -> None:
        """Raises Retry."""
        involved: Json | None = None
        placed = _is_placed(update)
        client = self._placed_client if placed else self._pending_client
        if update.has_object:
            involved = self._write_podgroup(client, update)
        reason = CAUSES.get(update.cause, "")
        for index in range(len(update.pods) if reason else 0):
            if self._is_outdated(update):
                return  # the pods may be bound by now
            pod, bound = _write_condition(client, update, index, self._runtime.time())
            if bound:
                return  # a newer update says where
            involved = involved or pod
            is_told = placed or index >= PODS_SHOWN or self._is_outdated(update)
            if pod is not None and pod is not involved and not is_told:
                self._emit_pending(client, pod, update)
        if involved is None and update.pods and not reason:
            reply = client.call("GET", POD.path(update.namespace, update.pods[0]))
            involved = _reference(reply, POD, update.namespace, update.pods[0])
        if involved is not None and not placed:
            self._emit_pending(client, involved, update)
        elif involved is not None and update.reason and not update.quiet:
            self._events.emit(client, involved, update.phase, update.reason, "Normal")

    def _emit_pending(
        self, client: LimitedClient, involved: Json, update: UpdateGangStatus
    ) -> None:
        """An Event about the PodGroup or a pod of a pending gang, if the reason is new for it."""
        if not update.reason or update.phase == INQUEUE or update.quiet:
            return
        if self._reasons.is_new(involved["uid"], update.reason, self._runtime.monotonic()):
            reason = FAILED_SCHEDULING if update.phase else STATUS_CHANGED
            self._events.emit(client, involved, reason, update.reason, "Warning")

    def _is_outdated(self, update: UpdateGangStatus) -> bool:
        with self._lock:
            gang = self._gangs.get((update.namespace, update.gang, update.has_object))
            newer = gang.update if gang else None
        if newer is None or newer.phase != update.phase:
            return newer is not None
        return _is_placed(update) and newer.pods != update.pods

    def _write_podgroup(self, client: LimitedClient, update: UpdateGangStatus) -> Json | None:
        if update.native_version:
            for part in native_status.parts(update):
                self._write_native_podgroup(client, part)
            return self._write_native_podgroup(client, update)
        placed = _is_placed(update)
        condition = {
            "type": "Scheduled" if placed else "Unschedulable",
            "status": "True",
            "reason": "GangScheduled" if placed else CAUSES.get(update.cause, ""),
            "message": update.reason,
            "lastTransitionTime": stamp(self._runtime.time()),
            "transitionID": str(uuid.uuid4()),
        }
        conditions = [condition] if condition["reason"] and update.phase != INQUEUE else []
        if update.past_turns is not None:  # first: others read the last one
            conditions.insert(0, past_turns.condition(update.past_turns, self._runtime.time()))
        status = {**picked(update, "phase running succeeded failed"), "conditions": conditions}
        path = PODGROUP.path(update.namespace, update.gang)
        patch = {"status": status}
        reply = client.call("PATCH", path + self._status_path, patch, MERGE)
        if reply.status == 404 and self._status_path:
            reply = client.call("PATCH", path, patch, MERGE)
            if reply.ok:  # an older CRD, without the status subresource
                self._status_path = ""
        return _reference(reply, PODGROUP, update.namespace, update.gang)

    def _write_native_podgroup(
        self, client: LimitedClient, update: UpdateGangStatus
    ) -> Json | None:
        resource, name = native_status.podgroup(update.gang, update.native_version)
        path = resource.path(update.namespace, name)
        reply = client.call("GET", path)
        if reply.ok:
            found = object_of(reply, resource, name)
            patch = native_status.patch(found, update, self._runtime.time())
            if patch is not None:
                reply = client.call("PATCH", path + "/status", patch, MERGE)
        return _reference(reply, resource, update.namespace, name)


def _write_condition(
    client: LimitedClient, update: UpdateGangStatus, index: int, now: float
) -> tuple[Json | None, bool]:
    """Writes the condition of the pod with this index. Behind the first ones, which have the reason, the message
    names the first. Returns a reference to the pod, and whether it was bound meanwhile; then it says again that it is
    scheduled, as its binding had made it say."""
    name, first = update.pods[index], update.pods[0]
    path = POD.path(update.namespace, name) + "/status"
    condition: Json = {
        "type": "PodScheduled",
        "status": "False",
        "reason": CAUSES[update.cause],
        "message": update.reason if index < PODS_SHOWN else f"as pod {first}, which says why",
        "lastTransitionTime": stamp(now),
    }
    status = {"conditions": [condition], "nominatedNodeName": dict(update.nominated).get(name)}
    reply = client.call("PATCH", path, {"status": status}, STRATEGIC)
    pod = _reference(reply, POD, update.namespace, name)
    bound = pod is not None and bool(
        (object_of(reply, POD, name).get("spec") or {}).get("nodeName")
    )
    if bound:
        condition |= {"status": "True", "reason": None, "message": None}
        status["nominatedNodeName"] = None
        reply = client.call("PATCH", path, {"status": status}, STRATEGIC)
        pod = _reference(reply, POD, update.namespace, name)
    return pod, bound


def _is_placed(update: UpdateGangStatus) -> bool:
    return update.phase in {RUNNING, COMPLETED}


def _begun(update: UpdateGangStatus) -> tuple[str, bool]:
    return update.phase, update.running > 0


def _reference(reply: Reply, of: ResourcePath, namespace: str, name: str) -> Json | None:
    """Refers to the object in the reply, as Events do; None: the object is gone. Raises Retry."""
    if says_gone(reply, of, name):
        return None
    if not reply.ok:
        raise Retry(f"{of.kind} {name}: {reply.error().message}")
    return _object(of, namespace, name, object_of(reply, of, name)["metadata"]["uid"])


def _object(of: ResourcePath, namespace: str, name: str, uid: str) -> Json:
    return of.body(namespace=namespace, name=name, uid=uid)


def _pod(namespace: str, name: str, uid: str) -> Json:
    return _object(POD, namespace, name, uid)
