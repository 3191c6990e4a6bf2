"""What gangs that share time have run, with columns of what each cycle computes of all of them: one row for each gang.

Design: docs/design/0300-time-sharing.md
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import numpy as np

from central.model.arrays import Bools, Floats, Ints
from central.scheduler.state.attempt_columns import Rank
from central.scheduler.state.gangs import Gang, GangKey

FIRST_ROWS = 16
TIMES_KEPT = 2  # of a round in slices and of its present slice
DELAY = 0.7  # the part of the delay by even division at which a gang is late


class SharedTerms(NamedTuple):
    """What its place among the others depends on."""

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
    """terms: as the columns have them. rank: under which it is counted among those of its queue that wait."""

    gang: Gang
    row: int
    created: float
    attained_s: float = 0.0  # run time before the present run
    since: float | None = None  # when that began; None: it does not run
    terms: SharedTerms | None = None
    rank: Rank | None = None

    def stop(self, now: float) -> None:
        if self.since is not None:
            self.attained_s, self.since = self.attained_s + max(0.0, now - self.since), None


class Lateness(NamedTuple):
    """By row, at one time, in seconds."""

    left_s: Floats
    latest_start: Floats


class RunHistories:
    def __init__(self) -> None:
        self.by_key: dict[GangKey, RunHistory] = {}
        self.gone_at: dict[GangKey, float] = {}  # of forgotten gangs, in the order of these times
        self._by_row: list[RunHistory | None] = []
        self._free: list[int] = []
        self._queues = _QueueNumbers()
        self._known: dict[float, Lateness] = {}  # by time, until a term changes
        self._stale: dict[float, set[int]] = {}  # rows of these whose terms have changed
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

    def add(self, gang: Gang) -> RunHistory:
        if not self._free:
            self._free.append(len(self._by_row))
            self._by_row.append(None)
            if len(self._by_row) > len(self._queue):
                self._grow()
        history = RunHistory(gang, self._free.pop(), gang.created)
        self.by_key[gang.key] = self._by_row[history.row] = history
        self.contention[history.row], self.turn[history.row] = 1.0, nan
        self._queue[history.row] = -1
        return history

    def _grow(self) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self.outdate()

    def remove(self, history: RunHistory) -> None:
        key, row = history.gang.key, history.row
        del self.by_key[key]
        self.gone_at.pop(key, None)
        self._by_row[row] = None
        self._free.append(row)
        self._move(row, "")
        self._waits[row] = False

    def write(self, history: RunHistory, terms: SharedTerms) -> None:
        row = history.row
        history.terms = terms
        self._created[row], self._attained_s[row] = terms.created, terms.attained_s
        self._since[row] = _or_nan(terms.since)
        self._quantum_s[row] = _or_nan(terms.quantum_s)
        self._run_time_s[row] = _or_nan(terms.run_time_s)
        self._waits[row] = terms.waits
        self._move(row, terms.queue)
        for rows in self._stale.values():
            rows.add(row)

    def _move(self, row: int, queue: str) -> None:
        before = int(self._queue[row])
        self._queue[row] = self._queues.add(queue) if queue else -1
        if before >= 0:
            self._queues.remove(before)

    def at(self, rows: Ints) -> Iterator[RunHistory]:
        """In use."""
        for row in rows.tolist():
            history = self._by_row[row]
            assert history is not None
            yield history

    # --- what is computed of all of them -------------------------------------------------------

    def queues(self) -> Iterable[str]:
        """Where these gangs are."""
        return self._queues.by_name

    def queues_of(self, rows: Ints) -> list[str]:
        return [self._queues.name(number) for number in np.unique(self._queue[rows]).tolist()]

    def raise_contention(self, of: Mapping[str, float]) -> None:
        """of: what each of the queues is asked for now, as a multiple of its fair share."""
        found = np.ones(self._queues.most + 1)  # the last one: of those that are charged to none
        for name, number in self._queues.by_name.items():
            found[number] = of[name]
        used = len(self._by_row)
        np.maximum(self.contention[:used], found[self._queue[:used]], out=self.contention[:used])
        self.outdate()

    def outdate(self) -> None:
        self._known, self._stale = {}, {}

    def lateness(self, now: float) -> Lateness:
        known = self._known.get(now)
        if known is None:
            for other in [*self._known][: 1 - TIMES_KEPT]:
                del self._known[other], self._stale[other]
            self._known[now] = known = self.lateness_of_all(now)
            self._stale[now] = set()
        elif stale := self._stale[now]:
            rows = np.array([*stale], dtype=np.int64)
            stale.clear()
            for column, fresh in zip(known, self._lateness(rows, now), strict=True):
                column[rows] = fresh
        return known

    def lateness_of_all(self, now: float) -> Lateness:
        """Computed anew."""
        return self._lateness(slice(len(self._queue)), now)

    def _lateness(self, rows: slice | Ints, now: float) -> Lateness:
        since, quantum_s = self._since[rows], np.nan_to_num(self._quantum_s[rows])
        run_time_s = self._run_time_s[rows]
        ran_s = self._attained_s[rows] + np.where(
            np.isnan(since), 0.0, np.maximum(0.0, now - since)
        )
        # If unknown it is as likely to go on for as long again as to end before.
        run_time_s = np.where(np.isnan(run_time_s), 2 * ran_s + quantum_s, run_time_s)
        run_time_s = np.where(run_time_s < ran_s, ran_s + quantum_s, run_time_s)
        left_s = run_time_s - ran_s
        slower = 1 + DELAY * (self.contention[rows] - 1)
        return Lateness(left_s, self._created[rows] + run_time_s * slower - left_s)

    def waiting(self, queue: str | None = None) -> Ints:
        """Rows of gangs that wait and do not run, of one queue or of all."""
        found = self._waits & np.isnan(self._since)
        found &= self._queue >= 0 if queue is None else self._queue == self._queues.number(queue)
        rows: Ints = np.flatnonzero(found)
        return rows

    def running(self, queue: str) -> Ints:
        """Rows of gangs of the queue that run and share time."""
        found = ~np.isnan(self._since) & ~np.isnan(self._quantum_s)
        rows: Ints = np.flatnonzero(found & (self._queue == self._queues.number(queue)))
        return rows

    def check_times(self) -> None:
        """Raises AssertionError where what was computed before is not what is computed now."""
        for now, known in self._known.items():
            rows = [each.row for each in self.by_key.values() if each.row not in self._stale[now]]
            for column, fresh in zip(known, self.lateness_of_all(now), strict=True):
                assert np.array_equal(column[rows], fresh[rows]), f"at {now}"

    def check(self, history: RunHistory) -> None:
        row, terms = history.row, history.terms
        assert terms is not None, history
        assert self._by_row[row] is history, history
        kept = [column[row] for column in (self._created, self._attained_s)]
        assert kept == [terms.created, terms.attained_s], history
        for column, value in (
            (self._since, terms.since),
            (self._quantum_s, terms.quantum_s),
            (self._run_time_s, terms.run_time_s),
            (self.turn, history.gang.preemption.turn),
        ):
            assert np.array_equal(column[row], _or_nan(value), equal_nan=True), history
        assert self._waits[row] == terms.waits, history
        assert self._queue[row] == self._queues.number(terms.queue), history
        assert self.contention[row] >= 1, history


class _QueueNumbers:
    """Of the queues that have gangs here."""

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
