"""What is tried for a gang: which of its pods at once, as kinds with their numbers, and on what terms."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from central.core import hypernodes, reservation
from central.core.cluster import Cluster
from central.core.facts import PodSpec
from central.core.gangs import Gang, Pod
from central.core.placement import Want
from protos.names import NODE

LIKES_KEPT = 10_000


def attempts(
    cluster: Cluster, gang: Gang, missing: int
) -> tuple[list[list[Pod]], tuple[Want, ...]]:
    """All that wait, else the minimum. Once that is placed, the others come one by one."""
    pods = gang.waiting()
    anchors, anchor_gpus = _anchors(cluster, gang)
    required = _required(cluster, gang)
    tried = [pods] if missing == len(pods) else [pods, gang.starters() or pods[:1]]
    return tried, tuple(Want(_groups(attempt), required, anchors, anchor_gpus) for attempt in tried)


def like(cluster: Cluster, gang: Gang, wants: tuple[Want, ...]) -> int:
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
