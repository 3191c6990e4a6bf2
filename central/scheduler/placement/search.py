"""Where a gang goes: the closest domain that takes it whole. From the inside out: one island, one
node, then each level of the network tree from the narrowest to the widest, then anywhere."""

from collections.abc import Sequence

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.placement import explain, role_placement, sequential, subgroup_search
from central.scheduler.placement.assign import seat
from central.scheduler.placement.domain_choice import TRIED_DOMAINS, DomainChoice, parts_needed
from central.scheduler.placement.levels import ladder
from central.scheduler.placement.packing import Packer
from central.scheduler.placement.request import PlacementRequest, RolePreferences
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.slicing import is_slice

CREWS_TRIED = 8  # domains of a level, for gangs whose roles have wishes

NO_PART = "MIG slices cannot be kept to one island or NUMA node; require node or a wider level"


def fit(draft: Draft, want: PlacementRequest) -> list[Assignment]:
    """Takes the seats on the draft and returns them, closest neighbours beside each other.

    Raises DoesNotFit, with the draft as it was.
    """
    for spec, _ in want.groups:
        if refusal := spec.unsupported or (want.by_islands and _no_part(spec)):
            raise DoesNotFit(refusal)
    mark, snapshot = len(draft.seats), draft.snapshot
    levels = ladder(snapshot, want.required)
    if len(levels) > 1 and _is_one_part(want):
        levels = levels[1:]  # a part of a GPU is close to itself, in an island or not
    if want.parts:
        return subgroup_search.fit(draft, want, levels)
    if sequential.pods_affect_each_other(snapshot, want.groups):
        return _one_by_one(draft, want, levels)
    # Who changes places counts by resource, which tells nothing of one card's room.
    carded = any(spec.rdma_containers and snapshot.columns.nics for spec, _ in want.groups)
    if want.crew is not None and not carded:
        return _with_roles(draft, want, want.crew, levels)
    counts = [count for _, count in want.groups]
    if by := _preferred(snapshot, want.preferred):
        levels = _fewest_first(snapshot, want, levels, by)
    packer = Packer(want.groups)
    for level in levels:
        rooms = [snapshot.view(spec).refresh() for spec, _ in want.groups]
        choice = DomainChoice(
            snapshot, rooms, counts, want.anchors, load=want.groups, by=by, spread=want.spread
        )
        for tried, found in enumerate(choice.of(level), start=1):
            rows = _beside(snapshot, want, found) if want.anchors else found
            try:
                with draft.all_or_nothing():
                    seat(draft, want.groups, level, rows, want.anchor_gpus, by=by)
            except DoesNotFit:
                packer.certain &= tried < TRIED_DOMAINS
                if not packer.seat(draft, want.groups, found):
                    continue
            return draft.seats[mark:]
    text = _why(snapshot, want)
    if not packer.certain:
        text = text.replace(explain.NOT_TOGETHER, explain.SEARCH_LIMIT)
    raise DoesNotFit(text)


def _is_one_part(want: PlacementRequest) -> bool:
    ((spec, count), *others) = want.groups
    return count == 1 and not others and bool(spec.share_containers)


def _no_part(spec: PodSpec) -> str:
    """Why it can't be kept to less than a node; empty: it can."""
    return NO_PART if any(is_slice(name) for name, _ in spec.requests) else ""


def _preferred(snapshot: Snapshot, level: str) -> int:
    """The index of the level that the gang prefers, nodes being past the last; 0: none, or the widest,
    of which there are the fewest anyway."""
    if not level:
        return 0
    ladder(snapshot, level)  # it is one of them
    levels = snapshot.columns.domains.levels
    return levels.index(level) if level in levels else len(levels)


def _fewest_first(
    snapshot: Snapshot, want: PlacementRequest, levels: Sequence[str], by: int
) -> list[str]:
    """Levels wider than the preferred one by how many of its domains the gang would span; the closer
    first of those that are equal."""
    tree = snapshot.columns.domains.levels
    views = [snapshot.view(spec).refresh() for spec, _ in want.groups]
    sizes = [count for _, count in want.groups]
    main = max(range(len(views)), key=lambda i: (views[i].gpus * sizes[i], sizes[i]))

    def order(level: str) -> int:
        if level in island_masks.ON_NODE or (level in tree and tree.index(level) >= by):
            return 0
        return parts_needed(snapshot, views[main], sizes[main], level, by=by)

    return sorted(levels, key=order)


def _beside(snapshot: Snapshot, want: PlacementRequest, rows: Ints) -> Ints:
    """Of the rows those in the narrowest domains where members are already, if there is room."""
    anchors = list(want.anchors)
    views = [snapshot.view(spec) for spec, _ in want.groups]
    for of in (np.arange(len(snapshot.columns.names)), *snapshot.columns.domains.of[::-1]):
        near = rows[np.isin(of[rows], of[anchors])]
        rooms = zip(views, want.groups, strict=True)
        if all(view.by_row[near].sum() >= count for view, (_, count) in rooms):
            return near
    return rows


def _with_roles(
    draft: Draft, want: PlacementRequest, roles: RolePreferences, levels: Sequence[str]
) -> list[Assignment]:
    """The same, where the roles' wishes choose among domains that are equally close, and inside."""
    mark, snapshot = len(draft.seats), draft.snapshot
    counts = [count for _, count in want.groups]
    if roles.splits:  # one node would be closest, and is the last resort
        levels = sorted(levels, key=lambda level: level in island_masks.ON_NODE)
    for level in levels:
        best, found = 0, list[Assignment]()
        rooms = [snapshot.view(spec).refresh() for spec, _ in want.groups]
        choice = DomainChoice(snapshot, rooms, counts, want.anchors, most=CREWS_TRIED)
        for rows in choice.of(level):
            try:
                seat(draft, want.groups, level, rows, want.anchor_gpus)
            except DoesNotFit:
                draft.undo(mark)
                continue
            if level in island_masks.ON_NODE:
                return draft.seats[mark:]
            harm = role_placement.seat(draft, roles, rows, mark)
            if not found or harm < best:
                best, found = harm, draft.seats[mark:]
            draft.undo(mark)
        if found:
            draft.retake(found)
            return draft.seats[mark:]
    raise DoesNotFit(_why(snapshot, want))


def _one_by_one(draft: Draft, want: PlacementRequest, levels: Sequence[str]) -> list[Assignment]:
    try:
        return sequential.fit(draft, want.groups, levels, want.anchors, want.anchor_gpus)
    except DoesNotFit as no:
        text = _why(draft.snapshot, want, no.why)
        raise DoesNotFit(text) from None


def _why(snapshot: Snapshot, want: PlacementRequest, together: str = "") -> str:
    return explain.reason(
        snapshot, want.groups, want.required, want.anchors, together, existing_gpus=want.anchor_gpus
    )
