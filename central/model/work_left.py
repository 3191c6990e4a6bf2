"""The rest of a job's work as it reports it: a time at its present size, a share of the whole, or a number of steps."""

from typing import NamedTuple

TIME, SHARE, STEPS = "time", "share", "steps"


class WorkLeft(NamedTuple):
    """amount: in seconds, as a share from 0 to 1, or in steps."""

    kind: str
    amount: float
