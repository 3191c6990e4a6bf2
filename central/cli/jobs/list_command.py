"""`lockstep job|queue|group list`, once or with --watch, and the columns that users of this API know."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

from central.cli import output_format, terminal_table
from central.cli.exit_codes import CannotDo
from central.cli.jobs import history_command, job_table, queue_listing
from central.cli.jobs.api import GROUPS, JOBS, KINDS, QUEUES, Api
from central.cli.terminal_table import Column, Row, age, columns
from central.kube.resource_paths import ResourcePath
from central.model.json_types import Json
from central.model.resources import DEFAULT
from central.server.grpc import query_client
from protos.names import GPU

NAMESPACE = Column("Namespace")

GROUP = columns("Name, ~Phase, #Min, #Running|Run, +#Succeeded, +#Failed, Queue, #Age, +Why")
QUEUE = columns(
    "Name, #Weight, ~State, Parent, #Inqueue|Inq, #Pending|Pend, #Running|Run, "
    "#Unknown|Unkn, #Completed|Compl, +Guarantee, +Deserved, +Capability, +Allocated"
)


# The default queue exists without an object: gangs that name no queue are in it, without limits.
NO_OBJECT: Json = {"metadata": {"name": DEFAULT, "uid": ""}}
COLUMNS = {JOBS.kind: job_table.COLUMNS, GROUPS.kind: GROUP, QUEUES.kind: QUEUE}


def show(api: Api, args: argparse.Namespace) -> int:
    kind = KINDS[args.kind]
    if args.kind == "job" and args.state == history_command.ENDED:
        return history_command.list_ended(api, args)
    query = {"labelSelector": args.selector} if args.selector else {}
    if args.watch:
        return _watch(api, kind, args, query)
    if kind is QUEUES:
        found = queue_listing.objects(api, args, **query)
    else:
        found = api.all(kind, everywhere=args.everywhere, **query)
    objects = chosen(found, args)
    if args.output in output_format.WHOLE:
        listing = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects}
        print(output_format.written(listing, args.output), end="")
    elif args.output == "name":
        for obj in objects:
            print(object_name(kind, obj))
    elif not objects and kind is not QUEUES:
        where = "" if args.everywhere else f" in namespace {api.namespace}"
        print(f"No {kind.plural} found{where}{_other_gangs(api, kind, args)}", file=sys.stderr)
    else:
        names = {obj["metadata"]["name"] for obj in objects}
        if kind is QUEUES and DEFAULT not in names and not args.selector:
            objects.append(NO_OBJECT)
            objects.sort(key=lambda queue: str(queue["metadata"]["name"]))
        print(_table(api, kind, objects, args), end="")
    return 0


def _other_gangs(api: Api, kind: ResourcePath, args: argparse.Namespace) -> str:
    """Says where those find their gangs who submit PodGroups, or Jobs of other kinds."""
    if kind is not JOBS:
        return ""
    with suppress(CannotDo):
        if api.all(GROUPS, everywhere=args.everywhere):
            return ", but PodGroups: lockstep group list" + (" -A" if args.everywhere else "")
    return ""


def _watch(api: Api, kind: ResourcePath, args: argparse.Namespace, query: dict[str, str]) -> int:
    feed = terminal_table.Feed(
        _columns(kind, args), wide=args.output == "wide", most=terminal_table.width()
    )
    for _, obj in api.changes(kind, everywhere=args.everywhere, **query):
        if not chosen([obj], args):
            continue
        if args.output in output_format.WHOLE:
            print(
                "---\n" * (args.output == "yaml") + output_format.written(obj, args.output),
                end="",
                flush=True,
            )
        elif args.output == "name":
            print(object_name(kind, obj), flush=True)
        else:
            print(feed.add(*_rows(api, kind, [obj], args)), end="", flush=True)
    return 0


def _table(api: Api, kind: ResourcePath, objects: list[Json], args: argparse.Namespace) -> str:
    rows = _rows(api, kind, objects, args)
    wide = args.output == "wide"
    return terminal_table.table(_columns(kind, args), rows, wide=wide, most=terminal_table.width())


def _columns(kind: ResourcePath, args: argparse.Namespace) -> tuple[Column, ...]:
    found = COLUMNS[kind.kind]
    return (NAMESPACE, *found) if args.everywhere and kind.namespaced else found


def _rows(api: Api, kind: ResourcePath, objects: list[Json], args: argparse.Namespace) -> list[Row]:
    match kind.kind:
        case "Job":
            uses = _uses(api, args) if args.output == "wide" else {}
            rows = job_table.rows(api, objects, everywhere=args.everywhere, uses=uses)
        case "PodGroup":
            rows = [group_row(obj) for obj in objects]
        case _:
            known = {row["name"]: row for row in queue_listing.rows(api, args)}
            rows = [queue_row(obj, known.get(obj["metadata"]["name"], {})) for obj in objects]
    if args.everywhere and kind.namespaced:
        return [
            (obj["metadata"]["namespace"], *row) for obj, row in zip(objects, rows, strict=True)
        ]
    return rows


def _uses(api: Api, args: argparse.Namespace) -> dict[tuple[str, str], Json]:
    """Returns how busy the gangs that run keep their GPUs, by namespace and name; from a scheduler that is named."""
    where = {"state": "running"} | ({} if args.everywhere else {"namespace": api.namespace})
    if args.server == query_client.SERVER:
        return {}
    with suppress(query_client.CannotAsk):
        found = query_client.pages(query_client.scheduler_address(args), "/api/jobs", **where)
        return {(row["namespace"], row["gang"]): row["gpu_use"] for row in found if row["gpu_use"]}
    return {}


def object_name(kind: ResourcePath, obj: Json) -> str:
    """Returns the object's name in the form of -o name."""
    return f"{kind.singular}.{kind.group}/{obj['metadata']['name']}"


def group_row(group: Json) -> Row:
    meta, spec, status = group["metadata"], group.get("spec") or {}, group.get("status") or {}
    return (
        meta["name"],
        status.get("phase") or "Pending",
        spec.get("minMember", 1),
        status.get("running") or 0,
        status.get("succeeded") or 0,
        status.get("failed") or 0,
        spec.get("queue") or "default",
        age(meta.get("creationTimestamp")),
        group_why(group) or "-",
    )


def queue_row(queue: Json, known: Json) -> Row:
    """known: its row of queue_listing; empty: there is none."""
    spec = queue.get("spec") or {}
    return (
        queue["metadata"]["name"],
        spec.get("weight", 1),
        queue_state(queue),
        spec.get("parent") or "-",
        *(
            known["gangs"].get(phase, 0) if known.get("gangs") else "-"
            for phase in queue_listing.PHASES
        ),
        amounts((spec.get("guarantee") or {}).get("resource")),
        amounts(spec.get("deserved")),
        amounts(spec.get("capability")),
        amounts(allocated(queue, known)),
    )


def allocated(queue: Json, known: Json) -> Mapping[str, object] | None:
    """The devices and amounts in the queue's status; without an object GPUs alone, which the scheduler says."""
    found: Mapping[str, object] | None = (queue.get("status") or {}).get("allocated")
    gpus = (known.get("used") or {}).get(GPU)
    return found or (None if gpus is None else {GPU: f"{gpus:g}"})


def queue_state(queue: Json) -> str:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    return str(status.get("state") or spec.get("state") or "Open")


def group_why(group: Json) -> str:
    return str(job_table.condition_of(group).get("message") or "")


def amounts(quantities: Mapping[str, object] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted((quantities or {}).items())) or "-"


def chosen(objects: Iterable[Json], args: argparse.Namespace) -> list[Json]:
    """Returns the objects that the flags ask for: of one queue, and jobs in one state or of one user."""
    found = [
        one
        for one in objects
        if not args.queue or ((one.get("spec") or {}).get("queue") or "default") == args.queue
    ]
    if args.kind == "job":
        found = [
            one for one in found if args.state.lower() in ("", job_table.phase_of(one).lower())
        ]
        found = [one for one in found if args.user in ("", job_table.user_of(one))]
    return found
