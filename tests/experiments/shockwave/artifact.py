"""Shockwave's own files: the canonical trace, and a published result that says how long each job ran alone.

A line of the trace has twelve fields between tabs: the model with its batch, the command, its folder, an argument,
whether it needs data, steps, GPUs, how the batch adapts, a priority, a deadline, seconds alone with the first batch,
and the arrival in seconds. Batches grow later, which makes large jobs shorter: their time alone follows from the result
of a policy, as completion / (rho x jobs / GPUs).
"""

import importlib
import pickle
from pathlib import Path
from typing import Any

from tests.experiments.shockwave.workload import GPUS_OF_NODE, NODES, RigidJob

FIELDS, GPUS, ALONE_S, ARRIVES = 12, 6, 10, 11
TRACE = "scheduler/traces/reproduce/120_*.trace"
RESULT = "scheduler/reproduce/pickles/tacc_32gpus/max_min_fairness_120_*_simulation.pickle"
_PLAIN = {  # what a result may contain beside plain values
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "scalar"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("builtins", "list"),
    ("builtins", "dict"),
    ("builtins", "int"),
    ("builtins", "set"),
}


class _JobId:
    """The authors' class of job numbers, of which nothing is read."""

    def __setstate__(self, state: object) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == "JobIdPair":
            return _JobId
        if (module, name) not in _PLAIN:
            raise ValueError(f"{module}.{name} is not expected in a result")
        found = importlib.import_module(module.replace("numpy.core", "numpy._core"))
        return getattr(found, name)


def is_here(folder: Path) -> bool:
    return any(folder.glob(TRACE))


def workload(folder: Path) -> list[RigidJob]:
    """The canonical trace; without a result with the times of the first batches. Raises ValueError, with the file and
    the line."""
    (path,) = folder.glob(TRACE)
    lines = path.read_text(encoding="utf-8").splitlines()
    jobs = [_job(path, number, line) for number, line in enumerate(lines, 1)]
    for result in folder.glob(RESULT):
        jobs = [
            RigidJob(job.name, job.at_s, alone_s, job.gpus)
            for job, alone_s in zip(jobs, _alone_s(result), strict=True)
        ]
    return jobs


def _alone_s(result: Path) -> list[float]:
    with result.open("rb") as file:
        found = _Reader(file).load()
    completion, rho = found["jct_list"], found["finish_time_fairness_list"]
    slower = max(1.0, len(rho) / (NODES * GPUS_OF_NODE))
    return [round(float(a) / (float(b) * slower), 1) for a, b in zip(completion, rho, strict=True)]


def _job(path: Path, number: int, line: str) -> RigidJob:
    fields = line.split("\t")
    if len(fields) != FIELDS:
        raise ValueError(f"{path}, line {number}: {len(fields)} fields, not {FIELDS}")
    try:
        at_s, run_s, gpus = float(fields[ARRIVES]), float(fields[ALONE_S]), int(fields[GPUS])
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    return RigidJob(f"job-{number - 1:03}", at_s, run_s, gpus)
