"""Placement quality on the public openb GPU trace (Alibaba 2023), by the protocol of FGD (ATC'23): pods
of the list in random order, again and again until 130 % of the GPUs have been asked for; nobody
leaves; who finds no place is dropped. Measured: GPUs allocated, in percent of those there are.

    python -m tests.benchmarks.openb --data FOLDER [--workload default] [--seeds 2] [--whole]

The trace is not part of this project: --data or LOCKSTEP_OPENB names the folder of its CSV files.
--whole leaves out the pods that ask for a part of a GPU. On the others' lists beside our own policies stands what was
published of them. --core runs the core alone."""

import argparse
import csv
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact, NodeSeen, PodGone, PodSeen, PodSpec
from central.model.pod_rules import Requirement
from central.scheduler.cycle import schedule_once
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_SHARE
from tests.central import factories

Floats = npt.NDArray[np.float64]
MOST_GPUS, ONE = 8, 1000.0  # devices of a node; thousandths of a GPU
LOADS = (100, 130)
MODEL = "openb/model"


@dataclass(frozen=True, slots=True)
class Ask:
    cpu: int
    memory: int
    gpus: int
    milli: int  # of each GPU
    models: tuple[str, ...]

    @property
    def demand(self) -> int:
        return self.gpus * self.milli


@dataclass(slots=True)
class Fleet:
    """The nodes as columns, in the order that decides ties."""

    cpu: Floats
    memory: Floats
    gpu: Floats  # free thousandths by node and device
    model: npt.NDArray[np.str_]
    devices: npt.NDArray[np.int64]

    def fits(self, ask: Ask, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        room = (self.cpu[rows] >= ask.cpu) & (self.memory[rows] >= ask.memory)
        if ask.gpus:
            room &= (self.gpu[rows] >= ask.milli).sum(axis=1) >= ask.gpus
        if ask.models:
            room &= np.isin(self.model[rows], ask.models)
        return room


def read_nodes(folder: Path) -> list[dict[str, str]]:
    with (folder / "openb_node_list_gpu_node.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_asks(folder: Path, workload: str) -> list[Ask]:
    with (folder / f"openb_pod_list_{workload}.csv").open(newline="") as file:
        return [
            Ask(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["num_gpu"]),
                int(row["gpu_milli"] or 0),
                tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
            )
            for row in csv.DictReader(file)
        ]


def arrivals(asks: list[Ask], capacity: float, dice: random.Random) -> list[Ask]:
    """Until 130 % of the capacity has been asked for."""
    line = dice.sample(asks, len(asks))
    asked = sum(ask.demand for ask in line)
    while asked < capacity * LOADS[-1] / 100:
        line.append(dice.choice(asks))
        asked += line[-1].demand
    while asked > capacity * LOADS[-1] / 100:
        asked -= line.pop().demand
    return line


def fleet(nodes: list[dict[str, str]], dice: random.Random) -> Fleet:
    nodes = dice.sample(nodes, len(nodes))
    gpu = np.full((len(nodes), MOST_GPUS), 0.0)
    for row, node in enumerate(nodes):
        gpu[row, : int(node["gpu"])] = ONE
    return Fleet(
        np.array([float(node["cpu_milli"]) for node in nodes]),
        np.array([float(node["memory_mib"]) for node in nodes]),
        gpu,
        np.array([node["model"] for node in nodes]),
        np.array([int(node["gpu"]) for node in nodes]),
    )


def typical(asks: list[Ask]) -> list[tuple[Ask, float]]:
    """The most frequent kinds that make up 95 % of the pods, with their shares."""
    counts = Counter(Ask(ask.cpu, 0, ask.gpus, ask.milli, ask.models) for ask in asks)
    kinds, seen = [], 0
    for kind, count in counts.most_common():
        kinds.append((kind, count))
        seen += count
        if seen >= 0.95 * len(asks):
            break
    return [(kind, count / seen) for kind, count in kinds]


def fragments(
    cpu: Floats, gpu: Floats, model: npt.NDArray[np.str_], kinds: list[tuple[Ask, float]]
) -> Floats:
    """The idle thousandths that a pod of the list, drawn at random, could not use; by node."""
    idle = gpu.sum(axis=1)
    total = np.zeros(len(cpu))
    for kind, share in kinds:
        if not kind.gpus:
            total += share * idle
            continue
        usable = gpu >= kind.milli
        can = (cpu >= kind.cpu) & (usable.sum(axis=1) >= kind.gpus)
        if kind.models:
            can &= np.isin(model, kind.models)
        total += share * np.where(can, np.where(usable, 0.0, gpu).sum(axis=1), idle)
    return total


Scores = tuple[Floats, npt.NDArray[np.int64]]  # by row: how good, and the device for a share
Score = Callable[[Fleet, Ask, npt.NDArray[np.int64]], Scores]


def best_fit(there: Fleet, ask: Ask, rows: npt.NDArray[np.int64]) -> Scores:
    gpu = there.gpu[rows]
    tightest = np.where(gpu >= max(ask.milli, 1), gpu, np.inf).argmin(axis=1)
    return np.floor(_fullness(there, ask, rows)), tightest


def _fullness(there: Fleet, ask: Ask, rows: npt.NDArray[np.int64]) -> Floats:
    left = (there.cpu[rows] - ask.cpu) / 128_000
    left += (there.gpu[rows].sum(axis=1) - ask.demand) / 8000
    return 100 * (1 - 0.5 * left)


def least_fragments(kinds: list[tuple[Ask, float]], fit: float) -> Score:
    """FGD, in whole points as published; fit: how much best-fit counts beside, in fine ones."""

    def score(there: Fleet, ask: Ask, rows: npt.NDArray[np.int64]) -> Scores:
        cpu, gpu, model = there.cpu[rows] - ask.cpu, there.gpu[rows], there.model[rows]
        before = fragments(there.cpu[rows], gpu, model, kinds)
        best = np.full(len(rows), -np.inf)
        device = np.zeros(len(rows), dtype=np.int64)
        tries = range(MOST_GPUS) if 0 < ask.milli < ONE else range(1)
        for index in tries:
            after = _given(gpu, ask, index)
            gain = before - fragments(cpu, after, model, kinds)
            gain[(after < 0).any(axis=1)] = -np.inf
            better = gain > best
            best[better], device[better] = gain[better], index
        worth = 100 / (1 + np.exp(-best / 1000))
        if not fit:
            return np.floor(worth), device
        return worth + fit * _fullness(there, ask, rows), device

    return score


def _given(gpu: Floats, ask: Ask, device: int) -> Floats:
    """What is free after: of whole GPUs the first free ones are taken."""
    after = gpu.copy()
    if 0 < ask.milli < ONE:
        after[:, device] -= ask.milli
    elif ask.gpus:
        free = gpu >= ONE
        after[free & (free.cumsum(axis=1) <= ask.gpus)] = 0
    return after


def policy_run(
    there: Fleet, line: list[Ask], score: Score, ties: random.Random | None
) -> list[float]:
    """GPUs allocated at each load. Scores are kept by kind; only nodes that changed are scored anew."""
    capacity = there.devices.sum() * ONE
    every = np.arange(len(there.cpu))
    kept: dict[Ask, tuple[int, Floats, npt.NDArray[np.int64]]] = {}
    log: list[int] = []
    arrived = allocated = 0.0
    shares: list[float] = []
    for ask in line:
        arrived += ask.demand
        mark, worth, device = kept.get(ask, (0, np.full(len(every), -np.inf), every * 0))
        rows = np.unique(log[mark:]).astype(np.int64) if ask in kept else every
        worth[rows] = -np.inf
        rows = rows[there.fits(ask, rows)]
        if len(rows):
            worth[rows], device[rows] = score(there, ask, rows)
        kept[ask] = (len(log), worth, device)
        row = int(worth.argmax())
        if worth[row] > -np.inf:
            if ties is not None:
                row = int(ties.choice(np.flatnonzero(worth == worth[row])))
            there.gpu[row] = _given(there.gpu[row : row + 1], ask, int(device[row]))[0]
            there.cpu[row] -= ask.cpu
            there.memory[row] -= ask.memory
            allocated += ask.demand
            log.append(row)
        while len(shares) < len(LOADS) and arrived >= capacity * LOADS[len(shares)] / 100 - 1e-6:
            shares.append(100 * allocated / capacity)
    return [*shares, *[100 * allocated / capacity] * (len(LOADS) - len(shares))]


def random_fit(dice: random.Random) -> Score:
    def score(there: Fleet, ask: Ask, rows: npt.NDArray[np.int64]) -> Scores:
        gpu = there.gpu[rows]
        noise = np.array([dice.random() for _ in rows])
        return noise, (gpu >= max(ask.milli, 1)).argmax(axis=1)

    return score


def core_run(nodes: list[dict[str, str]], line: list[Ask], dice: random.Random) -> list[float]:
    """The core itself, pod by pod; the nodes' names, which break its ties, are of any order."""
    scheduler, there = new_scheduler(), dice.sample(nodes, len(nodes))
    facts: list[Fact] = [
        NodeSeen(
            f"n{place:04}",
            {MODEL: node["model"]},
            {"cpu": int(node["cpu_milli"]), "memory": int(node["memory_mib"]), "pods": 1000}
            | {GPU: int(node["gpu"]), GPU_SHARE: int(node["gpu"]) * WHOLE},
        )
        for place, node in enumerate(there)
    ]
    facts += [
        factories.report(f"n{place:04}", factories.topology(int(node["gpu"]), shares=True))
        for place, node in enumerate(there)
    ]
    capacity = sum(int(node["gpu"]) for node in nodes) * ONE
    arrived = allocated = 0.0
    shares: list[float] = []
    for number, ask in enumerate(line):
        part = 0 < ask.milli < ONE
        share, gpus = (ask.milli * WHOLE // int(ONE), 0) if part else (0, ask.gpus)
        amounts = {"cpu": ask.cpu, "memory": ask.memory, "pods": 1, GPU: gpus, GPU_SHARE: share}
        terms = ((Requirement(MODEL, "In", ask.models),),) if ask.models else None
        requests = tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
        spec = PodSpec(
            requests,
            node_terms=terms,
            gpu_containers=(("main", gpus),) if gpus else (),
            share_containers=(("main", share),) if share else (),
        )
        uid = str(number)
        facts.append(PodSeen(uid, "ns", f"p{number}", spec, created=float(number)))
        bound = any(isinstance(d, Bind) for d in schedule_once(scheduler, facts, float(number)))
        facts = [] if bound else [PodGone(uid)]
        arrived += ask.demand
        allocated += ask.demand * bound
        while len(shares) < len(LOADS) and arrived >= capacity * LOADS[len(shares)] / 100 - 1e-6:
            shares.append(100 * allocated / capacity)
    return [*shares, *[100 * allocated / capacity] * (len(LOADS) - len(shares))]


def published(folder: Path, workload: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with (folder / "published_by_policy.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["workload"] == workload and int(row["arrived_gpu_pct"]) in LOADS:
                found.setdefault(row["policy"], []).append(float(row["alloc_gpu_pct_mean"]))
    return found


def measure(folder: Path, workload: str, seeds: int, *, whole: bool, core: bool = False) -> Table:
    nodes, asks = read_nodes(folder), read_asks(folder, workload)
    if whole:
        asks = [ask for ask in asks if not 0 < ask.milli < ONE]
    kinds = typical(asks)
    capacity = sum(int(node["gpu"]) for node in nodes) * ONE
    runs: dict[str, list[list[float]]] = {}
    spent: Counter[str] = Counter()
    for seed in range(42, 42 + seeds):
        line = arrivals(asks, capacity, random.Random(seed))
        tries: dict[str, tuple[Score, bool]] = {
            "Random": (random_fit(random.Random(seed)), False),
            "BestFit": (best_fit, False),
            "BestFit, random ties": (best_fit, True),
            "FGD": (least_fragments(kinds, 0.0), False),
            "FGD, random ties": (least_fragments(kinds, 0.0), True),
            "FGD + BestFit / 20": (least_fragments(kinds, 0.05), False),
            "FGD + BestFit / 20, random ties": (least_fragments(kinds, 0.05), True),
        }
        for name, (score, loose) in () if core else tries.items():
            ties = random.Random(seed) if loose else None
            began = time.perf_counter()
            there = fleet(nodes, random.Random(seed))
            runs.setdefault(name, []).append(policy_run(there, line, score, ties))
            spent[name] += len(line) / (time.perf_counter() - began) / seeds  # type: ignore[assignment]
        began = time.perf_counter()
        runs.setdefault("Lockstep", []).append(core_run(nodes, line, random.Random(seed)))
        spent["Lockstep"] += len(line) / (time.perf_counter() - began) / seeds  # type: ignore[assignment]
    known = {} if whole else published(folder, workload)
    table = Table(box=None, title=f"openb, {workload}{', whole GPUs only' if whole else ''}")
    for column in ("POLICY", "GPUs allocated at 100 %", "at 130 %", "published", "pods/s"):
        table.add_column(column)
    for name, shares in runs.items():
        there_too = " / ".join(f"{value:.1f}" for value in known.get(name, ()))
        cells = [f"{mean(column):.2f}" for column in zip(*shares, strict=True)]
        table.add_row(name, *cells, there_too, f"{spent[name]:,.0f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Placement quality on the openb trace.")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_OPENB"), metavar="FOLDER")
    parser.add_argument("--workload", default="default")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="only pods of whole GPUs, or none")
    parser.add_argument("--core", action="store_true", help="the core alone")
    args = parser.parse_args()
    if args.data is None or not (Path(args.data) / "openb_node_list_gpu_node.csv").exists():
        print("--data (or LOCKSTEP_OPENB) must name the folder of the openb trace", file=sys.stderr)
        return 2
    told = measure(Path(args.data), args.workload, args.seeds, whole=args.whole, core=args.core)
    Console().print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
