"""Busy days in which any function of the scheduler may raise at any time: no half change remains, and everybody
is served in the end."""

import os
import random
import sys
from types import FrameType

import pytest

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler import rebuild
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from tests.simulation.busy_day import LONG, SHORT, Day, Size
from tests.simulation.test_busy_days import assert_healed

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "3"))
NOT_IN = ("fence.py", "rebuild.py", "quarantine.py", "fact_keys.py", "cycle.py", "scheduler.py")
ERRORS = (KeyError, TypeError, ZeroDivisionError, AssertionError, MemoryError, RecursionError)


class Bug:
    """Raises at the start of the n-th call of a function of the scheduler."""

    def __init__(self, countdown: int, error: type[Exception]) -> None:
        self._left, self._error = countdown, error
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or "/central/scheduler/" not in path or path.endswith(NOT_IN):
            return
        if frame.f_code.co_name.startswith("<") or _is_contained(frame):
            return
        self._left -= 1
        if self._left == 0:
            self.where = f"{path.rpartition('/')[2]}:{frame.f_code.co_name}"
            sys.setprofile(None)
            raise self._error(f"injected into {self.where}")


def _is_contained(frame: FrameType) -> bool:
    """Whether the fence is at work already: a second bug at that moment is another one's fault."""
    up: FrameType | None = frame
    while up is not None:
        path, name = up.f_code.co_filename, up.f_code.co_name
        if path.endswith("rebuild.py") or name in {
            "gang_failed",
            "cycle_failed",
            "undo",
            "_fact_failed",
        }:
            return True
        if "contextlib" in path and name == "__exit__":
            return True
        up = up.f_back
    return False


class FaultyDay(Day):
    def __init__(self, seed: int, size: Size) -> None:
        super().__init__(seed, size)
        self.bugs: list[str] = []
        self._chance = random.Random(seed)

    def schedule(self, facts: list[Fact], now: float) -> list[Decision]:
        if now >= self.size.faults_end or self._chance.random() < 0.6:
            return schedule_once(self.cluster, facts, now)
        bug = Bug(int(10 ** self._chance.uniform(0, 4)), self._chance.choice(ERRORS))
        sys.setprofile(bug)
        try:
            decisions = schedule_once(self.cluster, facts, now)
        finally:
            sys.setprofile(None)
        if bug.where:
            self.bugs.append(f"{now:g} s: {bug.where}")
        return decisions


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(DAYS)]
)
def test_a_day_with_bugs_everywhere(seed: int) -> None:
    size = LONG if seed else SHORT
    day = FaultyDay(seed, size)
    for now in range(size.faults_end):
        try:
            day.step(now, faults=True)
        except AssertionError as error:
            raise AssertionError(f"after {day.bugs[-3:]}: {error}") from error
    assert len(day.bugs) > 20
    for now in range(size.faults_end, 6000, 10):
        day.step(now, faults=False)
        if not day.cluster.state.pending.waiting and not day.ends:
            break
    assert_healed(day)


def test_a_state_that_is_built_again_is_the_same() -> None:
    day = Day(5)
    for now in range(120):
        day.step(now, faults=True)
        if now % 7 == 0:
            before = facts_of(day)
            rebuild.rebuild(day.cluster)
            assert facts_of(day) == before
    check_invariants(day.cluster)


def facts_of(day: Day) -> dict[str, tuple[object, ...]]:
    return {
        uid: (pod.seen, pod.node, pod.gpus, pod.life.stage, pod.life.observed)
        for uid, pod in sorted(day.cluster.state.pods.items())
    }
