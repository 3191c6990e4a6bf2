"""GPU-hours of a span of time from the history's allocations, by queue, namespace, user, job or GPU model.

An allocation counts with the part of it that lies in the span. Sums are exact: whole milliseconds times whole units of
GPU equivalents.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from central.model.resources import GPU_UNITS
from central.server.grpc.usage_query import KEYS
from central.server.history.allocations import ALLOCATED, HELD
from central.server.history.history_store import HistoryStore
from protos.stubs import fleet_pb2 as pb

ROWS_MOST = 10_000
UNITS_PER_GPU_HOUR = GPU_UNITS * 3_600_000


class AllocationReports:
    def __init__(self, store: HistoryStore) -> None:
        self._store = store

    def usage(
        self, keys: Sequence[str], since: float, until: float, sees: Callable[[str], bool]
    ) -> pb.UsageReply:
        """keys: of KEYS, one or more. sees: which namespaces count. Raises OSError."""
        assert keys
        assert not {*keys} - {*KEYS}
        span = round(since * 1000), round(until * 1000)
        with self._store.readable() as db:
            (first,) = db.execute("SELECT coalesce(min(began), 0) FROM allocations").fetchone()
            sums: dict[tuple[str, ...], list[float]] = {}
            hidden = False
            for namespace, row, *amounts in _sums(db, keys, *span, round(time.time() * 1000)):
                if not sees(namespace):
                    hidden = True
                    continue
                total = sums.setdefault(row, [0] * len(amounts))
                for at, amount in enumerate(amounts):
                    total[at] += amount
        order = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
        return pb.UsageReply(
            rows=[
                pb.UsageRow(
                    keys=found,
                    allocated=allocated / UNITS_PER_GPU_HOUR,
                    held=held / UNITS_PER_GPU_HOUR,
                    lost=lost / UNITS_PER_GPU_HOUR,
                    busy=busy / rated if rated else None,
                )
                for found, (allocated, held, lost, busy, rated) in order[:ROWS_MOST]
            ],
            since=since,
            until=until,
            kept_since=first / 1000,
            hidden=hidden,
            left_out=max(0, len(order) - ROWS_MOST),
        )


def _sums(
    db: sqlite3.Connection, keys: Sequence[str], since: int, until: int, now: int
) -> Iterator[tuple[Any, ...]]:
    """Yields by namespace and by the keys: units times milliseconds allocated, held, lost, busy and rated. Of an
    allocation that is partly in the span, the last two count with the same part."""
    chosen = ", ".join(("namespace", *keys))
    found = db.execute(
        f"""SELECT {chosen},
            sum(CASE kind WHEN :allocated THEN units * (upto - since) ELSE 0 END),
            sum(CASE kind WHEN :held THEN units * (upto - since) ELSE 0 END),
            sum(CASE WHEN lost_from IS NULL THEN 0 ELSE units * max(0, upto - max(since, lost_from)) END),
            sum(busy * part), sum(rated * part)
        FROM (SELECT *, (upto - since) * 1.0 / max(1, coalesce(ended, :now) - began) AS part
              FROM (SELECT *, max(began, :since) AS since, min(coalesce(ended, :until), :until) AS upto
                    FROM allocations WHERE began < :until AND (ended IS NULL OR ended > :since)))
        GROUP BY {chosen}""",
        {"allocated": ALLOCATED, "held": HELD, "since": since, "until": until, "now": now},
    )
    for namespace, *rest in found:
        yield namespace, tuple(rest[: len(keys)]), *rest[len(keys) :]
