"""`lockstep what-if`: reads the cluster, simulates it as it is and with a change, and prints what is different.

Design: docs/design/what-if.md
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from central.cli import exit_codes, output_format, scheduler_access, terminal_table
from central.cli.exit_codes import CannotDo
from central.cli.terminal_table import columns
from central.cli.user_client import user_client
from central.cli.what_if import changes, comparison, live_cluster, question
from central.cli.what_if.changes import QueueChange
from central.cli.what_if.question import Answer, Change
from central.model.wording import format_duration
from central.simulator import documents

MOST_ROWS = 40
NO_CHANGE = "what-if: name a change: --cordon, --drain, --queue, --submit or --without"


def run(args: argparse.Namespace) -> int:
    try:
        change = _change(args)
        cluster, namespace = _read(args)
        change = replace(change, namespace=namespace)
        hardware = live_cluster.hardware(scheduler_access.scheduler_address(args))
        found = question.answer(cluster, hardware, change, args, args.until)
    except live_cluster.CannotRead as error:
        refused = error.status in (401, 403)
        raise CannotDo(error, exit_codes.REFUSED if refused else exit_codes.UNREACHABLE) from error
    except (changes.BadChange, documents.BadInput) as error:
        raise CannotDo(error) from error
    for sentence in found.notes:
        _warn(sentence)
    if args.output in output_format.WHOLE:
        figures = comparison.as_json(found.gangs, found.totals, found.horizon_s)
        print(output_format.written(figures, args.output), end="")
    else:
        print("\n".join(_text(found)))
    return 0


def _change(args: argparse.Namespace) -> Change:
    """Reads the changes, in the usual namespace. Raises BadChange and BadInput."""
    queues = [QueueChange.parse(each) for each in args.queue]
    submit = list(documents.read(args.submit))
    if args.submit and not submit:
        raise documents.BadInput(documents.NO_OBJECTS)
    change = Change(args.cordon, args.drain, queues, args.without, submit)
    if not change:
        raise changes.BadChange(NO_CHANGE)
    return change


def _read(args: argparse.Namespace) -> tuple[live_cluster.LiveCluster, str]:
    with user_client(args) as (client, usual):
        return live_cluster.read(client, datetime.now(UTC)), args.namespace or usual


def _text(answer: Answer) -> Iterable[str]:
    most, found = terminal_table.width(), answer.gangs
    if not found:
        yield f"No gang starts, waits or is evicted differently within {format_duration(answer.horizon_s)}.\n"
    for each in found[:MOST_ROWS]:
        exists = (each.namespace, each.name) in answer.running
        yield f"{each.namespace}/{each.name}"
        yield terminal_table.wrapped("  now:", comparison.sentence(each.before, exists), 8, most)
        yield terminal_table.wrapped("  then:", comparison.sentence(each.after, exists), 8, most)
    if len(found) > MOST_ROWS:
        yield f"... and {len(found) - MOST_ROWS} more; -o json prints all"
    if found:
        yield ""
    rows = [(name, f"{before:g}", f"{after:g}") for name, before, after in answer.totals]
    yield terminal_table.table(columns(", #now, #then"), rows, wide=False, most=most).rstrip()


def _warn(sentence: str) -> None:
    print(f"lockstep: {sentence}", file=sys.stderr)
