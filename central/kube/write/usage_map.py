"""Past use of queues in the ConfigMap lockstep-queue-usage of the scheduler's namespace, so that a new leader continues
with it.

    usage = usage_map.load(client, namespace)     # None: it was not written yet
    usage_map.save(client, namespace, usage)

Design: docs/design/quotas.md
"""

import zlib
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from math import isfinite
from typing import Any

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client
from central.kube.write.retrying import Retry, call, object_of
from central.model.facts import PastUsageSeen, QueuePast
from central.model.inflate import inflated

NAME = "lockstep-queue-usage"
QUEUES_MOST = 5000
TEXT_MOST = 512 << 10  # bytes of the compressed text; a ConfigMap may have 1 MiB, in base64
PLAIN_MOST = 8 << 20  # bytes of the text
_CONFIGMAP, _KEY = BY_KIND["ConfigMap"], "usage"


class NotKept(Exception):
    """A sentence for the log: the past use is not read, or not written, as it is."""


def load(client: Client, namespace: str) -> PastUsageSeen | None:
    """Raises Retry, NotKept."""
    reply = call(client, "GET", _CONFIGMAP.path(namespace, NAME))
    if reply.status == 404:
        return None
    if not reply.ok:
        raise NotKept(reply.error().message)
    data = object_of(reply, _CONFIGMAP, NAME).get("binaryData")
    return _read(data.get(_KEY) if isinstance(data, dict) else None)


def save(client: Client, namespace: str, usage: PastUsageSeen) -> None:
    """Raises Retry, NotKept."""
    text = _text(usage)
    if len(text) > TEXT_MOST:
        raise NotKept(f"the past use of {len(usage.queues)} queues has {len(text)} bytes")
    meta = {"name": NAME, "namespace": namespace}
    body = _CONFIGMAP.body(metadata=meta, binaryData={_KEY: text.decode()})
    reply = call(client, "PATCH", _CONFIGMAP.path(namespace, NAME), body, MERGE)
    if reply.status == 404:
        reply = call(client, "POST", _CONFIGMAP.path(namespace), body)
    if reply.status == 409:
        raise Retry(reply.error().message)
    if not reply.ok:
        raise NotKept(reply.error().message)


def _text(usage: PastUsageSeen) -> bytes:
    most = sorted(
        usage.queues, key=lambda queue: -max((part for _, part in queue.means), default=0)
    )
    queues = {queue.name: dict(queue.means) for queue in most[:QUEUES_MOST]}
    return b64encode(zlib.compress(orjson.dumps({"at": usage.at, "queues": queues})))


def _read(text: Any) -> PastUsageSeen:
    """Any user who may write ConfigMaps there may have written it. Raises NotKept."""
    try:
        if (plain := inflated(b64decode(text, validate=True), PLAIN_MOST)) is None:
            raise NotKept(f"{NAME}: it is cut off, or above {PLAIN_MOST} bytes")
        found = orjson.loads(plain)
        queues = tuple(
            QueuePast(str(name), tuple((str(key), float(mean)) for key, mean in means.items()))
            for name, means in found["queues"].items()
        )
        at = float(found["at"])
    except (TypeError, ValueError, KeyError, AttributeError, NotBase64, zlib.error) as error:
        raise NotKept(f"{NAME}: {type(error).__name__}: {str(error)[:100]}") from error
    if len(queues) > QUEUES_MOST or not all(map(_is_whole, queues)) or not isfinite(at):
        raise NotKept(f"{NAME}: it has numbers that no scheduler wrote")
    return PastUsageSeen(at, queues)


def _is_whole(queue: QueuePast) -> bool:
    return all(isfinite(mean) and mean >= 0 for _, mean in queue.means)
