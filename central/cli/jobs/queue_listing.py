"""Queues with what they use and their gangs by phase: from the scheduler where it is named, else as it wrote them into
the status of the Queue objects."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from central.cli.exit_codes import CannotDo
from central.cli.jobs.api import QUEUES, Api
from central.model.json_types import Json
from central.model.resources import DEFAULT, GPU_UNITS
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.server.grpc import query_client
from protos.names import GPU

PHASES = ("inqueue", "pending", "running", "unknown", "completed")
ROOT = "root"


def rows(api: Api, args: argparse.Namespace) -> list[Json]:
    """Returns the rows of the console's /api/queues; from objects without what only the scheduler knows."""
    told = _told(args)
    return of_objects(api.all(QUEUES)) if told is None else told


def _told(args: argparse.Namespace) -> list[Json] | None:
    """Returns the rows that the scheduler shows the user; None: it is not named, or does not answer."""
    if args.server != query_client.SERVER:
        with suppress(query_client.CannotAsk):
            return query_client.pages(query_client.scheduler_address(args), "/api/queues")
    return None


def objects(api: Api, args: argparse.Namespace, **query: str) -> list[Json]:
    """Returns the Queue objects; for a user who may not get them those of their gangs, with what the scheduler tells of
    them. Raises CannotDo."""
    try:
        return api.all(QUEUES, everywhere=False, **query)
    except CannotDo as refused:
        if (told := _told(args)) is None:
            raise
        print(f"lockstep: {refused}; these are the queues of your gangs", file=sys.stderr)
        return [_as_object(row) for row in told]


def _as_object(row: Json) -> Json:
    """GPUs alone, of its amounts."""
    kept = ("deserved", "guarantee", "capability", "used")
    deserved, guarantee, capability, used = (
        {GPU: f"{row[amounts][GPU]:g}"} if GPU in row[amounts] else {} for amounts in kept
    )
    spec = {"weight": row["weight"], "parent": row["parent"], "deserved": deserved}
    return {
        "metadata": {"name": row["name"], "uid": ""},
        "spec": {**spec, "guarantee": {"resource": guarantee}, "capability": capability},
        "status": {"state": row["state"], "allocated": used},
    }


def of_objects(queues: Iterable[Json]) -> list[Json]:
    """Returns the rows, with one of the default queue: without an object its use and its gangs are unknown."""
    found = [_row(queue) for queue in queues]
    if DEFAULT not in {row["name"] for row in found}:
        found.append(_row({"metadata": {"name": DEFAULT}}))
    return found


def _row(queue: Json) -> Json:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    return {
        "name": queue["metadata"]["name"],
        "parent": spec.get("parent") or "",
        "weight": spec.get("weight", 1),
        "state": str(status.get("state") or spec.get("state") or "Open"),
        "used": _gpus(status.get("allocated")),
        "deserved": _gpus(spec.get("deserved")),
        "guarantee": _gpus((spec.get("guarantee") or {}).get("resource")),
        "capability": _gpus(spec.get("capability")),
        "gangs": {phase: status[phase] for phase in PHASES if phase in status},
    }


def _gpus(quantities: Mapping[str, Any] | None) -> Json:
    """GPU equivalents among the quantities, with the usual fractions of MIG slices."""
    devices, currency = [], GpuCurrency()
    for resource, amount in (quantities or {}).items():
        if currency.units(resource) and str(amount).isdecimal():
            devices.append((resource, int(amount)))
    return {GPU: currency.worth(devices) / GPU_UNITS} if devices else {}


def pending(row: Json) -> int:
    return int(row["gangs"].get("pending", 0) + row["gangs"].get("inqueue", 0))


def gpus_in(amounts: Json) -> str:
    """Returns the GPUs among the amounts; "-" if there is no amount."""
    return f"{amounts[GPU]:g}" if GPU in amounts else "-"


def in_tree(rows: list[Json]) -> list[tuple[Json, str]]:
    """Each queue with the lines before its name, parents before children. A queue whose parent does not exist, or
    that is its own ancestor, stands at the top level."""
    by_name = {row["name"]: row for row in rows}
    below: dict[str, list[str]] = {}
    for name, row in by_name.items():
        parent = row["parent"] or ROOT
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
