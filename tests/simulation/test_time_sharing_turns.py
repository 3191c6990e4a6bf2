"""Who is late and waits against who runs, after every event of a day: a model of its own of who is late says who must
not wait any longer. That nobody has to go who is late is held in test_time_sharing_days.py."""

import random
from collections import defaultdict

import pytest

from central.controllers.composite import new_scheduler
from central.scheduler import cycle
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests.central.scheduler.invariants import check_invariants
from tests.simulation.test_time_sharing_days import GPUS, NODES, QUANTUM_S, Job, cluster

TOLERANCE_S = 2.0


class Turns:
    """Each pod has one GPU, so a gang fits where enough GPUs are free."""

    def __init__(self, jobs: list[Job], scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.jobs = {job.name: job for job in jobs}
        self.since: dict[str, float] = {}  # of those that run
        self.attained_s = defaultdict[str, float](float)
        self.peak: dict[str, float] = {}
        self.waited = 0  # moments at which a late gang waited behind others that are late

    def look(self, sim: Simulation) -> None:
        check_invariants(sim.scheduler)
        now, gangs = sim.now, {gang.name: gang for gang in sim.scheduler.state.gangs.values()}
        names = {name: _job_of(gang) for name, gang in gangs.items() if gang.members}
        by_job = {names[name]: gang for name, gang in gangs.items() if name in names}
        leaving = {
            name: sum(
                pod.evicting or pod.seen.deleting
                for pod in gang.members.values()
                if pod.node and pod.alive
            )
            for name, gang in by_job.items()
        }
        runs = {name for name, gang in by_job.items() if _placed(gang)}
        for name in by_job.keys() | self.since.keys():
            if name in runs:
                self.since.setdefault(name, now)
            elif name in self.since:
                self.attained_s[name] += now - self.since.pop(name)
        waits = {name for name, gang in by_job.items() if gang.counts.waiting and name not in runs}
        asked = sum(self.jobs[name].gpus for name in runs | waits) / (NODES * GPUS)
        for name in runs | waits:
            self.peak[name] = max(1.0, asked, self.peak.get(name, 1.0))
        self._compare(now, runs, waits, leaving)

    def _compare(
        self, now: float, runs: set[str], waits: set[str], leaving: dict[str, int]
    ) -> None:
        late = [
            name
            for name in waits
            if self._may_claim(name) and self._latest_start(name, now) <= now - TOLERANCE_S
        ]
        if any(leaving.values()):
            return
        coming = [
            self._latest_start(name, now) for name in waits - {*late} if self._may_claim(name)
        ]
        self._wakes(now, [at for at in coming if at > now])
        if not late:
            return
        first = min(late, key=lambda name: (-self.jobs[name].urgent, self._latest_start(name, now)))
        used = sum(self.jobs[name].gpus for name in runs)
        equals = [name for name in runs if self.jobs[name].urgent == self.jobs[first].urgent]
        ahead = [name for name in equals if self._may_go(name, now)]
        free = NODES * GPUS - used + sum(self.jobs[name].gpus for name in ahead)
        assert free < self.jobs[first].gpus, (
            f"{now}: {first} is late and could take the place of {ahead}"
        )
        self.waited += 1
        quanta = [
            self.since[name] + self._quantum_s(name)
            for name in equals
            if self.jobs[name].cost_s is not None
            and self._latest_start(name, now) > now + TOLERANCE_S
        ]
        self._wakes(now, [at for at in quanta if at > now])

    def _wakes(self, now: float, times: list[float]) -> None:
        due = cycle.due(self.scheduler, now)
        for at in times:
            assert due is not None, f"{now}: nobody wakes at {at}"
            assert due <= at + TOLERANCE_S, f"{now}: it wakes at {due}, not at {at}"

    def _quantum_s(self, name: str) -> float:
        return max(QUANTUM_S, 20 * (self.jobs[name].cost_s or 0.0))

    def _may_claim(self, name: str) -> bool:
        return self.jobs[name].cost_s is not None

    def _may_go(self, name: str, now: float) -> bool:
        job = self.jobs[name]
        if job.cost_s is None:
            return False
        had_quantum = now - self.since[name] >= self._quantum_s(name) + TOLERANCE_S
        return had_quantum and self._latest_start(name, now) > now + TOLERANCE_S

    def _latest_start(self, name: str, now: float) -> float:
        job = self.jobs[name]
        ran_s = self.attained_s[name] + (now - self.since[name] if name in self.since else 0.0)
        run_s = job.run_s
        if run_s < ran_s:  # what its suspensions cost
            run_s = ran_s + self._quantum_s(name)
        return job.at_s + run_s * (1 + 0.7 * (self.peak[name] - 1)) - (run_s - ran_s)


def _job_of(gang: Gang) -> str:
    return next(iter(gang.members.values())).seen.name.rpartition("-w-")[0]


def _placed(gang: Gang) -> bool:
    return any(
        pod.node and pod.alive and not pod.evicting and not pod.seen.deleting
        for pod in gang.members.values()
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_late_gang_waits_only_behind_those_that_are_late_or_have_not_had_their_quantum(
    seed: int,
) -> None:
    dice = random.Random(seed)
    jobs = [Job(number, dice) for number in range(14)]
    documents = [*cluster(None), *(job.manifest() for job in jobs)]
    placed = [(SourceLocation("day", index), raw) for index, raw in enumerate(documents)]
    scheduler = new_scheduler(())
    turns = Turns(jobs, scheduler)
    Simulation(scenario.read(placed, ("lockstep",), ()), scheduler).run(turns.look)
    assert turns.waited > 5
