"""Claims that were decided: their victims terminate, and their gangs have not started yet.

What a queue uses is counted without what such victims still use and with what the gangs will take. So the next claim
of the queue, or another gang of it, counts on nothing that is spoken for.

Design: docs/design/0015-queues.md
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from central.model.resources import Sums, add
from central.scheduler.inventory.pods import Pod
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang, GangKey


@dataclass(frozen=True, slots=True, eq=False)
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


InFlight = tuple[dict[Queue, Sums], dict[Queue, Sums]]  # present_victims(), pending_needs()


class ClaimsInFlight:
    """All claims by the claiming gang, with what present victims use and what claims will take. Where thousands claim
    in one cycle, each comes after all claims before it, and only the new ones are added to the sums."""

    def __init__(self) -> None:
        self.by_gang: dict[GangKey, ClaimInFlight] = {}
        self.outdated = False  # the sums, because victims may have gone: set by each fact and at the start of a pass
        self._forget_sums()

    def _forget_sums(self) -> None:
        self._counted: list[ClaimInFlight] = []
        self._sums: InFlight = {}, {}
        self._parts: dict[GangKey, InFlight] = {}  # of each claim
        self._least_urgent: dict[str, int] = {}  # priority of a claiming gang, by queue

    def of_others(self, gang: Gang, by_name: Mapping[str, Queue]) -> InFlight:
        """Of other gangs' claims; it holds until the next call."""
        self._count(by_name)
        own = self.by_gang.get(gang.key)
        if own is None or own.gang is not gang:
            return self._sums
        victims, needs = map(_without, self._sums, self._parts[gang.key])
        return victims, needs

    def binding(self, gang: Gang, by_name: Mapping[str, Queue]) -> Sequence[ClaimInFlight] | None:
        """The claims whose place the gang must leave: those of other gangs, but for less urgent ones of its queue. None:
        all claims of others."""
        self._count(by_name)
        lowest = self._least_urgent.get(gang.queue)
        if lowest is None or lowest >= gang.priority:
            return None
        return [
            claim
            for claim in self.by_gang.values()
            if claim.gang is not gang
            and (claim.gang.queue != gang.queue or claim.gang.priority >= gang.priority)
        ]

    def _count(self, by_name: Mapping[str, Queue]) -> None:
        claims = list(self.by_gang.values())
        if self.outdated or claims[: len(self._counted)] != self._counted:
            self._forget_sums()
        for claim in claims[len(self._counted) :]:
            part = present_victims([claim], by_name), pending_needs([claim], by_name)
            self._parts[claim.gang.key] = part
            for sums, own in zip(self._sums, part, strict=True):
                for queue, amounts in own.items():
                    add(sums.setdefault(queue, {}), amounts, 1)
            queue_name, priority = claim.gang.queue, claim.gang.priority
            lowest = self._least_urgent.get(queue_name, priority)
            self._least_urgent[queue_name] = min(priority, lowest)
        self._counted, self.outdated = claims, False


def _without(sums: dict[Queue, Sums], part: dict[Queue, Sums]) -> dict[Queue, Sums]:
    found = dict(sums)
    for queue, amounts in part.items():
        found[queue] = dict(sums[queue])
        add(found[queue], amounts, -1)
        if not found[queue]:
            del found[queue]
    return found


def _add_along(sums: dict[Queue, Sums], queue: Queue, amounts: Sums) -> None:
    for above in queue.path:
        add(sums.setdefault(above, {}), amounts, 1)
