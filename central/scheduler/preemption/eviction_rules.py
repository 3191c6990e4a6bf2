"""Rules of who may be evicted for whom: a row for each, which preemption, reclaim, time sharing, defragmentation and
elastic sizes share.

A rule says which gangs may be evicted at all. Which of them are, with how many members, is decided by the search,
within the limit of the rule; what protects single pods is in evictable.py.

Design: docs/design/evictions.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from central.model.defaults import ACROSS_NONE, ACROSS_QUEUES
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import surplus_members
from central.scheduler.preemption.preemption_request import PreemptionContext, outranks
from central.scheduler.queues import queue_claims
from central.scheduler.queues.queue_claims import Claim
from central.scheduler.state.gangs import Gang

SETTLED_S = 300.0  # run time before a gang may be moved, so that none moves to and fro


@dataclass(frozen=True, slots=True)
class Claimant:
    """The claimant, as rules read it beside the victim. claim: what its queue is entitled to; None: there are no
    queues, or the caller does not reclaim."""

    context: PreemptionContext
    gang: Gang
    now: float
    claim: Claim | None = None


class EvictionRule(NamedTuple):
    name: str
    trigger: Callable[[Claimant], bool]  # whether the claimant has any candidates
    # by_group of a request: equal for gangs of one victim_group()
    candidates: Callable[[Claimant, Gang], bool]
    limit: str  # what the candidates keep


def _outranks_any(by: Claimant) -> bool:
    return by.gang.priority > by.context.state.pending.lowest_priority


def _has_less_priority(by: Claimant, victim: Gang) -> bool:
    if not outranks(by.context.across, by.gang, victim):
        return False
    if by.claim is None:
        return True
    if victim.account is None:
        return False
    queues = by.context.queues
    queue = queues.by_name[victim.account.queue]
    if queue is by.claim.queue or surplus_members.has_surplus(victim):
        return True
    return by.claim.keeps_guarantee(queue, queues.staying(victim))


def _has_givers(by: Claimant) -> bool:
    return by.claim is not None and any(by.claim.furthest_above())


def _is_above_share(by: Claimant, victim: Gang) -> bool:
    only_whole = not surplus_members.has_surplus(victim)
    return by.claim is not None and by.claim.may_give(victim, only_whole=only_whole)


def _shares_time(by: Claimant) -> bool:
    return by.context.time_sharing.shares(by.gang) and not (by.claim and by.claim.growth)


def _may_be_reached(by: Claimant, victim: Gang) -> bool:
    return by.context.across != ACROSS_NONE or victim.namespace == by.gang.namespace


def _moves_others(by: Claimant) -> bool:
    """A queue interrupts no gang for what it uses above its deserved amount."""
    movable = by.context.state.any_pod.movable
    return movable and (by.claim is None or not by.claim.exceeds_own())


def _is_movable(by: Claimant, victim: Gang) -> bool:
    """Gangs with subgroups or roles, and gangs that are incomplete or being evicted, are not moved."""
    if victim.priority > by.gang.priority or not victim.started:
        return False
    if victim.preemption.preempted_for or victim.missing():
        return False
    group = victim.object
    inside = group is not None and (group.subgroups or group.roles is not None)
    return not inside and all(
        pod.seen.movable and not pod.leaving and settled_at(pod) <= by.now
        for pod in victim.counts.placed
        if pod.alive
    )


def settled_at(pod: Pod) -> float:
    """Returns when the pod may be moved; infinite before its start is known."""
    began = pod.seen.started if pod.seen.started is not None else pod.since
    return inf if began is None else began + SETTLED_S


def _lacks_a_member(by: Claimant) -> bool:
    return by.gang.preempts and surplus_members.own_surplus_count(by.gang) > 0


def _shrinks(by: Claimant, victim: Gang) -> bool:
    """Inside a queue, elastic surplus leaves for the minimum of any gang of its own priority or above; for gangs of
    other queues as by the other rules."""
    context, claimant = by.context, by.gang
    if victim.queue == claimant.queue:
        return victim.priority <= claimant.priority and _may_be_reached(by, victim)
    by_priority = context.across == ACROSS_QUEUES and victim.priority < claimant.priority
    return queue_claims.may_take_whole(context.queues, claimant, victim, by_priority=by_priority)


PRIORITY, ENTITLEMENT, TURN = "priority", "entitlement", "turn"
MOVABLE, OWN_SURPLUS, ELASTIC_SURPLUS = "movable", "own surplus", "elastic surplus"
EVICTION_RULES = (
    EvictionRule(PRIORITY, _outranks_any, _has_less_priority, "other queues keep guarantees"),
    EvictionRule(ENTITLEMENT, _has_givers, _is_above_share, "queues keep shares and guarantees"),
    EvictionRule(TURN, _shares_time, _may_be_reached, "quanta; the fewest gangs are suspended"),
    EvictionRule(MOVABLE, _moves_others, _is_movable, "each moved gang fits on other nodes"),
    EvictionRule(
        OWN_SURPLUS,
        _lacks_a_member,
        lambda by, victim: victim is by.gang,
        "the minima of the gang and its tasks",
    ),
    EvictionRule(ELASTIC_SURPLUS, lambda _: True, _shrinks, "the least sizes of elastic gangs"),
)
_BY_NAME = {rule.name: rule for rule in EVICTION_RULES}


def applies(name: str, by: Claimant) -> bool:
    """Returns whether the rule has candidates for the claimant."""
    return _BY_NAME[name].trigger(by)


def may_evict(name: str, by: Claimant, victim: Gang) -> bool:
    """Returns whether the victim is a candidate of the rule."""
    return _BY_NAME[name].candidates(by, victim)
