"""A pod in the scheduler's state: its node and devices, and where it is between creation and end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import NamedTuple

from central.model.decisions import Evict
from central.model.facts import PodSeen, PodSpec
from central.model.phases import ENDED
from central.model.stored_fields import NOT_STORED
from protos.names import GPU_SHARE

WAITING, REFUSED, ASSUMED, BOUND = "waiting", "refused", "assumed", "bound"  # stages
PodName = tuple[str, str]  # namespace and name
PodCounts = tuple[tuple[PodSpec, int], ...]  # equal pods are counted
STAYS, ASKED, AGREED = "", "asked", "agreed"  # is it being evicted? agreed: the API would allow it


class Life(NamedTuple):
    """A pod's place between its creation and its end. transition() makes every change.

    stage     WAITING   it has no node
              REFUSED   it has no node, and the API server refused its binding for good (why)
              ASSUMED   the scheduler chose a node; the watch does not show the binding yet
              BOUND     the watch shows its node
    observed  its devices are those that pod-resources reports, not those that were planned
    leaving   its eviction was decided; with AGREED, a trial eviction was accepted
    lost      it should have ended long ago, and its node is not ready, so its end is unknown
    late      it should have ended long ago on a ready node: no claim counts on its end
    """

    stage: str = WAITING
    observed: bool = False
    leaving: str = STAYS
    why: str = ""
    lost: bool = False
    late: bool = False


NEW = Life()

# What happens to a pod. PLACED, BIND_FAILED: by the scheduler and the API server's answer to it.
# SEEN_BOUND: the watch. OBSERVED, DEVICES_UNKNOWN: the agent's report, or a change that voids it.
PLACED, BIND_FAILED, SEEN_BOUND = "placed", "bind failed", "seen bound"
OBSERVED, DEVICES_UNKNOWN = "observed", "devices unknown"
EVICTED, EVICTION_AGREED, EVICTION_ENDED = "evicted", "eviction agreed", "eviction ended"
LOST, FOUND = "lost", "found"  # its node is ready again
LATE = "late"


@lru_cache(maxsize=1 << 10)
def transition(life: Life, event: str, why: str = "") -> Life:
    """The life after the event. why: for BIND_FAILED, the error if it is final, else empty.

    Reports arrive late and twice, so an event that does not apply leaves the life as it is.
    Cached, because a cycle makes the same transition for thousands of pods.
    """
    placed = life.stage in (ASSUMED, BOUND)
    if event == PLACED and not placed:
        return life._replace(stage=ASSUMED, observed=False, why="")
    if event == BIND_FAILED and life.stage == ASSUMED:
        return life._replace(stage=REFUSED if why else WAITING, observed=False, why=why)
    if event == SEEN_BOUND:
        return life._replace(stage=BOUND, why="")
    if event == OBSERVED and placed:
        return life._replace(observed=True)
    if event == DEVICES_UNKNOWN:
        return life._replace(observed=False)
    if event == EVICTED:
        return life._replace(leaving=ASKED)
    if event == EVICTION_AGREED and life.leaving:
        return life._replace(leaving=AGREED)
    if event == EVICTION_ENDED:
        return life._replace(leaving=STAYS)
    if event in (LOST, FOUND):
        return life._replace(lost=event == LOST, observed=False)
    return life._replace(late=True) if event == LATE else life


def start_leaving(pods: Sequence["Pod"]) -> None:
    """Marks the pods as leaving, because their evictions are decided: all of them, or none if it raises."""
    lives = [transition(pod.life, EVICTED) for pod in pods]
    for pod, life in zip(pods, lives, strict=True):
        pod.life = life


def evict(pods: Sequence["Pod"], why: str, cause: str) -> list[Evict]:
    """Decides to evict all of these pods, or none if it raises."""
    start_leaving(pods)
    return [
        Evict(pod.seen.uid, pod.seen.namespace, pod.seen.name, pod.node, why, cause=cause)
        for pod in pods
    ]


def evictions(pods: Iterable["Pod"], why: str, cause: str) -> list[Evict]:
    """Evicts them, but for those that have ended, that leave already, or whose binding is not confirmed."""
    leaving = [pod for pod in pods if pod.alive and not pod.evicting and not pod.assumed]
    return evict(leaving, why, cause)


class EvictionBackoff(NamedTuple):
    refusals: int = 0  # times that the API server refused to evict the pod
    not_before: float = 0.0  # it is not chosen as a victim before


NO_BACKOFF = EvictionBackoff()


class Work(NamedTuple):
    """The times of a pod's work. since: scheduler time of its binding or first sight as running; PodSeen.started takes
    precedence. saved_at: when the newest checkpoint was complete, as the coordinator of its Job says."""

    since: float | None = None
    saved_at: float | None = None


NO_WORK = Work()


@dataclass(slots=True, eq=False)
class Pod:
    seen: PodSeen = field(metadata=NOT_STORED)
    # shared by all pods of its class; includes the rules that select it
    spec: PodSpec = field(metadata=NOT_STORED)
    life: Life = NEW
    node: str = ""  # where it is bound, or is being bound
    gpus: int = 0  # mask: planned devices, or observed ones if life.observed
    # what the snapshot has charged for it
    charged_spec: PodSpec | None = field(default=None, metadata=NOT_STORED)
    evict_backoff: EvictionBackoff = NO_BACKOFF
    work: Work = NO_WORK

    def advance(self, event: str, why: str = "") -> None:
        self.life = transition(self.life, event, why)

    @property
    def since(self) -> float | None:
        return self.work.since

    @property
    def checkpoint(self) -> float | None:
        """The time until which its work is saved: the later one of its annotation and of the coordinator of its Job.
        None: neither says one."""
        seen, said = self.seen.checkpoint, self.work.saved_at
        if seen is None or said is None:
            return said if seen is None else seen
        return max(seen, said)

    @property
    def assumed(self) -> bool:
        return self.life.stage == ASSUMED

    @property
    def observed(self) -> bool:
        return self.life.observed

    @property
    def bind_error(self) -> str:
        """Returns why the API server refused its binding for good; empty if it did not."""
        return self.life.why

    @property
    def evicting(self) -> bool:
        return bool(self.life.leaving)

    @property
    def eviction_agreed(self) -> bool:
        return self.life.leaving == AGREED

    @property
    def share(self) -> int:
        """The hundredths of one GPU that it requests; gpus is then the mask of that GPU."""
        return self.spec.request(GPU_SHARE) if self.spec.share_containers else 0

    @property
    def alive(self) -> bool:
        return self.seen.phase not in ENDED and not self.life.lost

    def ends(self, now: float) -> float:
        """Returns when its capacity is expected to be free; inf if unknown. A pod that runs longer than announced is
        expected to end one minute late, then two, four, and so on."""
        seen = self.seen
        if seen.deleting or self.evicting:
            return inf if self.life.late else now
        if seen.runs_for_s is None:
            return inf
        began = seen.started if seen.started is not None else self.work.since
        end = (now if began is None else began) + seen.runs_for_s
        late_min = 1
        while end + 60 * late_min < now:
            late_min *= 2
        return end if end >= now else end + 60 * late_min

    def overrun(self, now: float) -> float:
        """Returns how long it has run, as a multiple of its run time; 1 at least."""
        seen = self.seen
        began = seen.started if seen.started is not None else self.work.since
        if began is None or not seen.runs_for_s:
            return 1.0
        return max(1.0, (now - began) / seen.runs_for_s)

    @property
    def leaving(self) -> bool:
        return self.evicting or self.seen.deleting

    @property
    def waiting(self) -> bool:
        seen = self.seen
        return not self.node and self.alive and not seen.deleting
