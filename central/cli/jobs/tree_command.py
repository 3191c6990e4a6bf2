"""`lockstep queue tree`: the queues below their parents, with their GPUs."""

import argparse

from central.cli import output_format, terminal_table
from central.cli.jobs import queue_listing
from central.cli.jobs.api import Api
from central.cli.jobs.queue_listing import gpus_in
from central.cli.terminal_table import Row, columns
from central.model.json_types import Json
from protos.names import GPU

AMOUNTS = ("used", "deserved", "guarantee", "capability")
COLUMNS = columns(
    "Queue, #Used, #Deserved|Desrv, #Guarantee|Guar, #Capability|Cap, #Weight|Wt, "
    "#Running|Run, #Pending|Pend, ~State"
)


def show(api: Api, args: argparse.Namespace) -> int:
    found = queue_listing.in_tree(queue_listing.rows(api, args))
    if args.output in output_format.WHOLE:
        print(output_format.written([_as_json(row) for row, _ in found], args.output), end="")
        return 0
    cells: list[Row] = [
        (
            lines + row["name"],
            *(gpus_in(row[amounts]) for amounts in AMOUNTS),
            row["weight"],
            row["gangs"].get("running", 0),
            queue_listing.pending(row),
            row["state"],
        )
        for row, lines in found
    ]
    print(terminal_table.table(COLUMNS, cells, wide=False, most=terminal_table.width()), end="")
    print("\nIn GPUs; used counts the queues below")
    return 0


def _as_json(row: Json) -> Json:
    """Amounts in GPUs; null: none is set, or it is unknown."""
    return {
        "queue": row["name"],
        "parent": row["parent"] or None,
        **{amounts: row[amounts].get(GPU) for amounts in AMOUNTS},
        "weight": row["weight"],
        "running": row["gangs"].get("running", 0),
        "pending": queue_listing.pending(row),
        "state": row["state"],
    }
