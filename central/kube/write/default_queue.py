"""Creates the Queue object `default`, if the settings ask for one. The scheduler has the queue without the
object, too; with it, users can change its weight and limits."""

import logging

import orjson

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client, Unreachable
from central.model.resources import DEFAULT

log = logging.getLogger(__name__)

QUEUE = BY_KIND["Queue"]


def create_default_queue(client: Client) -> None:
    """Creates the Queue default. After a failure the next leader tries again; nothing depends on it."""
    body = QUEUE.body(metadata={"name": DEFAULT}, spec={"weight": 1})
    try:
        reply = client.request("POST", QUEUE.path(), orjson.dumps(body))
    except Unreachable as error:
        log.warning("could not create Queue %s: %s", DEFAULT, error)
        return
    if reply.ok:
        log.info("created Queue %s", DEFAULT)
    elif reply.status != 409:  # it exists
        log.warning("could not create Queue %s: %s", DEFAULT, reply.error())
