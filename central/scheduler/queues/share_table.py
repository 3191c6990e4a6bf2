"""Fair shares of one resource by queue, divided again only where a demand or a share above has changed.

A gang that starts or ends changes the demands of its queue and of those above it. With a thousand queues most
departments keep their demands and shares, so nothing is divided again inside them.

Design: docs/design/queues.md
"""

from collections.abc import Iterable
from operator import is_

from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.queues.fair_share import QueueDemand, divide, in_whole_devices
from central.scheduler.queues.queue_tree_node import Queue


class ShareTable:
    """Valid for one tree: a queue with other terms or another parent needs a new table."""

    __slots__ = ("_demands", "_divided", "_entitled", "_resource", "_shares", "_total")

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._demands: dict[str, QueueDemand] = {}  # by queue, those that are known
        self._entitled: dict[str, list[Queue]] = {}  # by the queue above
        self._shares: dict[str, int] = {}
        self._divided: dict[str, list[QueueDemand]] = {}  # what each share was divided among
        self._total: int | None = None  # that is divided; None: shares are outdated

    def outdate(self, path: Iterable[Queue]) -> None:
        """path: a queue whose usage or requests change, and those above it."""
        self._total = None
        for queue in path:
            self._demands.pop(queue.name, None)

    def demand(self, queue: Queue) -> QueueDemand:
        if (known := self._demands.get(queue.name)) is not None:
            return known
        children, resource = [self.demand(child) for child in queue.children], self._resource
        used = queue.used.get(resource, 0)
        own = used - sum(child.used.get(resource, 0) for child in queue.children)
        demand = own + queue.demand.get(resource, 0) + sum(child.demand for child in children)
        found = self._demands[queue.name] = QueueDemand(
            queue.seen.weight,
            min(demand, queue.capability.get(resource, demand)),
            queue.deserved.get(resource, sum(child.deserved for child in children)),
            max(queue.guarantee.get(resource, 0), sum(child.guarantee for child in children)),
            queue.seen.priority,
            used,
            queue.seen.strict_priority,
        )
        return found

    def entitled(self, above: Queue) -> list[Queue]:
        """Returns the queues below that have a deserved amount or a guarantee, which are terms of the tree."""
        if (known := self._entitled.get(above.name)) is None:
            known = [each for each in above.children if self.own_amount(each)]
            self._entitled[above.name] = known
        return known

    def own_amount(self, queue: Queue) -> int:
        """The deserved amount or the guarantee, whichever is more; of an inner queue that names neither, its
        children's."""
        demand = self.demand(queue)
        return max(demand.deserved, demand.guarantee)

    def shares(self, root: Queue, total: int) -> dict[str, int]:
        """Returns the share of each queue by name: at most its demand, in whole devices. After a change it is another
        dict."""
        if self._total != total:
            self._shares = dict(self._shares)
            share = min(total, self.demand(root).demand)
            self._divide(root, share)
            self._shares[root.name], self._total = share, total
        return self._shares

    def _divide(self, queue: Queue, share: int) -> None:
        before, below = self._divided.get(queue.name, ()), [*map(self.demand, queue.children)]
        keeps_parts = share == self._shares.get(queue.name) and below == before
        if keeps_parts and all(map(is_, below, before)):
            return  # nothing below has changed
        if keeps_parts:
            parts = [self._shares[child.name] for child in queue.children]
        else:
            unit = GPU_UNITS if self._resource == GPU_EQUIVALENTS else 1
            parts = in_whole_devices(divide(share, below), below, unit)
        for child, part in zip(queue.children, parts, strict=True):
            if child.children:
                self._divide(child, part)
            self._shares[child.name] = part  # after those below it: a failure leaves it outdated
        self._divided[queue.name] = below
