"""Entitlement of each queue: its fair share, and its deserved amount or guarantee. Pure.

Design: docs/design/queues.md
"""

from typing import Protocol

from central.model.resources import Sums
from central.model.wording import NEVER
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.share_table import ShareTable
from central.scheduler.state.gangs import Gang


class SharedTree(Protocol):
    """The tree that fair shares are computed from: Queues, or a copy of its tree."""

    @property
    def root(self) -> Queue: ...
    @property
    def total(self) -> Sums: ...
    @property
    def share_tables(self) -> dict[str, ShareTable]: ...


def fair_shares(queues: SharedTree, resource: str) -> dict[str, int]:
    """Returns the fair share of each queue in the tree, by name: at most its demand, in whole devices."""
    return _table(queues, resource).shares(queues.root, queues.total.get(resource, 0))


def own_amount(queues: Queues, queue: Queue, resource: str) -> int:
    """See ShareTable.own_amount()."""
    return _table(queues, resource).own_amount(queue)


def scarce_shares(queues: Queues, gang: Gang) -> list[tuple[str, int, int]]:
    """Returns the resources that the pending gang requests and whose fair share is below the queue's demand: (resource,
    amount the queue uses, fair share)."""
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
    """Returns whether other queues with pending gangs would reclaim their deserved amounts as soon as the gang
    started. Gangs that can never start as things are reclaim nothing."""
    if gang.account is None:
        return False
    for queue in queues.by_name[gang.account.queue].path[:-1]:
        if queue.parent is None or not queue.seen.reclaimable:
            return False
        for resource, amount in gang.attempt.need.items():
            table, will_use = _table(queues, resource), queue.used.get(resource, 0) + amount
            if will_use <= table.own_amount(queue) or not queues.is_shared(resource):
                continue
            others = [o for o in table.entitled(queue.parent) if o is not queue]
            most = max(0, fair_shares(queues, resource)[queue.parent.name] - will_use)
            if sum(min(table.own_amount(o), table.demand(o).demand) for o in others) <= most:
                continue
            claimed = due = 0
            for other in others:
                own, uses = table.own_amount(other), other.used.get(resource, 0)
                asks = _asks(other, resource) if other.is_waiting else 0
                claimed, due = claimed + asks, due + min(own, uses + asks)
            if claimed and due > most:
                return True
    return False


def _asks(queue: Queue, resource: str) -> int:
    """Returns what pending gangs of the queue and those below it request, without gangs that can never start."""
    gangs = (gang for each in queue for gang in each.gangs.values())
    return sum(
        gang.account.demand.get(resource, 0)
        for gang in gangs
        if gang.account is not None and NEVER not in gang.attempt.reason
    )


def _table(queues: SharedTree, resource: str) -> ShareTable:
    if (table := queues.share_tables.get(resource)) is None:
        table = queues.share_tables[resource] = ShareTable(resource)
    return table
