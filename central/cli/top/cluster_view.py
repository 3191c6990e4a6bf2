"""The rows of `lockstep top`: racks, queues and pending gangs. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from central.cli import terminal_table
from central.cli.jobs import queue_listing
from central.cli.jobs.queue_listing import gpus_in
from central.cli.render import count_of
from central.model.gpu_count import NO_GPUS, GpuCount, total
from central.model.json_types import Json
from protos.stubs import fleet_pb2 as pb

OWNERS = 3


@dataclass(slots=True)
class TopRack:
    name: str
    nodes: int = 0
    count: GpuCount = NO_GPUS
    unhealthy: int = 0
    held: Counter[str] = field(default_factory=Counter)  # GPUs by owner
    troubled: int = 0  # nodes with a trouble

    @property
    def owners(self) -> list[str]:
        """Returns those with the most GPUs, in this order."""
        return [owner for owner, _ in self.held.most_common(OWNERS)]


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
    busy: str = "-"  # mean utilization of the GPUs of its gangs
    idle: str = "-"  # GPUs of gangs all of whose GPUs are idle


@dataclass(frozen=True, slots=True)
class TopGang:
    namespace: str
    name: str
    gang: str  # its name for the scheduler
    queue: str
    minimum: int
    created: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    racks: tuple[TopRack, ...] = ()
    queues: tuple[TopQueue, ...] = ()
    pending: tuple[TopGang, ...] = ()
    hidden: int = 0  # pending gangs of namespaces that the user may not see
    at: datetime | None = None
    notes: tuple[str, ...] = ()  # what the user may not see
    sees_nodes: bool = True

    def totals(self) -> str:
        count = total(row.count for row in self.racks)
        nodes, sick = sum(row.nodes for row in self.racks), sum(row.unhealthy for row in self.racks)
        unhealthy = f", {sick} unhealthy" if sick else ""
        hidden = f" and {self.hidden} of other namespaces" if self.hidden else ""
        pending = f"{len(self.pending)} pending{hidden}"
        if not self.sees_nodes:
            return pending
        return f"{nodes} node{'s' if nodes != 1 else ''}, {count}{unhealthy}; {pending}"


def racks_of(reply: pb.TopologyReply) -> tuple[TopRack, ...]:
    """The narrowest domain of the network that a node is in counts as its rack."""
    found: dict[str, TopRack] = {}
    for node in reply.nodes:
        name = next((each for each in reversed(node.domains) if each), "-")
        rack = found.setdefault(name, TopRack(name))
        rack.nodes += 1
        rack.count = total((rack.count, count_of(node)))
        rack.unhealthy += sum(not gpu.healthy for gpu in node.topology.gpus)
        rack.troubled += bool(node.trouble)
        for holder in node.holders:
            owner = f"{holder.namespace}/{holder.job or holder.pod}"
            rack.held[owner] += len(holder.gpus)
    return tuple(rack for _, rack in sorted(found.items()))


def queues_of(rows: Sequence[Json], jobs: Iterable[Json] = ()) -> tuple[TopQueue, ...]:
    """rows: of the console's /api/queues. jobs: those that run, of /api/jobs."""
    gpus, busy, idle = Counter[str](), Counter[str](), Counter[str]()
    for job in jobs:
        use = job["gpu_use"]
        if use is not None and use["utilization"] is not None:
            gpus[job["queue"]] += job["gpus"]
            busy[job["queue"]] += job["gpus"] * use["utilization"]
            idle[job["queue"]] += job["gpus"] * (use["idle_s"] is not None)
    return tuple(
        TopQueue(
            row["name"],
            lines,
            gpus_in(row["used"]),
            gpus_in(row["deserved"]),
            gpus_in(row["capability"]),
            row["gangs"].get("running", 0),
            queue_listing.pending(row),
            row["state"],
            f"{busy[row['name']] / gpus[row['name']]:.0%}" if gpus[row["name"]] else "-",
            f"{idle[row['name']]:g}" if gpus[row["name"]] else "-",
        )
        for row, lines in queue_listing.in_tree(list(rows))
    )


def pending_of(rows: Iterable[Json]) -> tuple[TopGang, ...]:
    """Returns those that have not started, oldest first. rows: of the console's /api/pending."""
    found = [
        TopGang(
            row["namespace"],
            row["name"],
            row["gang"],
            row["queue"],
            row["minimum"],
            datetime.fromtimestamp(row["created"], UTC).isoformat(timespec="seconds"),
            row["reason"] or "not tried yet",
        )
        for row in rows
        if row["place"]
    ]
    return tuple(sorted(found, key=lambda row: (row.created, row.namespace, row.name)))


RACK_SORTS: dict[str, Callable[[TopRack], tuple[object, ...]]] = {
    "name": lambda row: (row.name,),
    "free": lambda row: (-row.count.free, row.name),
    "used": lambda row: (-row.count.used, row.name),
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
