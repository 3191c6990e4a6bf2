"""The rate of each member's requests, and its speed in steps by the coordinator's own clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from central.controllers.training.slow_members import LEAST_MEMBERS, STRAGGLES, excesses

MOST_REQUESTS = 200  # in a second, of one member
MOST_REPORTS = 20
_WEIGHT = 0.2  # of the newest value in a mean


@dataclass(slots=True)
class _MemberRate:
    second: int = -1
    requests: int = 0
    reports: int = 0
    step: int = -1
    at: float = 0.0
    step_s: float = 0.0  # seconds of one step by our clock; 0: unknown
    claimed_s: float = 0.0  # as it says itself
    own_s: float = 0.0  # of it: before it waits for others; 0: unknown
    samples_per_s: float = 0.0
    epoch_left: int | None = None  # records that all members together have left in the epoch


class RequestRates:
    def __init__(self) -> None:
        self._members: dict[int, _MemberRate] = {}

    def allows(self, member: int, now: float) -> bool:
        if not 0 <= member < 1 << 20:
            return True  # refused elsewhere
        one = self._members.setdefault(member, _MemberRate())
        if one.second != int(now):
            one.second, one.requests, one.reports = int(now), 0, 0
        one.requests += 1
        return one.requests <= MOST_REQUESTS

    def report(
        self,
        member: int,
        now: float,
        step: int,
        samples: float,
        seconds: float,
        *,
        own_s: float = 0.0,
        epoch_left: int | None = None,
    ) -> tuple[float, float] | None:
        """Returns what a step took, and of it what it took before the member waited for others; None: unknown."""
        told = None
        one = self._members.setdefault(member, _MemberRate())
        one.reports += 1
        if one.reports > MOST_REPORTS:
            return None
        if 0 <= one.step < step and now > one.at:
            taken = step - one.step
            one.step_s = _mean(one.step_s, (now - one.at) / taken)
            if seconds > 0:  # unknown in the first report of a generation
                told = seconds / taken, min(own_s, seconds) / taken
                one.claimed_s = _mean(one.claimed_s, told[0])
                one.own_s = _mean(one.own_s, told[1])
            one.samples_per_s = _mean(one.samples_per_s, samples / (now - one.at))
        one.step, one.at, one.epoch_left = step, now, epoch_left
        return told

    def of(self, member: int) -> _MemberRate:
        return self._members.get(member) or _MemberRate()

    def stragglers(self, members: list[int]) -> set[int]:
        """Members that make a step take more than 1.3 times as long, by what they do before they wait for the others.
        Where one does not say that, those that take more than 1.3 times the median."""
        known = [(member, one) for member in members if (one := self.of(member)).claimed_s]
        if len(known) < LEAST_MEMBERS:
            return set()
        step_s = median(one.claimed_s for _, one in known)
        if all(one.own_s for _, one in known):
            return {*excesses({member: one.own_s for member, one in known}, step_s)}
        return {member for member, one in known if one.claimed_s > STRAGGLES * step_s}

    def furthest(self, members: Iterable[int]) -> int:
        """The most steps that one of them has taken; 0: none was reported."""
        return max(0, max((self.of(member).step for member in members), default=0))

    def epoch_left(self, members: list[int]) -> int | None:
        """Returns the rest of the epoch as the member with the most steps reports it; None if it does not."""
        first = max(map(self.of, members), key=lambda one: one.step, default=_MemberRate())
        return first.epoch_left

    def samples_per_s(self, members: list[int]) -> float:
        return sum(self.of(member).samples_per_s for member in members)

    def forget(self, present: dict[int, int]) -> None:
        for member in self._members.keys() - present.keys():
            del self._members[member]


def _mean(before: float, value: float) -> float:
    return value if not before else before + _WEIGHT * (value - before)
