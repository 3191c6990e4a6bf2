"""What elastic Jobs cost the API server: every write that the scheduler and the Job controller decide for them, on
virtual time, while a service breathes and Jobs come and go.

python -m tests.experiments.elastic_writes [JOBS [NODES]]
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from central.controllers.composite import new_scheduler
from central.model.decisions import (
    Bind,
    Create,
    Decision,
    Delete,
    EmitWarning,
    Evict,
    Patch,
    SetSize,
    SetStatus,
    UpdateGangStatus,
)
from central.model.facts import Fact
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests.central.scheduler.invariants import check_invariants
from tests.experiments.elastic import ONLINE, Json, service, template

JOBS, NODES, NODE_CPU = 1000, 5000, 8
LEAST, MOST = 8, 64
SETTLED_S, END_S = 120.0, 1320.0  # all Jobs have started and grown; twenty minutes are counted
BREATH_S, ARRIVES_S = 120, 30


def nodes(count: int) -> Iterable[Json]:
    allocatable = {"cpu": str(NODE_CPU), "memory": "64Gi", "pods": "110"}
    for index in range(count):
        name = f"node-{index:05}"
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": allocatable},
        }


def job(name: str, at_s: float, leaves_s: float | None = None) -> Json:
    times = {"lockstep.dev/arrives-at": f"{at_s:g}s", "lockstep.dev/resize-cost": "30s"}
    if leaves_s is not None:
        times["lockstep.dev/leaves-at"] = f"{leaves_s:g}s"
    task = {
        "name": "w",
        "replicas": MOST,
        "minAvailable": LEAST,
        "template": template(1.0, "1Gi", 5.0),
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": times},
        "spec": {"schedulerName": "lockstep", "plugins": {"elastic": []}, "tasks": [task]},
    }


def documents(jobs: int, count: int) -> Iterable[Json]:
    """A service has 2 % of the CPUs or 4 %, in turn; a Job of 1,000 comes every half minute, and one ends."""
    yield ONLINE
    yield from nodes(count)
    share = count * NODE_CPU // 50
    for number, at_s in enumerate(range(0, int(END_S), BREATH_S)):
        yield service("web", share * (1 + number % 2), at_s, template(1.0, "1Gi"))
    passing = int((END_S - SETTLED_S) / ARRIVES_S) * jobs // JOBS
    every_s = ARRIVES_S * JOBS / jobs
    for number in range(jobs):
        ends = SETTLED_S + 10 + number * every_s if number < passing else None
        yield job(f"j{number:04}", 0.0, ends)
    for number in range(passing):
        yield job(f"late-{number:04}", SETTLED_S + 20 + number * every_s)


@dataclass(slots=True)
class Writes:
    """Stands where a journal does. counts: writes for elastic Jobs from SETTLED_S on, by what they are."""

    counts: Counter[str] = field(default_factory=Counter)
    _now: float = 0.0

    def turn(self, now: float, facts: Sequence[Fact]) -> None:
        self._now = now

    def decided(self, decisions: Iterable[Decision]) -> None:
        if self._now >= SETTLED_S:
            self.counts.update(filter(None, map(kind_of, decisions)))

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def per_s(self) -> float:
        return self.total / (END_S - SETTLED_S)


def kind_of(decision: Decision) -> str:
    """What it writes for an elastic Job; empty: it is not for one."""
    match decision:
        case Create() | Delete() | SetStatus() | Patch():
            return f"{type(decision).__name__} {decision.kind}"
        case Bind() | Evict():
            is_member = "-w-" in decision.name
            return f"{type(decision).__name__} Pod" if is_member else ""
        case UpdateGangStatus():
            return "" if decision.gang.startswith("web") else "status of a PodGroup"
        case EmitWarning() | SetSize():
            return type(decision).__name__


@dataclass(frozen=True, slots=True)
class Found:
    writes: Writes
    resizes: int  # in the same time
    waiting: int


def measure(jobs: int = JOBS, count: int = NODES) -> Found:
    placed = [(SourceLocation("d", n), raw) for n, raw in enumerate(documents(jobs, count))]
    writes, scheduler = Writes(), new_scheduler()
    read = scenario.read(placed, ("lockstep",), ())
    simulation = Simulation(read, scheduler, until_s=END_S, journal=writes)  # type: ignore[arg-type]  # its two methods
    result = simulation.run()
    check_invariants(scheduler)
    resizes = sum(one.at_s >= SETTLED_S for one in result.resized)
    return Found(writes, resizes, len(result.waiting))


def main() -> None:
    given = [int(text) for text in sys.argv[1:]]
    found = measure(*given)
    for kind, count in sorted(found.writes.counts.items()):
        print(f"{count:8} {kind}")
    print(
        f"{found.writes.total} writes, {found.writes.per_s:.1f} in a second; {found.resizes} resizes"
    )


if __name__ == "__main__":
    main()
