"""The question of `lockstep report`: GPU-hours by queue, namespace, user, job and model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from protos.common.picked import picked
from protos.stubs import fleet_pb2 as pb

KEYS = ("queue", "namespace", "user", "job", "model")
SPAN_MOST_S = 90 * 86_400
NO_HISTORY = "the scheduler keeps no history: start it with --history FILE, or read in its log why the file is not used"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """keys: values of the keys that were asked for, in their order. GPU-hours, in GPU equivalents."""

    keys: tuple[str, ...]
    allocated: float
    held: float  # kept idle by reservations
    lost: float  # of what was allocated, lost to evictions: since the start or the last checkpoint
    busy: float | None = None  # mean utilization, as far as agents reported it


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The rows of a report. since, until: Unix time. kept_since: allocations that began earlier may be missing."""

    rows: tuple[UsageRow, ...] = ()  # the most first
    since: float = 0.0
    until: float = 0.0
    kept_since: float = 0.0
    hidden: bool = False  # allocations of namespaces that the viewer may not see are left out
    left_out: int = 0  # rows beyond ROWS_MOST


class UsageSource(Protocol):
    def usage(
        self, keys: Sequence[str], since: float, until: float, sees: Callable[[str], bool]
    ) -> UsageReport:
        """keys: of KEYS, one or more. sees: which namespaces count. Blocks. Raises OSError."""


def mistake(query: pb.UsageQuery) -> str:
    """The wrong field and why; empty: none."""
    keys = list(query.by)
    if not keys or len({*keys}) < len(keys) or {*keys} - {*KEYS}:
        return f"by: must be one or more of {', '.join(KEYS)}"
    if not (isfinite(query.since) and isfinite(query.until) and 0 <= query.since < query.until):
        return "since, until: must be Unix times, since before until"
    if query.until - query.since > SPAN_MOST_S:
        return f"since: must be at most {SPAN_MOST_S // 86_400} days before until"
    return ""


def reply(report: UsageReport) -> pb.UsageReply:
    return pb.UsageReply(
        rows=[
            pb.UsageRow(
                keys=row.keys, allocated=row.allocated, held=row.held, lost=row.lost, busy=row.busy
            )
            for row in report.rows
        ],
        **picked(report, "since until kept_since hidden left_out"),
    )
