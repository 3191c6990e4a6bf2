"""Bindings that are decided and not sent yet, and whose place another gang claims: they are withdrawn.

So no gang is placed and evicted by one state. A gang whose victims have gone starts, and until then others could not
claim what it takes: its place was reserved, its queue did not use it yet, and its quota was kept. A gang that may claim
it from now on does so before the binding is sent, and not a moment later.

Design: docs/design/reclaim.md
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from central.model.decisions import Bind, Decision
from central.model.resources import Sums, add
from central.scheduler.inventory.pods import BIND_FAILED, Pod
from central.scheduler.preemption.preemption_request import PreemptionContext, outranks
from central.scheduler.queues.queue_claims import Claim
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state import handlers, reclassification
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

WITHDRAWN, CLAIMED = "binding withdrawn", "claimed before bindings leave"  # reasons of wakeups
CLAIMANTS_MOST = 16  # that are tried for the places of one round


def withdraw(
    state: ClusterState, victims: Sequence[Pod], decisions: list[Decision]
) -> tuple[Pod, ...]:
    """Takes the bindings of these pods out of the decisions, and gives back what they were to take. Returns the
    victims that have to be evicted."""
    assumed = {pod.seen.uid for pod in victims if pod.assumed}
    unsent = {each.pod for each in decisions if isinstance(each, Bind)} & assumed if assumed else ()
    if not unsent:
        return tuple(victims)
    decisions[:] = [
        each for each in decisions if not (isinstance(each, Bind) and each.pod in unsent)
    ]
    for pod in victims:
        if pod.seen.uid in unsent:
            pod.advance(BIND_FAILED)
            handlers.move_pod(state, pod, "")
            reclassification.on_unassigned(state, pod)
    return tuple(pod for pod in victims if pod.seen.uid not in unsent)


def claimants(
    context: PreemptionContext,
    claimed: Iterable[Gang],
    postponed: Iterable[Gang],
    binds: Iterable[Decision],
) -> list[Gang]:
    """Pending gangs that may claim what these bindings of a round gave to others, those that claim alike once.

    claimed: gangs that got the place that their victims left. The more urgent ones of their queues may claim it, and
    those of queues that are entitled to what theirs have too much of.
    postponed: gangs that searched victims shortly before, and not in this round. Those may claim that could start
    in place of what a queue got that has too much."""
    found: dict[object, Gang] = {}
    owed = _owed(context, postponed, binds)
    for gang in chain(owed, *(_claimants_of(context, each) for each in claimed)):
        attempt = gang.attempt
        alike = (gang.queue, gang.priority, attempt.equivalence or gang.key)
        found.setdefault(alike, gang)
        if len(found) >= CLAIMANTS_MOST:
            break
    return sorted(found.values(), key=attrgetter("attempt.rank"))


def _owed(
    context: PreemptionContext, postponed: Iterable[Gang], binds: Iterable[Decision]
) -> Iterator[Gang]:
    got: dict[Queue, Sums] | None = None  # what queues got in this round
    for gang in postponed:
        if got is None:
            got = _bound_by_queue(context, binds)
        if not got or gang.account is None:
            continue
        claim = Claim(context.queues, gang, gang.account.demand, {})
        if any(
            claim.gives(queue)
            and all(sums.get(name, 0) >= gang.account.demand[name] for name in claim.resources)
            for queue, sums in got.items()
        ):
            yield gang


def _bound_by_queue(context: PreemptionContext, binds: Iterable[Decision]) -> dict[Queue, Sums]:
    found: dict[Queue, Sums] = {}
    for bind in binds:
        pod = context.state.pods.get(bind.pod) if isinstance(bind, Bind) else None
        gang = context.state.gang_of(pod) if pod is not None else None
        if pod is not None and gang is not None and gang.account is not None:
            queue = context.queues.by_name[gang.account.queue]
            counted = context.queues.currency.counted(sums_of([pod]))
            add(found.setdefault(queue, {}), counted, 1)
    return found


def _claimants_of(context: PreemptionContext, placed: Gang) -> Iterator[Gang]:
    queues = context.queues
    if placed.account is None or not placed.counts.placed:
        return
    own = queues.by_name[placed.account.queue]
    for gang in _refused(own):
        if outranks(context.across, gang, placed):
            yield gang
    for queue in queues.root:
        if queue is not own and not queue.children and any(queue.demand.values()):
            yield from _first_of_each(
                _refused(queue), lambda gang: _may_claim(context, gang, placed, own)
            )


def _may_claim(context: PreemptionContext, gang: Gang, placed: Gang, queue: Queue) -> bool:
    if outranks(context.across, gang, placed):
        return True
    assert gang.account is not None
    claim = Claim(context.queues, gang, gang.account.demand, {})
    return claim.may_give(placed)


def _refused(queue: Queue) -> Iterator[Gang]:
    """The gangs of the queue that wait for capacity or quota, and have no victims yet."""
    claims = queue.gangs.values()
    return (gang for gang in claims if gang.attempt.reason and gang.account and gang.account.demand)


def _first_of_each(gangs: Iterable[Gang], chosen: Callable[[Gang], bool]) -> Iterator[Gang]:
    """Yields the first gang of each priority and request, if it is chosen."""
    seen: set[object] = set()
    for gang in gangs:
        alike = (gang.priority, gang.attempt.equivalence or gang.key)
        if alike not in seen:
            seen.add(alike)
            if chosen(gang):
                yield gang
