"""The numbers of docs/results/experiments.md: python -m tests.experiments [elastic [FOLDER]]

FOLDER: the simulator of Pollux's or Sia's artifact, with its workloads and traces, or Shockwave's artifact.
"""

import random
import sys
from collections import Counter
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table

from central.model.facts import NodeSeen
from central.simulator.scenario import Scenario
from tests.experiments import default_scheduler, elastic_tables, spark, stage, topology
from tests.experiments.race import Race

RUNS, RACES = 4000, 10
MINUTE = 60.0


def main() -> None:
    console = Console()
    if sys.argv[1:2] == ["elastic"]:
        missed = elastic_tables.show(console, Path(sys.argv[2]) if sys.argv[2:] else None)
        sys.exit("\n".join(missed) or 0)
    console.print(_cases(), _capacities(), _four(), _roles(), _spark(), _races())


def _cases() -> Table:
    table = _table(
        "Gang cases", "CASE", "default: finished of all", "mean minutes", "ours", "minutes"
    )
    for case in (1, 2, 3):
        scenario = stage.read(f"gang-case-{case}")
        outcomes = [default_scheduler.play(scenario, seed) for seed in range(RUNS)]
        counts = Counter(len(outcome.finished) for outcome in outcomes)
        took = [mean(j.took_s for j in o.finished) for o in outcomes if o.finished]
        _, ours = stage.ours(f"gang-case-{case}")
        jobs = len(outcomes[0].jobs)
        table.add_row(
            str(case),
            ", ".join(f"{n} of {jobs}: {100 * c / RUNS:.1f} %" for n, c in sorted(counts.items())),
            f"{mean(took) / MINUTE:.1f}",
            f"{len(ours)} of {jobs}: 100 %",
            f"{mean(job.took_s for job in ours.values()) / MINUTE:.1f}",
        )
    return table


def _capacities() -> Table:
    """Case 3 with other numbers of places."""
    table = _table("Deadlock of case 3", "PLACES", "pods in order", "in any order", "ours")
    for places in (6, 8, 10, 11, 12, 15, 18, 24):
        shares = []
        for shuffled in (False, True):
            scenario = _with_places(stage.read("gang-case-3"), places)
            stuck = sum(
                default_scheduler.play(scenario, seed, shuffled=shuffled).deadlocked
                for seed in range(RUNS)
            )
            shares.append(f"{100 * stuck / RUNS:.1f} %")
        ours = [
            stage.run(_with_places(stage.read("gang-case-3", shuffled=seed), places))[1]
            for seed in range(50)
        ]
        lost = sum(len(took) < 5 for took in ours)
        table.add_row(str(places), *shares, f"{100 * lost / len(ours):.1f} %")
    return table


def _with_places(scenario: Scenario, places: int) -> Scenario:
    scenario.arrivals = [
        (at, NodeSeen(fact.name, {}, {"cpu": places * 1000, "pods": 110}))
        if isinstance(fact, NodeSeen)
        else (at, fact)
        for at, fact in scenario.arrivals
    ]
    return scenario


def _four() -> Table:
    table = _table("Two TFJobs on four GPUs", "", "default", "ours")
    scenario = stage.read("four-gpus")
    stuck = sum(
        default_scheduler.play(scenario, seed, shuffled=True).deadlocked for seed in range(RUNS)
    )
    ours = [stage.ours("four-gpus", shuffled=seed) for seed in range(200)]
    lost = sum(len(took) < 2 for _, took in ours)
    table.add_row("deadlock", f"{100 * stuck / RUNS:.1f} %", f"{100 * lost / len(ours):.1f} %")
    return table


def _roles() -> Table:
    table = _table("Task topology", "", "most remote workers of a server", "pairs on two nodes")
    pods = [*(f"tf-ps-{i}" for i in range(2)), *(f"tf-worker-{i}" for i in range(4))]
    for name, place in (("spread", topology.spread), ("packed", topology.packed)):
        for order, count in (("in order", 0), ("in any order", 6)):
            found = [
                place(dice.sample(pods, count) or pods, dice)
                for dice in map(random.Random, range(RUNS))
            ]
            table.add_row(f"{name}, {order}", *_spans(found))
    jobs = [
        placement
        for seed in range(20)
        for placement in topology.ours(stage.ours("task-topology", shuffled=seed)[0]).values()
    ]
    table.add_row("ours, in any order", *_spans(jobs))
    return table


def _spans(found: list[topology.Placement]) -> list[str]:
    counts = [Counter(measure(p) for p in found) for measure in (topology.remote, topology.pairs)]
    return [
        ", ".join(f"{n}: {100 * c / len(found):.0f} %" for n, c in sorted(count.items()))
        for count in counts
    ]


def _spark() -> Table:
    table = _table("104 Spark applications", "", "seconds", "executors have of all places")
    runs = range(10)
    for name, outcomes in (
        ("pod by pod", [spark.play(seed) for seed in runs]),
        ("pod by pod, a node for drivers", [spark.play(seed, driver_node=True) for seed in runs]),
        ("minResources 3.3 cpu", [spark.play(seed, least_cpu=3300) for seed in runs]),
        ("minResources 6 cpu", [spark.play(seed, least_cpu=6000) for seed in runs]),
    ):
        seconds = mean(outcome.makespan_s for outcome in outcomes)
        table.add_row(name, f"{seconds:.0f}", f"{100 * mean(o.busy for o in outcomes):.0f} %")
    return table


def _races() -> Table:
    table = _table(
        "Beside another scheduler",
        "NEWS TAKE",
        "it spreads: rejected",
        "it packs: rejected",
        "gangs whole",
    )
    for lag_s in (0.0, 0.001, 0.01, 0.1, 1.0):
        cells = []
        whole = total = 0
        for packs in (False, True):
            scores = [Race(seed, lag_s, packs=packs).run(60, 240, 300.0) for seed in range(RACES)]
            rates = sorted(100 * score.conflicts for score in scores)
            cells.append(f"{mean(rates):.2f} % ({rates[0]:.1f} to {rates[-1]:.1f})")
            whole += sum(score.gangs_done for score in scores)
            total += sum(score.gangs for score in scores)
        table.add_row(f"{lag_s * 1000:g} ms", *cells, f"{whole} of {total}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for column in columns:
        table.add_column(column)
    return table


if __name__ == "__main__":
    main()
