"""Gangs whose pods get devices with the same values of an attribute, such as rails 0 to 3 on each node.

Each set of values that the devices of one pod can have is tried in turn, until the gang fits: first those with which it
may fit in the narrowest domain. Members that run have chosen the set already.

Design: docs/design/device-claims.md
"""

from collections.abc import Callable, Generator, Sequence

import numpy as np

from central.model import wording
from central.model.arrays import Ints
from central.model.device_claims import DeviceNeeds, SameValues, Values
from central.model.pending_causes import INVALID
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot

SETS_EVICTED_FOR = 8
Fit = Callable[[Draft, PlacementRequest], list[Assignment]]


def fit(draft: Draft, request: PlacementRequest, fit_any: Fit) -> list[Assignment]:
    """fit_any() with the first set of values with which the request fits. Raises as it does."""
    pods = _aligned(request)
    if not pods:
        return fit_any(draft, request)
    (same, *others) = {needs.same for needs, _ in pods if needs.same is not None}
    if others:
        raise DoesNotFit("its pods name different attributes of devices to be the same", INVALID)
    devices, snapshot = draft.snapshot.pod_counts.devices, draft.snapshot
    known = devices.values(same)
    if known is not None:
        try:
            return fit_any(draft, request)
        except DoesNotFit as error:
            count = [devices.capacity(needs) for needs, _ in pods]
            raise DoesNotFit(
                f"{error.why}; {_have(same, known, count, pods)}", error.cause
            ) from None
    found = devices.choices([needs for needs, _ in pods], empty=False)
    order = sorted(found, key=lambda values: _rank(snapshot, values, found[values], pods))
    refusal: DoesNotFit | None = None
    for values in order or (None,):
        if values is not None:
            devices.choose(same, values)
        try:
            return fit_any(draft, request)
        except DoesNotFit as error:
            best = f"; {_have(same, values, found[values], pods)}" if values is not None else ""
            refusal = refusal or DoesNotFit(f"{error.why}{best}", error.cause)
        finally:
            devices.choose(same, None)
    assert refusal is not None  # at least one was tried
    raise refusal


def in_turn(snapshot: Snapshot, request: PlacementRequest) -> Generator[None, None, None]:
    """Yields once for each set of values that the pods could have if all devices were free, for a search of victims:
    the set counts as chosen until the next. Once without a choice for gangs that have none."""
    pods, devices = _aligned(request), snapshot.pod_counts.devices
    sames = {needs.same for needs, _ in pods if needs.same is not None}
    if len(sames) != 1 or devices.values(same := sames.pop()) is not None:
        yield
        return
    found = devices.choices([needs for needs, _ in pods], empty=True)
    order = sorted(found, key=lambda values: _rank(snapshot, values, found[values], pods))
    for values in order[:SETS_EVICTED_FOR]:
        devices.choose(same, values)
        try:
            yield
        finally:
            devices.choose(same, None)


def _aligned(request: PlacementRequest) -> list[tuple[DeviceNeeds, int]]:
    """The needs of pods whose devices must be alike, with the number of pods."""
    groups = request.groups
    return [(needs, n) for spec, n in groups if (needs := spec.devices) is not None and needs.same]


def _rank(
    snapshot: Snapshot,
    values: Values,
    counts: Sequence[Ints],
    pods: Sequence[tuple[DeviceNeeds, int]],
) -> tuple[int, int, int]:
    """Returns a smaller value for sets with which the gang may fit in a narrower domain; of equal ones for smaller
    sets, and then for those that more pods can have."""
    domains, each = snapshot.columns.domains, list(zip(counts, pods, strict=True))
    fewest = min(int(by_row.sum()) - count for by_row, (_, count) in each)
    if all((by_row >= count).any() for by_row, (_, count) in each):
        return 0, len(values), -fewest
    for width, of in enumerate(domains.of[::-1], start=1):
        inside = of >= 0
        if all(
            (np.bincount(of[inside], by_row[inside]) >= count).any() for by_row, (_, count) in each
        ):
            return width, len(values), -fewest
    return len(domains.of) + (1 if fewest >= 0 else 2), len(values), -fewest


def _have(
    same: SameValues,
    values: Values,
    counts: Sequence[Ints],
    pods: Sequence[tuple[DeviceNeeds, int]],
) -> str:
    """Returns on how many nodes the devices with these values are free."""
    named = ",".join(f"{value!s:.40}" for _, value in sorted(values)[:16])
    name, nodes = same.attribute.partition("/")[2], int(np.any(counts, axis=0).sum())
    fitting = sum(
        min(int(by_row.sum()), count) for by_row, (_, count) in zip(counts, pods, strict=True)
    )
    total = sum(count for _, count in pods)
    where = wording.counted(nodes, "node")
    return f"all need {name} {named or '?'}: free for {fitting} of {total} pods, on {where}"
