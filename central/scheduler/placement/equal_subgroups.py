"""Equal subgroups of equal pods, in equal bundles or in none: how many of them each island, node or rack takes is
counted, then how many bundles each domain takes. The gang is placed as if these were pods, so the domain found is the
narrowest and a refusal is exact.

Design: docs/design/subgroups.md
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod

import numpy as np

from central.model import wording
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.placement import explain, never_apart, never_fits, pod_kinds
from central.scheduler.placement.assign import assign, level_below
from central.scheduler.placement.balanced import fill_balanced
from central.scheduler.placement.domain_choice import CountedDomains, DomainChoice
from central.scheduler.placement.fewest import fill_fewest
from central.scheduler.placement.levels import ladder, narrower
from central.scheduler.placement.request import PlacementRequest, SubgroupRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND


@dataclass(frozen=True, slots=True)
class _Nest:
    """A gang as equal units. copies: number of the widest units: bundles or, without bundles, subgroups. bundles:
    level, and number of units inside, the widest first."""

    spec: PodSpec
    size: int  # pods of a subgroup
    required: str  # of a subgroup
    copies: int
    bundles: tuple[tuple[str, int], ...]

    def pods_of(self, depth: int) -> int:
        """Returns the number of pods in one bundle of that depth; past the last: in a subgroup."""
        return self.size * prod(number for _, number in self.bundles[depth:])


def are_countable(request: PlacementRequest) -> bool:
    return _nest(request) is not None


def _nest(request: PlacementRequest) -> _Nest | None:
    """Returns the gang as equal units. None: subgroups or bundles differ, have unlike pods, roles, or members that run
    already, or the gang is confined to one part of a node and is not a single subgroup in it."""
    first = request.subgroups[0]
    if len(first.groups) != 1 or first.roles is not None or first.existing_rows:
        return None
    levels = [bundle.required for bundle in first.bundles]
    counts = [Counter[tuple[int, ...]]() for _ in range(len(levels) + 1)]
    bare = _bare(first)
    for each in request.subgroups:
        if _bare(each) != bare or [bundle.required for bundle in each.bundles] != levels:
            return None
        if any(bundle.existing_rows for bundle in each.bundles):
            return None
        path = tuple(bundle.number for bundle in each.bundles)
        counts[-1][path] += each.copies
    for depth in range(len(levels) - 1, -1, -1):
        counts[depth] = Counter(path[:depth] for path in counts[depth + 1])
    copies, *inside = (set(count.values()) for count in counts)
    if any(len(numbers) != 1 for numbers in inside):
        return None
    sizes = [numbers.pop() for numbers in inside]
    ((spec, size),) = first.groups
    found = _Nest(spec, size, first.required, copies.pop(), tuple(zip(levels, sizes, strict=True)))
    alone = found.copies == 1 and found.required == request.required and not request.existing_rows
    if request.required in island_masks.PARTS and not alone:
        return None  # they share one island, and are counted by row
    return found


def _bare(subgroup: SubgroupRequest) -> SubgroupRequest:
    return replace(subgroup, copies=1, bundles=())


def assign_equal(
    draft: Draft, request: PlacementRequest, levels: Sequence[str], inner: dict[str, list[str]]
) -> None:
    """Assigns them in the narrowest domain, and there bundles and subgroups at the narrowest levels that take all of
    them. levels: those that the gang may span, narrowest first. inner: the same for each level that is required.
    Raises DoesNotFit, with the draft as it was."""
    snapshot, nest = draft.snapshot, _nest(request)
    assert nest is not None
    counted: dict[tuple[str, ...], CountedDomains] = {}
    widest = tuple(
        inner[level][-1] for level in (*(level for level, _ in nest.bundles), nest.required)
    )
    for level in levels:
        for places in _places(snapshot, nest, level, inner):
            if places not in counted:
                units = _units_by_row(snapshot, nest, places, 0)
                view = snapshot.view(nest.spec)
                counted[places] = CountedDomains(snapshot, units, view, nest.pods_of(0))
            needed = (counted[places], nest.copies)
            choice = DomainChoice(snapshot, request, [needed], of_subgroups=not request.balanced)
            for rows in choice.candidates(level):
                _Assigning(draft, nest, places, balanced=request.balanced).assign(
                    request, level, rows
                )
                return
    last = counted[widest] if widest in counted else list(counted.values())[-1]
    raise DoesNotFit(_reason(snapshot, request, nest, last))


def _places(
    snapshot: Snapshot, nest: _Nest, level: str, inner: dict[str, list[str]]
) -> Iterator[tuple[str, ...]]:
    """The levels at which bundles, the widest first, and subgroups can be, none wider than what is around it."""
    rank = {name: index for index, name in enumerate(ladder(snapshot, ""))}
    rank |= dict.fromkeys(island_masks.OPT_IN, rank[ISLAND])
    wide = [
        [name for name in inner[required] if name not in island_masks.PARTS]
        for required, _ in nest.bundles
    ]
    for places in product(*wide, inner[nest.required]):
        if all(rank[outer] >= rank[place] for outer, place in pairwise((level, *places))):
            yield places


class _Assigning:
    def __init__(
        self, draft: Draft, nest: _Nest, places: tuple[str, ...], *, balanced: bool
    ) -> None:
        self._draft, self._nest, self._places = draft, nest, places
        self._fill = fill_balanced if balanced else fill_fewest
        self._subgroups: list[list[Assignment]] = []

    def assign(self, request: PlacementRequest, level: str, rows: Ints) -> None:
        """Assigns all to these rows of a domain of the level, in the order of the request."""
        mark = len(self._draft.assignments)
        self._divide(0, self._nest.copies, level, rows)
        taken = self._draft.assignments
        if self._nest.bundles:
            paths = dict[tuple[int, ...], int]()  # bundles in the order in which they were assigned
            for subgroup in sorted(
                request.subgroups, key=lambda each: [bundle.number for bundle in each.bundles]
            ):
                path = tuple(bundle.number for bundle in subgroup.bundles)
                paths.setdefault(path, len(paths))
            each = self._nest.bundles[-1][1]
            taken[mark:] = [
                one
                for subgroup in request.subgroups
                for index in [paths[tuple(bundle.number for bundle in subgroup.bundles)]]
                for members in self._subgroups[index * each : (index + 1) * each]
                for one in members
            ]

    def _divide(self, depth: int, count: int, level: str, rows: Ints) -> None:
        """Divides bundles of this depth, or subgroups, among the rows of a domain of the level."""
        snapshot = self._draft.snapshot
        units = _units_by_row(snapshot, self._nest, self._places, depth)
        where, counts = self._fill(snapshot, units, rows, count, level_below(snapshot, level))
        place = self._places[depth]
        of = snapshot.columns.domains.of_level(place)
        for row, times in zip(where.tolist(), counts.tolist(), strict=True):
            inside = np.flatnonzero(of == of[row])
            for _ in range(times):
                snapshot.meter.spend_rows(len(units))
                if depth < len(self._nest.bundles):
                    self._divide(depth + 1, self._nest.bundles[depth][1], place, inside)
                else:
                    self._take(place, inside)

    def _take(self, place: str, rows: Ints) -> None:
        mark = len(self._draft.assignments)
        assign(self._draft, ((self._nest.spec, self._nest.size),), place, rows)
        self._subgroups.append(self._draft.assignments[mark:])


def _units_by_row(snapshot: Snapshot, nest: _Nest, places: tuple[str, ...], depth: int) -> Ints:
    """Returns by row how many bundles of this depth fit, or subgroups past the last. The number of a rack or a wider
    domain stands at its first row."""
    units = _subgroups_by_row(snapshot, nest.spec, nest.size, places[-1])
    for at in range(len(nest.bundles) - 1, depth - 1, -1):
        snapshot.meter.spend_rows(len(units))
        units = _bundles_by_row(snapshot, units, nest.bundles[at][1], places[at])
    return units


def _bundles_by_row(
    snapshot: Snapshot, units: Ints, size: int, level: str, *, joined: bool = False
) -> Ints:
    """Returns how many times that many units fit in one domain of the level. joined: what is in no domain
    of the level, but together in a narrower one, is in one domain."""
    if level in island_masks.ON_NODE:
        return units // size
    of = snapshot.columns.domains.of_level(level, joined=joined)
    found = np.zeros(len(units), dtype=np.int64)
    _, first, at = np.unique(of, return_index=True, return_inverse=True)
    found[first] = np.bincount(at, weights=np.where(of < 0, 0, units)).astype(np.int64) // size
    return found


def _subgroups_by_row(snapshot: Snapshot, spec: PodSpec, size: int, level: str) -> Ints:
    """Returns by row how many subgroups fit if each is inside one domain of the level. The number of a rack or a wider
    domain stands at its first row."""
    view = snapshot.view(spec).refresh()
    if level not in island_masks.ON_NODE:
        return _bundles_by_row(snapshot, view.by_row, size, level)
    units = view.by_row // size
    if level in island_masks.PARTS:
        for row in np.flatnonzero(units).tolist():
            inside = island_masks.capacities(snapshot, level, row, view)
            units[row] = min(int(units[row]), sum(capacity // size for capacity in inside))
    return units


# --- reason ------------------------------------------------------------------------------


def _reason(
    snapshot: Snapshot, request: PlacementRequest, nest: _Nest, capacity: CountedDomains
) -> str:
    """capacity: for the widest units, at the widest levels that they may span."""
    text, units = _what(nest)
    if request.required:
        text += f", all {never_fits.in_one(request.required)}"
    rest = explain.place_of_rest(snapshot, request.required, request.existing_rows, request.unit)
    most, clause, rows = explain.best_candidate(snapshot, capacity, request.required, rest)
    view, of_one = snapshot.view(nest.spec), nest.pods_of(0)
    never = _never(snapshot, request, nest)
    if not len(rows) or (never and not most):
        return f"{text}; {never or clause}"
    parts = [each for each in (nest.required, request.required) if each in island_masks.PARTS]
    details = explain.details(
        snapshot,
        view,
        rows,
        parts[0] if parts else request.required,
        rows if request.required and request.existing_rows else None,
        fitting=most * of_one,
        count=nest.copies * of_one,
    )
    text += f"; {clause.format(fits=f'fits {most} of {units}')}{details}"
    return f"{text}; {never}" if never else text


def _what(nest: _Nest) -> tuple[str, str]:
    """Returns the words for all that the gang needs, and for its widest units, such as "2 subgroups"."""
    pods = pod_kinds.describe(((nest.spec, nest.size),)).removeprefix("needs ")
    if not nest.bundles:
        units = wording.counted(nest.copies, "subgroup")
        return f"needs {units} of {pods}{_each_in(nest.required)}", units
    *wider, (_, size) = nest.bundles
    counts = [nest.copies, *(number for _, number in wider)]
    units = wording.counted(nest.copies, "group")
    parts = [wording.counted(count, "group") for count in counts] + [
        wording.counted(size, "subgroup")
    ]
    each = _each_in(nest.required).replace("each", "each subgroup", 1)
    for level, _ in reversed(nest.bundles):
        each += f", each group {never_fits.in_one(level)}" if level else ""
    return f"needs {' of '.join(parts)} of {pods}{each}", units


def _each_in(required: str) -> str:
    return f", each {never_fits.in_one(required)}" if required else ""


def _never(snapshot: Snapshot, request: PlacementRequest, nest: _Nest) -> str:
    """Returns why one of the pods, a group, a subgroup or all of them together can never start; empty if that is
    not certain."""
    view = snapshot.view(nest.spec)
    if not view.by_row.any() and (never := never_fits.no_node_for_one(snapshot, view)):
        return never
    parts = [(level, nest.pods_of(depth)) for depth, (level, _) in enumerate(nest.bundles)]
    for level, pods in ((nest.required, nest.size), *reversed(parts)):
        if level and (never := _too_many(snapshot, view, level, pods)):
            return never
    pods = nest.copies * nest.pods_of(0)
    if never := _too_many(snapshot, view, request.required, pods):
        return never
    found = never_fits.when_empty(view)
    if found is None or not len(found.rows):
        return ""
    units = found.capacity
    for level, size in ((nest.required, nest.size), *reversed(nest.bundles)):
        inside = narrower(snapshot, level, request.required)
        units = _bundles_by_row(snapshot, units, size, inside, joined=True)
    most = never_fits.most_in_one(snapshot, units, request.required)
    if most >= nest.copies:
        return ""
    unit = wording.plural(most, "group" if nest.bundles else "subgroup")
    return never_fits.even_if_empty(request.required, most, found.refusals, f" {unit}")


def _too_many(snapshot: Snapshot, view: PodClassCapacity, level: str, pods: int) -> str:
    never = never_fits.too_many(snapshot, view, level, pods)
    return never or never_apart.too_few(snapshot, ((view.spec, pods),), level)
