"""The run times of a gang that shares time, as a condition of its PodGroup: it outlives the scheduler.

    type: TimeShared, message: "ran 2640 s until 2026-11-28T12:00:00Z and runs since; contention 2.25"

Design: docs/design/time-sharing.md
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from central.model import limits
from central.model.json_types import Json
from central.model.timestamps import read_stamp, stamp

CONDITION = "TimeShared"
CONTENTION_MOST = 1_000_000.0
_MESSAGE = re.compile(
    r"ran (\d{1,10}) s until (\S{1,30}?)( and runs since)?; contention (\d{1,7}\.\d\d)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class PastTurns:
    """ran_s: all that it ran until `until`, in seconds since the epoch, and nothing of what it ran later. contention:
    the highest of its queue while it existed, rounded to hundredths. runs: its present run began then."""

    ran_s: int
    contention: float
    until: int = 0
    runs: bool = False


def condition(turns: PastTurns, now: float) -> Json:
    since = " and runs since" if turns.runs else ""
    return {
        "type": CONDITION,
        "status": "True",
        "reason": CONDITION,
        "message": f"ran {turns.ran_s} s until {stamp(turns.until)}{since}; contention {turns.contention:.2f}",
        "lastTransitionTime": stamp(now),
    }


def read(conditions: Iterable[Json]) -> PastTurns | None:
    """Reads the condition; None if there is none, or its message is another's."""
    for each in conditions:
        if each.get("type") == CONDITION and isinstance(message := each.get("message"), str):
            return _read(message)
    return None


def _read(message: str) -> PastTurns | None:
    found = _MESSAGE.fullmatch(message)
    if found is None:
        return None
    ran_s, until, runs, contention = found.groups()
    try:
        return PastTurns(
            min(int(ran_s), limits.DURATION_S),
            min(max(1.0, float(contention)), CONTENTION_MOST),
            read_stamp(until),
            runs=bool(runs),
        )
    except ValueError:
        return None
