"""What a quota lacks for a gang: only victims inside the queue can free it."""

from collections.abc import Sequence
from typing import NamedTuple

from central.model.resources import Sums
from central.scheduler.queues.queue_tree_node import Queue

GANGS = "gangs"  # counted beside the resources


class Shortfall(NamedTuple):
    queue: Queue
    amounts: Sums
    namespace: str = ""  # only victims of this namespace count; empty: of all


Shortfalls = Sequence[Shortfall]  # that victims must cover together
