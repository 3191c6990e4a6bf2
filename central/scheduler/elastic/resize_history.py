"""The times at which the size of an elastic gang may change voluntarily: each such change costs its work some time.

- Two of them are a hold apart. So A to B to A within a hold cannot happen.
- All of them together cost at most a share (CHURN) of the time that the gang has run. So do changes that others
  cause, but for the first, because each takes surplus that the gang got by a change of its own.
- A gang that has just started has no work to lose yet: what it gets then counts as its start.
"""

from dataclasses import dataclass
from math import inf

from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.preemption.time_sharing import CHURN

START_S = 10.0  # of a gang's life in which it may grow without cost


@dataclass(slots=True)
class ResizeHistory:
    started: float
    last: float = -inf  # the last voluntary change
    cost_s: float = 0.0  # of all such changes

    def allowed_at(self, gang: ElasticGang, now: float, changes: int = 1) -> float:
        """Returns when so many voluntary changes may happen at once."""
        if self.starting(now):
            return now
        paid = self.started + (self.cost_s + changes * gang.cost_s) / CHURN
        return max(self.last + gang.hold_s, paid)

    def starting(self, now: float) -> bool:
        return now - self.started <= START_S

    def record_gift(self, gang: ElasticGang, now: float) -> None:
        """Counts the cost of giving seats to another gang. It begins no hold, so the gang may grow again sooner."""
        if not self.starting(now):
            self.cost_s += gang.cost_s

    def record(self, gang: ElasticGang, now: float) -> None:
        if not self.starting(now):
            self.last = now
            self.cost_s += gang.cost_s

    def may_arrive(self, now: float) -> bool:
        """Returns whether a recorded change, for which others had to leave first, may still happen. One that counted as
        part of the start may not after it, because its cost was not counted."""
        return self.starting(now) or self.last > -inf

    def record_arrival(self, now: float) -> None:
        """A recorded change for which others had to leave first happens now: the hold begins again."""
        if not self.starting(now):
            self.last = now
