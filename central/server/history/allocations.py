"""Allocations of GPUs to gangs with their times: the entries of the accounts, from the facts and decisions of each
cycle.

An allocation begins when the scheduler chooses a node, because others cannot have the GPUs from then on. It ends when
the pod has ended or is gone, or when its binding failed. GPUs that a reservation keeps idle are allocations of the kind
HELD, and begin again when their number changes.

AllocationLog.observe runs in the scheduling loop: a few dictionary look-ups for each pod that a fact or a decision
names. Another thread takes the entries.
"""

import threading
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from central.model.decisions import Bind, Decision, Evict
from central.model.facts import (
    BindDone,
    BindFailed,
    EvictDone,
    Fact,
    NodeReported,
    PodGone,
    PodSeen,
)
from central.model.resources import GPU_UNITS
from central.scheduler.filters import gpu_model
from central.scheduler.inventory.pods import Pod
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import GangKey

ALLOCATED, HELD = "allocated", "held"
ENTRIES_MOST = 200_000  # that have not been taken yet
HELD_AGAIN_S = 1.0  # between two looks at the reservations
UNKNOWN_MODEL = "unknown"


@dataclass(frozen=True, slots=True)
class Allocation:
    """units: GPU equivalents in GPU_UNITS. Times are Unix time in whole milliseconds."""

    uid: str  # of the pod, or held:NAMESPACE/GANG, or of a pod without one held:NAMESPACE/POD (pod)
    kind: str
    namespace: str
    queue: str
    user: str  # the pod's ServiceAccount
    job: str  # the owner of its gang, such as job/sweep, or its own name
    model: str
    units: int
    began: int
    ended: int | None = None
    cause: str = ""  # of its eviction; empty: none
    lost_from: int | None = None  # an eviction lost its work since then
    busy: float = 0.0  # utilization times units times milliseconds, as far as it was reported
    rated: float = 0.0  # units times milliseconds for which it was


class AllocationLog:
    """take() gives the entries since the last call: an allocation when it begins, and once more when it ends."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.open: dict[str, Allocation] = {}
        self.dropped = 0  # entries that were not taken in time
        self._entries: deque[Allocation] = deque()
        self._lock = threading.Lock()
        # uids of open allocations on nodes that have not reported
        self._modelless: set[str] = set()
        self._evicted: dict[str, tuple[str, int]] = {}  # cause, and since when its work is lost
        self._held: dict[GangKey, str] = {}  # uid of its open allocation
        self._held_at = 0.0

    def observe(self, facts: Sequence[Fact], decisions: Sequence[Decision]) -> None:
        """Records a cycle, called after it with its facts and decisions."""
        now = self._scheduler.state.now
        for fact in facts:
            match fact:
                case PodSeen() | PodGone():
                    self._update(fact.uid, now)
                case NodeReported() if self._modelless:
                    self._find_models()
                case BindDone() | BindFailed():
                    self._update(fact.pod, now)
                case EvictDone(trial=False, unknown=False) if fact.why:
                    self._evicted.pop(fact.pod, None)  # refused: it stays
                case _:
                    pass
        for decision in decisions:
            match decision:
                case Bind():
                    self._update(decision.pod, now)
                case Evict(trial=False) if decision.pod in self.open:
                    self._evict(decision, now)
                case _:
                    pass
        if now - self._held_at >= HELD_AGAIN_S:
            self._held_at = now
            self._reservations(now)

    def steps(self, scheduler: Scheduler) -> Generator[None, None, frozenset[str]]:
        """Looks at every pod, and gives the entries of all open allocations again: for a
        central.server.stats.sliced_question, whose answer are the uids of these. Yields between two pods."""
        for uid in [*scheduler.state.pods, *self.open]:
            if not uid.startswith(f"{HELD}:"):
                self._update(uid, scheduler.state.now)
            yield
        for uid in [*self.open]:
            if (known := self.open.get(uid)) is not None:
                self._put(known)
            yield
        return frozenset(self.open)

    def take(self) -> list[Allocation]:
        """Returns the entries and clears them, from another thread."""
        with self._lock:
            taken = [*self._entries]
            self._entries.clear()
        return taken

    def _update(self, uid: str, now: float) -> None:
        """Begins or ends the pod's allocation, as its state says."""
        pod, known = self._scheduler.state.pods.get(uid), self.open.get(uid)
        holds = pod is not None and bool(pod.node) and pod.alive
        if known is not None and not holds:
            self._end(known, now)
        elif known is None and holds and pod is not None and (units := self._units(pod)):
            self._begin(self._of_pod(uid, pod, units, now))

    def _of_pod(self, uid: str, pod: Pod, units: int, now: float) -> Allocation:
        seen, gang = pod.seen, self._scheduler.state.gang_of(pod)
        began = now
        if not pod.assumed:  # it had its node before this scheduler looked
            began = seen.started if seen.started is not None else pod.since or now
        job = (gang.owner or gang.name) if gang is not None else seen.owner_name or seen.name
        return Allocation(
            uid,
            ALLOCATED,
            seen.namespace,
            gang.queue_name if gang is not None else "",
            seen.service_account or "default",
            job,
            self._model(pod.node),
            units,
            _ms(min(began, now)),
        )

    def _units(self, pod: Pod) -> int:
        return self._scheduler.queues.currency.worth(pod.spec.requests)

    def _model(self, name: str) -> str:
        node = self._scheduler.state.nodes.get(name)
        if node is None:
            return UNKNOWN_MODEL
        if node.report is not None and node.report.topology.gpus:
            return node.report.topology.gpus[0].model or UNKNOWN_MODEL
        labelled = gpu_model.labelled(node.seen) if node.seen is not None else ""
        return labelled or UNKNOWN_MODEL

    def _find_models(self) -> None:
        for uid in [*self._modelless]:
            pod, known = self._scheduler.state.pods.get(uid), self.open.get(uid)
            if known is None or pod is None:
                self._modelless.discard(uid)
            elif (model := self._model(pod.node)) != UNKNOWN_MODEL:
                self._begin(replace(known, model=model))

    def _evict(self, evict: Evict, now: float) -> None:
        """The first eviction counts: a pod may be asked to leave again."""
        pod = self._scheduler.state.pods.get(evict.pod)
        if pod is None or evict.pod in self._evicted:
            return
        known = self.open[evict.pod]
        saved = max(known.began, _ms(pod.seen.started or 0.0), _ms(pod.checkpoint or 0.0))
        self._evicted[evict.pod] = (evict.cause, min(saved, _ms(now)))

    def _reservations(self, now: float) -> None:
        reserved = self._scheduler.reservations
        for key in [*self._held]:
            if key not in reserved:
                self._end(self.open[self._held.pop(key)], now)
        for key, each in reserved.items():
            withheld = each.withheld
            units = int(withheld[:, 0].sum()) * GPU_UNITS if withheld.size else 0
            uid = self._held.get(key)
            known = self.open[uid] if uid is not None else None
            if (known.units if known is not None else 0) == units:
                continue
            if known is not None:
                self._end(known, now)
                del self._held[key]
            if units:
                made = self._of_reservation(each, units, now)
                self._held[key] = made.uid
                self._begin(made)

    def _of_reservation(self, held: Reservation, units: int, now: float) -> Allocation:
        gang, names = held.gang, self._scheduler.state.snapshot.columns.names
        row = held.place.rows[held.withheld[:, 0].argmax()]
        users = sorted({pod.seen.service_account or "default" for pod in gang.members.values()})
        return Allocation(
            f"{HELD}:{gang.namespace}/{gang.name}{'' if gang.key[2] else ' (pod)'}",
            HELD,
            gang.namespace,
            held.queue,
            users[0] if users else "default",
            gang.owner or gang.name,
            self._model(names[row]),
            units,
            _ms(now),
        )

    def _begin(self, made: Allocation) -> None:
        self.open[made.uid] = made
        if made.model == UNKNOWN_MODEL:
            self._modelless.add(made.uid)
        else:
            self._modelless.discard(made.uid)
        self._put(made)

    def _end(self, known: Allocation, now: float) -> None:
        del self.open[known.uid]
        self._modelless.discard(known.uid)
        ended = max(known.began, _ms(now))
        cause, lost_from = self._evicted.pop(known.uid, ("", None))
        self._put(replace(known, ended=ended, cause=cause, lost_from=lost_from))

    def _put(self, entry: Allocation) -> None:
        with self._lock:
            if len(self._entries) >= ENTRIES_MOST:
                self._entries.popleft()
                self.dropped += 1
            self._entries.append(entry)


def _ms(time_s: float) -> int:
    return round(time_s * 1000)
