"""Events about objects, and the rate-limited client that they share with the status writes."""

import hashlib
import logging
import threading
import time
from typing import Any

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.transport.workers import RateLimiter
from central.kube.write.retrying import Retry, call
from central.model.json_types import Json
from central.model.timestamps import stamp

log = logging.getLogger(__name__)

EVENT = BY_KIND["Event"]
REPEAT_S = 600.0  # the same Event is written at most this often
_REMEMBERED_MOST = 100_000


class LimitedClient:
    """Requests at a limited rate. Raises Retry, also for every request after `stopped` is set."""

    def __init__(self, client: Client, limiter: RateLimiter, stopped: threading.Event) -> None:
        self._client, self._limiter, self._stopped = client, limiter, stopped

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Reply:
        if self._stopped.wait(self._limiter.wait_s()):
            raise Retry("stopping")
        return call(self._client, method, path, body, content_type)


class EventWriter:
    """Keeps one Event object per object, reason and message, however often it is emitted."""

    def __init__(self) -> None:
        self._written: dict[str, float] = {}  # when, by the Event's digest

    def emit(
        self, client: LimitedClient, involved: Json, reason: str, message: str, kind: str
    ) -> None:
        """kind: Normal or Warning."""
        content = "\n".join((involved.get("uid") or "", reason, message))
        digest = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
        if time.monotonic() - self._written.get(digest, -REPEAT_S) < REPEAT_S:
            return
        if len(self._written) > _REMEMBERED_MOST:
            self._written.clear()
        self._written[digest] = time.monotonic()
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
            reply = client.call("POST", EVENT.path(namespace), event)
            if reply.status == 409:
                seen = {"lastTimestamp": stamp(time.time())}
                reply = client.call("PATCH", EVENT.path(namespace, name), seen, MERGE)
            log_failure(reply, "Event of", namespace, involved["name"])
        except Retry as error:
            self._written.pop(digest, None)
            log.warning("lost an Event of %s/%s: %s", namespace, involved["name"], error)


def log_failure(reply: Reply, what: str, namespace: str, name: str) -> None:
    if not reply.ok and reply.status != 404:  # the object is gone meanwhile
        log.warning("could not update %s %s/%s: %s", what, namespace, name, reply.error())
