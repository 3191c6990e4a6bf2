"""The service that a queue has received for its weight while others waited. Pure arithmetic."""

from dataclasses import dataclass
from math import inf

MOST_OWED_S = 7 * 86400.0  # of the whole, to a queue that waits for what it never gets


@dataclass(slots=True, eq=False)
class ReceivedService:
    """The service of one queue. Only the children of one queue are compared."""

    most: float = 0.0  # amount of any child, ever
    amount: float = 0.0  # seconds in which the queue had everything, divided by its weight
    at: float = 0.0  # until when it is counted
    idle_since: float = -inf  # when its last pending gang started; of no use while one is pending
    most_at: float = 0.0  # until when all children are counted

    def advance(self, now: float, share: float, weight: float, siblings: "ReceivedService") -> None:
        """share: of the whole, divided by the weight; used all the time since the last call. siblings: of the queue
        above."""
        elapsed_s, self.at = now - self.at, now
        self.amount += elapsed_s * max(share, 0.0)
        siblings.most = max(siblings.most, self.amount)
        self.amount = max(self.amount, siblings.most - MOST_OWED_S / weight)

    def begin_waiting(self, now: float, siblings: "ReceivedService") -> None:
        """Raises the amount to the highest of all siblings, unless the queue waits on without a gap. The first gang of
        the queue is pending, and the time in which none was gives no credit."""
        if now > self.idle_since:
            self.amount = max(self.amount, siblings.most)
