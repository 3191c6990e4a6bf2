"""What a gang that shares time had run before, as a condition of its PodGroup: it outlives the scheduler.

    type: TimeShared, message: "ran 2640 s before; contention 2.25"

Design: docs/design/0300-time-sharing.md
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from central.model import limits
from central.model.json_types import Json
from central.model.timestamps import stamp

CONDITION = "TimeShared"
CONTENTION_MOST = 1_000_000.0
_MESSAGE = re.compile(r"ran (\d{1,10}) s before; contention (\d{1,7}\.\d\d)")


@dataclass(frozen=True, slots=True)
class PastTurns:
    """ran_s: before its present run. contention: the highest of its queue while it existed, rounded to hundredths."""

    ran_s: int
    contention: float


def condition(turns: PastTurns, now: float) -> Json:
    return {
        "type": CONDITION,
        "status": "True",
        "reason": CONDITION,
        "message": f"ran {turns.ran_s} s before; contention {turns.contention:.2f}",
        "lastTransitionTime": stamp(now),
    }


def read(conditions: Iterable[Json]) -> PastTurns | None:
    """None: there is no such condition, or its message is another's."""
    for each in conditions:
        if each.get("type") == CONDITION and isinstance(message := each.get("message"), str):
            found = _MESSAGE.fullmatch(message)
            if found is None:
                return None
            contention = min(max(1.0, float(found[2])), CONTENTION_MOST)
            return PastTurns(min(int(found[1]), limits.DURATION_S), contention)
    return None
