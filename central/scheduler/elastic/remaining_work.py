"""The time that an elastic gang still runs, from the work that was left when its annotation said so. Work that is done
since then counts down, whatever sizes the gang has meanwhile. Work is in seconds of speed 1.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from central.model.work_left import SHARE, STEPS, WorkLeft
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.state.gangs import GangKey


@dataclass(slots=True)
class _Counted:
    said: WorkLeft
    at: float  # until when work is counted
    speed: float  # since then
    done: float  # since it was first seen
    whole: float | None  # what was left then; None: in steps, whose cost is not known
    first_step: int | None = None  # that was reported since
    first_done: float = 0.0  # the work that was done until then
    step: int = 0  # the latest one
    step_done: float = 0.0


class RemainingWork:
    def __init__(self) -> None:
        self._known: dict[GangKey, _Counted] = {}

    def look(self, gangs: Iterable[ElasticGang], now: float) -> None:
        """All gangs, as they are from now on."""
        known: dict[GangKey, _Counted] = {}
        for gang in gangs:
            if (said := gang.task.work_left) is None or not gang.started:
                continue
            speed = _speed(gang, len(gang.placed))
            counted = self._known.get(gang.key)
            if counted is None or counted.said != said:
                counted = _Counted(said, now, speed, 0.0, _whole(gang, said, speed, now))
            counted.done += counted.speed * max(0.0, now - counted.at)
            counted.at, counted.speed = now, speed
            _count_steps(counted, gang.step)
            known[gang.key] = counted
        self._known = known

    def ends_in_s(self, gang: ElasticGang, size: int) -> float:
        """Returns the seconds from the last look until the gang ends with that size; inf: unknown."""
        counted = self._known.get(gang.key)
        left = None if counted is None else _left(counted)
        return inf if left is None else left / max(_speed(gang, size), 1e-9)


def _speed(gang: ElasticGang, size: int) -> float:
    return gang.task.speeds.fastest(size) if gang.task.speeds is not None else float(size)


def _whole(gang: ElasticGang, said: WorkLeft, speed: float, now: float) -> float | None:
    if said.kind == STEPS:
        return None
    if said.kind != SHARE:
        return said.amount * speed
    if said.amount >= 1:
        return inf  # nothing is done yet, so nothing is known
    begun = [pod.seen.started for pod in gang.placed.values() if pod.seen.started is not None]
    run_s = max(0.0, now - min(begun, default=now))
    return run_s * speed * said.amount / (1 - said.amount)


def _count_steps(counted: _Counted, step: int) -> None:
    """step: the latest that was reported; 0: none. It is lower than before after a restore."""
    if not step or step == counted.step:
        return
    if counted.first_step is None:
        counted.first_step, counted.first_done = step, counted.done
    counted.step, counted.step_done = step, counted.done


def _left(counted: _Counted) -> float | None:
    """Returns the work that is left; None: unknown. A step costs what those since the first report did, repeated ones
    included."""
    if counted.whole is not None:
        return max(0.0, counted.whole - counted.done)
    if counted.first_step is None or counted.step <= counted.first_step:
        return None
    taken = counted.step - counted.first_step
    cost = (counted.step_done - counted.first_done) / taken
    steps = max(0.0, counted.said.amount - taken)
    return max(0.0, steps * cost - (counted.done - counted.step_done))
