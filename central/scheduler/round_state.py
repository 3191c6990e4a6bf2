"""What a round of scheduling_round.py remembers. A round in slices is kept between two cycles, where the state may be
written, so all of it is plain data.

Design: docs/design/budgets.md
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from central.model.arrays import Ints
from central.model.decisions import Decision
from central.scheduler import refused_alike
from central.scheduler.queues import order
from central.scheduler.queues.turns import FairShares
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.shared_refusals import Verdicts
from central.scheduler.state.attempt import Outcome
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import Interrupt

FLOOD_TRIES = 100  # attempts for one namespace in a round of slices, before it waits behind others


@dataclass(slots=True)
class Round:
    """What one round has still to do, and what it remembers of what it did."""

    began: float
    is_alone: bool = False  # of one gang, beside a round of all that are due
    by_namespace: Counter[str] = field(default_factory=Counter)  # attempts
    epoch: int = -1  # at the end of the last slice
    dropped: bool = False  # a reservation ended, so those refused before are tried again
    last_pass: bool = False
    late: bool = False  # gangs were due that had been tried already
    binds: list[Decision] = field(default_factory=list)  # of earlier slices
    verdicts: Verdicts = field(default_factory=Verdicts)
    # By equivalence, see gang_attempt.refuse_alike().
    first_refused: dict[int, Gang] = field(default_factory=dict)
    reserved: ReservedCapacity | None = None
    order: "PassOrder | None" = None  # of the gangs that are left, if it still holds
    version: int = -1  # of the queues, at the end of the last slice
    shares: FairShares = field(default_factory=dict)  # while only the round itself changes usage
    long: list[Gang] = field(default_factory=list)  # due for a long attempt
    is_long_next: bool = False  # the next cycle begins with it
    interrupt: Interrupt | None = None  # of a long attempt

    def flooding(self) -> set[str]:
        """The namespaces that have had their attempts."""
        return {name for name, tries in self.by_namespace.items() if tries >= FLOOD_TRIES}

    def must_wait(self, gang: Gang) -> bool:
        """Whether its namespace has had its attempts, so that it is tried behind the others."""
        return self.by_namespace[gang.namespace] >= FLOOD_TRIES

    def next_pass(self) -> None:
        self.last_pass, self.dropped, self.verdicts = True, False, Verdicts()
        self.first_refused, self.order = {}, None


@dataclass(slots=True)
class PassOrder:
    """The order of one pass: plain data, so that the state can be written between two slices.

    not_due: gangs in it for their reservations
    is_first: gangs of namespaces that have had their attempts are left out, and follow
    again: gangs with another turn, see order.in_order()
    ahead: before the others, the last one first
    """

    scheduler: Scheduler
    this: Round
    not_due: Sequence[Gang]
    is_first: bool
    again: list[Gang] = field(default_factory=list)
    ahead: list[Gang] = field(default_factory=list)
    gangs: order.GangOrder | None = None

    def put_in_order(self, rows: Ints, *, skips: bool = True) -> None:
        """rows: by rank. skips: some may be refused alike"""
        queues, columns = self.scheduler.queues, self.scheduler.state.pending.columns
        skip = self if skips else None  # no bound method: those are not plain data
        self.gangs = order.in_order(
            queues, columns, rows, self.again, shares=self.this.shares, skip=skip
        )

    def next(self) -> Gang | None:
        if self.ahead:
            return self.ahead.pop()
        columns = self.scheduler.state.pending.columns
        for gang in self.gangs or ():
            if not (self.is_first and self.this.must_wait(gang) and columns.is_due(gang)):
                return gang
            columns.outcome[gang.attempt.row] = Outcome.BEHIND
        if not self.is_first:
            return None
        self.is_first, rows = False, columns.due()
        self.put_in_order(rows[columns.outcome[rows] == Outcome.BEHIND])
        return self.next()

    def __call__(self, rows: Ints, goes_on: Callable[[Gang], bool]) -> int:
        """Refuses those of the next gangs whose requests the round has refused already, many at a time. Returns how
        many."""
        if self.scheduler.quarantine.set_asides or not self.this.first_refused:
            return 0
        count = refused_alike.refuse_next(
            self.scheduler,
            rows,
            self.this.first_refused,
            left_out=self.not_due,
            barred=self.this.flooding() if self.is_first else (),
            goes_on=goes_on,
        )
        self.scheduler.state.pending.columns.outcome[rows[:count]] = Outcome.REFUSED
        return count
