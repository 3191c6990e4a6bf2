"""A pod as the scheduler keeps it."""

from math import inf

from central.model.facts import PodSeen, PodSpec
from central.model.phases import ENDED
from protos.names import GPU, GPU_SHARE


class Pod:
    __slots__ = (
        "agreed",
        "assumed",
        "blocked",
        "confirmed",
        "evicting",
        "gpus",
        "held",
        "node",
        "refusals",
        "seen",
        "since",
        "spared_until",
        "spec",
    )

    def __init__(self, seen: PodSeen, spec: PodSpec) -> None:
        self.seen = seen
        self.spec = spec  # of its kind, one object for all: with the rules that speak of it
        self.node = ""  # where it is bound, or is being bound
        self.assumed = False  # our binding is not in the watch yet
        self.gpus = 0  # planned, or true when confirmed
        self.confirmed = False  # pod-resources says so
        self.held: PodSpec | None = None  # the room it takes in the snapshot
        self.blocked = ""  # why binding it is not tried again
        self.evicting = False
        self.agreed = False  # its eviction would be accepted: it was asked (claims)
        self.refusals = 0  # times that its eviction was refused
        self.spared_until = 0.0  # its eviction was refused: not asked for again before
        self.since: float | None = (
            None  # bound or first seen running; what its kubelet says counts more
        )

    @property
    def share(self) -> int:
        """Hundredths of one GPU that it asks for; then gpus is that GPU, beside others' shares."""
        return self.spec.request(GPU_SHARE) if self.spec.share_containers else 0

    @property
    def alive(self) -> bool:
        return self.seen.phase not in ENDED

    def ends(self, now: float) -> float:
        """When its room is expected to be free; inf: nobody knows. Who is late is expected to be
        late by a minute, then by two, four, and so on."""
        seen = self.seen
        if seen.deleting or self.evicting:
            return now
        if seen.runs_for_s is None:
            return inf
        began = seen.started if seen.started is not None else self.since
        end = (now if began is None else began) + seen.runs_for_s
        late_min = 1
        while end + 60 * late_min < now:
            late_min *= 2
        return end if end >= now else end + 60 * late_min

    def lost(self, now: float) -> int:
        """GPU-seconds of work that its eviction would cost."""
        seen = self.seen
        began = seen.started if seen.started is not None else self.since
        kept = max(now if began is None else began, seen.checkpoint or 0.0)
        gpus = self.spec.request(GPU) + self.share / 100
        return int(gpus * max(0, int(now - kept)))

    @property
    def leaving(self) -> bool:
        return self.evicting or self.seen.deleting

    @property
    def waiting(self) -> bool:
        seen = self.seen
        return not self.node and self.alive and not seen.deleting

    @property
    def placed(self) -> bool:
        """Bound, or ended after it was: what a gang's minimum counts."""
        return bool(self.node) and not self.seen.deleting
