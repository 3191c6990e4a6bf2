"""`lockstep simulate`."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from central.model.wording import format_duration
from central.server.journal import Journal
from central.server.scheduler_of_settings import scheduler_of
from central.simulator import documents, figure, scenario, sim_report
from central.simulator.simulation import Simulation
from central.simulator.simulation_result import SimulationResult

PIPED_WIDTH = 10_000  # programs that read the output get whole lines


def run(args: argparse.Namespace) -> int:
    try:
        read = scenario.read(
            documents.read(args.paths), args.scheduler_names, args.topology_levels, args.pod_groups
        )
        if read.endless and args.until is None:
            raise documents.BadInput(f"{read.endless} never ends; set --until")
    except documents.BadInput as error:
        print(f"lockstep: {error}", file=sys.stderr)
        return 2
    for warning in read.warnings:
        print(f"lockstep: warning: {warning}", file=sys.stderr)
    scheduler = scheduler_of(args)
    try:
        journal = Journal(args.journal, scheduler, sys.maxsize) if args.journal else None
    except OSError as error:
        print(f"lockstep: --journal {args.journal}: {error.strerror}", file=sys.stderr)
        return 2
    simulation = Simulation(read, scheduler, seed=args.seed, until_s=args.until, journal=journal)
    with _progress(len(read.plans)) as progress:
        result = simulation.run(progress)
    for name, why in sorted(scheduler.state.network.built.errors.items()):
        print(f"lockstep: warning: HyperNode {name}: {why}", file=sys.stderr)
    if journal is not None:
        journal.close()
    if args.figure is not None:
        try:
            Path(args.figure).write_text(figure.svg(result), encoding="utf-8")
        except OSError as error:
            print(f"lockstep: --figure {args.figure}: {error.strerror}", file=sys.stderr)
            return 2
    _print(result, args.output)
    return 0


def _print(result: SimulationResult, output: str) -> None:
    if output == "json":
        print(orjson.dumps(sim_report.to_json(result), option=orjson.OPT_INDENT_2).decode())
    elif output == "yaml":
        print(yaml.safe_dump(sim_report.to_json(result), sort_keys=False), end="")
    else:
        known = sys.stdout.isatty() or "COLUMNS" in os.environ
        sim_report.table(result, Console(width=None if known else PIPED_WIDTH))


@contextmanager
def _progress(pods: int) -> Iterator[Callable[[Simulation], None]]:
    """A progress bar, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=max(2 * pods, 1))

        def show(simulation: Simulation) -> None:
            result = simulation.result
            load = result.loads[-1]
            text = f"{format_duration(simulation.now)}: {load.gpus:g} GPUs in use, {load.pods_waiting} pods pending"
            bar.update(task, completed=len(result.placed) + len(result.ended), description=text)

        yield show
