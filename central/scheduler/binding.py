"""From seats to bindings: which pod of a gang sits where, with which GPUs."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import cast

from central.model.decisions import Bind
from central.model.facts import PodSpec
from central.scheduler.inventory.domains import Pairs
from central.scheduler.inventory.pods import Pod
from central.scheduler.snapshot.draft import Assignment
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import on_storage, residency
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from protos.closest import closest


def binds(
    state: ClusterState, gang: Gang, pods: Sequence[Pod], seats: Sequence[Assignment]
) -> list[Bind]:
    """Ranks in order take seats in order, so that neighbours in the ring sit beside each other."""
    nodes: list[str] = []
    gpus: list[int] = []
    places: list[Pairs] = []
    names, told = state.snapshot.columns.names, state.snapshot.columns.domains.annotations
    for seat in seats:
        row, _, count, mask = seat
        if count == 1:
            nodes.append(names[row])
            gpus.append(mask)
            places.append(told(row))
        else:
            nodes += [names[row]] * count
            gpus += _shares(state.snapshot, seat)
            places += [told(row)] * count
    seated = _by_seats(pods, seats)
    residency.assume(state, gang, seated, nodes, gpus)
    on_storage.on_assigned(state, seated)
    seen = [pod.seen for pod in seated]
    unbound = state.podclasses.storage.unbound
    claims = [unbound(pod) if pod.claims else () for pod in seen]
    columns = (
        map(_uid, seen),
        map(_namespace, seen),
        map(_name, seen),
        nodes,
        gpus,
        claims,
        places,
    )
    return list(map(_bind, zip(*columns, strict=True)))


def _by_seats(pods: Sequence[Pod], seats: Sequence[Assignment]) -> Sequence[Pod]:
    """The pods in the order of the seats."""
    if len(pods) == 1:
        return pods
    alike: dict[PodSpec, list[Pod]] = {}
    for spec, together in groupby(pods, key=_spec):
        alike.setdefault(spec, []).extend(together)
    if len(alike) == 1:
        return pods
    ranks = {spec: iter(kind) for spec, kind in alike.items()}
    return [pod for seat in seats for pod in islice(ranks[seat.spec], seat.pods)]


def _shares(snapshot: Snapshot, seat: Assignment) -> list[int]:
    """A seat's GPUs pod by pod, the closest together."""
    shape = snapshot.columns.gpus.shape[seat.row]
    if shape is None or not seat.gpus:
        return [0] * seat.pods
    if snapshot.view(seat.spec).share:
        return [seat.gpus] * seat.pods
    left, shares = seat.gpus, []
    for _ in range(seat.pods):
        share = closest(shape, left, seat.gpus.bit_count() // seat.pods)
        left &= ~share
        shares.append(share)
    return shares


_spec, _uid = attrgetter("spec"), attrgetter("uid")
_namespace, _name = attrgetter("namespace"), attrgetter("name")
# Bind(*each), at a third of its time: there are thousands in a turn.
_bind = cast("Callable[[tuple[object, ...]], Bind]", partial(tuple.__new__, Bind))
