"""Many Spark applications at once: a driver each, which makes its executors once it runs. Their work is
done by as many executors as have a place. Pods without groups go one by one, as with the default scheduler; with
minResources a driver starts only where its first executors find room too."""

import random
from dataclasses import dataclass, field, replace
from math import inf

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact, PodGone, PodSeen
from central.scheduler import cycle
from tests.central import factories

NODES, CPU = 4, 6_600  # of 8 processors, what the system leaves
JOBS, EXECUTORS, MEAN_WORK_S = 104, 5, 300.0
STARTS_S = 5.0  # a driver, until it asks for executors
DRIVERS_ONLY = "drivers"


@dataclass(slots=True)
class Job:
    name: str
    work_s: float  # left, of one executor
    asks_at: float = inf  # when the driver runs
    running: set[str] = field(default_factory=set)

    def ends(self, now: float) -> float:
        return now + self.work_s / len(self.running) if self.running else inf


@dataclass(frozen=True, slots=True)
class Outcome:
    makespan_s: float  # inf: everything waits for ever
    stuck_drivers: int
    busy: float  # the share of the processors' time that executors had


def play(seed: int, *, least_cpu: int = 0, driver_node: bool = False) -> Outcome:
    """least_cpu: minResources of each application; none: no groups."""
    return _Run(seed, least_cpu, driver_node).play()


class _Run:
    def __init__(self, seed: int, least_cpu: int, driver_node: bool) -> None:
        dice = random.Random(seed)
        self._least, self._driver_node = least_cpu, driver_node
        self._jobs = {
            f"q{i}": Job(f"q{i}", dice.lognormvariate(0.0, 0.7) * MEAN_WORK_S / 1.2776)
            for i in range(JOBS)
        }
        self._pods: dict[str, PodSeen] = {}
        self._now = self._busy_s = 0.0
        self._cluster = new_scheduler()
        self._facts: list[Fact] = []
        for index in range(NODES):
            pool = DRIVERS_ONLY if driver_node and not index else "executors"
            labels = {"pool": pool} if driver_node else {}
            self._facts.append(factories.node(f"n{index}", gpus=0, cpu=CPU, labels=labels))
        for number, job in enumerate(self._jobs.values()):
            if least_cpu:
                least = (("cpu", least_cpu),)
                group = factories.gang(job.name, 1, min_resources=least, created=float(number))
                self._facts.append(group)
            self._make(job, "driver", float(number))

    def _make(self, job: Job, role: str, created: float) -> None:
        name = f"{job.name}-{role}"
        pool = DRIVERS_ONLY if role == "driver" else "executors"
        selector = (("pool", pool),) if self._driver_node else ()
        gang = job.name if self._least else ""
        pod = factories.pod(name, gang=gang, cpu=1_000, created=created)
        pod = replace(pod, spec=replace(pod.spec, node_selector=selector))
        self._pods[pod.uid] = pod
        self._facts.append(pod)

    def play(self) -> Outcome:
        while True:
            self._settle()
            at = min((min(j.ends(self._now), j.asks_at) for j in self._jobs.values()), default=inf)
            if at == inf:
                break
            self._pass(at)
        drivers = sum(pod.node != "" for pod in self._pods.values())
        if self._jobs:
            return Outcome(inf, drivers, 0.0)
        busy = self._busy_s / (self._now * NODES * (CPU // 1000))
        return Outcome(self._now, 0, busy)

    def _settle(self) -> None:
        while True:
            facts, self._facts = self._facts, []
            decisions = cycle.schedule_once(self._cluster, facts, self._now)
            for bind in decisions:
                if isinstance(bind, Bind):
                    self._started(bind)
            if not self._facts:
                return

    def _started(self, bind: Bind) -> None:
        pod = replace(self._pods[bind.pod], node=bind.node, phase="Running")
        self._pods[bind.pod] = pod
        self._facts.append(pod)
        job = self._jobs[pod.name.partition("-")[0]]
        if pod.name.endswith("driver"):
            job.asks_at = self._now + STARTS_S
        else:
            job.running.add(pod.uid)

    def _pass(self, at: float) -> None:
        for job in list(self._jobs.values()):
            done_s = (at - self._now) * len(job.running)
            self._busy_s += done_s
            job.work_s -= done_s
        self._now = at
        for job in list(self._jobs.values()):
            if job.asks_at <= at:
                job.asks_at = inf
                for number in range(EXECUTORS):
                    self._make(job, f"executor-{number}", JOBS + at)
            elif job.running and job.work_s <= 1e-6:
                self._end(job)

    def _end(self, job: Job) -> None:
        del self._jobs[job.name]
        for uid, pod in list(self._pods.items()):
            if pod.name.partition("-")[0] == job.name:
                del self._pods[uid]
                self._facts.append(PodGone(uid))
