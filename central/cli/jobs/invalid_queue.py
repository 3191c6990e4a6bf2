"""Why the scheduler starts nothing of a Queue whose object is invalid, by its own rules. The object's status has no field
for the reason."""

from collections.abc import Iterable
from contextlib import suppress

from central.kube.decode.fields import MalformedObject
from central.kube.decode.policy_decoder import decode_queue
from central.model.json_types import Json
from central.scheduler.queues.queue_tree import Queues


def reason(objects: Iterable[Json], name: str) -> str:
    """objects: all Queues. Empty: the queue is valid, or has no object."""
    queues = Queues()
    for each in objects:
        with suppress(MalformedObject):
            queues.apply(decode_queue(each))
    queues.settle()
    found = queues.by_name.get(name)
    return found.error if found is not None else ""
