"""Runs of a gang while its history was not kept, from facts that outlive the scheduler (the condition of its PodGroup,
the times of its pods), and starts of gangs that failed. Pure.

    ran   what the condition says until its time, and after that every second that one of its members ran

The condition is written when a run begins and when one ends. A leader that goes in between leaves nothing uncounted,
since pods say when they started and ended, and nothing is counted twice, since what they say of the time before the
condition's is not read.

Design: docs/design/time-sharing.md
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from central.model.past_turns import PastTurns
from central.model.timestamps import stamp
from central.model.wording import format_duration
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang
from protos import names


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A gang whose minimum did not become ready, or that has reached its time limit. tries: in a row; 0: it is not
    tried again. until: it is not tried again before. templates: of the pods that did not start. of: uid of the gang's
    object"""

    tries: int
    until: float
    why: str
    templates: tuple[int, ...] = ()
    of: str = ""

    @property
    def reason(self) -> str:
        if not self.tries:
            return f"{self.why}; create its PodGroup again to run it again"
        return (
            f"{self.why}; try {self.tries + 1} begins at {stamp(self.until)[11:16]} UTC, "
            "or once its pods are changed"
        )


def began(pods: Iterable[Pod], now: float) -> float | None:
    """Returns when the first of these pods that hold capacity began, `now` if unknown; None: none holds any."""
    times = [
        pod.seen.started if pod.seen.started is not None else pod.since for pod in pods if pod.alive
    ]
    return min((now if time is None else time for time in times), default=None)


def time_left(gang: Gang, now: float) -> float | None:
    """Returns the seconds until the run of the gang reaches its time limit; None: it has none, or does not run."""
    limit_s = gang.object.time_limit_s if gang.object is not None else None
    since = began(gang.counts.placed, now) if limit_s is not None else None
    return None if limit_s is None or since is None else since + limit_s - now


def limit_reached(gang: Gang) -> str:
    assert gang.object is not None
    limit_s = gang.object.time_limit_s or 0.0
    return f"reached its time limit of {format_duration(limit_s)} ({names.TIME_LIMIT})"


def recovered(gang: Gang, before: PastTurns | None, now: float) -> tuple[float, float]:
    """Returns the seconds that the gang has run, and until when they are counted: to the present run's beginning if it
    runs. before: as the condition says; None: there is none."""
    present = began(gang.counts.placed, now)
    end = now if present is None else present
    ran_s, until = (
        (0.0, min(gang.created, end)) if before is None else (before.ran_s, min(before.until, now))
    )
    members = [*gang.members.values()]
    runs = [*_known(members, until, end, went_on=before is not None and before.runs)]
    return ran_s + _length(runs, until, end), max([until, *(min(last, end) for _, last in runs)])


def _known(
    members: Sequence[Pod], until: float, end: float, *, went_on: bool
) -> Iterator[tuple[float, float]]:
    """Begin and end of what ran. went_on: so did the gang at `until`."""
    for pod in members:
        ended = end if pod.node and pod.alive and not pod.seen.deleting else pod.seen.ended
        start = until if went_on and pod.seen.created <= until else pod.seen.started
        if pod.node and start is not None and ended is not None:
            yield start, ended
    if went_on and (first := min((pod.seen.created for pod in members), default=inf)) > until:
        # All that ran then have gone: at the latest when the first of those that took their place was made.
        yield until, first


def _length(runs: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Returns the seconds between start and end that are in one of the runs."""
    length, reached = 0.0, start
    for first, last in sorted(runs):
        gained = min(last, end) - max(first, reached)
        if gained > 0:
            length, reached = length + gained, min(last, end)
    return length
