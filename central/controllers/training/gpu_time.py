"""Counts what the GPUs of a Job's members were used for, in GPU-seconds that add up to the time for which the members
were present. A member without GPUs counts as one.

It is known from reports of steps: what passes between two steps is judged by the second one, or by the change of
members that comes instead.

Design: docs/design/coordinator.md
"""

from central.controllers.training.membership import Membership
from central.model.json_types import Json, ReadOnlyJson

TRAINING = "training"
REPEATING = "repeating"  # steps that were taken before, behind the checkpoint that was loaded
SAVING = "saving"  # without a step, while a checkpoint was written
DETECTING = "detecting"  # from the last step until the loss of a member was noticed
STARTING = "starting"  # from a change of members to the first step
WAITING = "waiting"  # in no generation
ACTIVITIES = (TRAINING, REPEATING, SAVING, DETECTING, STARTING, WAITING)
_WEIGHT = 0.2  # of the newest step in the mean


class GpuTime:
    """Times by the coordinator's clock, in seconds."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(ACTIVITIES, 0.0)
        self._furthest = 0  # the most steps that any generation has taken
        self._generation = 0  # whose steps are counted
        self._step = 0  # the newest one in it
        self._at: float | None = None
        self._open = self._saving = 0.0  # GPU-seconds since that step, and of them during a save
        self._usual = 0.0  # GPU-seconds of a step; 0: unknown

    def elapse(self, now: float, members: Membership) -> None:
        """Counts the time since the last call, in which the members were as they are now. Call it before a change."""
        span_s = 0.0 if self._at is None else now - self._at
        self._at = None if members.over else now
        live, newest = members.live, members.newest
        inside = {one.member for each in (live, newest) if each for one in each.processes}
        busy = idle = 0.0
        for member, one in members.roster.present.items():
            seconds = span_s * (one.process.gpus or 1)
            busy, idle = (busy + seconds, idle) if member in inside else (busy, idle + seconds)
        self.spent[WAITING] += idle
        if live is not None and self._generation == live.number and not _stops(members):
            self._open += busy
            self._saving += busy if members.saving else 0.0
            if members.over:
                self._judge(TRAINING)
            return
        self._judge(DETECTING if live is not None and _lost(members) else TRAINING)
        self.spent[STARTING] += busy

    def report(self, now: float, generation: int, step: int, members: Membership) -> None:
        """A member of the live generation has taken so many steps."""
        if generation == self._generation and step <= self._step:
            return
        self.elapse(now, members)
        if generation != self._generation:
            self._generation, self._step = generation, step
        else:
            taken = step - self._step
            again = max(0, min(step, self._furthest) - self._step) / taken
            saving = min(self._open, max(0.0, self._saving - self._usual * taken))
            self.spent[SAVING] += saving
            self.spent[REPEATING] += again * (self._open - saving)
            self._open -= saving + again * (self._open - saving)
            if not self._saving:
                one = self._open / taken
                self._usual += (_WEIGHT if self._usual else 1.0) * (one - self._usual)
            self._step = step
            self._judge(TRAINING)
        self._furthest = max(self._furthest, self._step)

    def _judge(self, activity: str) -> None:
        self.spent[activity] += self._open
        self._open = self._saving = 0.0

    def snapshot(self) -> Json:
        return {"spent": dict(self.spent), "furthest": self._furthest}

    @classmethod
    def restore(cls, data: ReadOnlyJson) -> "GpuTime":
        made = cls()
        made.spent |= {name: float(data["spent"].get(name, 0.0)) for name in ACTIVITIES}
        made._furthest = int(data["furthest"])
        return made


def _stops(members: Membership) -> bool:
    """Returns whether the live generation takes no more steps."""
    return members.proposal is not None and (members.proposal.stopped() or _lost(members))


def _lost(members: Membership) -> bool:
    """Returns whether a member of the live generation has gone without a plan."""
    present, live = members.present(), members.live
    inside = live.incarnations() if live is not None else {}
    return any(
        present.get(one) != number
        for one, number in inside.items()
        if one not in members.roster.done
    )
