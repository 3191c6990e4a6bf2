"""The members of an elastic gang that leave when it shrinks: those whose seats free whole domains (leavers.py), and of
equal seats those that lose the least work.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Collection, Sequence

from central.scheduler.elastic import leavers
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.leavers import Seat
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.harm import HarmScale
from central.scheduler.preemption.preemption_request import PreemptionContext

WORK = 2  # of a Harm


def down_to(
    context: PreemptionContext,
    donor: ElasticGang,
    pods: Sequence[Pod],
    goal: int,
    now: float,
    *,
    alike: bool,
) -> list[Pod]:
    """Returns these members, and as many more as leave the gang with `goal` members. alike: any other members would do
    as well; then those leave whose seats are close to each other."""
    count = len(donor.placed) - goal
    if count <= len(pods):
        return list(pods)
    if alike:
        return who_leaves(context, donor, list(donor.placed.values()), count, now)
    going = {id(pod) for pod in pods}
    left = [pod for pod in donor.placed.values() if id(pod) not in going]
    return [*pods, *who_leaves(context, donor, left, count - len(pods), now)]


def who_leaves(
    context: PreemptionContext, gang: ElasticGang, pods: Sequence[Pod], count: int, now: float
) -> list[Pod]:
    """Returns that many of these members, chosen to leave."""
    columns, scale = context.state.snapshot.columns, HarmScale([0], now)
    by_number = {number: pod for pod in pods if (number := gang.number(pod)) is not None}
    if gang.highest_first:
        return [by_number[number] for number in sorted(by_number, reverse=True)[: max(0, count)]]
    seats = [
        Seat(
            number,
            _path(columns.domains.of, columns.row[pod.node]),
            scale.of(0, [pod], breaks=False)[WORK],
        )
        for number, pod in by_number.items()
    ]
    return [by_number[number] for number in leavers.choose(seats, count)]


def _path(of: Collection[Sequence[int]], row: int) -> tuple[int, ...]:
    return (*(int(domains[row]) for domains in of), row)
