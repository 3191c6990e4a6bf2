"""`lockstep job|queue|group list`: once, or on and on."""

import argparse
import sys

from central.cli.jobs import follow, list_columns, terminal_table
from central.cli.jobs.api import GROUPS, JOBS, QUEUES, Api
from central.cli.jobs.output import written
from central.cli.jobs.terminal_table import Column, Row
from central.kube.resource_paths import ResourcePath
from central.model.json_types import Json

COLUMNS = {
    JOBS.kind: list_columns.JOB,
    GROUPS.kind: list_columns.GROUP,
    QUEUES.kind: list_columns.QUEUE,
}


def show(api: Api, kind: ResourcePath, args: argparse.Namespace) -> int:
    query = {"labelSelector": args.selector} if args.selector else {}
    if args.watch:
        return _watch(api, kind, args, query)
    objects = list_columns.in_queue(api.all(kind, everywhere=args.everywhere, **query), args.queue)
    if args.output in ("json", "yaml"):
        listing = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects}
        print(written(listing, args.output), end="")
    elif args.output == "name":
        for obj in objects:
            print(_name(kind, obj))
    elif not objects and kind is not QUEUES:
        where = "" if args.everywhere else f" in namespace {api.namespace}"
        print(f"No {kind.plural} found{where}", file=sys.stderr)
    else:
        there = {obj["metadata"]["name"] for obj in objects}
        if kind is QUEUES and list_columns.DEFAULT not in there and not args.selector:
            objects.append(list_columns.NO_OBJECT)
        print(_table(api, kind, objects, args), end="")
    return 0


def _watch(api: Api, kind: ResourcePath, args: argparse.Namespace, query: dict[str, str]) -> int:
    feed = terminal_table.Feed(
        _columns(kind, args), wide=args.output == "wide", most=terminal_table.width()
    )
    for _, obj in follow.changes(api, kind, everywhere=args.everywhere, **query):
        if not list_columns.in_queue([obj], args.queue):
            continue
        if args.output in ("json", "yaml"):
            print("---\n" * (args.output == "yaml") + written(obj, args.output), end="", flush=True)
        elif args.output == "name":
            print(_name(kind, obj), flush=True)
        else:
            print(feed.add(*_rows(api, kind, [obj], args)), end="", flush=True)
    return 0


def _table(api: Api, kind: ResourcePath, objects: list[Json], args: argparse.Namespace) -> str:
    rows = _rows(api, kind, objects, args)
    wide = args.output == "wide"
    return terminal_table.table(_columns(kind, args), rows, wide=wide, most=terminal_table.width())


def _columns(kind: ResourcePath, args: argparse.Namespace) -> tuple[Column, ...]:
    columns: tuple[Column, ...] = COLUMNS[kind.kind]
    return (list_columns.NAMESPACE, *columns) if args.everywhere and kind.namespaced else columns


def _rows(api: Api, kind: ResourcePath, objects: list[Json], args: argparse.Namespace) -> list[Row]:
    match kind.kind:
        case "Job":
            rows = [list_columns.job_row(obj) for obj in objects]
        case "PodGroup":
            rows = [list_columns.group_row(obj) for obj in objects]
        case _:
            counts = list_columns.counts_by_queue(api)
            rows = [
                list_columns.queue_row(
                    obj, counts if counts is None else counts.get(obj["metadata"]["name"], {})
                )
                for obj in objects
            ]
    if args.everywhere and kind.namespaced:
        return [
            (obj["metadata"]["namespace"], *row) for obj, row in zip(objects, rows, strict=True)
        ]
    return rows


def _name(kind: ResourcePath, obj: Json) -> str:
    return f"{kind.singular}.{kind.group}/{obj['metadata']['name']}"
