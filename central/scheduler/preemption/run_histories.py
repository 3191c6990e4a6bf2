"""The run times of gangs that share time, with columns of what each cycle computes of all of them: a row for each gang.

Design: docs/design/time-sharing.md
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from central.model.arrays import Bools, Floats, Ints
from central.model.past_turns import PastTurns
from central.scheduler.preemption import past_runs
from central.scheduler.preemption.past_runs import FailedStart
from central.scheduler.state.gangs import Gang, GangKey

FIRST_ROWS = 16
DELAY = 0.7  # the part of the delay by even division at which a gang is late


class SharedTerms(NamedTuple):
    """The values of a gang on which its place among the others depends."""

    created: float
    attained_s: float  # run time before the present run
    since: float | None  # when that began; None: it does not run
    quantum_s: float | None  # None: it shares no time now
    run_time_s: float | None  # None: unknown
    waits: bool
    queue: str  # empty: it is charged to none
    priority: int


@dataclass(slots=True)
class RunHistory:
    """terms: as the columns have them."""

    gang: Gang
    row: int
    created: float
    attained_s: float = 0.0  # run time before the present run
    until: float = 0.0  # all run time before is in attained_s, and none after
    since: float | None = None  # when the present run began; None: it does not run
    terms: SharedTerms | None = None

    def start(self, began: float) -> None:
        if self.since is None:
            self.since = self.until = max(began, self.until)

    def stop(self, now: float) -> None:
        if self.since is not None:
            self.until = max(now, self.since)
            self.attained_s, self.since = self.attained_s + self.until - self.since, None


@dataclass(slots=True)
class RunMemory:
    """Fields of RunHistory, with its contention and turn."""

    created: float
    attained_s: float
    until: float
    since: float | None
    contention: float
    turn: float | None


@dataclass(slots=True)
class RunsMemory:
    by_key: dict[GangKey, RunMemory] = field(default_factory=dict)
    gone_at: dict[GangKey, float] = field(default_factory=dict)
    failed_starts: dict[GangKey, FailedStart] = field(default_factory=dict)


class Lateness(NamedTuple):
    """The run time that is left and the latest start, by row, in seconds."""

    left_s: Floats
    latest_start: Floats


class RunHistories:
    def __init__(self) -> None:
        self.by_key: dict[GangKey, RunHistory] = {}
        self.gone_at: dict[GangKey, float] = {}  # of forgotten gangs, in the order of these times
        self._by_row: list[RunHistory | None] = []
        self._free: list[int] = []
        self._queues = _QueueNumbers()
        self.now = 0.0  # of the last look(): who is late does not change between two of them
        self._lateness = Lateness(np.zeros(FIRST_ROWS), np.zeros(FIRST_ROWS))
        self._stale: set[int] = set()  # its rows whose terms have changed
        self._places: Ints | None = None  # by row, in the order of turns; None: it has changed
        self._created: Floats = np.zeros(FIRST_ROWS)
        self._attained_s: Floats = np.zeros(FIRST_ROWS)
        self._since: Floats = np.zeros(FIRST_ROWS)  # NaN: it does not run
        self._quantum_s: Floats = np.zeros(FIRST_ROWS)  # NaN: it shares no time now
        self._run_time_s: Floats = np.zeros(FIRST_ROWS)  # NaN: unknown
        self._waits: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self._queue: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)  # number; -1: none
        self.contention: Floats = np.zeros(FIRST_ROWS)  # the highest of its queue while it existed
        self.turn: Floats = np.zeros(FIRST_ROWS)  # PreemptionStanding.turn; NaN: none

    # --- gangs ---------------------------------------------------------------------------------

    def add(self, gang: Gang, now: float) -> RunHistory:
        if not self._free:
            self._free.append(len(self._by_row))
            self._by_row.append(None)
            if len(self._by_row) > len(self._queue):
                self._grow()
        history = RunHistory(gang, self._free.pop(), gang.created)
        self.by_key[gang.key] = self._by_row[history.row] = history
        before = gang.object.past_turns if gang.object is not None else None
        history.attained_s, history.until = past_runs.recovered(gang, before, now)
        self.contention[history.row] = before.contention if before is not None else 1.0
        self.turn[history.row] = nan
        self._queue[history.row], self._places = -1, None
        return history

    def remembered(self) -> RunsMemory:
        found = {
            key: RunMemory(
                each.created,
                each.attained_s,
                each.until,
                each.since,
                self.contention.item(each.row),
                None if isnan(turn := self.turn.item(each.row)) else turn,
            )
            for key, each in self.by_key.items()
        }
        return RunsMemory(found, self.gone_at)

    def restore(self, gang: Gang, kept: RunMemory) -> RunHistory:
        history = self.add(gang, kept.until)
        history.created, history.attained_s = kept.created, kept.attained_s
        history.until, history.since = kept.until, kept.since
        self.contention[history.row] = kept.contention
        self.turn[history.row] = _or_nan(kept.turn)
        return history

    def _grow(self) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self._lateness = self._lateness_of(slice(None))

    def remove(self, history: RunHistory) -> None:
        key, row = history.gang.key, history.row
        del self.by_key[key]
        self.gone_at.pop(key, None)
        self._by_row[row] = None
        self._free.append(row)
        self._move(row, "")
        self._waits[row] = False

    def write(self, history: RunHistory, terms: SharedTerms) -> None:
        row, before = history.row, history.terms
        if before is None or before.priority != terms.priority:
            self._places = None
        history.terms = terms
        self._created[row], self._attained_s[row] = terms.created, terms.attained_s
        self._since[row] = _or_nan(terms.since)
        self._quantum_s[row] = _or_nan(terms.quantum_s)
        self._run_time_s[row] = _or_nan(terms.run_time_s)
        self._waits[row] = terms.waits
        self._move(row, terms.queue)
        self._stale.add(row)

    def set_turn(self, history: RunHistory, turn: float) -> None:
        if self.turn[history.row] != turn:
            self.turn[history.row], self._places = turn, None

    def _move(self, row: int, queue: str) -> None:
        before = int(self._queue[row])
        self._queue[row] = self._queues.add(queue) if queue else -1
        if before >= 0:
            self._queues.remove(before)

    def past_turns(self, history: RunHistory) -> PastTurns:
        contention = self.contention.item(history.row)
        ran_s, until = round(history.attained_s), round(history.until)
        return PastTurns(ran_s, round(contention, 2), until, history.since is not None)

    def at(self, rows: Ints) -> Iterator[RunHistory]:
        """Yields the histories of these rows, which are in use."""
        for row in rows.tolist():
            history = self._by_row[row]
            assert history is not None
            yield history

    # --- what is computed of all of them -------------------------------------------------------

    def queues(self) -> Iterable[str]:
        """Returns the queues in which these gangs are."""
        return self._queues.by_name

    def queues_of(self, rows: Ints) -> list[str]:
        return [self._queues.name(number) for number in np.unique(self._queue[rows]).tolist()]

    def look(self, contention: Mapping[str, float], now: float) -> None:
        """contention: what each of the queues is asked for now, as a multiple of its fair share."""
        found = np.ones(self._queues.most + 1)  # the last one: of those that are charged to none
        for name, number in self._queues.by_name.items():
            found[number] = contention[name]
        used = len(self._by_row)
        np.maximum(self.contention[:used], found[self._queue[:used]], out=self.contention[:used])
        self.now = now
        self._lateness = self._lateness_of(slice(None))
        self._stale.clear()

    def lateness(self) -> Lateness:
        """Returns the lateness of the gangs at the time of the last look(), by row."""
        if self._stale:
            rows = np.array([*self._stale], dtype=np.int64)
            self._stale.clear()
            for column, fresh in zip(self._lateness, self._lateness_of(rows), strict=True):
                column[rows] = fresh
        return self._lateness

    def _lateness_of(self, rows: slice | Ints) -> Lateness:
        since, quantum_s = self._since[rows], np.nan_to_num(self._quantum_s[rows])
        run_time_s = self._run_time_s[rows]
        ran_s = self._attained_s[rows] + np.where(
            np.isnan(since), 0.0, np.maximum(0.0, self.now - since)
        )
        # If unknown it is as likely to go on for as long again as to end before.
        run_time_s = np.where(np.isnan(run_time_s), 2 * ran_s + quantum_s, run_time_s)
        run_time_s = np.where(run_time_s < ran_s, ran_s + quantum_s, run_time_s)
        left_s = run_time_s - ran_s
        slower = 1 + DELAY * (self.contention[rows] - 1)
        return Lateness(left_s, self._created[rows] + run_time_s * slower - left_s)

    def set_turns(self, rows: Ints, turns: Floats) -> Iterator[tuple[RunHistory, float]]:
        """Returns those that have another turn than before."""
        changed = ~np.equal(turns, self.turn[rows])
        rows, turns = rows[changed], turns[changed]
        self.turn[rows] = turns
        if len(rows):
            self._places = None
        return zip(self.at(rows), turns.tolist(), strict=True)

    def turns_before(self, history: RunHistory) -> int:
        """Returns how many gangs of its queue wait and have their turn before its own."""
        if self._places is None:
            self._places = self._find_places()
        row, waiting = history.row, self.waiting()
        others = waiting[self._queue[waiting] == self._queue[row]]
        return int(np.count_nonzero(self._places[others] < self._places[row]))

    def _find_places(self) -> Ints:
        places, turn = np.zeros(len(self._queue), dtype=np.int64), self.turn.tolist()
        entries = sorted(
            (-history.terms.priority, turn[history.row], key, history.row)
            for key, history in self.by_key.items()
            if history.terms is not None
        )
        places[[row for *_, row in entries]] = np.arange(len(entries))
        return places

    def waiting(self) -> Ints:
        """Rows of gangs that wait and do not run."""
        rows: Ints = np.flatnonzero(self._waits & np.isnan(self._since) & (self._queue >= 0))
        return rows

    def running(self, queue: str) -> Ints:
        """Rows of gangs of the queue that run and share time."""
        found = ~np.isnan(self._since) & ~np.isnan(self._quantum_s)
        rows: Ints = np.flatnonzero(found & (self._queue == self._queues.number(queue)))
        return rows


class _QueueNumbers:
    """The numbers of the queues that have gangs here."""

    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}
        self._names: list[str] = []
        self._gangs: list[int] = []  # how many
        self._free: list[int] = []

    @property
    def most(self) -> int:
        return len(self._names)

    def number(self, name: str) -> int:
        """-2: it has none."""
        return self.by_name.get(name, -2 if name else -1)

    def name(self, number: int) -> str:
        return self._names[number]

    def add(self, name: str) -> int:
        number = self.by_name.get(name)
        if number is None:
            if not self._free:
                self._free.append(len(self._names))
                self._names.append("")
                self._gangs.append(0)
            number = self.by_name[name] = self._free.pop()
            self._names[number] = name
        self._gangs[number] += 1
        return number

    def remove(self, number: int) -> None:
        self._gangs[number] -= 1
        if not self._gangs[number]:
            del self.by_name[self._names[number]]
            self._free.append(number)


def _or_nan(value: float | None) -> float:
    return nan if value is None else value
