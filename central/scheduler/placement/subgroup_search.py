"""Gangs whose members stand in groups that each want their own closeness (a tensor-parallel group in an
island, all of them in one block).

Equal groups of equal pods are counted, not tried: how many of them each island, node or rack takes,
and then the gang is placed as if they were pods. So the closest domain is found, and a "no" is true.
Other groups are placed one after the other, the hardest first, taking back what leads nowhere, in a
bounded number of tries; whoever is refused because the tries ran out is told so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.placement import explain, sequential
from central.scheduler.placement import role_placement as crews
from central.scheduler.placement.assign import level_below, seat, seat_entangled
from central.scheduler.placement.domain_choice import TRIED_DOMAINS, CountedDomains, DomainChoice
from central.scheduler.placement.fewest import spread
from central.scheduler.placement.levels import ladder
from central.scheduler.placement.request import PlacementRequest, RolePreferences, SubgroupRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.gpu_sharing import WHOLE

TRIES = 400  # seats of a group that are tried for one gang


def fit(draft: Draft, want: PlacementRequest, levels: Sequence[str]) -> list[Assignment]:
    """levels: that the gang may span, closest first. Raises DoesNotFit, with the draft as it was."""
    mark, snapshot = len(draft.seats), draft.snapshot
    inner = {part.required: ladder(snapshot, part.required) for part in want.parts}
    first = want.parts[0]
    entangled = sequential.pods_affect_each_other(snapshot, want.groups)
    alone = len(want.parts) == 1 and len(first.groups) == 1 and first.crew is None
    if alone and not first.anchors and not entangled:
        _equal(draft, want, levels, inner[first.required])
        return draft.seats[mark:]
    search = _Search(draft, want, entangled=entangled)
    if not search.seat(levels, inner):
        raise DoesNotFit(_why(snapshot, want, gave_up=search.tries <= 0))
    return draft.seats[mark:]


# --- equal groups ----------------------------------------------------------------


def _equal(
    draft: Draft, want: PlacementRequest, levels: Sequence[str], inner: Sequence[str]
) -> None:
    """Seats them in the closest domain, and there at the closest level that takes every group."""
    snapshot, (part,) = draft.snapshot, want.parts
    ((spec, size),) = part.groups
    counted: dict[str, CountedDomains] = {}
    for level in levels:
        for place in inner:
            if place not in counted:
                cap = _units(snapshot, spec, size, place)
                counted[place] = CountedDomains(snapshot, cap, snapshot.view(spec), size)
            room = counted[place]
            for rows in DomainChoice(snapshot, [room], [part.times], want.anchors).of(level):
                start = level_below(snapshot, level)
                where, units = spread(snapshot, room.by_row, rows, part.times, start)
                for row, count in zip(where.tolist(), units.tolist(), strict=True):
                    for _ in range(count):
                        seat(draft, part.groups, place, _around(snapshot, place, row))
                return
            if place == level:
                break
    raise DoesNotFit(_equal_why(snapshot, want, list(counted.values())[-1]))


def _units(snapshot: Snapshot, spec: PodSpec, size: int, level: str) -> Ints:
    """How many groups fit inside one domain each of the level; by row, those of a rack or wider at the
    first of its rows."""
    view = snapshot.view(spec).refresh()
    if level in snapshot.columns.domains.levels:
        index = snapshot.columns.domains.levels.index(level)
        domains, rows = np.unique(snapshot.columns.domains.of[index], return_index=True)
        rows, domains = rows[domains >= 0], domains[domains >= 0]
        units = np.zeros(len(view.by_row), dtype=np.int64)
        units[rows] = view.by_domain[index][domains] // size
        return units
    if level not in island_masks.ON_NODE:
        units = np.zeros(len(view.by_row), dtype=np.int64)
        units[:1] = view.by_row.sum() // size
        return units
    units = view.by_row // size
    if level in island_masks.PARTS:
        for row in np.flatnonzero(units).tolist():
            inside = island_masks.capacities(snapshot, level, row, view)
            units[row] = min(int(units[row]), sum(room // size for room in inside))
    return units


def _around(snapshot: Snapshot, level: str, row: int) -> Ints:
    """The rows of the row's domain."""
    if level in island_masks.ON_NODE:
        return np.array([row], dtype=np.int64)
    if level in snapshot.columns.domains.levels:
        of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(level)]
        return np.flatnonzero(of == of[row])
    return np.arange(len(snapshot.columns.names), dtype=np.int64)


def _equal_why(snapshot: Snapshot, want: PlacementRequest, room: CountedDomains) -> str:
    """room: of groups, at the widest level that one may span."""
    (part,) = want.parts
    ((spec, size),) = part.groups
    pods = explain.describe_pods(((spec, size),)).removeprefix("needs ")
    times = f"{part.times} subgroup" + ("s" if part.times != 1 else "")
    text = f"needs {times} of {pods}{_each_in(part.required)}"
    clause, most = "the cluster {fits}", int(room.by_row.sum())
    if want.required in snapshot.columns.domains.levels:
        index = snapshot.columns.domains.levels.index(want.required)
        kind, names = want.required.rpartition("/")[2], snapshot.columns.domains.names[index]
        text += f", all in one {kind}"
        if len(names):
            best = min(range(len(names)), key=lambda d: (-room.by_domain[index][d], names[d], d))
            clause, most = (
                f"best candidate {names[best]} {{fits}}",
                int(room.by_domain[index][best]),
            )
    elif want.required:
        text += f", all in one {explain.level_name(want.required)}"
        most, clause, _ = explain.best_node(snapshot, room.by_row)
    return f"{text}; {clause.format(fits=f'fits {most} of {times}')}"


def _each_in(required: str) -> str:
    return f", each in one {explain.level_name(required)}" if required else ""


# --- others ------------------------------------------------------------------------


class _Search:
    def __init__(self, draft: Draft, want: PlacementRequest, *, entangled: bool) -> None:
        self.tries = TRIES
        self._draft, self._want = draft, want
        self._seat = seat_entangled if entangled else seat
        self._parts = [replace(part, times=1) for part in want.parts for _ in range(part.times)]

    def seat(self, levels: Sequence[str], inner: dict[str, list[str]]) -> bool:
        """Takes the seats, group by group in the order of the want."""
        snapshot, want = self._draft.snapshot, self._want
        mark = len(self._draft.seats)
        counts = [count for _, count in want.groups]
        hardest = sorted(range(len(self._parts)), key=lambda i: self._ease(self._parts[i], inner))
        if any(part.crew is not None and part.crew.splits for part in self._parts):
            levels = sorted(
                levels, key=_on_node
            )  # one node would be closest, and is the last resort
        for level in levels:
            rooms = [snapshot.view(spec).refresh() for spec, _ in want.groups]
            choice = DomainChoice(snapshot, rooms, counts, want.anchors, most=TRIED_DOMAINS)
            for rows in choice.of(level):
                allowed = {
                    part.required: inner[part.required][: self._wide(inner, part, level)]
                    for part in self._parts
                }
                seats: dict[int, list[Assignment]] = {}
                if self._place(hardest, rows, allowed, seats):
                    self._draft.seats[mark:] = [s for i in sorted(seats) for s in seats[i]]
                    return True
                if self.tries <= 0:
                    return False
        return False

    def _ease(self, part: SubgroupRequest, inner: dict[str, list[str]]) -> tuple[bool, int, int]:
        view = self._draft.snapshot.view
        gpus = sum(
            (view(spec).gpus * WHOLE + view(spec).share) * count for spec, count in part.groups
        )
        return not part.anchors, len(inner[part.required]), -gpus

    def _wide(self, inner: dict[str, list[str]], part: SubgroupRequest, level: str) -> int:
        """How many of the part's levels are not wider than the gang's."""
        own = inner[part.required]
        return own.index(level) + 1 if level in own else len(own)

    def _place(
        self,
        order: Sequence[int],
        rows: Ints,
        allowed: dict[str, list[str]],
        seats: dict[int, list[Assignment]],
    ) -> bool:
        """The first of the order, then the rest."""
        if not order:
            return True
        draft, part = self._draft, self._parts[order[0]]
        mark = len(draft.seats)
        levels = allowed[part.required]
        crew = part.crew and self._crew(part.crew, seats)
        if crew is not None and (crew.splits or crew.elsewhere):
            levels = sorted(levels, key=_on_node)
        for level in levels:
            for inside in self._liked(crew, level, self._inside(part, level, rows)):
                if self.tries <= 0:
                    return False
                self.tries -= 1
                try:
                    with draft.all_or_nothing():
                        self._seat(draft, part.groups, level, inside, part.anchor_gpus)
                except DoesNotFit:
                    continue
                if crew is not None and not _on_node(level):
                    crews.seat(draft, crew, inside, mark)
                seats[order[0]] = draft.seats[mark:]
                if self._place(order[1:], rows, allowed, seats):
                    return True
                draft.undo(mark)
        return False

    def _crew(self, crew: RolePreferences, seats: dict[int, list[Assignment]]) -> RolePreferences:
        """Those who have seats already are there for it."""
        there = list(crew.there)
        for index, taken in seats.items():
            if (other := self._parts[index].crew) is not None:
                seated = [(seat.row, seat.spec, seat.pods) for seat in taken]
                there += crews.by_role(other, seated)
        return replace(crew, there=tuple(there))

    def _liked(
        self, crew: RolePreferences | None, level: str, found: Iterator[Ints]
    ) -> Iterator[Ints]:
        """Of domains that are as good otherwise, those first that the roles' wishes want."""
        if crew is None or not crew.there:
            yield from found
            return
        domains = list(found)
        if _on_node(level) and domains:
            problem = crews.problem_of(self._draft.snapshot, crew, np.concatenate(domains))
            counts = tuple(count for _, count in crew.roles)
            harms = [problem.harm(place, counts) for place in range(len(domains))]
        else:
            there = [row for row, _, _ in crew.there]
            harms = [-int(np.isin(there, rows).sum()) for rows in domains]
        yield from (domains[i] for i in sorted(range(len(domains)), key=harms.__getitem__))

    def _inside(self, part: SubgroupRequest, level: str, rows: Ints) -> Iterator[Ints]:
        """The rows of each domain of the level that may take the part, as far as they are among
        these."""
        snapshot = self._draft.snapshot
        among = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
        among[rows] = True
        rooms = []
        for spec, _ in part.groups:
            view = snapshot.view(spec).refresh()
            rooms.append(CountedDomains(snapshot, np.where(among, view.by_row, 0), view))
        counts = [count for _, count in part.groups]
        choice = DomainChoice(snapshot, rooms, counts, part.anchors, most=TRIED_DOMAINS)
        for inside in choice.of(level):
            yield inside[among[inside]]


def _on_node(level: str) -> bool:
    return level in island_masks.ON_NODE


def _why(snapshot: Snapshot, want: PlacementRequest, *, gave_up: bool) -> str:
    """What is missing where counts alone forbid it; else the first group that has no place even by
    itself; else that it is the combination that fails."""
    rooms = [snapshot.view(spec).refresh() for spec, _ in want.groups]
    choice = DomainChoice(snapshot, rooms, [count for _, count in want.groups], want.anchors)
    if not any(any(True for _ in choice.of(level)) for level in ladder(snapshot, want.required)):
        return explain.reason(
            snapshot, want.groups, want.required, want.anchors, existing_gpus=want.anchor_gpus
        )
    for part in want.parts:
        if not _fits_alone(snapshot, part):
            alone = explain.reason(
                snapshot, part.groups, part.required, part.anchors, existing_gpus=part.anchor_gpus
            )
            return f"one subgroup {alone}"
    groups = sum(part.times for part in want.parts)
    text = (
        f"{explain.describe_pods(want.groups)} in {groups} subgroups{explain.in_one(want.required)}"
    )
    if gave_up:
        return f"{text}; {explain.SEARCH_LIMIT}"
    return f"{text}; each subgroup fits on its own, but not all together"


def _fits_alone(snapshot: Snapshot, part: SubgroupRequest) -> bool:
    draft = Draft(snapshot)
    want = PlacementRequest(
        part.groups, part.required, part.anchors, part.anchor_gpus, parts=(replace(part, times=1),)
    )
    search = _Search(
        draft, want, entangled=sequential.pods_affect_each_other(snapshot, part.groups)
    )
    levels = ladder(snapshot, part.required)
    found = search.seat(levels, {part.required: levels})
    draft.undo()
    return found
