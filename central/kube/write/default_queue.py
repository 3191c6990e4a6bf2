"""The Queue `default` as an object, for clusters that want one: made once by who leads, and then its
owner's to change. Without it the queue is there all the same (central.scheduler.queues)."""

import logging

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Unreachable
from central.model.resources import DEFAULT

log = logging.getLogger(__name__)

QUEUE = BY_KIND["Queue"]


def make(client: Client) -> None:
    """What can't be made now is made by who leads next; nothing waits for it."""
    body = {
        "apiVersion": QUEUE.api_version,
        "kind": QUEUE.kind,
        "metadata": {"name": DEFAULT},
        "spec": {"weight": 1},
    }
    try:
        reply = client.request("POST", QUEUE.path(), orjson.dumps(body))
    except Unreachable as error:
        log.warning("the Queue %s is not made: %s", DEFAULT, error)
        return
    if reply.ok:
        log.info("the Queue %s is made", DEFAULT)
    elif reply.status != 409:  # there it is
        log.warning("the Queue %s is not made: %s", DEFAULT, reply.error())
