"""Training jobs as the workloads of Pollux and Sia have them, as manifests for a simulation: of any size from one
worker to what their batches allow.

A step of batch M on n GPUs does M/n samples on each, in several passes where they exceed what a GPU holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from statistics import mean

from central.simulator.simulation_result import SimulationResult
from tests.experiments import elastic, gpu_job

END_S = 1e6
PRODUCT = "nvidia.com/gpu.product"
StepTime = Callable[
    [int, int, int], tuple[float, float]
]  # (GPUs, nodes, samples on each): step and sync, seconds
Json = elastic.Json


@dataclass(frozen=True, slots=True)
class Nodes:
    """Equal nodes."""

    gpu: str  # the model
    count: int
    gpus: int  # of each

    @property
    def gpus_of_all(self) -> int:
        return self.count * self.gpus

    def packed(self, gpus: int) -> int:
        """On how many of the nodes so many fit."""
        return ceil(gpus / self.gpus)


POLLUX = (Nodes("Tesla-T4", 16, 4),)
MIXED = (  # Sia's
    Nodes("Tesla-T4", 6, 4),
    Nodes("NVIDIA-GeForce-RTX-2080-Ti", 3, 8),
    Nodes("NVIDIA-A100-SXM4-40GB", 2, 8),
)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A kind of training job. samples: the fewest and the most on a GPU in one pass."""

    name: str
    samples: tuple[int, int]
    first_batch: int
    step: StepTime
    steps: dict[int, int]  # to the end of training, by batch
    most: int = 64
    change_s: float = 30.0
    slower: float = 1.0  # in reality than the measured steps

    def step_s(self, batch: int, gpus: int, nodes: int) -> float:
        on_each = ceil(batch / gpus)
        passes = ceil(on_each / self.samples[1])
        if gpus == 1 and batch > self.first_batch:
            passes = max(2, passes)
        step, sync = self.step(gpus, nodes, ceil(on_each / passes))
        return step + (passes - 1) * (step - sync)

    def training_s(self, batch: int | None, gpus: int, nodes: int) -> float:
        """From the first step to the last. batch None: the one with which it takes least."""
        if batch is not None:
            return self.steps[batch] * self.step_s(batch, gpus, nodes) * self.slower
        fit = [each for each in self.steps if self.most_gpus(each) >= gpus]
        return min(self.training_s(each, gpus, nodes) for each in fit)

    def tuned_gpus(self, batch: int) -> int:
        """As a user would choose: the most GPUs, packed, that are at least half as efficient as one."""
        one, (nodes,) = self.step_s(batch, 1, 1), POLLUX
        efficient = (
            gpus
            for gpus in range(1, self.most_gpus(batch) + 1)
            if one >= 0.5 * gpus * self.step_s(batch, gpus, nodes.packed(gpus))
        )
        return min(max(efficient), nodes.gpus_of_all // 4)

    def most_gpus(self, batch: int | None) -> int:
        return min(self.most, (batch or max(self.steps)) // self.samples[0])


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """models: as it trains on each kind of nodes. batch None: it fits the batch to its size."""

    name: str
    at_s: float
    models: tuple[Model, ...]
    batch: int | None

    @property
    def model(self) -> Model:
        """On the first kind of nodes."""
        return self.models[0]

    def manifest(self, speeds: str, most: int, *, fixed: bool, objective: str = "even") -> Json:
        if fixed:
            assert self.batch is not None
            most = self.model.tuned_gpus(self.batch)
        notes = {
            "lockstep.dev/arrives-at": f"{self.at_s:g}s",
            "lockstep.dev/resize-cost": f"{self.model.change_s:g}s",
            "lockstep.dev/work": f"{self.model.training_s(self.batch, 1, 1):.3f}s",
            "lockstep.dev/speed": speeds,
        }
        if len(self.models) > 1:
            notes["lockstep.dev/topology-required"] = PRODUCT
        plugins = {"elastic": ["--task=w", f"--objective={objective}"]}
        least = most if fixed else 1
        return gpu_job.manifest(self.name, notes, most, least, plugins=plugins)


@cache
def speeds(
    models: tuple[Model, ...], batch: int | None, cluster: tuple[Nodes, ...]
) -> tuple[str, int]:
    """As annotation lockstep.dev/speed, in units of one GPU of the first kind; and the largest size."""
    one = models[0].training_s(batch, 1, 1)
    entries, largest = [], 1
    for index, (model, nodes) in enumerate(zip(models, cluster, strict=True)):
        most = min(model.most_gpus(batch), nodes.gpus_of_all)
        largest = max(largest, most)
        name = f"{nodes.gpu}=" if index else ""
        entries += [
            f"{name}{gpus}/{on}:{one / model.training_s(batch, gpus, on):.6g}"
            for gpus in range(1, most + 1)
            for on in range(nodes.packed(gpus), min(gpus, nodes.count) + 1)
        ]
    if largest == 1:
        entries.append("2/1:1")  # a table has two entries at least
    return " ".join(entries), largest


def _nodes(cluster: Sequence[Nodes]) -> Iterator[Json]:
    for kind in cluster:
        allocatable = {
            "nvidia.com/gpu": str(kind.gpus),
            "cpu": "64",
            "memory": "256Gi",
            "pods": "110",
        }
        for index in range(kind.count):
            metadata = {"name": f"{kind.gpu.lower()}-{index:02}", "labels": {PRODUCT: kind.gpu}}
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


def run(
    jobs: Sequence[TrainingJob],
    *,
    fixed: bool = False,
    objective: str = "even",
    cluster: tuple[Nodes, ...] = POLLUX,
    measured: bool = False,
) -> Outcome:
    """fixed: each job has its tuned size, and waits for it. measured: the scheduler is not told the speeds."""
    documents = list(_nodes(cluster))
    for job in jobs:
        table, most = speeds(job.models, job.batch, cluster)
        documents.append(job.manifest(table, most, fixed=fixed, objective=objective))
    levels = (PRODUCT,) if len(cluster) > 1 else ()
    result = elastic.simulate(documents, END_S, levels=levels, measured=measured).result
    ended = {end.name: end.at_s for end in result.ended if end.kind == "Job"}
    assert len(ended) == len(jobs), sorted({job.name for job in jobs} - ended.keys())
    completion = {job.name: ended[job.name] - job.at_s for job in jobs}
    started: set[str] = set()
    changes = 0
    for resized in result.resized:
        changes += resized.name in started and resized.at_s > 0
        started.add(resized.name)
    return Outcome(completion, changes / len(jobs), result)
