"""The attempts to place pending gangs: a table with one row for each gang, as long as the gang exists.

After capacity is freed every pending gang is tried again, and most are refused like an equal one before. With thousands
of gangs the cycle's time was that of reading an object for each. So what decides which gangs are due, in which order
they are tried and who is refused alike is in columns, and Attempt reads and writes the cells of its gang:

    row 1: gang a, refused in epoch 7, request 3, queue 0
    row 2: gang b, refused in epoch 7, request 3, queue 1   -> both are refused alike, as one array operation

Row 0 is that of all gangs that no longer exist. Nothing in it is ever true.

Design: docs/design/pending-gangs.md
"""

from enum import IntEnum
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from central.model.arrays import Bools, Floats, Ints
from central.model.resources import Sums

Objects = npt.NDArray[np.object_]
Rank = tuple[int, int, float, tuple[str, str, bool]]  # queues/order.py; ends with the gang's key

Value = TypeVar("Value")

FIRST_ROWS = 16
SURPLUS_BITS = 24  # of a tier: more members than a gang can have


class _FirstValue(NamedTuple):
    first: object


def _first(value: object) -> Any:
    """A column that has this value in the row of a new gang."""
    return _FirstValue(value)


class Outcome(IntEnum):
    """The outcome of a gang in the present round of attempts. From DUE on the gang is still to be tried in it."""

    NOT_DUE = 0
    SET_ASIDE = 1
    REFUSED = 2
    BOUND = 3
    LONG = 4  # due for a long attempt after the round
    DUE = 5
    PARTLY = 6  # some of its pods are bound, and others have another turn
    BEHIND = 7  # due after the others, because its namespace has had its attempts


DUE = int(Outcome.DUE)  # comparisons with members of an enum take several times as long


class AttemptColumns:
    """Arrays with one cell for each gang, named with the value that a new gang has.

    waiting: whether the gang has pods that need a node
    owned: by an object whose status gives the reason too
    outcome: an Outcome; the round writes it
    equivalence: gangs with the same number make the same request; 0: unknown
    least_gpus: of each pod; least_pods: that many at least are placed, or none; 0: unknown
    refused_at: capacity epoch of the refusal; -1: not refused
    reason: why the gang does not fit; empty if it fits or was not tried
    refusal, listed: Refusals writes them
    retry_at: not tried before, in seconds
    work_factor: of the first work limit (work_meter.py), for the next attempt
    queue: number of the name of the queue that is charged; -1: none
    tier: the first two numbers of the rank, as one, of a gang that waits
    run_time_s: see queues/order.py; inf: unknown
    reason_turn: see PendingGangs.reasons_changed(); -1: none
    """

    gangs: Objects = _first(None)
    waiting: Bools = _first(False)
    owned: Bools = _first(False)
    listed: Bools = _first(False)
    outcome: Ints = _first(0)
    equivalence: Ints = _first(0)
    least_gpus: Ints = _first(0)
    least_pods: Ints = _first(0)
    refused_at: Ints = _first(-1)
    work_factor: Ints = _first(1)
    queue: Ints = _first(-1)
    tier: Ints = _first(0)
    reason_turn: Ints = _first(-1)
    retry_at: Floats = _first(0.0)
    run_time_s: Floats = _first(inf)
    reason: Objects = _first("")
    refusal: Objects = _first(None)

    def __init__(self) -> None:
        for name, value in NEW_ROW.items():
            kind = type(value) if isinstance(value, bool | int | float) else object
            setattr(self, name, np.full(FIRST_ROWS, value, dtype=kind))
        self._free: list[int] = [*range(FIRST_ROWS - 1, 0, -1)]
        self._moved: dict[int, None] = {}  # rows with a new rank, since their order was made

    def new_row(self) -> int:
        if not self._free:
            size = len(self.waiting)
            for name, value in NEW_ROW.items():
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.full_like(column, value)]))
            self._free = [*range(2 * size - 1, size - 1, -1)]
        return self._free.pop()

    def set_rank(self, row: int, rank: Rank) -> None:
        self.tier[row] = (rank[0] << SURPLUS_BITS) + rank[1]
        self._moved[row] = None


NEW_ROW = {n: c.first for n, c in vars(AttemptColumns).items() if isinstance(c, _FirstValue)}
NO_ROWS = AttemptColumns()  # of those that are never tried


class AttemptCell(Generic[Value]):
    """An attribute of Attempt that is a cell of the column of the same name."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, attempt: "Attempt", _: type | None = None) -> Value:
        value: Value = getattr(attempt.columns, self._name).item(attempt.row)
        return value

    def __set__(self, attempt: "Attempt", value: Value) -> None:
        getattr(attempt.columns, self._name)[attempt.row] = value


class Attempt:
    """The state of the attempts for one gang. PendingGangs and the scheduling cycle write it.

    need: requests, for its place in the order (queues/order.py)
    bind_failures: pods whose binding failed; failures_handled: the same when retry_at was computed
    failed_attempts: in a row, in which bindings failed
    partial_since: since when it is bound below its minimum
    ran: its minimum was ready once since it was placed
    undisturbed: units that the next long attempt has before others may end it
    """

    __slots__ = (
        "_rank",
        "bind_failures",
        "columns",
        "failed_attempts",
        "failures_handled",
        "need",
        "partial_since",
        "ran",
        "row",
        "undisturbed",
    )

    equivalence = AttemptCell[int]()
    least_gpus = AttemptCell[int]()
    least_pods = AttemptCell[int]()
    refused_at = AttemptCell[int]()
    retry_at = AttemptCell[float]()
    reason = AttemptCell[str]()
    run_time_s = AttemptCell[float]()
    work_factor = AttemptCell[int]()

    def __init__(self, columns: AttemptColumns, rank: Rank) -> None:
        self.columns = columns
        self.row = 0 if columns is NO_ROWS else columns.new_row()
        self._rank = rank
        self.need: Sums = {}
        self.bind_failures = self.failures_handled = self.failed_attempts = self.undisturbed = 0
        self.partial_since: float | None = None
        self.ran = False

    @property
    def new_failures(self) -> int:
        return self.bind_failures - self.failures_handled

    @property
    def rank(self) -> Rank:
        """The gang's place in the order of its queue."""
        return self._rank

    @rank.setter
    def rank(self, rank: Rank) -> None:
        if rank != self._rank and self.columns.waiting[self.row]:
            self.columns.set_rank(self.row, rank)
        self._rank = rank
