"""Values of the coordinator's membership: processes, places, generations, and the errors of stale callers."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from central.model.json_types import Json, ReadOnlyJson

PROPOSED, LIVE = "proposed", "live"
PORTS = 1000  # the leader's port differs between this many successive generations
_FIRST_PORTS = range(
    20_000, 29_000
)  # below the NodePorts of Kubernetes, and the ports of connections


def first_port(job: str) -> int:
    """Returns the first port of a Job's leaders, by its name and uid: leaders of several Jobs may share a node's
    network."""
    return _FIRST_PORTS[crc32(job.encode()) % len(_FIRST_PORTS)]


class Stale(Exception):
    """The caller is older than what the coordinator knows. The answer has the newest generation."""


class NotJoined(Stale):
    """The coordinator does not know this process; it must join (again)."""


class Outdone(Stale):
    """A process with a higher incarnation joined as this member before."""

    def __init__(self, member: int, incarnation: int) -> None:
        self.incarnation = incarnation  # the highest
        super().__init__(f"member {member} has joined with a higher incarnation")


class NotAllowed(Exception):
    """The request cannot be granted, with the reason as a sentence."""


@dataclass(frozen=True, slots=True)
class MembershipRules:
    """Seconds, numbers of members, and the first port of the leaders' stores."""

    least: int = 1
    most: int = 1024
    spares: int = 0
    replica: int = 0  # members that hold the state together; 0: it is not known how they hold it
    join_wait_s: float = 30.0
    hold_s: float = 30.0
    below_s: float = 600.0
    ended_s: float = 10.0
    silent_s: float = 30.0
    answer_s: float = 5.0
    leave_s: float = 30.0  # leave_by of a plan that has none
    stuck_s: float = 0.0  # a member that does not acknowledge for this long is given up; 0: never
    hang_s: float = 60.0  # a process without a step reports it after this long at least; 0: never
    save_s: float = 600.0  # leave_by is not kept while a checkpoint is written, for so long
    port: int = 28701

    @property
    def group(self) -> int:
        """Members that come and go together."""
        return self.replica or 1


@dataclass(frozen=True, slots=True)
class Place:
    """The scheduler's report of a member's pod."""

    path: tuple[str, ...] = ()  # its domains, widest first; the last one is the node
    pod: str = ""
    uid: str = ""
    ended: bool = False

    def ends(self, uid: str) -> bool:
        """Returns whether the pod with this uid no longer runs: it has ended, or another one has its number."""
        if self.uid and uid and self.uid != uid:
            return True
        return self.ended


@dataclass(frozen=True, slots=True)
class SizePlan:
    """The members that the scheduler has decided on. A plan with a lower version than the present one is ignored."""

    version: int
    members: tuple[int, ...]
    places: Mapping[int, Place] = field(default_factory=dict)
    leave_by: float | None = None  # by this time (seconds) pods that leave are deleted
    reason: str = ""
    least: int = 0  # 0: as the coordinator was started
    over: bool = False  # the Job has ended


@dataclass(frozen=True, slots=True)
class Process:
    """A process that joined as a member. A restarted one has a higher incarnation."""

    member: int
    incarnation: int
    address: str
    pod: str = ""
    uid: str = ""
    node: str = ""
    island: str = ""
    gpus: int = 0
    since: int = 0  # the first live generation that had it; 0: none yet

    def json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, data: ReadOnlyJson) -> "Process":
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})


@dataclass(slots=True)
class Generation:
    """One agreed membership. Times in seconds."""

    number: int
    processes: tuple[Process, ...]  # by rank
    reason: str
    state: str = PROPOSED
    proposed_at: float = 0.0
    leave_by: float | None = None
    leaving: tuple[int, ...] = ()  # members of the live generation that are not in this one
    stop_after_step: int | None = None
    acknowledged: dict[int, int | None] = field(default_factory=dict)  # member: steps it has taken

    def incarnations(self) -> dict[int, int]:
        return {one.member: one.incarnation for one in self.processes}

    def stopped(self) -> bool:
        """Returns whether a member has reported the step at which it stopped, so that the step is final."""
        return any(step is not None for step in self.acknowledged.values())

    def snapshot(self) -> Json:
        return {
            "number": self.number,
            "processes": [one.json() for one in self.processes],
            "reason": self.reason,
            "state": self.state,
            "leaving": list(self.leaving),
            "stop_after_step": self.stop_after_step,
            "acknowledged": sorted([key, step] for key, step in self.acknowledged.items()),
        }

    @classmethod
    def restore(cls, data: ReadOnlyJson, now: float) -> "Generation":
        return cls(
            data["number"],
            tuple(map(Process.read, data["processes"])),
            data["reason"],
            data["state"],
            now,
            None,
            tuple(data["leaving"]),
            data["stop_after_step"],
            dict(data["acknowledged"]),
        )


def in_whole_replicas(members: Iterable[int], replica: int, done: Collection[int]) -> list[int]:
    """Returns those whose replica lacks nobody but those who are done. Member m belongs to replica m // replica."""
    there = sorted(members)
    sizes = Counter(member // replica for member in {*there, *done})
    return [member for member in there if sizes[member // replica] == replica]


def ranked(
    processes: Iterable[Process], places: Mapping[int, Place], replica: int = 1
) -> tuple[Process, ...]:
    """Sorts the processes in topology order: members of one domain, node and island have successive ranks. Those of a
    replica have them in any case, by their numbers, as each holds the part of the state that belongs to its index."""
    firsts: dict[int, tuple[tuple[str, ...], str, str]] = {}
    for one in sorted(processes, key=lambda one: one.member):
        place = places.get(one.member)
        where = (place.path if place else (), one.node, one.island)
        firsts.setdefault(one.member // replica, where)

    def key(one: Process) -> tuple[tuple[tuple[str, ...], str, str], int]:
        return firsts[one.member // replica], one.member

    return tuple(sorted(processes, key=key))


def nearness(
    processes: Iterable[Process], places: Mapping[int, Place]
) -> Callable[[int, int], int]:
    """Returns a function for the number of network domains that two members share (-1: one node)."""
    nodes = {one.member: one.node for one in processes}

    def shared(a: int, b: int) -> int:
        if nodes.get(a) and nodes.get(a) == nodes.get(b):
            return -1
        paths = [places[each].path if each in places else () for each in (a, b)]
        differ = (at for at, names in enumerate(zip(*paths, strict=False)) if len(set(names)) > 1)
        return next(differ, min(map(len, paths)))

    return shared


def member_list(generation: Generation) -> list[dict[str, Any]]:
    """Returns the members in the form of GET /v1/generation. local: index among the members on the same node."""
    on_node: dict[str, int] = {}
    found = []
    for rank, one in enumerate(generation.processes):
        node = one.node or one.address
        local = on_node.get(node, 0)
        on_node[node] = local + 1
        found.append(
            {
                "member": one.member,
                "rank": rank,
                "address": one.address,
                "node": one.node,
                "local": local,
                "incarnation": one.incarnation,
                "since": one.since,
            }
        )
    return found
