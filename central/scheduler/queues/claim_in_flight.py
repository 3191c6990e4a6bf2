"""Claims that were decided: their victims terminate, and their gangs have not started yet.

What a queue uses is counted without what terminating pods still use and with what the gangs will take. So the next
claim of the queue, or another gang of it, counts on nothing that is spoken for, and nobody is evicted for what becomes
free in any case: of victims of claims, also of claims that were replaced by larger ones, and of pods that users delete.

Design: docs/design/reclaim.md
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from central.model.resources import Sums, add
from central.scheduler.inventory.pods import Pod
from central.scheduler.queues.queue_tree_node import NAMESPACE, USER, Queue
from central.scheduler.queues.shortfall import GANGS
from central.scheduler.state.gangs import Gang, GangKey

# A kind of tenants, beside NAMESPACE and USER: gangs that are not preemptable.
NEVER_EVICTED = "never_evicted"

# A queue, or its tenants of one kind and name.
Counted = Queue | tuple[Queue, str, str]
InFlight = dict[Counted, Sums]
_Whose = tuple[str, str, str, bool]  # queue, namespace, user, whether it is never evicted


class LeavingPod(NamedTuple):
    gang: Gang
    pod: Pod
    amounts: Sums  # its requests

    def is_present(self) -> bool:
        """Returns whether it terminates and still counts for its queue."""
        gang, pod = self.gang, self.pod
        charged = gang.account is not None and gang.members.get(pod.seen.uid) is pod
        return charged and bool(pod.node) and pod.alive and pod.leaving


@dataclass(frozen=True, slots=True, eq=False)
class ClaimInFlight:
    gang: Gang
    need: Sums  # what it will take
    victims: tuple[LeavingPod, ...]
    moved: frozenset[str] = frozenset()  # uids of victims that come back

    def has_present_victims(self) -> bool:
        return any(victim.is_present() for victim in self.victims)


class ClaimsInFlight:
    """All claims by the claiming gang, and all pods that terminate, with what these use and what claims will take.
    Where thousands claim in one cycle, each comes after all claims before it, and only the new ones are added to the
    sums.

    Gangs are counted beside amounts (GANGS): those of which no pod stays, and those that have not started."""

    def __init__(self, not_ready: AbstractSet[str] = frozenset()) -> None:
        """not_ready: nodes. Nobody knows when pods that terminate there are gone."""
        self.by_gang: dict[GangKey, ClaimInFlight] = {}
        self.outdated = False  # the sums, because victims may have gone: set by each fact
        self.usage_changed = False  # of a queue since then, which counts from the next pass on
        self._not_ready = not_ready
        self._leaving: dict[str, LeavingPod] = {}  # by uid; also those that have gone since
        self._changes, self._counted_changes = 0, 0
        self._forget_sums()

    def _forget_sums(self) -> None:
        self._counted: list[ClaimInFlight] = []
        self._counted_pods: set[str] = set()
        self._uses: InFlight = {}
        self._of_gang: dict[GangKey, Sums] = {}  # the same by gang
        self._needs: InFlight = {}
        self._parts: dict[GangKey, InFlight] = {}  # of each claim
        self._least_urgent: dict[str, int] = {}  # priority of a claiming gang, by queue

    def start_pass(self) -> None:
        """Has the sums counted again if gangs were bound or have ended. With thousands of claims that takes long."""
        self.outdated, self.usage_changed = self.outdated or self.usage_changed, False

    def add(self, claim: ClaimInFlight) -> None:
        self._changes += 1
        self.by_gang[claim.gang.key] = claim
        self._leaving.update((victim.pod.seen.uid, victim) for victim in claim.victims)

    def end(self, key: GangKey) -> bool:
        """Returns whether the gang had a claim."""
        self._changes += 1
        return self.by_gang.pop(key, None) is not None

    def note(self, leaving: Iterable[LeavingPod]) -> bool:
        """Pods that terminate for any reason. Returns whether one was not known."""
        changed = False
        for each in leaving:
            known = self._leaving.get(each.pod.seen.uid)
            if known is None or known.gang is not each.gang:
                self._leaving[each.pod.seen.uid], changed = each, True
        self.outdated |= changed
        return changed

    @property
    def none(self) -> bool:
        """Returns whether there is nothing to count."""
        return not self.by_gang and not self._leaving

    def leaving(self, by_name: Mapping[str, Queue]) -> InFlight:
        """Returns what terminating pods still use, by queue and tenant; it holds until the next call."""
        self._count(by_name)
        return self._uses

    def staying(self, gang: Gang, by_name: Mapping[str, Queue]) -> Sums:
        """Returns what the gang uses, without its terminating pods."""
        assert gang.account is not None
        if not self._leaving:
            return gang.account.used
        self._count(by_name)
        if (leaving := self._of_gang.get(gang.key)) is None:
            return gang.account.used
        stays = dict(gang.account.used)
        add(stays, leaving, -1)
        return stays

    def needs_of_others(self, gang: Gang, by_name: Mapping[str, Queue]) -> InFlight:
        """Returns what other claiming gangs will take, by queue and tenant; it holds until the next call."""
        self._count(by_name)
        own = self.by_gang.get(gang.key)
        if own is None or own.gang is not gang:
            return self._needs
        return _without(self._needs, self._parts[gang.key])

    def binding(self, gang: Gang, by_name: Mapping[str, Queue]) -> Sequence[ClaimInFlight] | None:
        """The claims whose place the gang must leave: those of other gangs, but for less urgent ones of its queue.
        None: all claims of others."""
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
        if not self.outdated and self._counted_changes == self._changes:
            return
        claims = list(self.by_gang.values())
        anew = self.outdated or claims[: len(self._counted)] != self._counted
        if anew:
            self._forget_sums()
            moved = {uid for claim in claims for uid in claim.moved}
            self._leaving = {uid: each for uid, each in self._leaving.items() if each.is_present()}
            self._count_leaving(
                [each for uid, each in self._leaving.items() if uid not in moved], by_name
            )
        for claim in claims[len(self._counted) :]:
            part = self._parts[claim.gang.key] = pending_needs([claim], by_name)
            for counted, amounts in part.items():
                add(self._needs.setdefault(counted, {}), amounts, 1)
            if not anew:
                self._count_leaving(claim.victims, by_name)
            queue_name, priority = claim.gang.queue, claim.gang.priority
            lowest = self._least_urgent.get(queue_name, priority)
            self._least_urgent[queue_name] = min(priority, lowest)
        self._counted, self._counted_changes, self.outdated = claims, self._changes, False

    def _count_leaving(self, leaving: Iterable[LeavingPod], by_name: Mapping[str, Queue]) -> None:
        more: dict[GangKey, tuple[Gang, Sums]] = {}
        for each in leaving:
            uid = each.pod.seen.uid
            known = uid in self._counted_pods or each.pod.node in self._not_ready
            if not known and not each.pod.life.late and each.is_present():
                self._counted_pods.add(uid)
                add(more.setdefault(each.gang.key, (each.gang, {}))[1], each.amounts, 1)
        found: dict[_Whose, tuple[Gang, Sums]] = {}
        for gang, amounts in more.values():
            add(self._of_gang.setdefault(gang.key, {}), amounts, 1)
            if self._all_leave(gang):
                amounts[GANGS] = 1
            add(found.setdefault(_whose(gang), (gang, {}))[1], amounts, 1)
        _add_to_counted(self._uses, found.values(), by_name)

    def _all_leave(self, gang: Gang) -> bool:
        return all(
            uid in self._counted_pods for uid, pod in gang.members.items() if pod.node and pod.alive
        )


def pending_needs(claims: Iterable[ClaimInFlight], by_name: Mapping[str, Queue]) -> InFlight:
    """Returns what the claiming gangs will take, by queue and tenant. Queues above a gang's queue count it, too."""
    sums: InFlight = {}
    needs = [
        (claim.gang, claim.need if claim.gang.account.used else {**claim.need, GANGS: 1})
        for claim in claims
        if claim.gang.account is not None
    ]
    _add_to_counted(sums, needs, by_name)
    return sums


def _whose(gang: Gang) -> _Whose:
    assert gang.account is not None
    return gang.account.queue, gang.namespace, gang.account.user, gang.never_evicted


def _add_to_counted(
    sums: InFlight, amounts: Iterable[tuple[Gang, Sums]], by_name: Mapping[str, Queue]
) -> None:
    for gang, more in amounts:
        for counted in _counted_with(gang, by_name):
            add(sums.setdefault(counted, {}), more, 1)


def _counted_with(gang: Gang, by_name: Mapping[str, Queue]) -> Iterator[Counted]:
    """The gang's queue and those above it, with its tenants there as far as they are limited."""
    queue_name, namespace, user, never_evicted = _whose(gang)
    for queue in by_name[queue_name].path:
        yield queue
        seen = queue.seen
        if seen.namespace_gangs is not None or seen.namespace_amounts:
            yield queue, NAMESPACE, namespace
        if seen.user_gangs is not None or seen.user_amounts:
            yield queue, USER, user
        if never_evicted and queue.deserved:
            yield queue, NEVER_EVICTED, ""


def _without(sums: InFlight, part: InFlight) -> InFlight:
    found = dict(sums)
    for counted, amounts in part.items():
        found[counted] = dict(sums[counted])
        add(found[counted], amounts, -1)
        if not found[counted]:
            del found[counted]
    return found
