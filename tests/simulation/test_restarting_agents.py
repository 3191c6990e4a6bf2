"""Busy days on which agents and kubelets restart. Every step checks that no pod with devices is bound to their nodes
(placement_oracle.py) and that the reasons name them rightly; when none restarts any more, every gang gets its turn."""

import random

import pytest

from central.model.facts import Fact, NodeOffers
from tests.simulation.busy_day import HEALING_STEP, LATEST, SHORT, Day
from tests.simulation.test_busy_days import assert_healed

RESTARTS = 0.15  # of a node, in each step
LONGEST = 4  # steps


class DayOfRestarts(Day):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, SHORT)
        self.draw = random.Random(seed)
        self.back: dict[str, int] = {}  # when their devices are offered again

    def _weather(self, faults: bool) -> list[Fact]:
        facts = super()._weather(faults)
        for name in self.names:
            if faults and name in self.up and name not in self.back:
                if self.draw.random() < RESTARTS:
                    self.back[name] = self.now + self.draw.randint(1, LONGEST)
                    facts.append(NodeOffers(name, offered=False))
            elif name in self.back and (self.back[name] <= self.now or not faults):
                del self.back[name]
                facts.append(NodeOffers(name, offered=True))
        return facts

    def check_reasons(self) -> None:
        super().check_reasons()
        waiting = self.cluster.state.pending.waiting.values()
        self.seen["waits for a restart"] += sum("restarting" in g.attempt.reason for g in waiting)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(3)]
)
def test_a_day_of_restarts(seed: int) -> None:
    day = DayOfRestarts(seed)
    for now in range(SHORT.faults_end):
        day.step(now, faults=True)
    for now in range(SHORT.faults_end, LATEST, HEALING_STEP):
        day.step(now, faults=False)
        if not day.cluster.state.pending.waiting and not day.ends:
            break
    assert_healed(day)
    assert day.seen["waits for a restart"]
