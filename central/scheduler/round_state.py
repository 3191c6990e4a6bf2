"""What a round of scheduling_round.py remembers. A round in slices is kept between two cycles, where the state may be
written, so all of it is plain data.

Design: docs/design/budgets.md
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from central.model.arrays import Bools, Ints
from central.model.decisions import Decision
from central.scheduler import refused_alike
from central.scheduler.pass_reservations import PassMemory
from central.scheduler.queues import order
from central.scheduler.queues.turns import FairShares
from central.scheduler.scheduler import Scheduler
from central.scheduler.shared_refusals import Verdicts
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.pending_columns import GangSet
from central.scheduler.work_meter import Interrupt, SearchProgress

FLOOD_TRIES = 100  # attempts for one namespace in a round of slices, before it waits behind others


@dataclass(slots=True)
class Round:
    """What one round has still to do, and what it remembers of what it did."""

    began: float
    left: GangSet = field(default_factory=GangSet)
    tried: set[GangKey] = field(default_factory=set)
    # Tried without an attempt; only a round that is cut needs to know, and adds them to the others.
    skipped: list[Ints] = field(default_factory=list)
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
    progress: SearchProgress | None = None  # ... and what it has found

    def flooding(self) -> set[str]:
        """The namespaces that have had their attempts."""
        return {name for name, tries in self.by_namespace.items() if tries >= FLOOD_TRIES}

    def must_wait(self, gang: Gang) -> bool:
        """Whether its namespace has had its attempts, so that it is tried behind the others."""
        return self.by_namespace[gang.namespace] >= FLOOD_TRIES and gang in self.left

    def next_pass(self, more: Sequence[Ints]) -> None:
        """With what is left and these rows."""
        for rows in more:
            self.left.add_rows(rows)
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
    behind: Bools | None = None  # rows of namespaces that have had their attempts, for the end

    def next(self) -> Gang | None:
        scheduler, this = self.scheduler, self.this
        if self.ahead:
            return self.ahead.pop()
        for gang in self.gangs or ():
            if self.behind is None or not this.must_wait(gang):
                return gang
            self.behind[gang.attempt.row] = True
        if self.behind is None:
            return None
        rows = scheduler.state.pending.columns.in_rank_order(self.behind)
        of = scheduler.queues, scheduler.state.pending.columns, rows, this.again
        self.gangs = order.in_order(
            *of, shares=this.shares, skip=SkipEqual(scheduler, this, bars_floods=False)
        )
        self.behind = None
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
            this.skipped.append(rows[:count])
            this.left.discard_rows(rows[:count])
        return count
