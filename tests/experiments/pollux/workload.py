"""Training jobs as Pollux's workloads have them, as manifests for a simulation: 16 nodes of four GPUs, a job of any
size from one worker to what its batch allows, 30 s for each change.

A step of batch M on n GPUs does M/n samples on each, in several passes where they exceed what a GPU holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mean

from central.simulator.simulation_result import SimulationResult
from tests.experiments import elastic

NODES, GPUS = 16, 4
CHANGE_S = 30.0
END_S = 1e6
StepTime = Callable[
    [int, int, int], tuple[float, float]
]  # (GPUs, nodes, samples on each): step and sync, seconds
Json = elastic.Json


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of training job. samples: the fewest and the most on a GPU in one pass."""

    name: str
    samples: tuple[int, int]
    first_batch: int
    step: StepTime
    steps: dict[int, int]  # to the end of training, by batch
    most: int = NODES * GPUS

    def step_s(self, batch: int, gpus: int, nodes: int) -> float:
        on_each = ceil(batch / gpus)
        passes = ceil(on_each / self.samples[1])
        if gpus == 1 and batch > self.first_batch:
            passes = max(2, passes)
        step, sync = self.step(gpus, nodes, ceil(on_each / passes))
        return step + (passes - 1) * (step - sync)

    def tuned_gpus(self, batch: int) -> int:
        """As a user would choose: the most GPUs, packed, that are at least half as efficient as one."""
        one = self.step_s(batch, 1, 1)
        efficient = (
            gpus
            for gpus in range(1, self.most_gpus(batch) + 1)
            if one >= 0.5 * gpus * self.step_s(batch, gpus, ceil(gpus / GPUS))
        )
        return min(max(efficient), NODES * GPUS // 4)

    def most_gpus(self, batch: int) -> int:
        return min(self.most, batch // self.samples[0], NODES * GPUS)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    name: str
    at_s: float
    model: Model
    batch: int

    def manifest(self, speeds: str, *, fixed: bool, objective: str = "even") -> Json:
        work_s = self.model.steps[self.batch] * self.model.step_s(self.batch, 1, 1)
        most = self.model.tuned_gpus(self.batch) if fixed else self.model.most_gpus(self.batch)
        requests = {"nvidia.com/gpu": "1", "cpu": "1"}
        container = {"name": "main", "image": "train", "resources": {"requests": requests}}
        container["resources"]["limits"] = {"nvidia.com/gpu": "1"}  # type: ignore[index]
        task = {"name": "w", "replicas": most, "minAvailable": most if fixed else 1}
        times = {"lockstep.dev/arrives-at": f"{self.at_s:g}s"}
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "annotations": times
                | {
                    "lockstep.dev/resize-cost": f"{CHANGE_S:g}s",
                    "lockstep.dev/work": f"{work_s:.3f}s",
                    "lockstep.dev/speed": speeds,
                },
            },
            "spec": {
                "schedulerName": "lockstep",
                "plugins": {"elastic": ["--task=w", f"--objective={objective}"]},
                "tasks": [{**task, "template": {"spec": {"containers": [container]}}}],
            },
        }


def speeds(model: Model, batch: int) -> str:
    """As annotation lockstep.dev/speed: in steps a second, by GPUs and nodes."""
    most = model.most_gpus(batch)
    sizes = [
        (gpus, nodes)
        for gpus in range(1, max(most, 2) + 1)
        for nodes in range(ceil(gpus / GPUS), min(gpus, NODES) + 1)
    ]
    return " ".join(
        f"{gpus}/{nodes}:{1 / model.step_s(batch, gpus, nodes):.6g}" for gpus, nodes in sizes
    )


def _nodes() -> Iterator[Json]:
    allocatable = {"nvidia.com/gpu": str(GPUS), "cpu": "64", "memory": "256Gi", "pods": "110"}
    for index in range(NODES):
        metadata = {"name": f"node-{index:02}"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "status": {"allocatable": allocatable},
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    completion_s: dict[str, float]  # by job, from its arrival to its end
    resizes: float  # mean number of changes of a job after its start
    result: SimulationResult

    @property
    def mean_s(self) -> float:
        return mean(self.completion_s.values())


def run(jobs: Sequence[TrainingJob], *, fixed: bool = False, objective: str = "even") -> Outcome:
    """fixed: each job has its tuned size, and waits for it."""
    tables: dict[tuple[str, int], str] = {}
    documents = list(_nodes())
    for job in jobs:
        key = (job.model.name, job.batch)
        if key not in tables:
            tables[key] = speeds(job.model, job.batch)
        documents.append(job.manifest(tables[key], fixed=fixed, objective=objective))
    result = elastic.simulate(documents, END_S).result
    ended = {end.name: end.at_s for end in result.ended if end.kind == "Job"}
    assert len(ended) == len(jobs), sorted({job.name for job in jobs} - ended.keys())
    completion = {job.name: ended[job.name] - job.at_s for job in jobs}
    started: set[str] = set()
    changes = 0
    for resized in result.resized:
        changes += resized.name in started and resized.at_s > 0
        started.add(resized.name)
    return Outcome(completion, changes / len(jobs), result)
