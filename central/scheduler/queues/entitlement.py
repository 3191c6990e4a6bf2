"""What each queue is entitled to: its fair share, and its deserved amount or guarantee. Pure.

Design: docs/design/queues.md
"""

from operator import attrgetter
from typing import Any, Protocol

from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS, ROOT, Sums
from central.scheduler.queues.fair_share import QueueDemand, divide, in_whole_devices
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang

_children = attrgetter("children")


class SharedTree(Protocol):
    """What fair shares are computed from: Queues, or a copy of its tree."""

    @property
    def root(self) -> Queue: ...
    @property
    def total(self) -> Sums: ...
    @property
    def cache(self) -> dict[tuple[str, str], Any]: ...


def fair_shares(queues: SharedTree, resource: str) -> dict[str, int]:
    """By name of each queue in the tree: its fair share of the resource, at most its demand, in whole devices."""
    cached: dict[str, int] | None = queues.cache.get(("", resource))
    if cached is not None:
        return cached
    demands = _demands(queues, resource)
    unit = GPU_UNITS if resource == GPU_EQUIVALENTS else 1
    shares = {ROOT: min(queues.total.get(resource, 0), demands[ROOT].demand)}
    for queue in filter(_children, queues.root):
        below = [demands[child.name] for child in queue.children]
        exact = divide(shares[queue.name], below)
        for child, share in zip(queue.children, in_whole_devices(exact, below, unit), strict=True):
            shares[child.name] = share
    queues.cache["", resource] = shares
    return shares


def own_amount(queues: Queues, queue: Queue, resource: str) -> int:
    """The deserved amount or the guarantee, whichever is more; of an inner queue that names neither, its
    children's."""
    demand = _demands(queues, resource)[queue.name]
    return max(demand.deserved, demand.guarantee)


def scarce_shares(queues: Queues, gang: Gang) -> list[tuple[str, int, int]]:
    """Of each resource that the pending gang requests and whose fair share is below the queue's
    demand: (resource, amount the queue uses, fair share)."""
    if gang.account is None:
        return []
    queue = queues.by_name[gang.account.queue]
    found = []
    for resource in sorted(filter(queues.is_shared, gang.account.demand)):
        share = fair_shares(queues, resource).get(queue.name)
        used = queue.used.get(resource, 0)
        if share is not None and share < used + queue.demand.get(resource, 0):
            found.append((resource, used, share))
    return found


def would_be_reclaimed(queues: Queues, gang: Gang) -> bool:
    """Returns whether other queues with pending gangs would reclaim their deserved amounts as soon as the gang started."""
    if gang.account is None:
        return False
    for queue in queues.by_name[gang.account.queue].path[:-1]:
        if queue.parent is None or not queue.seen.reclaimable:
            return False
        others = [
            other for other in queue.parent.children if other is not queue and other.is_waiting
        ]
        for resource, amount in gang.attempt.need.items() if others else ():
            will_use = queue.used.get(resource, 0) + amount
            if will_use <= own_amount(queues, queue, resource) or not queues.is_shared(resource):
                continue
            most = fair_shares(queues, resource)[queue.parent.name]
            demands = _demands(queues, resource)
            due = sum(min(own_amount(queues, o, resource), demands[o.name].demand) for o in others)
            if due and will_use + due > most:
                return True
    return False


def _demands(queues: SharedTree, resource: str) -> dict[str, QueueDemand]:
    cached: dict[str, QueueDemand] | None = queues.cache.get(("demands", resource))
    if cached is None:
        cached = queues.cache["demands", resource] = {}
        _add_demands(queues.root, resource, cached)
    return cached


def _add_demands(queue: Queue, resource: str, demands: dict[str, QueueDemand]) -> QueueDemand:
    children = [_add_demands(child, resource, demands) for child in queue.children]
    own = queue.used.get(resource, 0) - sum(child.used.get(resource, 0) for child in queue.children)
    demand = own + queue.demand.get(resource, 0) + sum(child.demand for child in children)
    capability = queue.capability.get(resource, demand)
    deserved = queue.deserved.get(resource, sum(child.deserved for child in children))
    guarantee = queue.guarantee.get(resource, 0)
    demands[queue.name] = QueueDemand(
        queue.seen.weight,
        min(demand, capability),
        deserved,
        max(guarantee, sum(child.guarantee for child in children)),
        queue.seen.priority,
        queue.used.get(resource, 0),
        queue.seen.strict_priority,
    )
    return demands[queue.name]
