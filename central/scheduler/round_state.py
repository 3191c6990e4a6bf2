"""What a round of scheduling_round.py remembers. A round in slices is kept between two cycles, where the state may be
written, so all of it is plain data.

Design: docs/design/budgets.md
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from central.model.arrays import Ints
from central.model.decisions import Decision
from central.scheduler import refused_alike
from central.scheduler.pass_reservations import PassMemory
from central.scheduler.queues import order
from central.scheduler.queues.turns import FairShares
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
    # See withdrawal.py. withdrawn: of the present pass.
    claimed: list[Gang] = field(default_factory=list)
    postponed: list[Gang] = field(default_factory=list)
    withdrawn: list[Gang] = field(default_factory=list)
    binds: list[Decision] = field(default_factory=list)  # of earlier slices
    verdicts: Verdicts = field(default_factory=Verdicts)
    # By equivalence, see gang_attempt.refuse_alike().
    first_refused: dict[int, Gang] = field(default_factory=dict)
    memory: PassMemory = field(default_factory=PassMemory.empty)
    order: "PassOrder | None" = None  # of the gangs that are left, if it still holds
    # that are in the order for their reservations
    not_due: list[Gang] = field(default_factory=list)
    # What the order takes back, see order.in_order().
    again: list[Gang] = field(default_factory=list)
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
        self.last_pass, self.dropped = True, False
        self.memory, self.verdicts = PassMemory.empty(), Verdicts()
        self.withdrawn = []
        self.first_refused, self.order = {}, None


@dataclass(slots=True)
class PassOrder:
    """The order of one pass: plain data, so that the state can be written between two slices."""

    scheduler: Scheduler
    this: Round
    ahead: list[Gang] = field(default_factory=list)  # before the others, the last one first
    gangs: order.GangOrder | None = None
    is_first: bool = False  # gangs that are BEHIND are left out, and follow

    def next(self) -> Gang | None:
        scheduler, this = self.scheduler, self.this
        if self.ahead:
            return self.ahead.pop()
        columns = scheduler.state.pending.columns
        for gang in self.gangs or ():
            if not (self.is_first and this.must_wait(gang) and columns.is_due(gang)):
                return gang
            columns.outcome[gang.attempt.row] = Outcome.BEHIND
        if not self.is_first:
            return None
        rows = columns.due()
        rows = rows[columns.outcome[rows] == Outcome.BEHIND]
        skip = SkipEqual(scheduler, this, bars_floods=False)
        self.gangs = order.in_order(
            scheduler.queues, columns, rows, this.again, shares=this.shares, skip=skip
        )
        self.is_first = False
        return self.next()


@dataclass(frozen=True, slots=True)
class SkipEqual:
    """Refuses those of the next gangs whose requests the round has refused already, many at a time. Returns how
    many. bars_floods: not gangs of namespaces that have had their attempts."""

    scheduler: Scheduler
    this: Round
    bars_floods: bool

    def __call__(self, rows: Ints, goes_on: Callable[[Gang], bool]) -> int:
        scheduler, this = self.scheduler, self.this
        if scheduler.quarantine.set_asides or not this.first_refused:
            return 0
        count = refused_alike.refuse_next(
            scheduler,
            rows,
            this.first_refused,
            left_out=this.not_due,
            barred=this.flooding() if self.bars_floods else (),
            goes_on=goes_on,
        )
        if count:
            scheduler.state.pending.columns.outcome[rows[:count]] = Outcome.REFUSED
        return count
