"""The least harmful victims in one domain, before a trial placement proves them.

Design: docs/design/evictions.md
"""

from collections.abc import Iterator
from dataclasses import dataclass

from central.model.arrays import Ints
from central.scheduler.preemption import independent_units, least_harm
from central.scheduler.preemption.harm import MAX_HARM, Harm
from central.scheduler.preemption.least_harm import EvictionUnit, LeastHarmProblem


@dataclass(slots=True)
class DomainVictims:
    """Victims in one domain: whole gangs by number, or units. least: the harm of the gangs; without any it is as large as can
    be. problem: what the units solve, if there may be a better answer."""

    least: Harm = MAX_HARM
    gangs: Ints | None = None
    units: list[EvictionUnit] | None = None
    problem: LeastHarmProblem | None = None

    @property
    def harm(self) -> Harm:
        return self.least if self.units is None else least_harm.total_harm(self.units)


def chosen(problem: LeastHarmProblem) -> Iterator[DomainVictims]:
    """Nothing where terminating pods free enough, or where no set of the units does."""
    if problem.missing <= 0:
        return
    found = independent_units.best(problem)
    if found is not None:
        yield DomainVictims(units=found)
        return
    found = least_harm.choose_victims(problem)
    if found is not None or problem.allowed:
        yield DomainVictims(units=found, problem=problem)
