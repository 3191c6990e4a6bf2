"""One turn: apply the facts, decide once, assume the decisions. Pure; the live loop, the simulator
and replay are three callers of it.

    turn = apply facts -> heal broken gangs -> place waiting gangs in order -> tell what changed
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, islice
from operator import attrgetter

from central.core import hypernodes, order, phases, placement, queues, reservation
from central.core.cluster import Cluster
from central.core.decisions import Bind, Decision, Evict
from central.core.draft import DoesNotFit, Draft, Seat
from central.core.facts import Fact, PodSpec
from central.core.gangs import Gang, Key, Pod
from central.core.holds import Holds
from central.core.placement import Want
from central.core.reservation import Reservation
from central.core.snapshot import Snapshot
from protos.closest import closest
from protos.names import NODE

# What did not fit stays out while only less is free; by whose room is kept.
Refused = dict[tuple[int, tuple[Want, ...]], str]  # why, by the snapshot's gains and what was asked
Memo = dict[frozenset[Reservation], Refused]

UNDO_AFTER_S = 30.0  # a gang partly bound that can't be completed is undone after this
RETRY_MAX_S = 30.0
LIKES_KEPT = 10_000


def turn(cluster: Cluster, facts: Iterable[Fact], now: float) -> list[Decision]:
    """now: seconds since the epoch (where pods say when they began), of a clock that never goes back."""
    learn(cluster, facts, now)
    return decide(cluster, now)


def learn(cluster: Cluster, facts: Iterable[Fact], now: float) -> None:
    cluster.now = now
    for fact in facts:
        cluster.apply(fact)


def decide(cluster: Cluster, now: float) -> list[Decision]:
    decisions: list[Decision] = []
    cluster.settle_tree()
    for gang in cluster.changed.values():
        gang.like = 0
        gang.rank = order.rank(gang)
        _file(cluster, gang)
    if cluster.queues.on:
        cluster.queues.measure(cluster.snapshot, cluster.shut)
    holds = Holds(cluster, now)
    asked = _asked(cluster, now)
    decisions += _walk(cluster, holds, asked)
    if holds.dropped:  # what was kept for one is there for all who were refused for it
        gains = cluster.snapshot.gains
        again = {key for key, gang in cluster.waiting.items() if 0 <= gang.no_at != gains}
        decisions += _walk(cluster, Holds(cluster, now), again)
    for gang in list(cluster.partial.values()):
        decisions += _heal(gang, now)
    decisions += phases.tell(cluster)
    return decisions


def _walk(cluster: Cluster, holds: Holds, asked: Collection[Key]) -> list[Decision]:
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
            same = verdicts.get(gang.like) if gang.key not in cluster.reserved else None
            if same is not None and same.no_at == cluster.snapshot.gains:
                _refuse_alike(cluster, gang, same)
            else:
                decisions += _serve(cluster, gang, holds, memo)
                _file(cluster, gang)
                cluster.changed[gang.key] = gang
                if not gang.reason and gang.key in cluster.waiting:
                    cluster.retrying[gang.key] = gang  # the others come with the next turn
                if gang.like and gang.key not in cluster.reserved:
                    verdicts[gang.like] = gang
        holds.passed(gang)
    holds.close()
    return decisions


def _refuse_alike(cluster: Cluster, gang: Gang, same: Gang) -> None:
    """Since another was refused, room was only taken: who comes later and wants the same, on the
    same terms, need not be looked at."""
    gang.no_at = same.no_at
    if gang.reason != same.reason:
        gang.reason = same.reason
        cluster.changed[gang.key] = gang


def due(cluster: Cluster, now: float) -> float | None:
    """When to look again though nothing happens: the live loop ticks, virtual time jumps there."""
    times = [
        gang.broken_since + UNDO_AFTER_S
        for gang in cluster.partial.values()
        if gang.broken_since is not None
    ]
    times += [gang.retry_at for gang in cluster.retrying.values() if gang.retry_at > now]
    times += cluster.claims_due
    return min(times, default=None)


def _file(cluster: Cluster, gang: Gang) -> None:
    """Files the gang under what it needs next: a place, a cure, or nothing."""
    tally = gang.tally
    if len(tally.placed) - tally.assumed >= gang.minimum and not gang.missing():
        gang.started = True
    cluster.queues.file(gang)
    if tally.placed:
        cluster.lowest = min(cluster.lowest, gang.priority)
    half = len(tally.placed) > 0 and not gang.started and gang.missing() > 0
    partial = half and any(pod.alive for pod in tally.placed)
    if not partial:
        gang.broken_since = None
    cluster.file(gang, waiting=tally.wants > 0, partial=partial)


def _asked(cluster: Cluster, now: float) -> dict[Key, None]:
    """Those to be looked at in this turn. While nothing is gained that is who changed, and whose
    retry is due."""
    waiting, snapshot = cluster.waiting, cluster.snapshot
    pool: Iterable[Key] = waiting
    if cluster.asked_at == snapshot.gains:
        pool = [key for key in (*cluster.changed, *cluster.retrying) if key in waiting]
    cluster.asked_at = snapshot.gains
    return {key: None for key in pool if _is_asked(cluster, waiting[key], now)}


def _is_asked(cluster: Cluster, gang: Gang, now: float) -> bool:
    """A gang that did not fit is not asked again until something was gained or it changed."""
    if gang.bind_failures != gang.failures_seen:
        gang.failures_seen = gang.bind_failures
        gang.retry_at = now + min(RETRY_MAX_S, 2.0 ** min(gang.bind_failures - 1, 6))
        cluster.retrying[gang.key] = gang
    if now < gang.retry_at:
        return False
    cluster.retrying.pop(gang.key, None)
    return gang.key in cluster.changed or gang.no_at != cluster.snapshot.gains


def _serve(cluster: Cluster, gang: Gang, holds: Holds, memo: Memo) -> list[Decision]:
    missing = gang.missing()
    gang.reason = _not_ready(gang, missing)
    if gang.reason:
        if gang.key in cluster.reserved:
            holds.drop(gang.key)
        return []
    attempts, wants = _attempts(cluster, gang, missing)
    refusals = [queues.refusal(cluster, gang, want.groups) for want in wants]
    gang.like = _like(cluster, gang, wants)
    if refusals[-1]:  # of the least that would do
        gang.reason, gang.no_at = refusals[-1], cluster.snapshot.gains
        if gang.key in cluster.reserved:
            holds.drop(gang.key)
        return []
    if refusals[0]:
        attempts, wants = attempts[-1:], wants[-1:]
    for state in holds.ways(gang):
        binds = _place(cluster, gang, attempts, wants, memo.setdefault(state, {}))
        if binds:
            holds.took(gang)
            return list(binds)
    evictions = holds.refused(gang, wants[-1]) if missing > 0 else []
    holds.note(gang)
    return list(evictions)


def _like(cluster: Cluster, gang: Gang, wants: tuple[Want, ...]) -> int:
    """A number for what the gang wants and on what terms, while none of it has a place."""
    if gang.tally.placed:
        return 0
    pods = gang.waiting()
    terms = {(pod.seen.runs_for_s, pod.seen.preempts) for pod in pods}
    asked = (reservation.queue_of(gang), gang.priority, frozenset(terms), gang.started, wants)
    number = cluster.likes.get(asked)
    if number is None:
        if len(cluster.likes) >= LIKES_KEPT:
            cluster.likes.clear()
        number = cluster.likes[asked] = next(cluster.numbers)
    return number


def _attempts(
    cluster: Cluster, gang: Gang, missing: int
) -> tuple[list[list[Pod]], tuple[Want, ...]]:
    """All that wait, else the minimum. Once that is placed, the others come one by one."""
    pods = gang.waiting()
    anchors, anchor_gpus = _anchors(cluster, gang)
    required = _required(cluster, gang)
    attempts = [pods] if missing == len(pods) else [pods, gang.starters() or pods[:1]]
    return attempts, tuple(
        Want(_groups(attempt), required, anchors, anchor_gpus) for attempt in attempts
    )


def _place(
    cluster: Cluster,
    gang: Gang,
    attempts: Sequence[list[Pod]],
    wants: tuple[Want, ...],
    refused: Refused,
) -> list[Bind]:
    """Binds the first attempt that fits."""
    asked = (cluster.snapshot.gains, wants)
    if asked in refused:
        gang.reason, gang.no_at = refused[asked], cluster.snapshot.gains
        return []
    draft = Draft(cluster.snapshot)
    for attempt, want in zip(attempts, wants, strict=True):
        try:
            placement.fit(draft, want)
        except DoesNotFit as no:
            gang.reason = no.why
            continue
        gang.reason, gang.no_at = "", -1
        return _seat(cluster, gang, attempt, draft.keep())
    gang.no_at = cluster.snapshot.gains
    refused[asked] = gang.reason
    return []


def _not_ready(gang: Gang, missing: int) -> str:
    tally = gang.tally
    if gang.yields_to:
        if _is_breaking(gang):
            return f"is being evicted for {gang.yields_to}"
        gang.yields_to = ""
    if gang.object is not None and gang.object.error:
        return gang.object.error
    if gang.object is not None and gang.object.priority_class and gang.class_priority is None:
        return f"spec.priorityClassName: PriorityClass {gang.object.priority_class} does not exist"
    if gang.key[2] and gang.object is None and not tally.label_min:
        return f"PodGroup {gang.name} does not exist in namespace {gang.namespace}"
    if tally.gated:
        return f"{tally.gated} of {len(gang.members)} pods are held by scheduling gates"
    if missing and len(gang.starters()) < missing:
        if tally.blocked:
            return tally.blocked
        if gang.short_tasks():
            return _short_of_tasks(gang)
        if len(gang.members) < gang.minimum:
            return f"needs {gang.minimum} pods to start, {len(gang.members)} exist"
        return f"needs {missing} more pods, {len(tally.waiting)} wait"
    return tally.blocked if not tally.waiting else ""


def _is_breaking(gang: Gang) -> bool:
    """Whether so many are being evicted that the others don't make up its minimum."""
    staying = sum(not pod.evicting for pod in gang.placed())
    return staying < len(gang.placed()) and staying < gang.minimum


def _short_of_tasks(gang: Gang) -> str:
    """Which role lacks pods; where none does by itself, the gang as a whole."""
    waiting = Counter(pod.seen.task for pod in gang.waiting())
    for task, short in sorted(gang.short_tasks().items()):
        if waiting[task] < short:
            pods = "pod" if short == 1 else "pods"
            return f"task {task} needs {short} more {pods} to start, {waiting[task]} wait"
    return f"needs {gang.missing()} more pods to start, {len(gang.waiting())} wait"


def _required(cluster: Cluster, gang: Gang) -> str:
    """The widest level that the gang may cross; a tier counts from the narrowest level."""
    tier = gang.object.required_tier if gang.object is not None else None
    if gang.required or tier is None:
        return gang.required
    if tier == 0:
        return NODE
    levels = cluster.snapshot.domains.levels
    if cluster.hypernodes:
        return hypernodes.widest_within(levels, tier) or NODE
    return levels[-tier] if tier <= len(levels) else ""


def _anchors(cluster: Cluster, gang: Gang) -> tuple[tuple[int, ...], int]:
    """The rows where the gang already is, and its GPUs there if it is only one."""
    rows = cluster.snapshot.row
    there = [pod for pod in gang.placed() if pod.alive and pod.node in rows]
    anchors = tuple(sorted({rows[pod.node] for pod in there}))
    gpus = 0
    for pod in there if len(anchors) == 1 else ():
        gpus |= pod.gpus
    return anchors, gpus


def _groups(pods: Sequence[Pod]) -> tuple[tuple[PodSpec, int], ...]:
    """Kinds of pods with their numbers, by the first in rank order."""
    counts: dict[PodSpec, int] = {}
    for spec, together in groupby(pods, key=_spec):
        counts[spec] = counts.get(spec, 0) + sum(1 for _ in together)
    return tuple(counts.items())


_spec = attrgetter("spec")


def _seat(cluster: Cluster, gang: Gang, pods: Sequence[Pod], seats: Sequence[Seat]) -> list[Bind]:
    """Ranks in order take seats in order, so that neighbours in the ring sit beside each other."""
    kinds: dict[PodSpec, list[Pod]] = {}
    for spec, together in groupby(pods, key=_spec):
        kinds.setdefault(spec, []).extend(together)
    ranks = {spec: iter(kind) for spec, kind in kinds.items()}
    names = cluster.snapshot.names
    seated: list[Pod] = []
    places: list[tuple[str, int]] = []
    for seat in seats:
        row, spec, count, gpus = seat
        if count == 1:
            seated.append(next(ranks[spec]))
            places.append((names[row], gpus))
        else:
            seated += islice(ranks[spec], count)
            places += [(names[row], share) for share in _shares(cluster.snapshot, seat)]
    cluster.seat(gang, seated, places)
    return [
        Bind(pod.seen.uid, pod.seen.namespace, pod.seen.name, name, gpus, _unbound(cluster, pod))
        for pod, (name, gpus) in zip(seated, places, strict=True)
    ]


def _unbound(cluster: Cluster, pod: Pod) -> tuple[str, ...]:
    return cluster.kinds.storage.unbound(pod.seen) if pod.seen.claims else ()


def _shares(snapshot: Snapshot, seat: Seat) -> list[int]:
    """A seat's GPUs pod by pod, the closest together."""
    shape = snapshot.shape[seat.row]
    if shape is None or not seat.gpus:
        return [0] * seat.pods
    left, shares = seat.gpus, []
    for _ in range(seat.pods):
        share = closest(shape, left, seat.gpus.bit_count() // seat.pods)
        left &= ~share
        shares.append(share)
    return shares


def _heal(gang: Gang, now: float) -> list[Decision]:
    """A gang that was never whole does not stay half: what is bound is evicted once it is clear
    that the rest can't join. A gang that once ran whole keeps what it has."""
    if gang.broken_since is None:
        gang.broken_since = now
    if now - gang.broken_since < UNDO_AFTER_S:
        return []
    gang.broken_since = now  # an eviction that is refused is asked for again after as long
    placed = gang.placed()
    why = (
        f"gang {gang.name} could not be completed: {len(placed)} of {gang.minimum} pods were "
        f"bound, and the rest did not follow within {UNDO_AFTER_S:.0f} s"
    )
    evictions: list[Decision] = []
    for pod in placed:
        if pod.alive and not pod.evicting and not pod.assumed:
            pod.evicting = True
            seen = pod.seen
            evictions.append(Evict(seen.uid, seen.namespace, seen.name, pod.node, why))
    return evictions
