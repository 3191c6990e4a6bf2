"""A cycle that is cut into slices decides what an uncut cycle decides."""

import os
import random

import orjson
import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, SetStatus
from central.model.facts import Answered, Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption.withdrawal import CLAIMED, WITHDRAWN
from central.server import checkpoint
from tests.central import factories
from tests.simulation.busy_day import SHORT, TODAYS, Day, Size

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "3"))


class CalmDay(Day):
    """Statuses are always accepted: slices write more of them, and chance must go the same way."""

    def _consequence(self, decision: Decision, faults: bool) -> list[Fact]:
        if isinstance(decision, SetStatus):
            return [Answered("SetStatus", decision.kind, "", decision.name)]
        return super()._consequence(decision, faults)


class SlicedDay(CalmDay):
    """Each cycle is cut after a random number of attempts."""

    def __init__(self, seed: int, size: Size) -> None:
        super().__init__(seed, size)
        self.slices = self.written = 0
        self._cuts = random.Random(seed)

    def schedule(self, facts: list[Fact], now: float) -> list[Decision]:
        decisions = schedule_once(self.cluster, facts, now, self._budget())
        while self.cluster.state.pending.round is not None:
            self.slices += 1
            decisions += schedule_once(self.cluster, [], now, self._budget())
        return decisions

    def _budget(self) -> "Attempts":
        return Attempts(self._cuts.choice((0, 0, 1, 3)))


class WritingDay(SlicedDay):
    """The state is written at the end of rounds, and once in the middle of some, since that begins them again. Not
    while an eviction is tried: it would be tried again, after each writing, and never follow."""

    def schedule(self, facts: list[Fact], now: float) -> list[Decision]:
        decisions = schedule_once(self.cluster, facts, now, self._budget())
        first, middle = self.slices, self._cuts.randrange(4)
        while self.cluster.state.pending.round is not None:
            if self.slices == first + middle:
                self.write_unless_tried()
            self.slices += 1
            decisions += schedule_once(self.cluster, [], now, self._budget())
        self.write_unless_tried()
        return decisions

    def write_unless_tried(self) -> None:
        if not any(held.victims for held in self.cluster.reservations.values()):
            self.write()
            self.written += 1

    def write(self) -> None:
        self.cluster.adopt(checkpoint.take(self.cluster).folded)


class ReadDay(WritingDay):
    """It goes on with what is read again."""

    def write(self) -> None:
        text = checkpoint.take(self.cluster).text
        self.cluster = checkpoint.load(self.cluster, orjson.loads(text))


class Attempts:
    """Allows one attempt and so many more."""

    def __init__(self, more: int) -> None:
        self._more = more

    def __call__(self) -> bool:
        self._more -= 1
        return self._more < 0


def deeds(decisions: list[Decision]) -> list[Decision]:
    """Without statuses: between two slices a gang may have one that the uncut cycle never shows."""
    return [each for each in decisions if isinstance(each, Bind | Evict)]


def claims_at_the_end(day: Day) -> int:
    """How many gangs claimed at the end of rounds what these had given to others, and how many bindings that took."""
    wakeups = day.cluster.state.pending.wakeups
    return wakeups[WITHDRAWN] + wakeups[CLAIMED]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(DAYS)]
)
def test_slices_decide_what_one_cycle_decides(seed: int) -> None:
    uncut, sliced = CalmDay(seed, TODAYS), SlicedDay(seed, TODAYS)
    for now in range(TODAYS.faults_end):
        for day in (uncut, sliced):
            day.trace.clear()
            day.step(now, faults=True)
        if any(claims_at_the_end(day) for day in (uncut, sliced)):
            break  # slices do not withdraw what has been sent
        assert deeds(sliced.trace) == deeds(uncut.trace), f"step {now}"
    assert sliced.slices > 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(DAYS)]
)
def test_a_state_that_is_written_after_any_slice_decides_the_same(seed: int) -> None:
    kept, read, steps = WritingDay(seed, SHORT), ReadDay(seed, SHORT), SHORT.faults_end // 2
    for now in range(steps):
        for day in (kept, read):
            day.step(now, faults=True)
        assert read.trace == kept.trace, f"step {now}"
    assert read.slices == kept.slices > 50
    assert read.written == kept.written > steps


@pytest.mark.parametrize("more", [0, 1, 100])
def test_slices_keep_the_order_behind_a_refused_head(more: int) -> None:
    """Behind it the shortest goes first, also if the head was refused in an earlier slice."""
    made = new_scheduler(factories.LEVELS)
    head: list[Fact] = [
        factories.gang("head", 2),
        *(factories.pod(f"head-{i}", 8, "head") for i in range(2)),
    ]
    facts: list[Fact] = [
        factories.node("a"),
        *(factories.pod(f"old-{i}", 1, node="a", phase="Running") for i in range(7)),
        *head,
        factories.pod("long", 1, created=1.0, runs_for_s=1000.0),
        factories.pod("short", 1, created=2.0, runs_for_s=10.0),
        factories.pod("middle", 1, created=3.0, runs_for_s=100.0),
    ]
    decisions = schedule_once(made, facts, 10.0, Attempts(more))
    while made.state.pending.round is not None:
        decisions += schedule_once(made, [], 10.0, Attempts(more))
    assert [each.name for each in decisions if isinstance(each, Bind)] == ["short"]
