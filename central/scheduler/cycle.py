"""One turn: apply the facts, decide once, assume the decisions. Pure; the live loop, the simulator
and replay are three callers of it.

    turn = apply facts -> place waiting gangs in order -> heal broken gangs -> Jobs -> tell what changed
"""

from collections.abc import Collection, Iterable, Sequence

from central.controllers.job import reconcile as jobs
from central.model.decisions import Bind, Decision
from central.model.facts import Fact
from central.scheduler import binding, partial_gangs, placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest, placement_attempts
from central.scheduler.queues import order, quota
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state import on_owner, readiness
from central.scheduler.state.cluster import Cluster
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status import gang_status, gpu_memory, rdma_usage

# What did not fit stays out while only less is free; by whose room is kept.
Refused = dict[
    tuple[int, tuple[PlacementRequest, ...]], str
]  # why, by the snapshot's gains and what was asked
Memo = dict[frozenset[object], Refused]

RETRY_MAX_S = 30.0


def schedule_once(cluster: Cluster, facts: Iterable[Fact], now: float) -> list[Decision]:
    """now: seconds since the epoch (where pods say when they began), of a clock that never goes back."""
    apply_facts(cluster, facts, now)
    return decide(cluster, now)


def apply_facts(cluster: Cluster, facts: Iterable[Fact], now: float) -> None:
    cluster.now = cluster.queues.now = now
    for fact in facts:
        cluster.apply(fact)


def decide(cluster: Cluster, now: float) -> list[Decision]:
    decisions: list[Decision] = []
    on_owner.release(cluster, now)
    cluster.settle_tree()
    for gang in cluster.changed.values():
        gang.attempt.equivalence = 0
        gang.attempt.rank = order.rank(gang)
        _update_books(cluster, gang)
    if cluster.queues.on:
        cluster.queues.measure(cluster.snapshot, cluster.shut)
    holds = ReservedCapacity(cluster, now)
    decisions += holds.evictions
    asked = _asked(cluster, now)
    decisions += _schedule_pending(cluster, holds, asked)
    if holds.dropped:  # what was kept for one is there for all who were refused for it
        gains = cluster.snapshot.gains
        again = {
            key for key, gang in cluster.waiting.items() if 0 <= gang.attempt.refused_at != gains
        }
        holds = ReservedCapacity(cluster, now)
        decisions += [*holds.evictions, *_schedule_pending(cluster, holds, again)]
    decisions += gpu_memory.decide(cluster, now)
    decisions += rdma_usage.decide(cluster, now)
    for gang in list(cluster.partial.values()):
        decisions += partial_gangs.undo_partial(gang, now)
    decisions += cluster.batch.decide(cluster, now)
    decisions += jobs.decide(cluster, now)
    cluster.anteroom.decide(cluster, now)
    if cluster.queues.on:
        for gang in cluster.changed.values():
            cluster.statuses.count(gang, gang_status.phase(gang))
        decisions += cluster.statuses.decide(cluster.queues, now)
    decisions += cluster.hypernode_statuses.decide(cluster.hypernodes, cluster.tree, now)
    decisions += gang_status.status_updates(cluster)
    return decisions


def _schedule_pending(
    cluster: Cluster, holds: ReservedCapacity, asked: Collection[GangKey]
) -> list[Decision]:
    """Along the line once."""
    decisions: list[Decision] = []
    memo: Memo = {}
    verdicts: dict[int, Gang] = {}  # who was refused first of its likes, with nothing kept for it
    line = [cluster.waiting[key] for key in asked]
    line += [
        gang for key in cluster.reserved if (gang := cluster.waiting.get(key)) and key not in asked
    ]
    for gang in order.queue(cluster, line):
        if gang.key in asked or holds.stale(gang):
            same = (
                verdicts.get(gang.attempt.equivalence) if gang.key not in cluster.reserved else None
            )
            if same is not None and same.attempt.refused_at == cluster.snapshot.gains:
                _refuse_alike(cluster, gang, same)
            else:
                decisions += _try_schedule(cluster, gang, holds, memo)
                _update_books(cluster, gang)
                cluster.changed[gang.key] = gang
                if not gang.attempt.reason and gang.key in cluster.waiting:
                    cluster.retrying[gang.key] = gang  # the others come with the next turn
                if (
                    gang.attempt.reason
                    and gang.attempt.equivalence
                    and gang.key not in cluster.reserved
                ):
                    verdicts[gang.attempt.equivalence] = gang
        holds.passed(gang)
    holds.close()
    return decisions


def _refuse_alike(cluster: Cluster, gang: Gang, same: Gang) -> None:
    """Since another was refused, room was only taken: who comes later and wants the same, on the
    same terms, need not be looked at."""
    gang.attempt.refused_at = same.attempt.refused_at
    if gang.attempt.reason != same.attempt.reason:
        gang.attempt.reason = same.attempt.reason
        cluster.changed[gang.key] = gang


def due(cluster: Cluster, now: float) -> float | None:
    """When to look again though nothing happens: the live loop ticks, virtual time jumps there."""
    times = [
        gang.attempt.partial_since + partial_gangs.UNDO_AFTER_S
        for gang in cluster.partial.values()
        if gang.attempt.partial_since is not None
    ]
    times += [
        gang.attempt.retry_at for gang in cluster.retrying.values() if gang.attempt.retry_at > now
    ]
    times += cluster.claims_due
    times += cluster.statuses.due(now) if cluster.queues.on else ()
    if (at := jobs.due(cluster)) is not None:
        times.append(at)
    times += cluster.owners.held.values()
    times += cluster.hypernode_statuses.due(now)
    times += cluster.anteroom.due(cluster)
    times += cluster.batch.due(now)
    return min(times, default=None)


def _update_books(cluster: Cluster, gang: Gang) -> None:
    """Files the gang under what it needs next: a place, a cure, or nothing."""
    tally = gang.counts
    if len(tally.placed) - tally.assumed >= gang.minimum and not gang.missing():
        gang.started = True
    cluster.snapshot.gains += cluster.queues.file(gang)
    if cluster.pledges.by_gang or (gang.object is not None and gang.object.min_resources):
        cluster.snapshot.gains += cluster.pledges.file(gang)
    if tally.placed:
        cluster.lowest = min(cluster.lowest, gang.priority)
    half = len(tally.placed) > 0 and not gang.started and gang.missing() > 0
    partial = half and any(pod.alive for pod in tally.placed)
    if not partial:
        gang.attempt.partial_since = None
    cluster.file(gang, waiting=tally.wants > 0, partial=partial)


def _asked(cluster: Cluster, now: float) -> dict[GangKey, None]:
    """Those to be looked at in this turn. While nothing is gained that is who changed, and whose
    retry is due."""
    waiting, snapshot = cluster.waiting, cluster.snapshot
    pool: Iterable[GangKey] = waiting
    if cluster.asked_at == snapshot.gains:
        pool = [key for key in (*cluster.changed, *cluster.retrying) if key in waiting]
    cluster.asked_at = snapshot.gains
    return {key: None for key in pool if _is_asked(cluster, waiting[key], now)}


def _is_asked(cluster: Cluster, gang: Gang, now: float) -> bool:
    """A gang that did not fit is not asked again until something was gained or it changed."""
    if gang.attempt.bind_failures != gang.attempt.failures_handled:
        gang.attempt.failures_handled = gang.attempt.bind_failures
        gang.attempt.retry_at = now + min(
            RETRY_MAX_S, 2.0 ** min(gang.attempt.bind_failures - 1, 6)
        )
        cluster.retrying[gang.key] = gang
    if now < gang.attempt.retry_at:
        return False
    cluster.retrying.pop(gang.key, None)
    return gang.key in cluster.changed or gang.attempt.refused_at != cluster.snapshot.gains


def _try_schedule(
    cluster: Cluster, gang: Gang, holds: ReservedCapacity, memo: Memo
) -> list[Decision]:
    missing = gang.missing()
    gang.attempt.reason = readiness.not_ready_reason(gang, missing)
    if gang.attempt.reason:
        if gang.key in cluster.reserved:
            holds.drop(gang.key)
        return []
    attempts, wants = placement_attempts.attempts(cluster, gang, missing)
    refusals = [
        quota.refusal(cluster, gang, want.groups)
        or cluster.pledges.refusal(cluster, gang, want.groups)
        for want in wants
    ]
    if refusals[-1]:  # of the least that would do
        gang.attempt.equivalence = placement_attempts.equivalence_key(cluster, gang, wants)
        gang.attempt.reason, gang.attempt.refused_at = refusals[-1], cluster.snapshot.gains
        if gang.key in cluster.reserved:
            holds.drop(gang.key)
        return []
    first = len(wants) - 1 if refusals[0] else 0
    for state in holds.ways(gang):
        refused = memo.setdefault(state, {})
        binds = _place(cluster, gang, attempts[first:], wants[first:], refused)
        if binds:
            holds.took(gang)
            return list(binds)
    gang.attempt.equivalence = placement_attempts.equivalence_key(cluster, gang, wants)
    evictions = holds.refused(gang, wants[-1]) if missing > 0 else []
    holds.note(gang)
    return list(evictions)


def _place(
    cluster: Cluster,
    gang: Gang,
    attempts: Sequence[list[Pod]],
    wants: tuple[PlacementRequest, ...],
    refused: Refused,
) -> list[Bind]:
    """Binds the first attempt that fits."""
    asked = (cluster.snapshot.gains, wants)
    if refused and asked in refused:
        gang.attempt.reason, gang.attempt.refused_at = refused[asked], cluster.snapshot.gains
        return []
    draft = Draft(cluster.snapshot)
    for attempt, want in zip(attempts, wants, strict=True):
        try:
            placement.fit(draft, want)
        except DoesNotFit as no:
            gang.attempt.reason = no.why
            continue
        gang.attempt.reason, gang.attempt.refused_at = "", -1
        return binding.binds(cluster, gang, attempt, draft.keep())
    gang.attempt.refused_at = cluster.snapshot.gains
    refused[asked] = gang.attempt.reason
    return []
