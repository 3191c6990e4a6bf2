"""`lockstep simulate`."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from central.core.cluster import Cluster
from central.simulator import documents, report, scenario
from central.durations import words
from central.simulator.run import Simulation


def run(args: argparse.Namespace) -> int:
    try:
        read = scenario.read(
            documents.read(args.paths), args.scheduler_names, args.topology_levels
        )
    except documents.BadInput as error:
        print(f"lockstep: {error}", file=sys.stderr)
        return 2
    for warning in read.warnings:
        print(f"lockstep: warning: {warning}", file=sys.stderr)
    simulation = Simulation(
        read, Cluster(args.topology_levels), seed=args.seed, until_s=args.until
    )
    with _progress(len(read.lives)) as progress:
        story = simulation.run(progress)
    if args.output == "json":
        sys.stdout.buffer.write(
            orjson.dumps(report.to_json(story), option=orjson.OPT_INDENT_2) + b"\n"
        )
    else:
        report.table(story, Console(width=None if sys.stdout.isatty() else 120))
    return 0


@contextmanager
def _progress(pods: int) -> Iterator[Callable[[Simulation], None]]:
    """A bar for people who look on; nothing else would see it."""
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
            story = simulation.story
            load = story.loads[-1]
            text = f"{words(simulation.now)}: {load.gpus} GPUs in use, {load.pods_waiting} pods wait"
            bar.update(task, completed=len(story.placed) + len(story.ended), description=text)

        yield show
