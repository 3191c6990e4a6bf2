"""The cost of the latest change of membership: the time without a step, and the steps that were repeated.

It is known from reports of steps alone. A Job whose processes report none has no pauses, and neither has the first
generation of a coordinator's run.
"""

from dataclasses import dataclass

_WEIGHT = 0.2  # of the newest step in the mean


@dataclass(frozen=True, slots=True)
class Pause:
    """generation: that began after it. seconds: from the last step before to its first one, less what one step takes.
    repeated_s: what the repeated steps took when they were taken before."""

    generation: int
    seconds: float
    repeated_steps: int
    repeated_s: float

    @property
    def lost_s(self) -> float:
        return self.seconds + self.repeated_s


class PauseMeter:
    """Times in seconds, by the coordinator's clock."""

    def __init__(self) -> None:
        self.latest: Pause | None = None
        self._generation = 0  # of the newest report; 0: there was none
        self._step = 0  # the highest that was reported in it
        self._at = 0.0  # when
        self._step_s = 0.0  # mean; 0: unknown

    def report(self, now: float, generation: int, step: int) -> None:
        """A member of the live generation has taken that many steps."""
        if generation < self._generation:
            return
        taken = step - self._step
        if generation > self._generation:
            if self._generation:
                self.latest = self._pause(now, generation, taken)
            self._generation, self._step, self._at = generation, step, now
        elif taken > 0:
            step_s = (now - self._at) / taken
            self._step_s += (_WEIGHT if self._step_s else 1.0) * (step_s - self._step_s)
            self._step, self._at = step, now

    def _pause(self, now: float, generation: int, taken: int) -> Pause:
        """taken: steps beyond those of the generation before, at the first report of the new one."""
        seconds = max(0.0, now - self._at - self._step_s * max(1, taken))
        repeated = max(0, 1 - taken)  # of those, one was taken again already
        return Pause(generation, seconds, repeated, repeated * self._step_s)
