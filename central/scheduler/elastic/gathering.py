"""Brings a gang onto one node that is slower on the several nodes that it has. Sizes stay the same.

The node is one on which it has its least size already, so that the members that stay have what was trained. Members of
other gangs above their least sizes give it the seats; they are asked first, and the gang follows when these seats are
free.

Design: docs/design/elastic-speeds.md
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from central.model.arrays import Ints
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.pools import Pool
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.preemption_request import PreemptionContext


@dataclass(frozen=True, slots=True)
class Gathering:
    """A way to bring a gang onto one node.

    leaving: members of the gang itself, if the seats are free, else of others"""

    gang: ElasticGang
    leaving: Mapping[ElasticGang, list[Pod]]
    # What it is worth until the next change, less what it costs, in seconds of a member.
    gain: float

    @property
    def is_ready(self) -> bool:
        return self.gang in self.leaving


def candidates(context: PreemptionContext, pool: Pool) -> list[ElasticGang]:
    """Returns the gangs that would be so much faster on one node that a change pays; empty while seats are reserved."""
    if context.reservations:
        return []
    return [
        gang
        for gang in pool.gangs
        if gang.moves and gang.task.speeds is not None and _worth(context, gang) > 0
    ]


def best(
    context: PreemptionContext,
    pool: Pool,
    ready: Sequence[ElasticGang],
    may_give: Callable[[ElasticGang], bool],
) -> Gathering | None:
    """The one that is worth most. ready: candidates that may change now. None: no node has the seats."""
    if not ready:
        return None
    free = context.state.snapshot.view(pool.spec).refresh().by_row
    others = [
        gang
        for gang in pool.gangs
        if gang.task.step == 1 and gang.task.yields and not gang.highest_first
    ]
    givers = [gang for gang in others if may_give(gang)]
    found = [each for gang in ready for each in _ways(context, gang, givers, free)]
    return max(found, key=lambda each: each.gain, default=None)


def _worth(context: PreemptionContext, gang: ElasticGang) -> float:
    """Returns what the gang's members gain on one node until the next change, less what they lose, in seconds of a
    member. 0: it is on one node, or its speeds are unknown."""
    speeds, size, nodes = gang.task.speeds, len(gang.placed), len(_rows(context, gang))
    if speeds is None or nodes < 2:
        return 0.0
    faster = speeds.at(size, 1) / speeds.at(size, nodes) - 1
    return (faster * gang.hold_s - gang.cost_s) * size


def _rows(context: PreemptionContext, gang: ElasticGang) -> dict[int, list[Pod]]:
    """The pods by the row of their node."""
    found: dict[int, list[Pod]] = {}
    for pod in gang.placed.values():
        found.setdefault(context.state.snapshot.columns.row[pod.node], []).append(pod)
    return found


def _ways(
    context: PreemptionContext, gang: ElasticGang, givers: Sequence[ElasticGang], free: Ints
) -> Iterator[Gathering]:
    size, own, worth = len(gang.placed), _rows(context, gang), _worth(context, gang)
    # a number is a pod: those who leave have theirs until they are gone
    new_numbers = gang.task.most - len(gang.used)
    for row, staying in own.items():
        lacking = size - len(staying) - int(free[row])
        if len(staying) < gang.task.least or size - len(staying) > new_numbers:
            continue
        if lacking <= 0:
            away = [pod for other, pods in own.items() if other != row for pod in pods]
            yield Gathering(gang, {gang: away}, worth)
        elif (giving := _given(context, gang, givers, row, lacking)) is not None:
            cost = sum(giver.cost_s * len(giver.placed) for giver in giving)
            if worth > cost:
                yield Gathering(gang, giving, worth - cost)


def _given(
    context: PreemptionContext,
    gang: ElasticGang,
    givers: Sequence[ElasticGang],
    row: int,
    lacking: int,
) -> dict[ElasticGang, list[Pod]] | None:
    """Members of other gangs on that node, as many as are lacking, of as few gangs as possible."""
    equals = [
        other
        for other in givers
        if other.gang.queue == gang.gang.queue and other.gang.priority == gang.gang.priority
    ]
    there = {
        other: _rows(context, other).get(row, [])[: other.spare]
        for other in equals
        if other is not gang
    }
    giving: dict[ElasticGang, list[Pod]] = {}
    for other, pods in sorted(there.items(), key=lambda item: -len(item[1])):
        if lacking > 0 and pods:
            giving[other] = pods[:lacking]
            lacking -= len(giving[other])
    return giving if lacking <= 0 else None
