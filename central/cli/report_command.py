"""`lockstep report`: GPU-hours by queue, namespace, user, job or GPU model, from the scheduler's history; and what
elastic Jobs used their GPUs for, from their records."""

import argparse
import csv
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Any

from central.cli import output_format, scheduler_access, terminal_table
from central.cli.terminal_table import columns
from central.server import argtypes
from central.server.grpc import query_client

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb

KEYS = ("queue", "namespace", "user", "job", "model")
AMOUNTS = ("allocated", "held", "lost")
_SPAN = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?", re.ASCII)


def add_flags(parser: argparse.ArgumentParser) -> None:
    argtypes.add_flag(
        parser, "--since TIME", "begin: a span before now such as 7d or 12h30m, or a time such as "
        "2026-11-01 or 2026-11-01T08:00+01:00, without a zone in the local one", type=moment, default="7d",
    )  # fmt: skip
    argtypes.add_flag(
        parser, "--until TIME", "end, like --since", type=moment, default=None, shown="now"
    )
    argtypes.add_flag(
        parser, "--by KEY,...", f"keys of the rows: {', '.join(KEYS)}", type=keys, default="queue"
    )
    about = "what elastic Jobs of that time used their GPUs for, in their whole lives"
    argtypes.add_flag(parser, "--goodput", about)
    scheduler_access.add_flags(parser)
    output_format.add(parser, (*output_format.FIGURES, "csv"))


def keys(text: str) -> tuple[str, ...]:
    found = argtypes.some_names(text)
    if wrong := [each for each in found if each not in KEYS]:
        raise argparse.ArgumentTypeError(f'"{wrong[0]}" is not one of {", ".join(KEYS)}')
    return found


def moment(text: str) -> float:
    """Unix time."""
    span = _SPAN.fullmatch(text)
    if text and span:
        days, hours, minutes = (int(part or 0) for part in span.groups())
        return max(0.0, time.time() - 86400 * days - 3600 * hours - 60 * minutes)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        why = f'"{text}" is neither a span such as 7d or 12h30m nor a time such as 2026-11-01T08:00'
        raise argparse.ArgumentTypeError(why) from None


def run(args: argparse.Namespace) -> int:
    """Raises query_client.CannotAsk."""
    until = time.time() if args.until is None else args.until
    if args.since >= until:
        raise query_client.CannotAsk("report: --since must be before --until")
    if args.goodput:
        return _goodput(args, until)
    reply = query_client.usage(scheduler_access.scheduler_address(args), args.since, until, args.by)
    match args.output:
        case "json" | "yaml":
            print(output_format.written(as_json(reply, args.by), args.output), end="")
        case "csv":
            print(as_csv(reply, args.by), end="")
        case _:
            print(as_table(reply, args.by, terminal_table.width()), end="")
    for note in _notes(reply):
        print(f"lockstep: {note}", file=sys.stderr)
    return 0


def _goodput(args: argparse.Namespace, until: float) -> int:
    if "model" in args.by:
        raise query_client.CannotAsk(
            "report: --goodput is not known by model; leave it out of --by"
        )
    names = ["name" if key == "job" else key for key in args.by]
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for job in query_client.pages(scheduler_access.scheduler_address(args), "/api/jobs"):
        if job["activities"] and job["created"] < until and (job["ended"] or until) >= args.since:
            sums.setdefault(tuple(job[name] for name in names), Counter()).update(job["activities"])
    total: Counter[str] = sum(sums.values(), Counter())
    activities = [name for name, seconds in total.most_common() if seconds]
    rows = sorted(sums.items(), key=lambda row: (-row[1].total(), row[0]))
    if args.output in output_format.WHOLE:
        found = [
            {**dict(zip(args.by, key, strict=True)), "gpu_seconds": {**each}} for key, each in rows
        ]
        whole = {"since": _stamp(args.since), "until": _stamp(until), "rows": found}
        print(output_format.written(whole, args.output), end="")
    elif args.output == "csv":
        heads = [*args.by, *(f"{name}_gpu_seconds" for name in activities)]
        print(
            _csv(heads, ((key, [each[name] for name in activities]) for key, each in rows)), end=""
        )
    elif rows:
        shown = columns(", ".join([*args.by, "#GPU-hours", *(f"#{name}" for name in activities)]))
        every = [*rows, (("total", *("" for _ in args.by[1:])), total)]
        cells = [
            (*(name or "-" for name in key), f"{each.total() / 3600:.2f}",
             *(f"{each[name] / (each.total() or 1.0):.1%}" for name in activities))
            for key, each in every
        ]  # fmt: skip
        print(terminal_table.table(shown, cells, wide=False, most=terminal_table.width()), end="")
    else:
        print("lockstep: no elastic Job reported its steps in this time", file=sys.stderr)
    return 0


def as_json(reply: "pb.UsageReply", by: tuple[str, ...]) -> Any:
    return {
        "since": _stamp(reply.since),
        "until": _stamp(reply.until),
        "unit": "GPU-hours",
        "rows": [
            {
                **dict(zip(by, row.keys, strict=True)),
                **{key: getattr(row, key) for key in AMOUNTS},
                "busy": _busy(row),
            }
            for row in reply.rows
        ],
    }


def as_csv(reply: "pb.UsageReply", by: tuple[str, ...]) -> str:
    rows = ((row.keys, [*(getattr(row, key) for key in AMOUNTS), _busy(row)]) for row in reply.rows)
    return _csv([*by, *(f"{key}_gpu_hours" for key in AMOUNTS), "busy"], rows)


def _csv(heads: list[str], rows: Iterable[tuple[Iterable[str], Sequence[float | None]]]) -> str:
    """Names may come from tenants: one that a spreadsheet would take for a formula gets an apostrophe."""
    out = StringIO()
    made = csv.writer(out, lineterminator="\n")
    made.writerow(heads)
    for keys, amounts in rows:
        names = (f"'{name}" if name[:1] in "=+-@\t" and name else name for name in keys)
        made.writerow([*names, *("" if each is None else repr(round(each, 6)) for each in amounts)])
    return out.getvalue()


def as_table(reply: "pb.UsageReply", by: tuple[str, ...], most: int | None) -> str:
    if not reply.rows:
        return ""
    rows = [
        (
            *(name or "-" for name in row.keys),
            *(f"{getattr(row, key):.2f}" for key in AMOUNTS),
            "-" if (busy := _busy(row)) is None else f"{busy:.0%}",
        )
        for row in reply.rows
    ]
    shown = columns(", ".join([*by, "#GPU-hours, #held idle|held, #lost, #busy"]))
    sums = [sum(getattr(row, key) for row in reply.rows) for key in AMOUNTS]
    total = ("total", *("" for _ in by[1:]), *(f"{each:.2f}" for each in sums), "")
    return terminal_table.table(shown, [*rows, total], wide=False, most=most)


def _busy(row: "pb.UsageRow") -> float | None:
    """Mean utilization; None: no agent reported it."""
    return row.busy if row.HasField("busy") else None


def _notes(reply: "pb.UsageReply") -> list[str]:
    notes = []
    if not reply.rows:
        notes.append(
            f"no GPUs were allocated between {_stamp(reply.since)} and {_stamp(reply.until)}"
        )
    if reply.kept_since > reply.since:
        notes.append(f"the history begins at {_stamp(reply.kept_since)}: earlier hours are missing")
    if reply.hidden:
        notes.append("namespaces that you may not see are left out")
    if reply.left_out:
        notes.append(
            f"{reply.left_out} more rows are left out; shorten the time or take fewer keys"
        )
    return notes


def _stamp(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")
