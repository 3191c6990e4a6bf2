"""Finds the narrowest domain that takes a gang whole: one NVLink island, one node, then each level of the
network tree from the narrowest to the widest, then the whole cluster.

Equal pods are counted per domain, which is exact and does not depend on the gang's size. Four kinds of gangs
take another way: subgroups (subgroup_search), pods whose own rules refer to each other (sequential), roles
(role_placement), and unlike pods that do not fit when they are filled in class by class (packing).
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from central.model import wording
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.model.pending_causes import INVALID
from central.scheduler.placement import (
    explain,
    last_choice,
    returning_pods,
    role_placement,
    same_devices,
    sequential,
    subgroup_search,
)
from central.scheduler.placement.assign import assign
from central.scheduler.placement.compaction import compact
from central.scheduler.placement.domain_choice import DomainChoice
from central.scheduler.placement.levels import ladder
from central.scheduler.placement.packing import Packer
from central.scheduler.placement.request import PlacementRequest, RolePreferences, SubgroupRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.slicing import is_slice

COUNT_UNITS = 2  # of work to read the capacity for a class
COUNTED_PER_UNIT = 64  # rows that are counted again
ORDER_UNITS = 2  # to look at one class at one level
ORDERED_PER_UNIT = 1024  # ... and this many nodes
ROLE_DOMAINS_TRIED = 8  # domains of a level, for gangs with role preferences

NO_PART = (
    f"{wording.NEVER}: MIG slices cannot be kept to one island, NUMA node or PCIe switch; "
    "require node or a wider level"
)


def fit(draft: Draft, request: PlacementRequest) -> list[Assignment]:
    """Takes the assignments on the draft and returns them, pods that are close to each other in a row.

    Raises DoesNotFit, with the draft as it was, or WorkLimitReached: the caller undoes the draft then.
    """
    return last_choice.fit(draft, request, _fit_returning)


def _fit(draft: Draft, request: PlacementRequest) -> list[Assignment]:
    by_islands = request.by_islands
    snapshot = draft.snapshot
    for spec, _ in request.groups:
        if refusal := spec.unsupported or (by_islands and _not_inside_node(spec)):
            raise DoesNotFit(refusal, INVALID)
    levels = ladder(snapshot, request.required)
    if request.preferred:
        ladder(snapshot, request.preferred)  # which changes nothing, but has to exist
    if len(levels) > 1 and _is_one_share(request):
        levels = levels[1:]  # one GPU share is on one GPU, in an island or not
    if request.subgroups:
        return subgroup_search.fit(draft, request, levels)
    if sequential.pods_affect_each_other(snapshot, request.groups):
        return sequential.fit(draft, request, levels)
    if request.roles is not None:
        # Moving pods between nodes checks sums per resource, which do not show what one NIC has left.
        limited = any(spec.rdma_containers and snapshot.columns.nics for spec, _ in request.groups)
        if not limited:
            return _fit_roles(draft, request, request.roles, levels)
    return _fit_counted(draft, request, levels)


def _fit_counted(
    draft: Draft, request: PlacementRequest, levels: Sequence[str]
) -> list[Assignment]:
    """Class by class, each counted by domain."""
    mark, snapshot = len(draft.assignments), draft.snapshot
    unlike = len(request.groups) > 1
    packer = Packer(draft, (SubgroupRequest(request.groups),)) if unlike else None
    views = [snapshot.view(spec) for spec, _ in request.groups]
    choice = DomainChoice(snapshot, request, widest=levels[-1], by_preference=True)
    for level in levels:
        for found in _candidates(snapshot, views, choice, level):
            if not _assign(draft, request, level, found):
                if packer is None:
                    continue
                if not packer.assign(found):
                    continue
            if unlike and len(found) > 1 and not (mark or request.existing_rows):
                compact(draft, request.groups, level, found, balanced=request.balanced)
            return draft.assignments[mark:]
    text = explain.reason(snapshot, request)
    if packer is not None and not packer.exact:
        text = text.replace(explain.NOT_TOGETHER, explain.SEARCH_LIMIT)
    raise DoesNotFit(text)


def _candidates(
    snapshot: Snapshot, views: Sequence[PodClassCapacity], choice: DomainChoice, level: str
) -> Iterator[Ints]:
    """Returns the domains of the level, best first. Counts the work to read and to order them. Raises
    WorkLimitReached."""
    meter, nodes = snapshot.meter, len(snapshot.columns.names)
    for view in views:
        if len(views) > 1:
            meter.spend(COUNT_UNITS + view.rows_to_count() // COUNTED_PER_UNIT)
        view.refresh()
    meter.spend(len(views) * (ORDER_UNITS + nodes // ORDERED_PER_UNIT))
    return choice.candidates(level)


def _assign(
    draft: Draft, request: PlacementRequest, level: str, rows: Ints, *, by_role: bool = False
) -> bool:
    """Assigns all pods to the domain, or none. by_role: roles assign them again. Raises WorkLimitReached."""
    if request.existing_rows and not by_role:
        rows = _near_existing(draft.snapshot, request, rows)
    meter, held = draft.snapshot.meter, request.existing_gpus
    balanced = request.balanced and not by_role
    try:
        with draft.all_or_nothing():
            assign(draft, request.groups, level, rows, held, balanced=balanced, meter=meter)
    except DoesNotFit:
        return False
    return True


def _is_one_share(request: PlacementRequest) -> bool:
    ((spec, count), *others) = request.groups
    return count == 1 and not others and bool(spec.share_containers)


def _not_inside_node(spec: PodSpec) -> str:
    """Returns why the pod cannot be kept to a part of a node; empty: it can."""
    return NO_PART if any(is_slice(name) for name, _ in spec.requests) else ""


def _near_existing(snapshot: Snapshot, request: PlacementRequest, rows: Ints) -> Ints:
    """The rows in the narrowest domains of the gang's existing members that have enough capacity; else
    all rows."""
    existing = list(request.existing_rows)
    views = [snapshot.view(spec) for spec, _ in request.groups]
    for of in (np.arange(len(snapshot.columns.names)), *snapshot.columns.domains.of[::-1]):
        near = rows[np.isin(of[rows], of[existing])]
        pairs = zip(views, request.groups, strict=True)
        if all(view.by_row[near].sum() >= count for view, (_, count) in pairs):
            return near
    return rows


def _fit_roles(
    draft: Draft, request: PlacementRequest, roles: RolePreferences, levels: Sequence[str]
) -> list[Assignment]:
    """Role preferences choose among domains of the same level, and inside the domain."""
    mark, snapshot, widest = len(draft.assignments), draft.snapshot, levels[-1]
    if roles.avoids_one_node:  # then one node comes last, although it is the narrowest level
        levels = sorted(levels, key=lambda level: level in island_masks.ON_NODE)
    views = [snapshot.view(spec) for spec, _ in request.groups]
    choice = DomainChoice(snapshot, request, limit=ROLE_DOMAINS_TRIED, widest=widest)
    for level in levels:
        least, best = 0, list[Assignment]()
        for tried, rows in enumerate(_candidates(snapshot, views, choice, level)):
            if best and tried >= ROLE_DOMAINS_TRIED:
                break
            if not _assign(draft, request, level, rows, by_role=True):
                continue
            if level in island_masks.ON_NODE:
                return draft.assignments[mark:]
            cost = role_placement.reassign(draft, roles, rows, mark)
            placed = draft.assignments[mark:]
            draft.undo(mark)
            if not best or cost < least:
                least, best = cost, placed
        if best:
            draft.retake(best)
            return draft.assignments[mark:]
    raise DoesNotFit(explain.reason(snapshot, request))


_fit_same = partial(same_devices.fit, fit_any=_fit)
_fit_returning = partial(returning_pods.fit, fit_any=_fit_same)
