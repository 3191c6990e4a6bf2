"""Pods and gangs as the cluster keeps them. A pod without a gang is a gang of one."""

from central.core.facts import GangSeen, PodSeen, PodSpec

Key = tuple[str, str, bool]  # namespace, name, whether it is a gang's name (or a single pod's)

ENDED = ("Succeeded", "Failed")


class Pod:
    __slots__ = (
        "assumed",
        "blocked",
        "confirmed",
        "confirmed_bound",
        "evicting",
        "gpus",
        "held",
        "node",
        "seen",
    )

    def __init__(self, seen: PodSeen) -> None:
        self.seen = seen
        self.node = ""  # where it is bound, or is being bound
        self.assumed = False  # our binding is not in the watch yet
        self.confirmed_bound = False  # the API server has accepted our binding
        self.gpus = 0  # planned, or true when confirmed
        self.confirmed = False  # pod-resources says so
        self.held: PodSpec | None = None  # the room it takes in the snapshot
        self.blocked = ""  # why binding it is not tried again
        self.evicting = False

    @property
    def alive(self) -> bool:
        return self.seen.phase not in ENDED

    @property
    def waiting(self) -> bool:
        seen = self.seen
        return not self.node and self.alive and not seen.deleting

    @property
    def placed(self) -> bool:
        """Bound, or ended after it was: what a gang's minimum counts."""
        return bool(self.node) and not self.seen.deleting


class Gang:
    __slots__ = (
        "bind_failures",
        "broken_since",
        "failures_seen",
        "key",
        "members",
        "no_at",
        "object",
        "reason",
        "retry_at",
        "started",
        "told",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.object: GangSeen | None = None
        self.members: dict[str, Pod] = {}
        self.started = False  # its minimum was placed once
        self.broken_since: float | None = None  # partly placed, never started
        self.no_at = -1  # the snapshot's gains when it did not fit
        self.reason = ""
        self.told: tuple[object, ...] = ()
        self.bind_failures = 0
        self.failures_seen = 0
        self.retry_at = 0.0

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def minimum(self) -> int:
        if self.object is not None:
            return max(self.object.min_member, 1)
        if not self.key[2]:
            return 1
        return max((pod.seen.gang_min or 0 for pod in self.members.values()), default=0) or 1

    @property
    def priority(self) -> int:
        own = self.object.priority if self.object else 0
        return max((pod.seen.priority for pod in self.members.values()), default=own) or own

    @property
    def created(self) -> float:
        if self.object is not None:
            return self.object.created
        return min((pod.seen.created for pod in self.members.values()), default=0.0)

    @property
    def required(self) -> str:
        if self.object is not None and self.object.topology_required:
            return self.object.topology_required
        return max((pod.seen.topology_required for pod in self.members.values()), default="")

    def waiting(self) -> list[Pod]:
        """In rank order."""
        pods = [pod for pod in self.members.values() if pod.waiting]
        return sorted(pods, key=lambda pod: pod.seen.order)

    def placed(self) -> list[Pod]:
        return [pod for pod in self.members.values() if pod.placed]


def key_of(seen: PodSeen) -> Key | None:
    if not seen.ours:
        return None
    if seen.gang:
        return (seen.namespace, seen.gang, True)
    return (seen.namespace, seen.name, False)
