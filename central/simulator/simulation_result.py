"""The result of a simulation: events with their times, and sums."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Placed:
    at_s: float
    namespace: str
    pod: str
    node: str
    gpus: tuple[int, ...]
    gang: str
    waited_s: float
    amount: float = 0.0  # GPUs; a share counts as a fraction


@dataclass(frozen=True, slots=True)
class Evicted:
    at_s: float
    namespace: str
    pod: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    at_s: float
    namespace: str
    name: str
    kind: str  # Pod; or PodGroup, when the whole gang has ended
    phase: str


@dataclass(frozen=True, slots=True)
class Pending:
    namespace: str
    name: str
    reason: str
    pods: int


@dataclass(frozen=True, slots=True)
class Load:
    """The cluster's load from this time on."""

    at_s: float
    gpus: float  # in use
    pods_waiting: int
    gangs_waiting: int


@dataclass(frozen=True, slots=True)
class Resized:
    """An elastic Job has this many members from now on."""

    at_s: float
    namespace: str
    name: str
    members: int
    reason: str


UsageChange = tuple[float, str, float]  # time, job, and by how much its usage changes


@dataclass(slots=True)
class SimulationResult:
    placed: list[Placed] = field(default_factory=list)
    evicted: list[Evicted] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    waiting: list[Pending] = field(default_factory=list)  # at the end
    resized: list[Resized] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    held: list[UsageChange] = field(default_factory=list)  # GPUs
    ran: list[UsageChange] = field(default_factory=list)  # pods
    turn_s: list[float] = field(default_factory=list)
    decide_s: float = 0.0
    gpus: int = 0  # of the cluster, maximum over time
    gpu_seconds_there: float = 0.0
    gpu_seconds_used: float = 0.0
    gpu_seconds_lost: float = 0.0  # of evicted pods
    end_s: float = 0.0
    makespan_s: float = 0.0
    stopped: str = ""  # why the simulation was ended early

    def note(self, now: float, job: str, gpus: float, pods: int) -> None:
        """A job's GPUs and running pods change by these numbers."""
        self.ran.append((now, job, pods))
        if gpus:
            self.held.append((now, job, gpus))
