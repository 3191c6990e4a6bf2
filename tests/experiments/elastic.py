"""Fluid's two experiments on elastic training, as its scripts and raw logs give them, and the claim about 99 of 100
nodes.

The cluster has 133 nodes of 17.65 CPU, of which the system uses 0.38: what the published percentages come to. A job
is a master (1 CPU), 10 parameter servers (4 CPU) and 2 to 60 trainers (5 CPU). Pods start in 2 s, trainers leave in
5 s. Jobs use the defaults of the plugin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from central.controllers.composite import new_scheduler
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from central.simulator.simulation_result import SimulationResult
from protos.names import SPEED
from tests.central.scheduler.invariants import check_invariants

Json = dict[str, Any]

NODES, NODE_CPU, SYSTEM_CPU = 133, 17.65, 0.38
TOTAL_CPU = NODES * NODE_CPU
MASTER_CPU, SERVER_CPU, TRAINER_CPU, NGINX_CPU = 1.0, 4.0, 5.0, 3.0
BESIDE = 11  # pods of a job that are not trainers
LEAST = 2  # trainers
JOB_CPU = MASTER_CPU + 10 * SERVER_CPU

LAST_NODE_S = 3600  # when the hundredth node comes

SERVICE_STEPS = ((115, 300), (205, 200), (295, 100), (385, 200), (475, 300), (565, 400))


def nodes() -> Iterable[Json]:
    allocatable = {
        "cpu": f"{round(1000 * (NODE_CPU - SYSTEM_CPU))}m",
        "memory": "128Gi",
        "pods": "110",
    }
    for index in range(NODES):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{index:03}"},
            "status": {"allocatable": allocatable},
        }


def template(cpu: float, memory: str, grace_s: float = 0.0) -> Json:
    requests = {"cpu": f"{round(1000 * cpu)}m", "memory": memory}
    times = {"lockstep.dev/start-takes": "2s", "lockstep.dev/grace": f"{grace_s:g}s"}
    container = {"name": "main", "image": "paddle", "resources": {"requests": requests}}
    return {"metadata": {"annotations": times}, "spec": {"containers": [container]}}


def fluid_job(number: int, at_s: float, *, elastic: bool = True) -> Json:
    spec: Json = {
        "schedulerName": "lockstep",
        "tasks": [
            {"name": "master", "replicas": 1, "template": template(MASTER_CPU, "500Mi")},
            {"name": "ps", "replicas": 10, "template": template(SERVER_CPU, "5Gi")},
            {
                "name": "trainer",
                "replicas": 60,
                "minAvailable": LEAST if elastic else 60,
                "template": template(TRAINER_CPU, "8Gi", 5.0),
            },
        ],
    }
    if elastic:
        spec["plugins"] = {"elastic": ["--task=trainer"]}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number:02}",
            "namespace": "default",
            "annotations": {"lockstep.dev/arrives-at": f"{at_s:g}s"},
        },
        "spec": spec,
    }


def service(name: str, replicas: int, at_s: float, pod: Json, priority: str = "online") -> Json:
    """A Deployment that has so many replicas of the pod from then on."""
    pod["metadata"]["labels"] = {"app": name}
    pod["spec"] |= {"schedulerName": "lockstep", "priorityClassName": priority}
    times = {"lockstep.dev/arrives-at": f"{at_s:g}s"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "annotations": times},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod},
    }


def nginx(replicas: int, at_s: float) -> Json:
    return service("nginx", replicas, at_s, template(NGINX_CPU, "3Gi"))


ONLINE = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "online"},
    "value": 1000,
}


@dataclass(frozen=True, slots=True)
class Run:
    """pods: changes of running pods by job, as (time, job, change)."""

    result: SimulationResult
    ends_s: float

    def pods(self, job: str, at_s: float) -> int:
        return round(sum(n for at, name, n in self.result.ran if name == job and at <= at_s))

    def trainers(self, job: str, at_s: float) -> int:
        return max(0, self.pods(job, at_s) - BESIDE)

    def spread(self, jobs: Iterable[str], at_s: float) -> int:
        """Most less least trainers of the jobs."""
        counts = [self.trainers(job, at_s) for job in jobs]
        return max(counts) - min(counts)

    def cpu_share(self, from_s: float, to_s: float) -> float:
        """Mean share of all CPUs that is requested on nodes, the system's use included."""
        changes = sorted(self._cpu_changes())
        used, last, total = NODES * SYSTEM_CPU, 0.0, 0.0
        for at, change in [*changes, (to_s, 0.0)]:
            begin, end = max(last, from_s), min(at, to_s)
            total += used * max(0.0, end - begin)
            used, last = used + change, at
        return total / (to_s - from_s) / TOTAL_CPU

    def _cpu_changes(self) -> Iterable[tuple[float, float]]:
        beside: dict[str, int] = {}
        for at, name, change in self.result.ran:
            if name == "default/nginx":
                yield at, NGINX_CPU * change
                continue
            rest = beside.get(name, 0)
            for _ in range(abs(round(change))):
                # a job's pods other than trainers start first, and never leave
                cpu = JOB_CPU / BESIDE if change > 0 and rest < BESIDE else TRAINER_CPU
                rest += change > 0 and rest < BESIDE
                yield at, cpu if change > 0 else -cpu
            beside[name] = rest


def simulate(
    documents: Iterable[Json],
    until_s: float,
    seed: int = 0,
    levels: tuple[str, ...] = (),
    headroom: float = 0.0,
    *,
    measured: bool = False,
) -> Run:
    """measured: the scheduler learns of speeds from coordinators, and not from annotations."""
    placed = [(SourceLocation("elastic", index), raw) for index, raw in enumerate(documents)]
    scheduler = new_scheduler(levels, elastic_headroom=headroom)
    read = scenario.read(placed, ("lockstep",), levels)
    if measured:
        _forget_speeds(read)
    result = Simulation(read, scheduler, seed=seed, until_s=until_s).run()
    check_invariants(scheduler)
    return Run(result, until_s)


def _forget_speeds(read: scenario.Scenario) -> None:
    for raw in read.jobs.values():
        meta = raw["metadata"]
        if job := read.training.get((meta["namespace"], meta["name"])):
            job.uid = meta["uid"]
            del meta["annotations"][SPEED]


def jobs(count: int) -> list[str]:
    return [f"default/job-{number:02}" for number in range(count)]


def first(seed: int) -> Run:
    """Twenty jobs, one every 10 s."""
    arrivals = [fluid_job(number, 5 + 10 * number) for number in range(20)]
    return simulate([*nodes(), *arrivals], 550, seed)


def second(seed: int) -> Run:
    """400 pods of a service with a higher priority, six jobs from 30 s on every 5 s; then the service shrinks
    to 100 pods and grows back."""
    service = [ONLINE, nginx(400, 0), *(nginx(count, at) for at, count in SERVICE_STEPS)]
    arrivals = [fluid_job(number, 30 + 5 * number) for number in range(6)]
    return simulate([*nodes(), *service, *arrivals], 740, seed)


def pending_s(run: Run, first_s: float, every_s: float, count: int) -> list[float]:
    """For how long each job waited until its minimum was bound."""
    waits = []
    for number, job in enumerate(jobs(count)):
        arrived, have = first_s + every_s * number, 0.0
        started = run.ends_s
        for at, name, change in run.result.ran:
            have += change if name == job else 0
            if name == job and have >= BESIDE + LEAST:
                started = at
                break
        waits.append(started - arrived)
    return waits


def service_complete_after(run: Run) -> list[float]:
    """For each step of the service: until all of its pods were bound."""
    found = []
    for index, (at_s, count) in enumerate(SERVICE_STEPS):
        before = SERVICE_STEPS[index - 1][1] if index else 400
        until = SERVICE_STEPS[index + 1][0] if index + 1 < len(SERVICE_STEPS) else run.ends_s
        if count < before:
            continue
        times = [
            at for at, name, _ in run.result.ran if name == "default/nginx" and at_s <= at < until
        ]
        full = next((at for at in times if run.pods("default/nginx", at) >= count), until)
        found.append(full - at_s)
    return found


def ninety_nine(*, elastic: bool) -> Run:
    """99 of 100 nodes are there; the last one comes after an hour."""
    machines = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"n{index}",
                "annotations": {
                    "lockstep.dev/arrives-at": "0s" if index < 99 else f"{LAST_NODE_S}s"
                },
            },
            "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}},
        }
        for index in range(100)
    ]
    job = fluid_job(0, 0)
    job["spec"]["tasks"] = [
        {
            "name": "worker",
            "replicas": 100,
            "minAvailable": 1 if elastic else 100,
            "template": template(8.0, "8Gi", 5.0),
        }
    ]
    job["spec"]["plugins"] = {"elastic": []} if elastic else {}
    return simulate([*machines, job], 2.0 * LAST_NODE_S)


def used_of_ninety_nine(run: Run) -> float:
    """The part of the node-hours that were there which its members used, each of a node."""
    used = sum(n * (run.ends_s - at) for at, _, n in run.result.ran)
    return float(used / (99 * run.ends_s + run.ends_s - LAST_NODE_S))
