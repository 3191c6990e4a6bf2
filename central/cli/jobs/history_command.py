"""`lockstep job history`: what happened to a job and when, from its record in the scheduler; and the jobs that have
ended, for `lockstep job list --state ended`."""

import argparse
import sys
from datetime import UTC, datetime

from central.cli import output_format, scheduler_access, terminal_table
from central.cli.jobs import training_page
from central.cli.jobs.api import Api
from central.cli.terminal_table import Cell, Row, clock, columns, span
from central.model.json_types import Json
from central.server.grpc import query_client

ENDED = "ended"
HOUR_S = 3600.0
INDENT = 14
LEAST_WAIT_S = 1.0  # shorter ones are left out of the page
EVENTS = columns("Time, Event, Cause, What")
HAPPENED = columns("Time, Whose, Event, Cause, What")
WAITS = columns("Since, #Waited, Cause, Why")
JOBS = columns("Name, Queue, ~State, #GPUs, #GPU-hours, #Waited, #Ran, Ended, User")


def show(api: Api, args: argparse.Namespace) -> int:
    name, namespace = args.chosen, api.namespace
    if not name:
        return _list_happened(args)
    query = {"namespace": namespace, "name": name}
    record = query_client.page(scheduler_access.scheduler_address(args), "/api/job", **query)
    if args.output in output_format.WHOLE:
        print(output_format.written(record, args.output), end="")
    else:
        print(page(record, terminal_table.width()), end="")
    return 0


def _list_happened(args: argparse.Namespace) -> int:
    find = f"{args.namespace}/" if args.namespace else ""
    found = query_client.page(scheduler_access.scheduler_address(args), "/api/happened", find=find)
    if args.output in output_format.WHOLE:
        print(output_format.written(found["rows"], args.output), end="")
        return 0
    rows: list[Row] = [
        (
            _time(each["at"]),
            f"{each['namespace']}/{each['name']}" if each["namespace"] else each["name"],
            each["what"],
            each["cause"] or "-",
            each["text"] or "-",
        )
        for each in found["rows"]
    ]
    print(terminal_table.table(HAPPENED, rows, wide=False, most=terminal_table.width()), end="")
    if more := found["size"] - len(rows):
        print(f"{more} earlier events are not shown", file=sys.stderr)
    return 0


def list_ended(api: Api, args: argparse.Namespace) -> int:
    where = {"state": ENDED, "sort": "-ended", "queue": args.queue, "user": args.user}
    where |= {} if args.everywhere else {"namespace": api.namespace}
    rows: list[Json] = query_client.pages(
        scheduler_access.scheduler_address(args), "/api/jobs", **where
    )
    if args.output in output_format.WHOLE:
        print(output_format.written(rows, args.output), end="")
    elif not rows:
        print("No job has ended that the scheduler remembers", file=sys.stderr)
    else:
        listed = [*map(_row, rows)]
        print(terminal_table.table(JOBS, listed, wide=False, most=terminal_table.width()), end="")
    return 0


def _use(found: Json | None) -> str:
    """Returns how busy the GPUs of a running gang are, as the agents report it; "": not known."""
    if found is None:
        return ""
    rate, size, idle_s = found["utilization"], found["memory"], found["idle_s"]
    parts = [f"GPUs {rate:.0%} busy"] if rate is not None else []
    parts += [f"{size / 2**30:.1f} GiB of GPU memory in use"] if size is not None else []
    return ", ".join(parts + ([f"idle for {span(idle_s)}"] if idle_s is not None else []))


def page(record: Json, most: int | None) -> str:
    spent, sizes = record["gpu_seconds"], record["sizes"]
    busy = f", {spent['busy'] / spent['rated']:.0%} busy" if spent.get("rated") else ""
    lost = f", {spent['lost'] / HOUR_S:.2f} of them lost to evictions" if spent["lost"] else ""
    waited = [f"{cause} {span(seconds)}" for cause, seconds in record["waited"].items()]
    lines = {
        "Job": f"{record['namespace']}/{record['name']}",
        "Gang": record["gang"],
        "User": record["user"],
        "Queue": record["queue"],
        "State": record["stage"],
        "Created": _time(record["created"]),
        "Started": _time(record["started"]),
        "Ended": _time(record["ended"]),
        "Waited": ", ".join(waited),
        "GPUs": f"{max((size[2] for size in sizes), default=0):g} at most" if sizes else "",
        "Nodes": ", ".join(record["nodes"]),
        "Use": _use(record.get("gpu_use")),
        "GPU-hours": f"{spent['allocated'] / HOUR_S:.2f}{busy}{lost}" if sizes else "",
        "GPU time": training_page.shares(record.get("activities", {})),
    }
    text = "".join(
        terminal_table.wrapped(f"{head}:", value, INDENT, most) + "\n"
        for head, value in lines.items()
        if value not in ("", "-")
    )
    events: list[Row] = [
        (_time(each["at"]), each["what"], each["cause"] or "-", each["text"] or "-")
        for each in record["events"]
    ]
    text += "\n" + terminal_table.table(EVENTS, events, wide=False, most=most)
    waits: list[Row] = [
        (
            _time(each["since"]),
            span((each["until"] or record["counted"]) - each["since"]),
            each["cause"],
            each["reason"],
        )
        for each in record["waits"]
        if each["until"] is None or each["until"] - each["since"] >= LEAST_WAIT_S
    ]
    return text + (
        "\n" + terminal_table.table(WAITS, waits, wide=False, most=most) if waits else ""
    )


def _row(row: Json) -> Row:
    name = f"{row['namespace']}/{row['name'].rpartition('/')[2]}"
    return (
        Cell(name, name),
        row["queue"],
        row["stage"].capitalize(),
        f"{row['gpus']:g}",
        f"{row['gpu_seconds']['allocated'] / HOUR_S:.2f}",
        span((row["started"] or row["ended"]) - row["created"]),
        span(row["ended"] - row["started"]) if row["started"] else "-",
        _time(row["ended"]),
        row["user"] or "-",
    )


def _stamp(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def _time(time_s: float | None) -> str:
    return clock(_stamp(time_s)) if time_s is not None else "-"
