"""The rows of `lockstep top`: racks, queues and pending gangs. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from central.cli import terminal_table
from central.cli.jobs.list_command import group_why, queue_state
from central.cli.jobs.tree_command import gpus_in, in_tree
from central.model.json_types import Json
from protos.stubs import fleet_pb2 as pb

PENDING = ("Pending", "Inqueue")
OWNERS = 3


@dataclass(frozen=True, slots=True)
class TopRack:
    name: str
    nodes: int
    gpus: int
    used: int
    unhealthy: int
    owners: tuple[str, ...]  # those with the most GPUs first
    troubled: int  # nodes with a trouble

    @property
    def free(self) -> int:
        return max(0, self.gpus - self.used)


@dataclass(frozen=True, slots=True)
class TopQueue:
    name: str
    lines: str  # of the tree, before the name
    used: str
    deserved: str
    capability: str
    running: int
    pending: int
    state: str


@dataclass(frozen=True, slots=True)
class TopGang:
    namespace: str
    name: str
    queue: str
    minimum: int
    created: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    racks: tuple[TopRack, ...] = ()
    queues: tuple[TopQueue, ...] = ()
    pending: tuple[TopGang, ...] = ()
    at: datetime | None = None
    notes: tuple[str, ...] = ()  # what could not be read

    def totals(self) -> str:
        gpus, used = sum(row.gpus for row in self.racks), sum(row.used for row in self.racks)
        nodes, sick = sum(row.nodes for row in self.racks), sum(row.unhealthy for row in self.racks)
        unhealthy = f", {sick} unhealthy" if sick else ""
        return f"{nodes} node{'s' if nodes != 1 else ''}, {gpus} GPUs, {used} used, {max(0, gpus - used)} free{unhealthy}; {len(self.pending)} pending"


@dataclass(slots=True)
class _RackSums:
    nodes: int = 0
    gpus: int = 0
    used: int = 0
    unhealthy: int = 0
    troubled: int = 0
    owners: Counter[str] = field(default_factory=Counter)


def racks_of(reply: pb.TopologyReply) -> tuple[TopRack, ...]:
    """The narrowest domain of the network that a node is in counts as its rack."""
    found: dict[str, _RackSums] = {}
    for node in reply.nodes:
        name = next((each for each in reversed(node.domains) if each), "-")
        rack = found.setdefault(name, _RackSums())
        rack.nodes += 1
        rack.gpus += node.gpus_allocatable
        rack.used += node.gpus_used
        rack.unhealthy += sum(not gpu.healthy for gpu in node.topology.gpus)
        rack.troubled += bool(node.trouble)
        for holder in node.holders:
            owner = f"{holder.namespace}/{holder.job or holder.pod}"
            rack.owners[owner] += len(holder.gpus)
    return tuple(
        TopRack(
            name,
            rack.nodes,
            rack.gpus,
            rack.used,
            rack.unhealthy,
            tuple(owner for owner, _ in rack.owners.most_common(OWNERS)),
            rack.troubled,
        )
        for name, rack in sorted(found.items())
    )


def queues_of(queues: Sequence[Json], groups: Iterable[Json]) -> tuple[TopQueue, ...]:
    counts: dict[str, Counter[str]] = {}
    for group in groups:
        queue = (group.get("spec") or {}).get("queue") or "default"
        counts.setdefault(queue, Counter())[_phase(group)] += 1
    rows = []
    for queue, lines in in_tree(list(queues)):
        spec, status = queue.get("spec") or {}, queue.get("status") or {}
        name = queue["metadata"]["name"]
        gangs = counts.get(name, Counter())
        rows.append(
            TopQueue(
                name,
                lines,
                gpus_in(status.get("allocated")),
                gpus_in(spec.get("deserved")),
                gpus_in(spec.get("capability")),
                gangs["Running"],
                sum(gangs[phase] for phase in PENDING),
                queue_state(queue),
            )
        )
    return tuple(rows)


def pending_of(groups: Iterable[Json]) -> tuple[TopGang, ...]:
    """Oldest first."""
    rows = [
        TopGang(
            group["metadata"].get("namespace", ""),
            group["metadata"]["name"],
            (group.get("spec") or {}).get("queue") or "default",
            int((group.get("spec") or {}).get("minMember") or 1),
            str(group["metadata"].get("creationTimestamp") or ""),
            group_why(group) or "not tried yet",
        )
        for group in groups
        if _phase(group) in PENDING
    ]
    return tuple(sorted(rows, key=lambda row: (row.created, row.namespace, row.name)))


def _phase(group: Json) -> str:
    return str((group.get("status") or {}).get("phase") or "Pending")


RACK_SORTS: dict[str, Callable[[TopRack], tuple[object, ...]]] = {
    "name": lambda row: (row.name,),
    "free": lambda row: (-row.free, row.name),
    "used": lambda row: (-row.used, row.name),
    "unhealthy": lambda row: (-row.unhealthy, -row.troubled, row.name),
}
QUEUE_SORTS: dict[str, Callable[[TopQueue], tuple[object, ...]]] = {
    "tree": lambda row: (),
    "used": lambda row: (-_number(row.used), row.name),
    "pending": lambda row: (-row.pending, row.name),
    "name": lambda row: (row.name,),
}
PENDING_SORTS: dict[str, Callable[[TopGang], tuple[object, ...]]] = {
    "age": lambda row: (row.created, row.name),
    "size": lambda row: (-row.minimum, row.name),
    "queue": lambda row: (row.queue, row.created, row.name),
    "name": lambda row: (row.namespace, row.name),
}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def age(created: str) -> str:
    return terminal_table.age(created)
