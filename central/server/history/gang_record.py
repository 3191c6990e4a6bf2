"""The record of one gang: who made it and when, what happened to it and why, where it ran, how large it was over time,
how long it waited for what, and its GPU-seconds. It is read and kept as JSON."""

from dataclasses import dataclass, field
from itertools import islice

from central.model.json_types import Json

EVENTS_MOST = 200  # of a record: the first tenth and the latest
SIZES_MOST = 500
WAITS_MOST = 200
NODES_MOST = 256
NODES_LISTED = 3  # in a list of jobs
TEXT_MOST = 600  # characters
GPU_SECONDS = ("allocated", "lost", "busy", "rated")
PENDING, ADMITTED, PLACED, BOUND, RUNNING = "pending", "admitted", "placed", "bound", "running"
COMPLETED, FAILED, DELETED, SUSPENDED = "completed", "failed", "deleted", "suspended"
STAGES = (PENDING, ADMITTED, PLACED, BOUND, RUNNING)  # of a gang that has not ended, in their order


@dataclass(slots=True)
class GangRecord:
    """Times are Unix time; a size has pods and GPU equivalents."""

    facts: Json  # with its stage: of STAGES, or how it ended
    events: list[Json] = field(default_factory=list)
    sizes: list[tuple[float, int, float]] = field(default_factory=list)
    waits: list[Json] = field(default_factory=list)
    waited: dict[str, float] = field(default_factory=dict)  # seconds by cause
    nodes: dict[str, None] = field(default_factory=dict)
    allocated: float = 0.0  # GPU-seconds until `counted`
    lost: float = 0.0  # of them, since the start or the last checkpoint of evicted pods
    busy: float = 0.0  # utilization times GPU-seconds, as far as agents reported it
    rated: float = 0.0  # GPU-seconds for which they did
    activities: dict[str, float] = field(default_factory=dict)  # GPU-seconds of members' GPUs
    counted: float = 0.0
    dropped: int = 0  # events
    sizes_are_told: bool = False  # by Events of its Job, with the reason; not kept

    def note(self, at: float, what: str, text: str = "", cause: str = "") -> None:
        event = {"at": at, "what": what, "text": text[:TEXT_MOST], "cause": cause}
        self.events.append(event)
        if len(self.events) > EVENTS_MOST:
            del self.events[EVENTS_MOST // 10]
            self.dropped += 1

    def count(self, now: float) -> None:
        """Adds what it had since the last call."""
        if self.sizes:
            self.allocated += self.sizes[-1][2] * max(0.0, now - self.counted)
        if self.waits and self.waits[-1]["until"] is None:
            cause = self.waits[-1]["cause"]
            self.waited[cause] = self.waited.get(cause, 0.0) + max(0.0, now - self.counted)
        self.counted = now

    def resize(self, now: float, pods: int, gpus: float) -> None:
        self.sizes.append((now, pods, gpus))
        if len(self.sizes) > SIZES_MOST:
            del self.sizes[1:-1:2]

    def wait(self, now: float, cause: str, reason: str) -> None:
        """Begins, or goes on, to wait. cause: empty: it waits no more. Of one cause the latest reason stays."""
        open_wait = self.waits[-1] if self.waits and self.waits[-1]["until"] is None else None
        if open_wait is not None and open_wait["cause"] == cause:
            open_wait["reason"] = reason[:TEXT_MOST]
            return
        if open_wait is not None:
            open_wait["until"] = now
        if cause:
            entry = {"cause": cause, "reason": reason[:TEXT_MOST], "since": now, "until": None}
            self.waits.append(entry)
            del self.waits[:-WAITS_MOST]

    def shown(self, now: float) -> Json:
        self.count(now)
        return {
            **self.facts,
            "events": [*self.events],
            "events_dropped": self.dropped,
            "sizes": [[*each] for each in self.sizes],
            "waits": [{**each} for each in self.waits],
            "waited": {**self.waited},
            "nodes": [*self.nodes],
            "gpu_seconds": self._gpu_seconds(),
            "activities": {**self.activities},
            "counted": self.counted,
        }

    def summary(self) -> Json:
        """Returns what a list shows of it."""
        return {
            **self.facts,
            "gpus": max((gpus for _, _, gpus in self.sizes), default=0.0),
            "pods": max((pods for _, pods, _ in self.sizes), default=0),
            "size": [*self.sizes[-1][1:]] if self.sizes else [0, 0.0],
            "nodes": [*islice(self.nodes, NODES_LISTED)],
            "node_count": len(self.nodes),
            "gpu_seconds": self._gpu_seconds(),
            "activities": {**self.activities},
            "waited": sum(self.waited.values()),
        }

    def _gpu_seconds(self) -> Json:
        return {name: getattr(self, name) for name in GPU_SECONDS}

    @classmethod
    def read(cls, shown: Json) -> "GangRecord":
        """Reads what shown() gave, to go on with it."""
        rest = {**shown}
        parts = {name: rest.pop(name) for name in ("events", "waits", "waited", "counted")}
        sizes = [(at, pods, gpus) for at, pods, gpus in rest.pop("sizes")]
        nodes, spent, dropped = (
            rest.pop("nodes"),
            rest.pop("gpu_seconds"),
            rest.pop("events_dropped"),
        )
        return cls(
            rest,
            sizes=sizes,
            nodes=dict.fromkeys(nodes),
            **{name: spent.get(name, 0.0) for name in GPU_SECONDS},
            activities=rest.pop("activities", {}),
            dropped=dropped,
            **parts,
        )
