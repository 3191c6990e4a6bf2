"""When an elastic gang may be resized though nobody needs it: each such change costs its work some time.

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
    last: float = -inf  # the last change that nobody else needed
    cost_s: float = 0.0  # of all such changes

    def allowed_at(self, gang: ElasticGang, now: float, changes: int = 1) -> float:
        """When so many changes that nobody needs may happen at once."""
        if self.starting(now):
            return now
        paid = self.started + (self.cost_s + changes * gang.cost_s) / CHURN
        return max(self.last + gang.hold_s, paid)

    def starting(self, now: float) -> bool:
        return now - self.started <= START_S

    def record_gift(self, gang: ElasticGang, now: float) -> None:
        """It may grow again before its hold is over."""
        if not self.starting(now):
            self.cost_s += gang.cost_s

    def record(self, gang: ElasticGang, now: float) -> None:
        if not self.starting(now):
            self.last = now
            self.cost_s += gang.cost_s

    def may_arrive(self, now: float) -> bool:
        """Whether a recorded change, for which others had to leave first, may still happen: one that counted as part of
        the start is not paid for."""
        return self.starting(now) or self.last > -inf

    def record_arrival(self, now: float) -> None:
        """A recorded change for which others had to leave first happens now: the hold begins again."""
        if not self.starting(now):
            self.last = now
