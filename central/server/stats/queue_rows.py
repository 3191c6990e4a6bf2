"""The queues, with what they use and what they are entitled to, in the units that users know."""

from collections import Counter
from collections.abc import Generator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from central.model.resources import DEFAULT, GPU_EQUIVALENTS, GPU_UNITS, ROOT, Sums, add
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.share_table import ShareTable
from central.scheduler.scheduler import Scheduler
from protos.names import GPU

ABSENT = "(no such queue)"  # the row of all queues that gangs name and that do not exist
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
    state: str = "Open"  # as in the Queue's status


@dataclass(slots=True)
class TreeCopy:
    """The tree of queues at one time, from which the rows are computed outside of the scheduling loop: fair shares of
    a thousand queues take longer than a cycle may be delayed."""

    root: Queue
    total: Sums
    resources: tuple[str, ...]  # that are shown
    shared: frozenset[str]  # of these, those that are shared out
    queues: list[Queue] = field(default_factory=list)  # parents before children, invalid ones last
    counts: dict[str, Counter[str]] = field(default_factory=dict)  # gangs by phase
    states: dict[str, str] = field(default_factory=dict)
    absent: QueueRow | None = None
    share_tables: dict[str, ShareTable] = field(default_factory=dict)
    plain: QueueRow | None = None  # of a cluster without Queue objects


def copied(scheduler: Scheduler) -> Generator[None, None, TreeCopy]:
    """Yields between two queues."""
    queues = scheduler.queues
    resources = shown_resources(queues)
    shared = frozenset(filter(queues.is_shared, resources))
    counts = scheduler.queue_statuses.by_queue()
    if not queues.enabled:
        plain = replace(_without_queues(scheduler), gangs=counts.pop(DEFAULT, Counter()))
        absent = _absent(queues, resources, counts)
        return TreeCopy(
            Queue.without_object(ROOT), {}, resources, shared, plain=plain, absent=absent
        )
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
        tree.counts[name] = counts.pop(name, Counter())
        tree.states[name] = scheduler.queue_statuses.state(queue)
        yield
    tree.absent = _absent(queues, resources, counts)
    tree.root = copies.get(ROOT, tree.root)
    return tree


def rows(tree: TreeCopy, gpus: float = 0.0, pending_gpus: float = 0.0) -> list[QueueRow]:
    """Returns a row for each queue that exists, parents before children, and one for all others. gpus, pending_gpus:
    used by all gangs, and requested by those that are pending. Called outside of the scheduling loop."""
    absent = [tree.absent] if tree.absent is not None else []
    if (plain := tree.plain) is not None:
        used = gpus - sum(row.used[GPU] for row in absent)
        wanted = pending_gpus - sum(row.requested[GPU] for row in absent)
        return [replace(plain, used={**plain.used, GPU: used}, requested={GPU: wanted}), *absent]
    shares = {resource: fair_shares(tree, resource) for resource in tree.shared}
    found = [
        _row(
            queue,
            tree,
            {each: due[queue.name] for each, due in shares.items() if queue.name in due},
        )
        for queue in tree.queues
        if not queue.is_part
    ]
    return [*found, *absent]


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
    parts = [child for child in queue.children if child.is_part]
    demand = dict(queue.demand)
    for part in parts:
        add(demand, part.demand, 1)
    return QueueRow(
        queue.name,
        queue.parent.name if queue.parent is not None else "",
        seen.weight,
        seen.priority,
        queue.error,
        seen.closed,
        seen.reclaimable,
        len(parts) == len(queue.children) and queue.name != ROOT,
        shown({**nothing, **queue.used}),
        shown(queue.deserved),
        shown(queue.guarantee),
        shown(queue.capability),
        shown(due),
        shown({**nothing, **demand}),
        tree.counts[queue.name],
        tree.states[queue.name],
    )


def _absent(
    queues: Queues, resources: tuple[str, ...], counts: Mapping[str, Counter[str]]
) -> QueueRow | None:
    """counts: of the gangs whose queues do not exist. None: there are none."""
    if not counts:
        return None
    used: Sums = {}
    demand: Sums = {}
    for name in counts:
        if (queue := queues.by_name.get(name)) is not None:
            add(used, queue.used, 1)
            add(demand, queue.demand, 1)
    return QueueRow(
        ABSENT,
        weight=0,
        error="gangs name queues that do not exist",
        used=in_units({each: used.get(each, 0) for each in resources}),
        requested=in_units({each: demand.get(each, 0) for each in resources}),
        gangs=sum(counts.values(), Counter()),
        state="Unknown",
    )


def in_units(sums: Mapping[str, int]) -> Amounts:
    """GPU equivalents as GPUs, CPU as cores."""
    names = {GPU_EQUIVALENTS: (GPU, GPU_UNITS), "cpu": ("cpu", 1000)}
    found = {}
    for resource, amount in sums.items():
        name, unit = names.get(resource, (resource, 1))
        found[name] = amount / unit
    return found


def _without_queues(scheduler: Scheduler) -> QueueRow:
    """Returns the row of a cluster without Queue objects, where use is not counted by queue; without its GPUs."""
    columns = scheduler.state.snapshot.columns
    rows = list(columns.row.values())
    used = {
        name: int((columns.allocatable[rows, at] - columns.free[rows, at]).sum())
        for name, at in columns.column.items()
        if name in ("cpu", "memory")
    }
    return QueueRow(DEFAULT, used=in_units(used))
