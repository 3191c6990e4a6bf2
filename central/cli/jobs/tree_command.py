"""`lockstep queue tree`: the queues below their parents, with their GPUs."""

import argparse
from collections import Counter

from central.cli import output_format, terminal_table
from central.cli.jobs.api import QUEUES, Api
from central.cli.jobs.list_command import counts_by_queue, queue_state, without_object
from central.cli.jobs.scheduler_view import DEFAULT, gpus_of_default
from central.cli.terminal_table import Column, Row
from central.model.json_types import Json
from protos.names import GPU

ROOT = "root"
COLUMNS = (
    Column("Queue"),
    Column("Used", number=True),
    Column("Deserved", "Desrv", number=True),
    Column("Guarantee", "Guar", number=True),
    Column("Capability", "Cap", number=True),
    Column("Weight", "Wt", number=True),
    Column("Running", "Run", number=True),
    Column("Pending", "Pend", number=True),
    Column("State", state=True),
)


def show(api: Api, args: argparse.Namespace) -> int:
    queues = api.all(QUEUES)
    if DEFAULT not in {queue["metadata"]["name"] for queue in queues}:
        queues.append(without_object(gpus_of_default(args)))
    counts: dict[str, Counter[str]] = counts_by_queue(api) or {}
    rows: list[Row] = []
    for queue, lines in in_tree(queues):
        spec, status = queue.get("spec") or {}, queue.get("status") or {}
        gangs = counts.get(queue["metadata"]["name"], Counter())
        rows.append(
            (
                lines + queue["metadata"]["name"],
                gpus_in(status.get("allocated")),
                gpus_in(spec.get("deserved")),
                gpus_in((spec.get("guarantee") or {}).get("resource")),
                gpus_in(spec.get("capability")),
                spec.get("weight", 1),
                gangs.get("Running", 0),
                gangs.get("Pending", 0) + gangs.get("Inqueue", 0),
                queue_state(queue),
            )
        )
    if args.output in output_format.WHOLE:
        print(output_format.written(_as_json(queues, rows), args.output), end="")
        return 0
    print(terminal_table.table(COLUMNS, rows, wide=False, most=terminal_table.width()), end="")
    print("\nIn GPUs; used counts the queues below")
    return 0


def _as_json(queues: list[Json], rows: list[Row]) -> list[Json]:
    """The rows, parents before children."""
    found = []
    for (queue, _), row in zip(in_tree(queues), rows, strict=True):
        names = {
            "queue": queue["metadata"]["name"],
            "parent": (queue.get("spec") or {}).get("parent"),
        }
        cells = zip(COLUMNS[1:], row[1:], strict=True)
        found.append({**names, **{column.title.lower(): cell for column, cell in cells}})
    return found


def in_tree(queues: list[Json]) -> list[tuple[Json, str]]:
    """Each queue with the lines before its name, parents before children. A queue whose parent does not exist, or
    that is its own ancestor, stands at the top level."""
    by_name = {queue["metadata"]["name"]: queue for queue in queues}
    below: dict[str, list[str]] = {}
    for name, queue in by_name.items():
        parent = (queue.get("spec") or {}).get("parent") or ROOT
        below.setdefault(parent if parent in by_name and name != ROOT else "", []).append(name)
    found: dict[str, str] = {}

    def walk(name: str, lines: str, under: str) -> None:
        if name in found:
            return
        found[name] = lines
        children = sorted(below.get(name, ()))
        for child in children:
            last = child == children[-1]
            walk(child, under + ("└─ " if last else "├─ "), under + ("   " if last else "│  "))

    for name in [*sorted(below.get("", ())), *sorted(by_name)]:  # the second: circles
        walk(name, "", "")
    return [(by_name[name], lines) for name, lines in found.items()]


def gpus_in(amounts: Json | None) -> str:
    """Returns the GPUs among the amounts; "-" if there is no amount."""
    return str((amounts or {}).get(GPU, "-"))
