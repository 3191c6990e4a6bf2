"""Time sharing: in a queue with a quantum, a gang that is behind its fair share takes the place of one that is ahead of
its own, has had its quantum and can be suspended.

While it exists a gang's queue is asked for `contention` times what it may use, so even division would make the gang
that much slower. Its fair finish leaves a part of that delay for the wait for others' quanta:

    fair finish   created + run time x (1 + DELAY x (contention - 1))
    latest start  fair finish - what is left of the run time

At its latest start a gang becomes late. Late gangs go first, by their latest starts, and they alone suspend others, of
those that are not late. These go last, the longest first: they are what would run alone at the end. While a gang runs
it does not become late, and while it waits its latest start does not come nearer; contention counts at its highest. So two
gangs never suspend each other for the same state.

A quantum is at least so long that suspensions cost a gang CHURN of its run time.

Design: docs/design/0300-time-sharing.md
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from central.model import wording
from central.scheduler.preemption import surplus_members
from central.scheduler.preemption.short_stays import CHURN
from central.scheduler.queues import order
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.reservation.reservation import rough_duration
from central.scheduler.state.gangs import Gang, GangKey

DELAY = 0.7  # the part of the delay by even division at which a gang is late
NOT_LATE = 1e12  # added to the order of gangs that are not late: behind every time
REMEMBERED_S = (
    600.0  # a gang without an object whose pods have gone: its controller makes them again
)


@dataclass(slots=True)
class _RunHistory:
    """attained_s: run time before the present run. since: when that began; None: it does not run."""

    gang: Gang
    created: float
    attained_s: float = 0.0
    since: float | None = None
    contention: float = 1.0  # the highest of its queue while it existed
    gone_at: float | None = None  # forgotten

    def ran_s(self, now: float) -> float:
        return self.attained_s + (0.0 if self.since is None else max(0.0, now - self.since))


@dataclass(slots=True)
class _Lateness:
    """Of one gang at one time, in seconds."""

    left_s: float
    latest_start: float

    def key(self, now: float) -> float:
        """The order of gangs that take turns; the lowest goes first."""
        return self.latest_start if self.latest_start <= now else NOT_LATE - self.left_s


class TimeSharing:
    def __init__(self) -> None:
        self._standings: dict[GangKey, _RunHistory] = {}
        self._next = (
            inf  # when a gang becomes late, or the next quantum ends that a late one waits for
        )

    # --- what is known of gangs ----------------------------------------------------------------

    def update(self, queues: Queues, gang: Gang, now: float) -> None:
        """After a change of the gang or its members."""
        standing = self._standings.get(gang.key)
        if self.quantum_s(queues, gang) is None:
            if standing is not None and gang.members:
                del self._standings[gang.key]
                gang.preemption.turn = None
            elif standing is not None:
                _stop(standing, now)
            return
        if standing is None:
            standing = self._standings[gang.key] = _RunHistory(gang, gang.created)
        standing.gang, standing.gone_at = gang, None
        standing.created = min(standing.created, gang.created)
        began = _began(gang, now)
        if began is None:
            _stop(standing, now)
        elif standing.since is None:
            standing.since = began
        if gang.preemption.turn is None:
            gang.preemption.turn = gang.created

    def forgotten(self, gang: Gang, now: float) -> None:
        """Its last pod has gone, and its object if it had one. If it was evicted its controller makes it again."""
        standing = self._standings.get(gang.key)
        if standing is not None and gang.preemption.preempted_for:
            _stop(standing, now)
            standing.gone_at = now
        elif standing is not None:
            del self._standings[gang.key]

    def quantum_s(self, queues: Queues, gang: Gang) -> float | None:
        """How long the gang runs at least before it is suspended; None: it shares no time."""
        cost_s = gang.counts.suspension_s
        if cost_s is None or gang.never_evicted:
            return None
        quantum_s = _quantum_of(queues, gang.queue)
        if not quantum_s or surplus_members.surplus_count(gang, gang.counts.placed):
            return None
        return max(quantum_s, cost_s / CHURN)

    def shares(self, gang: Gang) -> bool:
        return gang.preemption.turn is not None

    def look(self, queues: Queues, now: float) -> bool:
        """Puts the pending gangs in their order. Returns whether one of them may claim more than at the last look."""
        if not self._standings:
            return False
        for key, standing in [*self._standings.items()]:
            if standing.gone_at is not None and now - standing.gone_at > REMEMBERED_S:
                del self._standings[key]
        due, self._next = self._next <= now, inf
        contention: dict[str, float] = {}
        for standing in self._present():
            gang = standing.gang
            if (found := contention.get(gang.queue)) is None:
                queue = queues.by_name.get(gang.queue)
                found = contention[gang.queue] = _contention(queues, queue)
            standing.contention = max(standing.contention, found)
        awaited: set[str] = set()  # queues with a late gang that waits
        for standing in self._present():
            if standing.since is None and standing.gang.counts.waiting:
                at = self._put_in_order(queues, standing, now)
                if at is None:
                    awaited.add(standing.gang.queue)
                else:
                    self._next = min(self._next, at)
        ends = (at for name in awaited for _, at in self._ahead(queues, name, now) if at > now)
        self._next = min(self._next, min(ends, default=inf))
        return due

    def due(self) -> list[float]:
        return [self._next] if self._next < inf else []

    def _present(self) -> Iterator[_RunHistory]:
        for standing in self._standings.values():
            if standing.gone_at is None and standing.gang.account is not None:
                yield standing

    def _put_in_order(self, queues: Queues, standing: _RunHistory, now: float) -> float | None:
        """When the waiting gang becomes late; None: it is."""
        gang, lateness = standing.gang, self._lateness(queues, standing, now)
        if (key := lateness.key(now)) != gang.preemption.turn:
            gang.preemption.turn = key
            gang.attempt.rank = order.rank(gang)
        return lateness.latest_start if lateness.latest_start > now else None

    def _lateness(self, queues: Queues, standing: _RunHistory, now: float) -> _Lateness:
        gang = standing.gang
        quantum_s, ran_s = self.quantum_s(queues, gang) or 0.0, standing.ran_s(now)
        run_time_s = _run_time_s(gang)
        if run_time_s is None:  # as likely to go on for as long again as to end before
            run_time_s = 2 * ran_s + quantum_s
        run_time_s = max(run_time_s, ran_s + (quantum_s if run_time_s < ran_s else 0.0))
        left_s = run_time_s - ran_s
        slower = 1 + DELAY * (standing.contention - 1)
        return _Lateness(left_s, standing.created + run_time_s * slower - left_s)

    # --- who is suspended ----------------------------------------------------------------------

    def is_late(self, queues: Queues, gang: Gang, now: float) -> bool:
        standing = self._standings.get(gang.key)
        return standing is not None and self._lateness(queues, standing, now).latest_start <= now

    def may_be_suspended(
        self, queues: Queues, claimant: Gang, now: float
    ) -> Sequence[tuple[Gang, float]]:
        """The gangs that may be suspended for this one, and when each has had its quantum; who goes first comes first."""
        if not self.shares(claimant) or not self.is_late(queues, claimant, now):
            return ()
        return [
            (gang, at)
            for gang, at in self._ahead(queues, claimant.queue, now)
            if gang.priority == claimant.priority and gang is not claimant
        ]

    def _ahead(self, queues: Queues, name: str, now: float) -> list[tuple[Gang, float]]:
        """The running gangs of the queue that are not late, the one that ends first first; and when each has had its
        quantum."""
        found: list[tuple[float, GangKey, Gang, float]] = []
        for standing in self._present():
            gang = standing.gang
            if standing.since is None or gang.queue != name:
                continue
            quantum_s, lateness = (
                self.quantum_s(queues, gang),
                self._lateness(queues, standing, now),
            )
            if quantum_s is not None and lateness.latest_start > now:
                found.append((lateness.left_s, gang.key, gang, standing.since + quantum_s))
        return [(gang, at) for _, _, gang, at in sorted(found, key=lambda each: each[:2])]

    # --- what is said --------------------------------------------------------------------------

    def remark(self, queues: Queues, gang: Gang, now: float) -> str:
        """When the pending gang has its turn; empty: it shares no time."""
        standing = self._standings.get(gang.key)
        if standing is None or not self.shares(gang):
            return ""
        lateness = self._lateness(queues, standing, now)
        if lateness.latest_start > now:
            rest = rough_duration(lateness.latest_start - now)
            return f"it shares time and is not behind its fair share; others may be suspended for it in {rest}"
        before = sum(
            each.since is None
            and each.gang.queue == gang.queue
            and bool(each.gang.counts.waiting)
            and each.gang.attempt.rank < gang.attempt.rank
            for each in self._present()
        )
        if before:
            return f"it is behind its fair share, and {wording.counted(before, 'gang')} of its queue have their turn before it"
        if (by := gang.preemption.turn_by) is None:
            return (
                "it is behind its fair share, but no gang that may be suspended for it frees enough"
            )
        rest = rough_duration(max(0.0, by - now))
        return f"its turn comes in {rest} at the latest, unless gangs come before it"

    def adopt(self, before: "TimeSharing", gangs: Mapping[GangKey, Gang]) -> None:
        """What another one knew of these gangs, and of those that may come again."""
        self._standings = {
            key: standing
            for key, standing in before._standings.items()
            if key in gangs or standing.gone_at is not None
        }
        for key, standing in self._standings.items():
            standing.gang = gangs.get(key, standing.gang)

    def check(
        self, queues: Queues, gangs: Mapping[GangKey, Gang], changed: Mapping[GangKey, Gang]
    ) -> None:
        """Raises AssertionError where what is known of gangs is not so."""
        for key, standing in self._standings.items():
            if key in changed or standing.gone_at is not None:
                continue
            gang = gangs.get(key)
            assert gang is standing.gang, f"{key}: time sharing knows another gang"
            runs = _began(gang, 0.0) is not None
            assert runs == (standing.since is not None), f"{key}: runs or does not"
            assert standing.attained_s >= 0, f"{key}: {standing}"
            assert standing.contention >= 1, f"{key}: {standing}"
        for key, gang in gangs.items():
            if key not in changed and gang.members and self.quantum_s(queues, gang) is not None:
                assert key in self._standings, f"{key} shares time and is not known"


def _stop(standing: _RunHistory, now: float) -> None:
    standing.attained_s, standing.since = standing.ran_s(now), None


def _began(gang: Gang, now: float) -> float | None:
    """When the first of its members that hold capacity began; None: there are none."""
    times = [
        pod.seen.started if pod.seen.started is not None else pod.since
        for pod in gang.counts.placed
        if pod.alive
    ]
    return min((now if time is None else time for time in times), default=None)


def _quantum_of(queues: Queues, name: str) -> float:
    """Of the nearest queue that sets one."""
    queue = queues.by_name.get(name)
    for above in queue.path if queue is not None and queues.enabled else ():
        if above.seen.quantum_s is not None:
            return above.seen.quantum_s
    return 0.0


def _contention(queues: Queues, queue: Queue | None) -> float:
    """How many times its fair share the queue is asked for, of the resource where that is most."""
    most = 1.0
    if queue is None:
        return most
    for resource in {*queue.used, *queue.demand}:
        if queues.is_shared(resource):
            share = fair_shares(queues, resource).get(queue.name, 0)
            asked = queue.used.get(resource, 0) + queue.demand.get(resource, 0)
            if 0 < share < asked:
                most = max(most, asked / share)
    return most


def _run_time_s(gang: Gang) -> float | None:
    """As its pods say; None: unknown."""
    pods = [*gang.counts.waiting, *gang.counts.placed]
    times = [pod.seen.runs_for_s for pod in pods]
    known = [each for each in times if each is not None]
    return max(known) if known and len(known) == len(times) else None
