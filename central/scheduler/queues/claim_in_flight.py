"""Claims that were decided: their victims terminate, and their gangs have not started yet.

What a queue uses is counted without what such victims still use and with what the gangs will take. So the next claim
of the queue, or another gang of it, counts on nothing that is spoken for.

Design: docs/design/0015-queues.md
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from central.model.resources import Sums, add
from central.scheduler.inventory.pods import Pod
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang


@dataclass(frozen=True, slots=True)
class ClaimInFlight:
    gang: Gang
    need: Sums  # what it will take
    victims: tuple[tuple[Gang, Pod, Sums], ...]  # with the victim's gang and its requests


def present_victims(
    claims: Iterable[ClaimInFlight], by_name: Mapping[str, Queue]
) -> dict[Queue, Sums]:
    """What victims that have not gone use, by queue, with the queues above."""
    found: dict[Queue, Sums] = {}
    for claim in claims:
        for gang, pod, amounts in claim.victims:
            charged = gang.account is not None and gang.members.get(pod.seen.uid) is pod
            if charged and pod.node and pod.alive and pod.leaving:
                assert gang.account is not None
                _add_along(found, by_name[gang.account.queue], amounts)
    return found


def pending_needs(
    claims: Iterable[ClaimInFlight], by_name: Mapping[str, Queue]
) -> dict[Queue, Sums]:
    """What the claiming gangs will take, by queue, with the queues above."""
    found: dict[Queue, Sums] = {}
    for claim in claims:
        if claim.gang.account is not None:
            _add_along(found, by_name[claim.gang.account.queue], claim.need)
    return found


def _add_along(sums: dict[Queue, Sums], queue: Queue, amounts: Sums) -> None:
    for above in queue.path:
        add(sums.setdefault(above, {}), amounts, 1)
