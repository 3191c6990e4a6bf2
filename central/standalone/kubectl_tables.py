"""Objects as the tables that kubectl get prints. Pure; the caller provides the time."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from central.model.json_types import Json
from central.standalone.served_kinds import AGE, PrinterColumn, Resource

Cells = Callable[[Json, datetime], list[Any]]

_NAME = PrinterColumn("Name", "string", ".metadata.name")


def table(
    resource: Resource, objects: Iterable[Json], version: str, now: datetime, *, whole: bool = False
) -> Json:
    """whole: rows contain the whole object instead of its metadata."""
    columns, cells = _PRINTERS.get((resource.group, resource.kind), (None, None))
    if columns is None or cells is None:
        columns = (_NAME, *(resource.columns or (AGE,)))
        cells = _generic(columns)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": "string" if column.type == "date" else column.type,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": int(column.wide),
            }
            for column in columns
        ],
        "rows": [
            {"cells": cells(obj, now), "object": obj if whole else _metadata_of(obj)}
            for obj in objects
        ],
    }


def _metadata_of(obj: Json) -> Json:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _generic(columns: tuple[PrinterColumn, ...]) -> Cells:
    def cells(obj: Json, now: datetime) -> list[Any]:
        row = []
        for column in columns:
            value: Any = obj
            for step in column.path.strip(".").split("."):
                value = _step(value, step)
            if column.type == "date":
                value = age(value, now)
            elif value is None:
                value = "" if column.type == "string" else None
            row.append(value)
        return row

    return cells


def _step(value: Any, step: str) -> Any:
    """phase of an object; conditions[-1:] is the last of a list."""
    name, _, last = step.partition("[")
    value = value.get(name) if isinstance(value, dict) else None
    if last:
        return value[-1] if last == "-1:]" and isinstance(value, list) and value else None
    return value


def age(stamp: str | None, now: datetime) -> str:
    """2026-01-01T00:00:00Z -> 5m12s, in kubectl's steps."""
    if not stamp:
        return "<unknown>"
    seconds = max(0, int((now - datetime.fromisoformat(stamp)).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _pod(obj: Json, now: datetime) -> list[Any]:
    status, spec = obj.get("status") or {}, obj["spec"]
    containers: list[Json] = status.get("containerStatuses") or []
    word = status.get("reason") or status.get("phase") or "Unknown"
    for container in containers:
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if reason := (state.get(kind) or {}).get("reason"):
                word = reason
    if "deletionTimestamp" in obj["metadata"]:
        word = "Terminating"
    ready = sum(bool(container.get("ready")) for container in containers)
    return [
        obj["metadata"]["name"],
        f"{ready}/{len(spec['containers'])}",
        word,
        sum(container.get("restartCount", 0) for container in containers),
        age(obj["metadata"].get("creationTimestamp"), now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _node(obj: Json, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    info = status.get("nodeInfo") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
    word = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if (obj.get("spec") or {}).get("unschedulable"):
        word += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    addresses = {one["type"]: one["address"] for one in status.get("addresses") or []}
    return [
        obj["metadata"]["name"],
        word,
        ",".join(roles) or "<none>",
        age(obj["metadata"].get("creationTimestamp"), now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(obj: Json, now: datetime) -> list[Any]:
    about = obj.get("involvedObject") or {}
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    return [
        age(seen, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        (obj.get("message") or "").strip(),
        obj["metadata"]["name"],
    ]


def _columns(names: str, wide: str = "") -> tuple[PrinterColumn, ...]:
    """names, wide: titles, separated by commas."""
    shown = [PrinterColumn(name, "string", "") for name in names.split(", ")]
    more = [PrinterColumn(name, "string", "", wide=True) for name in wide.split(", ") if name]
    return (*shown, *more)


_PRINTERS: dict[tuple[str, str], tuple[tuple[PrinterColumn, ...], Cells]] = {
    ("", "Pod"): (
        _columns("Name, Ready, Status, Restarts, Age", "IP, Node, Nominated Node, Readiness Gates"),
        _pod,
    ),
    ("", "Node"): (
        _columns(
            "Name, Status, Roles, Age, Version",
            "Internal-IP, External-IP, OS-Image, Kernel-Version, Container-Runtime",
        ),
        _node,
    ),
    ("", "Event"): (_columns("Last Seen, Type, Reason, Object, Message", "Name"), _event),
}
