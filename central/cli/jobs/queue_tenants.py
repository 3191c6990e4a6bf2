"""Limits of each namespace and each user in a queue, for `lockstep queue view`, what they use of them, and why the
queue is invalid.

The limits are in the Queue object. What is used only the scheduler knows: it is asked where --server or LOCKSTEP_SERVER
names it, and leaves out whom the user may not see."""

import argparse
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from central.cli.jobs.list_command import amounts
from central.cli.terminal_table import Cell, Column
from central.model.json_types import Json
from central.server.grpc import query_client
from protos.names import GPU, QUEUE_POLICY

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb

KINDS = {"perNamespace": "Namespaces", "perUser": "Users"}
GANGS = "Gangs"
TITLES = {GPU: "GPUs", "cpu": "CPU", "memory": "Memory"}
SCALED = {"memory": (1 << 30, "Gi"), "ephemeral-storage": (1 << 30, "Gi")}


def limits(queue: Json) -> dict[str, str]:
    """Returns the limits of each namespace and each user as sentences, by the heads of their lines."""
    spec = {**(queue.get("spec") or {}), **_annotated(queue)}
    found = {}
    for field, head in KINDS.items():
        each = spec.get(field)
        if not isinstance(each, dict) or not each:
            continue
        parts = []
        if (gangs := each.get("maxRunningGangs")) is not None:
            parts.append(f"{gangs} running {'gang' if gangs == 1 else 'gangs'}")
        if resources := each.get("resources"):
            parts.append(amounts(resources).replace(",", ", "))
        found[head] = f"each at most {' and '.join(parts)}"
    return found


def invalid_because(objects: Iterable[Json], name: str) -> str:
    """Returns why the queue is invalid by the scheduler's own rules, since the object's status has no field for it.
    objects: all Queues. "" if the queue is valid or has no object."""
    from central.kube.decode.fields import MalformedObject
    from central.kube.decode.policy_decoder import decode_queue
    from central.scheduler.queues.queue_tree import Queues

    queues = Queues()
    for each in objects:
        with suppress(MalformedObject):
            queues.apply(decode_queue(each))
    queues.settle()
    found = queues.by_name.get(name)
    return found.error if found is not None else ""


def _annotated(queue: Json) -> Json:
    """The rules in the annotation, which clusters with Volcano's own CRD need. One that cannot be read is the
    scheduler's to report."""
    text = (queue["metadata"].get("annotations") or {}).get(QUEUE_POLICY)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def used(args: argparse.Namespace, queue: str) -> tuple["pb.QueueReply | None", str]:
    """The scheduler's answer, or why there is none."""
    if args.server == query_client.SERVER:
        return None, "not shown: name the scheduler with --server or LOCKSTEP_SERVER"
    try:
        return query_client.queue(query_client.scheduler_address(args), queue), ""
    except query_client.CannotAsk as error:
        return None, f"not shown: {error}"


def columns_and_rows(
    reply: "pb.QueueReply",
) -> tuple[tuple[Column, ...], list[tuple[str | int | Cell, ...]]]:
    """A row for each tenant: its running gangs, and what it uses, of how much."""
    names = sorted({*reply.per_namespace.resources, *reply.per_user.resources}, key=_order)
    columns = [Column("Tenant"), Column(GANGS, number=True)]
    columns += [Column(TITLES.get(name, name), number=True) for name in names]
    rows: list[tuple[str | int | Cell, ...]] = []
    for tenant in reply.tenants:
        limit = reply.per_user if tenant.is_user else reply.per_namespace
        most = str(limit.running_gangs) if limit.HasField("running_gangs") else ""
        kind = "user " if tenant.is_user and "(" not in tenant.name else ""
        kind = kind if tenant.is_user else "namespace "
        cells = [_of(tenant.resources, limit.resources, name) for name in names]
        gangs = f"{tenant.running_gangs} of {most}" if most else str(tenant.running_gangs)
        rows.append((f"{kind}{tenant.name}", gangs, *cells))
    return tuple(columns), rows


def _of(used_by_name: Mapping[str, float], most: Mapping[str, float], name: str) -> str:
    if name not in most:
        return "-"
    return f"{_shown(name, used_by_name.get(name, 0.0))} of {_shown(name, most[name])}"


def _shown(name: str, amount: float) -> str:
    unit, suffix = SCALED.get(name, (1, ""))
    return f"{round(amount / unit, 2):g}{suffix}"


def _order(name: str) -> tuple[bool, str]:
    return (name != GPU, name)
