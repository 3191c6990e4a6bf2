"""Watches who is first by the written order, how long the first one waits, and which GPUs are kept idle for whom."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from central.scheduler.queues.turns import QueueTurns
from central.scheduler.reservation.reserved_place import GPU_COLUMN
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from tests.central.scheduler.invariants import check_invariants

SLACK_S = 30.0


@dataclass
class FirstInLine:
    """ends: when what runs now will have ended. patience_s: how much longer the first gang may wait."""

    scheduler: Scheduler
    ends: Callable[[float], Iterable[float]]
    patience_s: float
    evicted_on_turn: list[str] = field(default_factory=list)
    firsts: int = 0
    _first: GangKey | None = None
    _until: float = 0.0
    _since: float = 0.0
    _started: set[GangKey] = field(default_factory=set)
    now: float = 0.0  # of the last look
    kept: float = 0.0  # GPU-seconds that reservations kept idle, without those of claims
    in_vain: float = 0.0  # of these, on nodes where neither their gang nor an earlier one started
    _kept: dict[GangKey, dict[str, float]] = field(
        default_factory=dict
    )  # of pending gangs, by node
    _idle: dict[GangKey, dict[str, int]] = field(default_factory=dict)  # GPUs, since the last look

    def look(self, now: float) -> None:
        """To be called after each cycle."""
        check_invariants(self.scheduler)
        self.scheduler.queues.now = now
        gangs = self.scheduler.state.gangs.values()
        for gang in gangs:
            if gang.preemption.started_by_reservation and any(
                pod.evicting for pod in gang.members.values()
            ):
                self.evicted_on_turn.append(gang.name)
        began = [gang for gang in gangs if gang.counts.placed and gang.key not in self._started]
        self._started.update(gang.key for gang in began)
        self._count_idle(now, began)
        first = self._gang()
        if first is None:
            self._first = None
            return
        if first.key != self._first or self._was_behind(first, began):
            self._first, self._since, self.firsts = first.key, now, self.firsts + 1
            self._until = max([now, *self.ends(now)]) + self.patience_s + SLACK_S
        assert now <= self._until, (
            f"{first.name} is first since {self._since}, and pending at {now}: {first.attempt.reason}"
        )

    def _count_idle(self, now: float, began: Sequence[Gang]) -> None:
        """began: since the last look."""
        lasted_s, self.now = now - self.now, now
        for key, idle in self._idle.items():
            kept = self._kept.setdefault(key, {})
            for node, gpus in idle.items():
                kept[node] = kept.get(node, 0.0) + gpus * lasted_s
                self.kept += gpus * lasted_s
        for gang in began:
            for key, kept in self._kept.items():
                if key == gang.key or self._comes_before(gang, key):
                    for pod in gang.counts.placed:
                        kept.pop(pod.node, None)
        pending = self.scheduler.state.pending.waiting
        for key in [key for key in self._kept if key not in pending]:
            self.in_vain += sum(self._kept.pop(key).values())
        names, self._idle = self.scheduler.state.snapshot.columns.names, {}
        for key, held in self.scheduler.reservations.items():
            rows = () if held.by_eviction else held.place.rows.tolist()
            withheld = held.withheld[:, GPU_COLUMN].tolist()
            self._idle[key] = {names[row]: n for row, n in zip(rows, withheld, strict=False)}

    def _comes_before(self, gang: Gang, key: GangKey) -> bool:
        other = self.scheduler.state.gangs.get(key)
        if other is None or gang.queue == other.queue:
            return other is None or _rank(gang) < _rank(other)
        with self._without([gang]):
            return QueueTurns(self.scheduler.queues, {}).passes(gang, other)

    def _gang(self) -> Gang | None:
        """The gang that comes before the first ones of all other queues; None: none does, or what others deserve may
        be taken by them at any time."""
        queues, heads = self.scheduler.queues, dict[str, Gang]()
        if any(below.deserved for below in queues.root):
            return None
        for gang in self.scheduler.state.pending.waiting.values():
            if gang.queue not in heads or _rank(gang) < _rank(heads[gang.queue]):
                heads[gang.queue] = gang
        turns, every = QueueTurns(queues, {}), heads.values()
        return next((g for g in every if all(g is o or turns.passes(g, o) for o in every)), None)

    def _was_behind(self, first: Gang, began: Sequence[Gang]) -> bool:
        """Whether one of the gangs that began came before it, also after others of its own queue had begun."""
        of_others = [gang for gang in began if gang.queue != first.queue]
        if any(_rank(gang) < _rank(first) for gang in began if gang.queue == first.queue):
            return True
        for gone in (began, of_others):
            with self._without(gone):
                turns = QueueTurns(self.scheduler.queues, {})
                if not all(turns.passes(first, gang) for gang in of_others):
                    return True
        return False

    @contextmanager
    def _without(self, began: Sequence[Gang]) -> Iterator[None]:
        """Queues use what they used before these began."""
        for times in (-1, 1):
            for gang in began:
                for above in self.scheduler.queues.by_name[gang.queue].path:
                    if gang.account is not None:
                        above.charge(gang.namespace, "", gang.account.used, times)
            if times < 0:
                yield


def _rank(gang: Gang) -> tuple[int, float, GangKey]:
    return (-gang.priority, gang.created, gang.key)
