"""The pods of an elastic object as members of an elastic gang: who counts, their numbers, and what their controller
lets be chosen.

Design: docs/design/elastic-controllers.md
"""

from dataclasses import replace

from central.model import limits
from central.model.facts import ElasticSeen
from central.model.facts.elastic_facts import BY_COST, BY_INDEX, BY_NAME
from central.model.jobspec import ElasticTask
from central.scheduler.elastic.elastic_gang import ElasticGang, holds_seat
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang

_DIGITS = len(str(limits.REPLICAS))


def counts(seen: ElasticSeen, pod: Pod) -> bool:
    """Returns whether the object's size counts the pod."""
    return not seen.role or pod.seen.task == seen.role


def as_gang(
    seen: ElasticSeen, task: ElasticTask, gang: Gang, *, settled: bool, why: str
) -> ElasticGang:
    """task: the object's, as it holds on the GPUs that the gang has."""
    if seen.ceiling > seen.size:  # its own autoscaler would not use more now
        task = replace(task, most=min(max(seen.size, task.least), task.most))
    by_index = seen.leaves == BY_INDEX
    numbers = _by_index(seen, gang) if by_index else _by_age(seen, gang)
    members = frozenset(range(seen.size))
    found = ElasticGang(gang, task, members, settled, why, numbers=numbers)
    found.highest_first = seen.leaves not in (BY_COST, BY_NAME)
    found.used = frozenset(numbers.values())
    for pod in gang.members.values():
        number = numbers.get(pod.seen.uid)
        if number in members and holds_seat(pod):
            found.placed[number] = pod
            if pod.seen.stuck and pod.seen.phase == "Pending":
                found.unready[number] = pod.seen.stuck
        found.ending |= seen.ends and pod.seen.phase == "Succeeded" and counts(seen, pod)
    found.pending = members - found.placed.keys()
    if by_index:  # a lower number is created again where it was: no growth
        highest = max(found.placed, default=-1)
        found.ending |= any(number < highest for number in found.pending)
        found.pending = frozenset(number for number in found.pending if number > highest)
    return found


def _by_index(seen: ElasticSeen, gang: Gang) -> dict[str, int]:
    """Numbers the pods by uid, unit by unit. A pod whose labels have no number is not a member."""
    found = {}
    for pod in gang.members.values():
        if pod.alive and counts(seen, pod) and (number := _number(seen, pod)) is not None:
            found[pod.seen.uid] = number
    return found


def _number(seen: ElasticSeen, pod: Pod) -> int | None:
    of_unit, in_unit = seen.indexes
    if not of_unit and not in_unit:
        return pod.seen.order[0]
    labels = dict(pod.seen.labels)
    unit = _whole(labels.get(of_unit)) if of_unit else pod.seen.order[0]
    inside = _whole(labels.get(in_unit))
    if unit is None or inside is None or inside >= seen.unit:
        return None
    return unit * seen.unit + inside


def _whole(text: str | None) -> int | None:
    if not text or len(text) > _DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def _by_age(seen: ElasticSeen, gang: Gang) -> dict[str, int]:
    """Numbers the pods by uid in the order in which they stay: the newest, and those without a node, leave first."""
    alive = [pod for pod in gang.members.values() if pod.alive and counts(seen, pod)]
    alive.sort(key=lambda pod: (pod.leaving, not pod.node, pod.seen.created, pod.seen.uid))
    return {pod.seen.uid: number for number, pod in enumerate(alive)}
