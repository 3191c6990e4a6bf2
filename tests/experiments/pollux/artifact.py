"""Workloads and measured step times in the format of Pollux's artifact: a folder with workloads*/workload-N.csv and,
for each application, traces/APPLICATION/placements.csv, scalability.csv and validation-BATCH.csv."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.experiments.pollux.workload import Model, TrainingJob

EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
MOST_SAMPLES = {"yolov3": 8}
MOST_GPUS = {"ncf": 1}
LOADS = {"0.5": "workloads-0.5", "1.0": "workloads", "1.5": "workloads-1.5", "2.0": "workloads-2.0"}
SIA_CHANGE_S = {
    "bert": 120.0,
    "cifar10": 50.0,
    "ncf": 15.0,
    "imagenet": 250.0,
    "deepspeech2": 25.0,
    "yolov3": 80.0,
}
SIA_SLOWER = {
    "bert": 1.2,
    "cifar10": 1.8,
    "ncf": 1.5,
    "imagenet": 1.2,
    "deepspeech2": 1.2,
    "yolov3": 1.2,
}
Times = dict[int, tuple[float, float]]  # step and sync, by samples on a GPU


def workloads(folder: Path, load: str) -> Iterator[list[TrainingJob]]:
    """The workloads of one load."""
    for path in sorted((folder / LOADS[load]).glob("workload-*.csv")):
        yield [
            TrainingJob(
                row["name"],
                float(row["time"]),
                (model(folder, row["application"]),),
                int(row["batch_size"]),
            )
            for row in _rows(path)
        ]


def sia_workloads(
    folder: Path, gpus: Sequence[str], *, batches_fit: bool
) -> Iterator[list[TrainingJob]]:
    """Sia's, from Philly's trace. gpus: suffixes of the files for each kind of nodes. batches_fit: each job fits its
    batch to its size, else it has the tuned one."""
    for path in sorted((folder / "workloads" / "philly").glob("workload-*.csv")):
        yield [
            TrainingJob(
                row["name"],
                float(row["time"]),
                tuple(sia_model(folder, row["application"], suffix) for suffix in gpus),
                None if batches_fit else int(row["batch_size"]),
            )
            for row in _rows(path)
        ]


@cache
def sia_model(folder: Path, name: str, suffix: str) -> Model:
    """With what a change costs there, and how much slower than the measured steps they found training."""
    found = model(folder, name, suffix)
    return replace(found, change_s=SIA_CHANGE_S[name], slower=SIA_SLOWER[name])


@cache
def model(folder: Path, name: str, suffix: str = "") -> Model:
    """suffix: of the files that have the step times on other GPUs."""
    traces = folder / "traces" / name
    measured = _measured(traces, f"-{suffix}" if suffix else "")
    sizes = sorted({samples for times in measured.values() for samples in times})
    steps = {}
    for path in traces.glob("validation-*.csv"):
        batch = int(path.stem.rpartition("-")[2])
        steps[batch] = int(float(_rows(path)[EPOCHS[name] - 1]["iteration"]))

    @cache
    def step(gpus: int, nodes: int, samples: int) -> tuple[float, float]:
        return _between(measured, gpus, nodes, samples)

    most = MOST_SAMPLES.get(name, sizes[-1])
    return Model(name, (sizes[0], most), min(steps), step, steps, MOST_GPUS.get(name, 64))


def _measured(traces: Path, suffix: str) -> dict[tuple[int, int], Times]:
    """By (nodes, GPUs): the mean over all placements of these."""
    found: dict[tuple[int, int], dict[int, list[tuple[float, float]]]] = {}
    for row in _rows(traces / f"placements{suffix}.csv"):
        counts = [int(digit) for digit in row["placement"]]
        key = (len(counts), sum(counts))
        _note(found, key, row)
    for row in _rows(traces / f"scalability{suffix}.csv"):
        _note(found, (int(row["num_nodes"]), int(row["num_replicas"])), row)
    return {
        key: {
            samples: (float(np.mean(times, axis=0)[0]), float(np.mean(times, axis=0)[1]))
            for samples, times in by_samples.items()
        }
        for key, by_samples in found.items()
    }


def _note(
    found: dict[tuple[int, int], dict[int, list[tuple[float, float]]]],
    key: tuple[int, int],
    row: dict[str, str],
) -> None:
    times = (float(row["step_time"]), float(row["sync_time"]))
    found.setdefault(key, {}).setdefault(int(row["local_bsz"]), []).append(times)


def _between(
    measured: dict[tuple[int, int], Times], gpus: int, nodes: int, samples: int
) -> tuple[float, float]:
    """On the nearest measured number of nodes: between the two next numbers of GPUs, and of samples."""
    near = min({count for count, _ in measured}, key=lambda count: (abs(count - nodes), count))
    sizes = sorted(number for count, number in measured if count == near)
    gpus = min(max(gpus, sizes[0]), sizes[-1])
    if (near, gpus) in measured:
        return _at(measured[near, gpus], samples)
    below, above = next(pair for pair in pairwise(sizes) if pair[0] < gpus < pair[1])
    share = (gpus - below) / (above - below)
    low, high = _at(measured[near, below], samples), _at(measured[near, above], samples)
    return (low[0] + share * (high[0] - low[0]), low[1] + share * (high[1] - low[1]))


def _at(times: Times, samples: int) -> tuple[float, float]:
    known = sorted(times)
    step = np.interp(samples, known, [times[each][0] for each in known])
    sync = np.interp(samples, known, [times[each][1] for each in known])
    return float(step), float(sync)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
