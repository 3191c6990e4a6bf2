"""Rigid training jobs as manifests for a simulation, and how fair the day was to them.

rho, finish-time fairness, is measured as the authors do: how long a job took, as a multiple of the time that it would
take alone with an equal part of the cluster, which is its run time x (jobs / GPUs). A job is treated unfairly above
1.05.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from central.simulator.simulation_result import SimulationResult
from tests.experiments import elastic, gpu_job

NODES, GPUS_OF_NODE = 8, 4
QUANTUM_S, COST_S = 600.0, 20.0
UNFAIR = 1.05
END_S = 1e6
Json = elastic.Json


@dataclass(frozen=True, slots=True)
class RigidJob:
    """run_s: alone, without a suspension."""

    name: str
    at_s: float
    run_s: float
    gpus: int

    def manifest(self, cost_s: float) -> Json:
        notes = {
            "lockstep.dev/arrives-at": f"{self.at_s:g}s",
            "lockstep.dev/runs-for": f"{self.run_s:g}s",
            "lockstep.dev/suspendable": f"{cost_s:g}s",
        }
        return gpu_job.manifest(self.name, notes, self.gpus, self.gpus, queue="train")


def _cluster(nodes: int, quantum_s: float) -> list[Json]:
    queue: Json = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "train"},
        "spec": {"weight": 1, "quantum": f"{quantum_s:g}s"},
    }
    allocatable = {"nvidia.com/gpu": f"{GPUS_OF_NODE}", "cpu": "64", "pods": "110"}
    machines = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"v100-{index}"},
            "status": {"allocatable": allocatable},
        }
        for index in range(nodes)
    ]
    return [queue, *machines]


@dataclass(frozen=True, slots=True)
class Outcome:
    jobs: Sequence[RigidJob]
    gpus: int
    completion_s: dict[str, float]  # by job, from its arrival to its end
    suspensions: Counter[str]  # by job
    result: SimulationResult

    @property
    def rho(self) -> list[float]:
        slower = max(1.0, len(self.jobs) / self.gpus)
        return [self.completion_s[job.name] / (slower * job.run_s) for job in self.jobs]

    @property
    def unfair(self) -> float:
        """The share of jobs, in percent."""
        return 100 * mean(rho > UNFAIR for rho in self.rho)

    @property
    def mean_s(self) -> float:
        return mean(self.completion_s.values())

    @property
    def used(self) -> float:
        """The share of all GPU time until the end that jobs trained in."""
        worked = sum(job.run_s * job.gpus for job in self.jobs)
        return worked / (self.result.makespan_s * self.gpus)


def run(
    jobs: Sequence[RigidJob],
    *,
    nodes: int = NODES,
    quantum_s: float = QUANTUM_S,
    cost_s: float = COST_S,
) -> Outcome:
    """quantum_s 0: nobody is suspended."""
    documents = _cluster(nodes, quantum_s)
    documents += [job.manifest(cost_s) for job in jobs]
    result = elastic.simulate(documents, END_S).result
    ended = {end.name: end.at_s for end in result.ended if end.kind == "Job"}
    assert len(ended) == len(jobs), sorted({job.name for job in jobs} - ended.keys())
    completion = {job.name: ended[job.name] - job.at_s for job in jobs}
    first_pods = [each for each in result.evicted if each.pod.endswith("-w-0")]
    suspensions = Counter(each.pod.removesuffix("-w-0") for each in first_pods)
    return Outcome(jobs, nodes * GPUS_OF_NODE, completion, suspensions, result)
