"""The gangs of one moment as rows of a list: those that run, wait or have ended, chosen and sorted. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

from central.model.json_types import Json
from central.server.history.gang_record import GPU_SECONDS
from central.server.stats.pending_rows import PendingRow
from central.server.stats.surveyor import Survey
from central.server.web.web_request import Request
from protos.common.http_server import RequestRefused

RUNNING, PENDING, ENDED = "running", "pending", "ended"
EXACT = ("namespace", "queue", "user")
SORTS: dict[str, Callable[[Json], Any]] = {
    "created": lambda row: row["created"],
    "ended": lambda row: row["ended"] or inf,
    "gpus": lambda row: row["gpus"],
    "idle": lambda row: (row["gpu_use"] or {}).get("idle_s") or 0.0,
    "name": lambda row: (row["name"], row["namespace"]),
    "namespace": lambda row: row["namespace"],
    "place": lambda row: (row["place"] is None, row["queue"], row["place"] or 0),
    "pods": lambda row: row["pods"],
    "queue": lambda row: row["queue"],
    "ran": lambda row: row["ran"] or 0.0,
    "state": lambda row: row["stage"],
    "user": lambda row: row["user"],
    "waited": lambda row: row["waited"],
}


def with_places(survey: Survey) -> Iterator[tuple[int | None, PendingRow]]:
    """Yields the pending gangs by queue, in their order, with their places in it; None: it runs while more of its pods
    wait."""
    places: Counter[str] = Counter()
    for row in survey.pending:
        places[row.queue] += not row.runs
        yield None if row.runs else places[row.queue], row


def rows_at(records: Iterable[Json], survey: Survey, now: float) -> list[Json]:
    """records: summaries of gang records; survey: of the same time."""
    waits = {row.key[:2]: (place, row) for place, row in with_places(survey) if not row.runs}
    found = []
    for record in records:
        if record["created"] > now:
            continue
        ended = record["ended"] is not None and record["ended"] <= now
        key = record["namespace"], record["gang"]
        found.append(_row(record, now, None if ended else waits.pop(key, None), ended=ended))
    for place, row in waits.values():  # without a record: its first cycle is not over
        facts = {"namespace": row.key[0], "gang": row.key[1], "name": row.name, "queue": row.queue}
        made = {
            **facts,
            "user": "",
            "created": row.created,
            "started": None,
            "ended": None,
            "stage": PENDING,
        }
        found.append(_row(made, now, (place, row), ended=False))
    return found


def chosen(rows: Iterable[Json], request: Request) -> tuple[list[Json], Counter[str]]:
    """Returns the rows that the request asks for, in its order, and how many there are of each state. Raises
    RequestRefused."""
    query = request.query
    exact = [(name, query[name]) for name in EXACT if query.get(name)]
    words = query.get("find", "").lower().split()
    found = [
        row
        for row in rows
        if all(row[name] == value for name, value in exact)
        and (not words or all(word in _searched(row) for word in words))
    ]
    sort = query.get("sort") or "-created"
    if (key := SORTS.get(sort.removeprefix("-"))) is None:
        raise RequestRefused(
            400, f"sort: must be one of {', '.join(SORTS)}, with - before it for the largest first"
        )
    found.sort(key=key, reverse=sort.startswith("-"))
    state = query.get("state", "")
    return [row for row in found if state in ("", row["state"])], Counter(
        row["state"] for row in found
    )


def _searched(row: Json) -> str:
    texts = (
        row["namespace"],
        row["name"],
        row["gang"],
        row["queue"],
        row["user"],
        row["stage"],
        *row["nodes"],
    )
    return "/".join(texts).lower()


def _row(
    record: Json, now: float, waits: tuple[int | None, PendingRow] | None, *, ended: bool
) -> Json:
    place, pending = waits if waits is not None else (None, None)
    until = record["ended"] if ended else now
    started = None if pending is not None or (record["started"] or inf) > now else record["started"]
    pods, gpus = record.get("size") or (0, 0.0)
    if ended:
        pods, gpus = record["pods"], record["gpus"]
    elif pending is not None:
        pods, gpus = pending.pods + pending.placed, pending.gpus
    state = ENDED if ended else PENDING if pending is not None else RUNNING
    return {
        **{
            name: record[name] for name in ("namespace", "gang", "name", "queue", "user", "created")
        },
        "uid": record.get("uid", ""),
        "state": state,
        "stage": state if state == PENDING or (record["ended"] and not ended) else record["stage"],
        "started": started,
        "ended": until if ended else None,
        "pods": pods,
        "gpus": gpus,
        "gpu_use": None if ended or pending is not None else record.get("gpu_use"),
        "nodes": [] if pending is not None else record.get("nodes", []),
        "node_count": 0 if pending is not None else record.get("node_count", 0),
        "gpu_seconds": record.get("gpu_seconds", dict.fromkeys(GPU_SECONDS, 0.0)),
        "activities": record.get("activities", {}),
        "waited": (started or until) - record["created"],
        "ran": until - started if started is not None else None,
        "place": place,
        "cause": pending.cause if pending is not None else "",
        "why": pending.reason if pending is not None else "",
        "start": pending.start if pending is not None and pending.start < inf else None,
    }
