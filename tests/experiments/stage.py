"""Scenario files of the seed documents, and what our scheduler makes of them."""

import random
from dataclasses import dataclass
from pathlib import Path

from central.controllers.composite import new_scheduler
from central.server.settings import LEVELS
from central.simulator import documents, scenario
from central.simulator.scenario import Scenario
from central.simulator.simulation import Simulation
from central.simulator.simulation_result import SimulationResult
from tests.central.scheduler.invariants import check_invariants

SEEDS = Path(__file__).parents[1] / "scenarios" / "seeds"


def read(name: str, *, shuffled: int | None = None) -> Scenario:
    """shuffled: a seed, for the order in which the pods are created."""
    found = list(documents.read([str(SEEDS / f"{name}.yaml")]))
    if shuffled is not None:
        random.Random(shuffled).shuffle(found)
    return scenario.read(found, ("lockstep",), LEVELS)


@dataclass(frozen=True, slots=True)
class Took:
    began_s: float
    ended_s: float

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


def ours(name: str, *, shuffled: int | None = None) -> tuple[SimulationResult, dict[str, Took]]:
    return run(read(name, shuffled=shuffled))


def run(scenario: Scenario) -> tuple[SimulationResult, dict[str, Took]]:
    """The story, and when each job that finished ran."""
    scheduler = new_scheduler(LEVELS)
    story = Simulation(scenario, scheduler).run()
    check_invariants(scheduler)
    began: dict[str, float] = {}
    for placed in story.placed:
        began.setdefault(placed.gang, placed.at_s)
    ended = {end.name: end.at_s for end in story.ended if end.kind == "PodGroup"}
    return story, {job: Took(began[job], at) for job, at in ended.items()}
