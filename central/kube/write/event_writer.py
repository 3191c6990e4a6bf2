"""Events about objects, and the rate-limited client that they share with the status writes."""

import hashlib
import logging
from collections.abc import Callable
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.transport.runtime import RUNTIME, Flag, Runtime
from central.kube.transport.workers import RateLimiter
from central.kube.write.retrying import Retry, call
from central.model.json_types import Json
from central.model.timestamps import stamp

log = logging.getLogger(__name__)

EVENT = BY_KIND["Event"]
REPEAT_S = 600.0  # the same Event is written at most this often
_REMEMBERED_MOST = 100_000


class LimitedClient:
    """Requests at a limited rate. Raises Retry, also for every request after `stopped` is set, and for
    those of a replica that may not act."""

    def __init__(
        self, client: Client, limiter: RateLimiter, stopped: Flag, may_act: Callable[[], bool]
    ) -> None:
        self._client, self._limiter, self._stopped = client, limiter, stopped
        self._may_act = may_act

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Reply:
        if self._stopped.wait(self._limiter.wait_s()):
            raise Retry("stopping")
        if not self._may_act():
            raise Retry("this replica does not hold the lease")
        return call(self._client, method, path, body, content_type)


class EventWriter:
    """Keeps one Event object per object, reason and message, however often it is emitted."""

    def __init__(self, runtime: Runtime = RUNTIME) -> None:
        self._runtime = runtime
        self._written: dict[str, float] = {}  # when, by the Event's digest

    def emit(
        self, client: LimitedClient, involved: Json, reason: str, message: str, kind: str
    ) -> None:
        """kind: Normal or Warning."""
        digest = _digest(involved, reason, message)
        if self._runtime.monotonic() - self._written.get(digest, -REPEAT_S) < REPEAT_S:
            return
        if len(self._written) > _REMEMBERED_MOST:
            self._written.clear()
        self._written[digest] = self._runtime.monotonic()
        namespace = involved["namespace"] or "default"  # of objects without a namespace
        name = f"{involved['name'][:200]}.{digest}"
        event = EVENT.body(
            metadata={"name": name, "namespace": namespace},
            involvedObject=involved,
            reason=reason,
            message=message[:1000],
            type=kind,
            source={"component": "lockstep"},
            firstTimestamp=stamp(self._runtime.time()),
            lastTimestamp=stamp(self._runtime.time()),
            count=1,
        )
        try:
            reply = client.call("POST", EVENT.path(namespace), event)
            if reply.status == 409:
                seen = {"lastTimestamp": stamp(self._runtime.time())}
                reply = client.call("PATCH", EVENT.path(namespace, name), seen, MERGE)
            if not reply.ok and reply.status != 404:  # the object is gone meanwhile
                why = reply.error()
                log.warning(
                    "could not write an Event of %s/%s: %s", namespace, involved["name"], why
                )
        except Retry as error:
            self._written.pop(digest, None)
            log.warning("lost an Event of %s/%s: %s", namespace, involved["name"], error)


def _digest(involved: Json, reason: str, message: str) -> str:
    name = f"{involved['kind']} {involved['namespace']}/{involved['name']}"
    content = "\n".join((involved.get("uid") or name, reason, message))
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
