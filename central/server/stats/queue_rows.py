"""The queues, with what they use and what they are entitled to, in the units that users know."""

from collections import Counter
from collections.abc import Generator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from central.model.resources import DEFAULT, GPU_EQUIVALENTS, GPU_UNITS, ROOT, Sums
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from protos.names import GPU

RESOURCES_MOST = 8  # that are shown of each queue: GPUs, CPU, memory, and those that queues name
Amounts = Mapping[str, float]  # GPU equivalents, cores, bytes, or units; by resource


@dataclass(frozen=True, slots=True)
class QueueRow:
    name: str
    parent: str = ""  # empty: it is the root, or invalid
    weight: int = 1
    priority: int = 0
    error: str = ""
    closed: bool = False
    reclaimable: bool = True
    leaf: bool = True
    used: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    capability: Amounts = field(default_factory=dict)
    fair_share: Amounts = field(default_factory=dict)
    requested: Amounts = field(default_factory=dict)  # by its own pending gangs
    gangs: Mapping[str, int] = field(default_factory=dict)  # by phase, in small letters


@dataclass(slots=True)
class TreeCopy:
    """The tree of queues at one time, from which the rows are computed outside of the scheduling loop: fair shares of
    a thousand queues take longer than a cycle may be delayed."""

    root: Queue
    total: Sums
    resources: tuple[str, ...]  # that are shown
    shared: frozenset[str]  # of these, those that are shared out
    queues: list[Queue] = field(default_factory=list)  # parents before children, invalid ones last
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)  # gangs by phase
    cache: dict[tuple[str, str], Any] = field(default_factory=dict)
    plain: QueueRow | None = None  # of a cluster without Queue objects


def copied(scheduler: Scheduler) -> Generator[None, None, TreeCopy]:
    """Yields between two queues."""
    queues = scheduler.queues
    resources = shown_resources(queues)
    shared = frozenset(filter(queues.is_shared, resources))
    if not queues.enabled:
        gangs = yield from _phases(scheduler)
        plain = replace(_without_queues(scheduler), gangs=gangs)
        return TreeCopy(Queue.without_object(ROOT), {}, resources, shared, plain=plain)
    yield
    copies: dict[str, Queue] = {}
    tree = TreeCopy(Queue.without_object(ROOT), dict(queues.total), resources, shared)
    for name in _in_order(queues):
        queue = queues.by_name.get(name)
        if queue is None:
            continue
        made = copies[name] = copy(queue)
        made.used, made.demand, made.children = dict(queue.used), dict(queue.demand), []
        made.parent = copies.get(queue.parent.name) if queue.parent is not None else None
        if made.parent is not None:
            made.parent.children.append(made)
        tree.queues.append(made)
        tree.counts[name] = scheduler.queue_statuses.counts(name)
        yield
    tree.root = copies.get(ROOT, tree.root)
    return tree


def rows(tree: TreeCopy, pending_gpus: float = 0.0) -> list[QueueRow]:
    """Returns a row for each queue that exists, parents before children. pending_gpus: requested by all pending
    gangs. Called outside of the scheduling loop."""
    if tree.plain is not None:
        return [replace(tree.plain, requested={GPU: pending_gpus})]
    shares = {resource: fair_shares(tree, resource) for resource in tree.shared}
    return [
        _row(
            queue,
            tree,
            {each: found[queue.name] for each, found in shares.items() if queue.name in found},
        )
        for queue in tree.queues
    ]


def shown_resources(queues: Queues) -> tuple[str, ...]:
    """GPUs, CPU and memory first, then those that queues name for themselves."""
    named = {
        resource
        for queue in queues.by_name.values()
        for resource in (*queue.deserved, *queue.guarantee, *queue.capability)
    }
    first = (GPU_EQUIVALENTS, "cpu", "memory")
    return (*first, *sorted(named - {*first}))[:RESOURCES_MOST]


def _in_order(queues: Queues) -> list[str]:
    """Parents before children; invalid queues at the end. Without those that gangs name and that do not exist."""
    tree = [queue.name for queue in queues.root]
    return [*tree, *sorted(filter(queues.is_declared, queues.by_name.keys() - set(tree)))]


def _row(queue: Queue, tree: TreeCopy, due: Sums) -> QueueRow:
    def shown(sums: Sums) -> Amounts:
        return in_units({each: sums[each] for each in tree.resources if each in sums})

    seen, nothing = queue.seen, dict.fromkeys(tree.resources[:3], 0)
    return QueueRow(
        queue.name,
        queue.parent.name if queue.parent is not None else "",
        seen.weight,
        seen.priority,
        queue.error,
        seen.closed,
        seen.reclaimable,
        not queue.children and queue.name != ROOT,
        shown({**nothing, **queue.used}),
        shown(queue.deserved),
        shown(queue.guarantee),
        shown(queue.capability),
        shown(due),
        shown({**nothing, **queue.demand}),
        tree.counts[queue.name],
    )


def in_units(sums: Mapping[str, int]) -> Amounts:
    """GPU equivalents as GPUs, CPU as cores."""
    names = {GPU_EQUIVALENTS: (GPU, GPU_UNITS), "cpu": ("cpu", 1000)}
    found = {}
    for resource, amount in sums.items():
        name, unit = names.get(resource, (resource, 1))
        found[name] = amount / unit
    return found


def _phases(scheduler: Scheduler) -> Generator[None, None, dict[str, int]]:
    """Counts gangs by phase where they are not counted by queue. Yields between two gangs."""
    found: Counter[str] = Counter()
    for key in list(scheduler.state.gangs):
        if (gang := scheduler.state.gangs.get(key)) is not None:
            found[gang_status.phase(gang).lower()] += 1
        yield
    return found


def _without_queues(scheduler: Scheduler) -> QueueRow:
    """Returns the row of a cluster without Queue objects, where use is not counted by queue."""
    columns = scheduler.state.snapshot.columns
    rows = list(columns.row.values())
    used = {
        name: int((columns.allocatable[rows, at] - columns.free[rows, at]).sum())
        for name, at in columns.column.items()
        if name in (GPU, "cpu", "memory")
    }
    return QueueRow(DEFAULT, used=in_units(used))
