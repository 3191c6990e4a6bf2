"""The victims from which a claim still chooses: those of queues that gave too much are left out, one choice after
another.

Design: docs/design/reclaim.md
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from central.scheduler.preemption import surplus_members
from central.scheduler.queues.queue_claims import Loss
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.state.gangs import Gang, GangKey

MayGive = Callable[[Gang], bool]
NONE_FIXED: Mapping[str, AbstractSet[GangKey]] = {}


class VictimsLeft:
    """The victims that one choice may take: those that may give or are suspended, without those that are left out."""

    def __init__(
        self,
        may_give: MayGive,
        shortfalls: list[Shortfall],
        suspended: Mapping[GangKey, Gang],
        among: frozenset[str] | None = None,
        fixed: Mapping[str, AbstractSet[GangKey]] = NONE_FIXED,
    ) -> None:
        """may_give: answers alike for gangs of one victim_table.victim_group(). suspended: that may give as well.
        among: the queues of the victims; None: any. fixed: by queue, the only gangs of it that may give."""
        self.may_give, self._suspended = may_give, suspended
        self.shortfalls, self.among = shortfalls, among
        self.skipped: set[GangKey] = set()
        self.spared: set[GangKey] = set()  # that may give surplus only
        self._first_fixed = fixed
        self.fixed = {queue: {*keys} for queue, keys in fixed.items()}

    def with_shortfalls(self, shortfalls: list[Shortfall]) -> "VictimsLeft":
        """The same choice at its beginning, with other quota that victims must free."""
        return VictimsLeft(
            self.may_give, shortfalls, self._suspended, self.among, self._first_fixed
        )

    def allows(self, victim: Gang) -> bool:
        if victim.key in self.skipped:
            return False
        if victim.key not in self._suspended and not self.may_give(victim):
            return False
        return victim.queue not in self.fixed or victim.key in self.fixed[victim.queue]

    def leave_out(self, too_many: Sequence[Gang], losses: Sequence[Loss], *, fixes: bool) -> None:
        """fixes: of their queues only the others of these victims are left."""
        went_whole = {gang.key for gang in too_many if _went_whole(gang, losses)}
        self.skipped |= {gang.key for gang in too_many} - went_whole
        self.spared |= went_whole
        over = {gang.queue for gang in too_many} if fixes else set()
        for loss in losses:
            if loss.queue.name in over:
                self.fixed.setdefault(loss.queue.name, set()).add(loss.gang.key)


def _went_whole(gang: Gang, losses: Sequence[Loss]) -> bool:
    """Returns whether more of it was chosen than the surplus that it has."""
    surplus = surplus_members.surplus_count(gang, gang.counts.placed)
    return any(loss.gang is gang and 0 < surplus < loss.pods for loss in losses)
