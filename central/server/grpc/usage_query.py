"""The question of `lockstep report`: GPU-hours by queue, namespace, user, job and model."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Protocol

from protos.stubs import fleet_pb2 as pb

KEYS = ("queue", "namespace", "user", "job", "model")
SPAN_MOST_S = 90 * 86_400
NO_HISTORY = "the scheduler keeps no history: start it with --history FILE, or read in its log why the file is not used"


class UsageSource(Protocol):
    def usage(
        self, keys: Sequence[str], since: float, until: float, sees: Callable[[str], bool]
    ) -> pb.UsageReply:
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
