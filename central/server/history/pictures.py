"""A survey of the cluster as bytes and back: a small sample for curves, and a picture of all nodes, queues and pending
gangs. Both are compressed JSON; a picture of 5,000 nodes with 40,000 GPUs has some 100 kB."""

import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from math import inf
from typing import Any

import orjson

from central.model.gpu_count import GpuCount
from central.model.json_types import Json
from central.server.stats.largest_gang import LargestGang
from central.server.stats.node_rows import HeldGpus, SurveyedNode
from central.server.stats.pending_rows import PendingRow
from central.server.stats.queue_rows import QueueRow
from central.server.stats.surveyor import ReservationRow, Survey
from protos.names import GPU

PENDING_MOST = 20_000  # gangs in a picture
REASONS_MOST = 500  # of these, with their sentence
QUEUES_MOST = 200  # in a sample, those with the most GPUs
PICTURE_BYTES_MOST = 64 << 20  # decompressed


def sample(survey: Survey) -> bytes:
    """GPUs by queue as [used, deserved, requested], for curves."""
    busiest = sorted(survey.queues, key=lambda row: -row.used.get(GPU, 0.0))[:QUEUES_MOST]
    found: Json = {
        "queues": {
            row.name: [each.get(GPU, 0.0) for each in (row.used, row.deserved, row.requested)]
            for row in busiest
        }
    }
    return zlib.compress(orjson.dumps(found), 6)


def read_sample(body: bytes) -> Json:
    """Raises ValueError."""
    found: Json = orjson.loads(_inflated(body))
    return found


def picture(survey: Survey) -> bytes:
    nodes = [
        [row.name, row.path, row.model, row.count.gpus, row.count.used, row.count.whole, row.island, row.unhealthy,
         row.problem, [_held(held) for held in row.holders], row.count.free]
        for row in survey.nodes.values()
    ]  # fmt: skip
    found: Json = {
        "at": survey.at,
        "levels": survey.levels,
        "nodes": nodes,
        "queues": [_queue(row) for row in survey.queues],
        "pending": [
            _pending(row, with_reason=at < REASONS_MOST)
            for at, row in enumerate(survey.pending[:PENDING_MOST])
        ],
        "reservations": [
            {**asdict(row), "start": _finite(row.start)} for row in survey.reservations
        ],
        "largest": [row._asdict() for row in survey.largest],
        "usable": survey.usable_gpus,
        "namespaces": sorted(survey.namespaces),
    }
    return zlib.compress(orjson.dumps(found), 6)


def read_picture(body: bytes) -> Survey:
    """The survey; of its pending gangs the first REASONS_MOST have a sentence. Raises ValueError."""
    found = orjson.loads(_inflated(body))
    try:
        return Survey(
            found["at"],
            levels=tuple(found["levels"]),
            nodes={row[0]: _node(row) for row in found["nodes"]},
            queues=tuple(QueueRow(**row) for row in found["queues"]),
            pending=tuple(_read_pending(row) for row in found["pending"]),
            reservations=tuple(
                ReservationRow(**{**row, "start": _infinite(row["start"])})
                for row in found["reservations"]
            ),
            largest=tuple(LargestGang(**row) for row in found["largest"]),
            usable_gpus=found["usable"],
            namespaces=frozenset(found.get("namespaces", ())),  # older pictures have none
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"a survey in another format: {error!r}") from error


def _held(held: HeldGpus) -> list[Any]:
    return [held.pod, held.namespace, held.queue, held.job, held.account, f"{held.mask:x}", held.gpus, held.whole,
            held.began]  # fmt: skip


def _node(row: list[Any]) -> SurveyedNode:
    name, path, model, gpus, used, whole, island, unhealthy, problem, holders, *more = row
    held = tuple(
        HeldGpus(
            pod, None, namespace, queue, job, account, int(mask, 16), amount, whole, began=began
        )
        for pod, namespace, queue, job, account, mask, amount, whole, began in holders
    )
    if more:
        count = GpuCount(gpus, used, more[0], whole)
    else:  # an older picture, which has another number in the place of used
        count = GpuCount(gpus, sum(each.gpus for each in held), whole, whole)
    return SurveyedNode(name, tuple(path), model, count, island, unhealthy, held, problem)


def _queue(row: QueueRow) -> Json:
    """Converts a row; asdict would take the items of a Counter for its elements."""
    found = {each.name: getattr(row, each.name) for each in fields(QueueRow)}
    return {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in found.items()
    }


def _pending(row: PendingRow, *, with_reason: bool) -> Json:
    found = {
        each.name: getattr(row, each.name) for each in fields(PendingRow) if each.name != "rank"
    }
    reason = row.reason if with_reason else ""
    return {**found, "start": _finite(row.start), "reason": reason}


def _read_pending(row: Json) -> PendingRow:
    key = tuple(row["key"])
    start = _infinite(row["start"])
    return PendingRow(**{**row, "key": key, "start": start, "rank": (0, 0, 0.0, key)})


def _finite(time_s: float) -> float | None:
    return time_s if time_s < inf else None


def _infinite(time_s: float | None) -> float:
    return inf if time_s is None else time_s


def _inflated(body: bytes) -> bytes:
    made = zlib.decompressobj()
    try:
        text = made.decompress(body, PICTURE_BYTES_MOST)
    except zlib.error as error:
        raise ValueError(f"not a picture: {error}") from error
    if made.unconsumed_tail:
        raise ValueError(f"a picture of more than {PICTURE_BYTES_MOST} bytes")
    return text
