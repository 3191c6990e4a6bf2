"""Checks by counts alone whether a gang that has a reservation could fit earlier, or where fewer GPUs lack.

A better place is looked for every few seconds, and each search is a number of trial placements. Most find what the gang
has already: too little was freed since. The bounds here are no more than what any place can have, so a search that they
rule out would find nothing better:

    start    the gang fits no earlier than own.start if its pods do not, node by node, with all that ends before
    lacking  on a node with 5 free GPUs, pods of 2 GPUs lack 0, 0, 1, 2, 2, ... GPUs, one after the other. The cheapest
             of the nodes of a domain, as many as the gang has pods, are the least that it can lack there

Design: docs/design/reservations.md
"""

from math import gcd, inf

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.planned_reservation import plan_reservation
from central.scheduler.reservation.release_forecast import (
    Freed,
    domains_of,
    fits_when_empty,
    fits_when_freed,
    most_when_freed,
)
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState


def plan_better(
    state: ClusterState, own: Reservation, running: RunningPods, excluded: Ints
) -> Reservation | None:
    """plan_reservation() for a gang that has one; None: nothing that it could find is better."""
    if not may_be_better(state, own, running, excluded):
        return None
    return plan_reservation(state, own.gang, own.request, running, excluded)


def may_be_better(
    state: ClusterState, own: Reservation, running: RunningPods, excluded: Ints
) -> bool:
    """False: no place that plan_reservation() can find is better (Reservation.better_than)."""
    snapshot, request = state.snapshot, own.request
    snapshot.meter.spend_rows(len(snapshot.columns.names))
    if not fits_when_empty(snapshot, request, np.zeros(0, dtype=np.int64)):
        return False
    useful: Bools = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    for spec, _ in request.groups:
        useful[snapshot.view(spec).refresh().passed_rows()] = True
    before = running.freed(useful, excluded, float(np.nextafter(own.start, -inf)))
    if fits_when_freed(snapshot, request, before):
        return True
    lacking = own.place.gpus_lacking(snapshot)
    if not lacking:
        return False
    freed = running.freed(useful, excluded, own.start)
    return least_lacking(snapshot, request, useful, freed) < lacking


def least_lacking(
    snapshot: Snapshot, request: PlacementRequest, useful: Bools, freed: Freed
) -> float:
    """A lower bound of the GPUs that are in use now of any place for the request on useful rows; inf: there is none.
    freed: what is waited for."""
    with_gpus = [(spec, count) for spec, count in request.groups if snapshot.view(spec).gpus]
    if not with_gpus:
        return 0
    requested = [snapshot.view(spec).gpus for spec, _ in with_gpus]
    unit = gcd(*requested)  # each node is left with a multiple of it
    units = sum(gpus * count for gpus, (_, count) in zip(requested, with_gpus, strict=True)) // unit
    if unit > snapshot.most_gpus():
        return inf
    free = np.maximum(snapshot.columns.free[:, 0], 0)
    if len(with_gpus) == 1:
        most = most_when_freed(snapshot, snapshot.view(with_gpus[0][0]), freed)
    else:
        most = np.maximum(freed.by_row(0, len(free)) + snapshot.columns.free[:, 0], 0) // unit
        most[~useful] = 0
    return _cheapest(*domains_of(snapshot, request.required), free, most, (unit, units))


def _cheapest(of: Ints, domains: int, free: Ints, most: Ints, request: tuple[int, int]) -> float:
    """Returns the fewest GPUs that all units lack in one domain; inf: no domain fits them. of: the rows' domains; -1:
    none. most: by row, the units that fit. request: GPUs of a unit, and units."""
    unit, units = request
    of_row = np.maximum(of, 0)
    whole = np.minimum(free // unit, most)
    most = np.where(of >= 0, most, 0)
    whole = np.where(of >= 0, whole, 0)
    rest = free % unit
    partly = (most > whole) & (rest > 0)
    prices = np.zeros((domains, unit + 1), dtype=np.int64)  # units by domain and lacking GPUs
    np.add.at(prices[:, 0], of_row, whole)
    np.add.at(prices, (of_row[partly], unit - rest[partly]), 1)
    np.add.at(prices[:, unit], of_row, most - whole - partly)
    left, cost = np.full(domains, units, dtype=np.int64), np.zeros(domains, dtype=np.int64)
    for price in range(unit + 1):
        taken = np.minimum(left, prices[:, price])
        cost, left = cost + price * taken, left - taken
    found = cost[left == 0]
    return float(found.min()) if len(found) else inf
