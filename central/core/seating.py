"""From seats to bindings: which pod of a gang sits where, with which GPUs."""

from collections.abc import Sequence
from itertools import groupby, islice
from operator import attrgetter

from central.core.cluster import Cluster
from central.core.decisions import Bind
from central.core.draft import Seat
from central.core.facts import PodSpec
from central.core.gangs import Gang, Pod
from central.core.snapshot import Snapshot
from protos.closest import closest


def binds(cluster: Cluster, gang: Gang, pods: Sequence[Pod], seats: Sequence[Seat]) -> list[Bind]:
    """Ranks in order take seats in order, so that neighbours in the ring sit beside each other."""
    kinds: dict[PodSpec, list[Pod]] = {}
    for spec, together in groupby(pods, key=_spec):
        kinds.setdefault(spec, []).extend(together)
    ranks = {spec: iter(kind) for spec, kind in kinds.items()}
    names = cluster.snapshot.names
    seated: list[Pod] = []
    places: list[tuple[str, int]] = []
    rows: list[int] = []
    for seat in seats:
        row, spec, count, gpus = seat
        rows += [row] * count
        if count == 1:
            seated.append(next(ranks[spec]))
            places.append((names[row], gpus))
        else:
            seated += islice(ranks[spec], count)
            places += [(names[row], share) for share in _shares(cluster.snapshot, seat)]
    cluster.seat(gang, seated, places)
    told = cluster.snapshot.domains.told
    return [
        Bind(
            *(pod.seen.uid, pod.seen.namespace, pod.seen.name, name, gpus),
            *(_unbound(cluster, pod), told(row)),
        )
        for pod, (name, gpus), row in zip(seated, places, rows, strict=True)
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


_spec = attrgetter("spec")
