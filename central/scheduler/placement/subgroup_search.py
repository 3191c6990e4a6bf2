"""Places gangs whose members form subgroups with a topology constraint of their own, for example
tensor-parallel groups in one island each, all of them in one block.

Equal subgroups of equal pods are counted: how many of them each island, node or rack takes. The gang is then
placed as if they were pods, so the domain found is the narrowest and a refusal is exact. Other subgroups are
placed one after another, the hardest first, with backtracking and at most ATTEMPTS attempts; a refusal then
says whether the limit was reached.

Design: docs/design/0005-subgroups.md
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.placement import explain, never_fits, role_placement, sequential
from central.scheduler.placement.assign import assign, assign_sequentially, level_below
from central.scheduler.placement.domain_choice import TRIED_DOMAINS, CountedDomains, DomainChoice
from central.scheduler.placement.fewest import fill_fewest
from central.scheduler.placement.joint_packing import JointPacker
from central.scheduler.placement.levels import ladder
from central.scheduler.placement.request import PlacementRequest, RolePreferences, SubgroupRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.gpu_sharing import WHOLE

ATTEMPTS = 400  # tentative placements of one subgroup, per gang


def fit(draft: Draft, request: PlacementRequest, levels: Sequence[str]) -> list[Assignment]:
    """levels: those that the gang may span, narrowest first. Raises DoesNotFit, with the draft as it was."""
    mark, snapshot = len(draft.assignments), draft.snapshot
    inner = {
        subgroup.required: ladder(snapshot, subgroup.required) for subgroup in request.subgroups
    }
    first = request.subgroups[0]
    sequentially = sequential.pods_affect_each_other(snapshot, request.groups)
    alone = len(request.subgroups) == 1 and len(first.groups) == 1 and first.roles is None
    if request.required in island_masks.PARTS and (first.copies > 1 or request.existing_rows):
        alone = False  # they share one island, and are counted by row
    if alone and not first.existing_rows and not sequentially:
        _assign_equal(draft, request, levels, inner[first.required])
        return draft.assignments[mark:]
    search = _SubgroupSearch(draft, request, sequentially=sequentially)
    if not search.assign(levels, inner):
        raise DoesNotFit(_reason(snapshot, request, gave_up=not search.exact))
    return draft.assignments[mark:]


# --- equal subgroups ----------------------------------------------------------------


def _assign_equal(
    draft: Draft, request: PlacementRequest, levels: Sequence[str], inner: Sequence[str]
) -> None:
    """Assigns them in the narrowest domain, and there at the narrowest level that takes every subgroup."""
    snapshot, (subgroup,) = draft.snapshot, request.subgroups
    ((spec, size),) = subgroup.groups
    counted: dict[str, CountedDomains] = {}
    for level in levels:
        for place in inner:
            if place not in counted:
                cap = _subgroups_by_row(snapshot, spec, size, place)
                counted[place] = CountedDomains(snapshot, cap, snapshot.view(spec), size)
            capacity = counted[place]
            for rows in DomainChoice(
                snapshot, [capacity], [subgroup.copies], request.existing_rows
            ).candidates(level):
                start = level_below(snapshot, level)
                where, units = fill_fewest(snapshot, capacity.by_row, rows, subgroup.copies, start)
                for row, count in zip(where.tolist(), units.tolist(), strict=True):
                    for _ in range(count):
                        snapshot.meter.spend_rows(len(capacity.by_row))
                        assign(draft, subgroup.groups, place, _domain_rows(snapshot, place, row))
                return
            if place == level:
                break
    raise DoesNotFit(_equal_reason(snapshot, request, list(counted.values())[-1]))


def _subgroups_by_row(snapshot: Snapshot, spec: PodSpec, size: int, level: str) -> Ints:
    """How many subgroups fit if each is inside one domain of the level. By row; a rack or a wider domain
    counts at its first row."""
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
            units[row] = min(int(units[row]), sum(capacity // size for capacity in inside))
    return units


def _domain_rows(snapshot: Snapshot, level: str, row: int) -> Ints:
    """The rows of the domain of the level that the row is in."""
    if level in island_masks.ON_NODE:
        return np.array([row], dtype=np.int64)
    if level in snapshot.columns.domains.levels:
        of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(level)]
        return np.flatnonzero(of == of[row])
    return np.arange(len(snapshot.columns.names), dtype=np.int64)


def _equal_reason(snapshot: Snapshot, request: PlacementRequest, capacity: CountedDomains) -> str:
    """capacity: for subgroups, at the widest level that one of them may span."""
    (subgroup,) = request.subgroups
    ((spec, size),) = subgroup.groups
    pods = explain.describe_pods(((spec, size),)).removeprefix("needs ")
    copies = f"{subgroup.copies} subgroup" + ("s" if subgroup.copies != 1 else "")
    text = f"needs {copies} of {pods}{_each_in(subgroup.required)}"
    clause, most = "the cluster {fits}", int(capacity.by_row.sum())
    if request.required in snapshot.columns.domains.levels:
        index = snapshot.columns.domains.levels.index(request.required)
        kind, names = request.required.rpartition("/")[2], snapshot.columns.domains.names[index]
        text += f", all in one {kind}"
        if len(names):
            best = min(
                range(len(names)), key=lambda d: (-capacity.by_domain[index][d], names[d], d)
            )
            clause, most = (
                f"best candidate {names[best]} {{fits}}",
                int(capacity.by_domain[index][best]),
            )
    elif request.required:
        text += f", all in one {never_fits.level_name(request.required)}"
        most, clause, _ = explain.best_node(snapshot, capacity.by_row)
    if not most and (never := never_fits.no_node_for_one(snapshot, snapshot.view(spec))):
        return f"{text}; {never}"
    return f"{text}; {clause.format(fits=f'fits {most} of {copies}')}"


def _each_in(required: str) -> str:
    return f", each in one {never_fits.level_name(required)}" if required else ""


# --- unequal subgroups ------------------------------------------------------------------------


class _SubgroupSearch:
    def __init__(self, draft: Draft, request: PlacementRequest, *, sequentially: bool) -> None:
        self.attempts_left = ATTEMPTS
        self._draft, self._request = draft, request
        self._assign = assign_sequentially if sequentially else assign
        self._subgroups = [
            replace(subgroup, copies=1)
            for subgroup in request.subgroups
            for _ in range(subgroup.copies)
        ]
        self._packer = JointPacker(draft, self._subgroups, counted=not sequentially)
        # Where the gang is tried: these rows and GPUs, and up to these levels by the level that a subgroup requires.
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._gpus = -1
        self._allowed: dict[str, list[str]] = {}
        # Attempts that a failed search took, by what was left to place and what was taken. Equal subgroups
        # that swap their domains lead to the same search again. It counts as much, but is not made.
        self._failed: dict[tuple[int, frozenset[object]], int] = {}
        self._remembers = all(
            subgroup.roles is None and all(spec.volumes is None for spec, _ in subgroup.groups)
            for subgroup in self._subgroups
        )

    @property
    def exact(self) -> bool:
        """Whether a refusal is certain."""
        return self._packer.exact

    def assign(self, levels: Sequence[str], inner: dict[str, list[str]]) -> bool:
        """Assigns all subgroups, and puts the assignments in the order of the request."""
        snapshot, request = self._draft.snapshot, self._request
        mark = len(self._draft.assignments)
        counts = [count for _, count in request.groups]
        hardest = sorted(
            range(len(self._subgroups)), key=lambda i: self._ease(self._subgroups[i], inner)
        )
        if any(
            subgroup.roles is not None and subgroup.roles.avoids_one_node
            for subgroup in self._subgroups
        ):
            levels = sorted(levels, key=_on_node)  # one node is the last resort
        for level in levels:
            capacities = [snapshot.view(spec).refresh() for spec, _ in request.groups]
            choice = DomainChoice(
                snapshot, capacities, counts, request.existing_rows, limit=TRIED_DOMAINS
            )
            self._allowed = {
                subgroup.required: inner[subgroup.required][
                    : self._levels_within(inner, subgroup, level)
                ]
                for subgroup in self._subgroups
            }
            for tried, self._rows in enumerate(choice.candidates(level), start=1):
                for gpus in self._parts(level):
                    self._gpus = gpus
                    taken: dict[int, list[Assignment]] = {}
                    self._failed.clear()
                    if self.attempts_left > 0 and self._place(hardest, taken):
                        self._draft.assignments[mark:] = [
                            s for i in sorted(taken) for s in taken[i]
                        ]
                        return True
                if request.required not in island_masks.PARTS and self._packer.assign(self._rows):
                    return True
                self._packer.exact &= tried < TRIED_DOMAINS
                if self.attempts_left <= 0 and not self._packer.exact:
                    return False
        return False

    def _parts(self, level: str) -> Sequence[int]:
        """The GPUs that the gang may use on its rows: all, or those of the one island or NUMA node that it has to be
        in."""
        request, snapshot = self._request, self._draft.snapshot
        if request.required not in island_masks.PARTS:
            return (-1,)
        asks = [(snapshot.view(spec), count) for spec, count in request.groups]
        row = int(self._rows[0])
        return island_masks.holding(snapshot, level, row, asks, request.existing_gpus)

    def _ease(
        self, subgroup: SubgroupRequest, inner: dict[str, list[str]]
    ) -> tuple[bool, int, int]:
        view = self._draft.snapshot.view
        gpus = sum(
            (view(spec).gpus * WHOLE + view(spec).share) * count for spec, count in subgroup.groups
        )
        return not subgroup.existing_rows, len(inner[subgroup.required]), -gpus

    def _levels_within(
        self, inner: dict[str, list[str]], subgroup: SubgroupRequest, level: str
    ) -> int:
        """How many of the subgroup's levels are not wider than the gang's."""
        own = inner[subgroup.required]
        return own.index(level) + 1 if level in own else len(own)

    def _place(self, order: Sequence[int], taken: dict[int, list[Assignment]]) -> bool:
        """Assigns the first subgroup of the order, then the others; takes it back if these do not fit."""
        if not order:
            return True
        if not self._remembers:
            return self._place_next(order, taken)
        state = (len(order), frozenset(Counter(self._draft.assignments).items()))
        if state in self._failed:
            self.attempts_left = max(0, self.attempts_left - self._failed[state])
            return False
        before = self.attempts_left
        if self._place_next(order, taken):
            return True
        self._failed[state] = before - self.attempts_left
        return False

    def _place_next(self, order: Sequence[int], taken: dict[int, list[Assignment]]) -> bool:
        draft, subgroup = self._draft, self._subgroups[order[0]]
        mark = len(draft.assignments)
        levels = self._allowed[subgroup.required]
        roles = subgroup.roles and self._with_existing(subgroup.roles, taken)
        if roles is not None and (roles.avoids_one_node or roles.has_absent_partner):
            levels = sorted(levels, key=_on_node)
        for level in levels:
            found = self._candidates(subgroup, level)
            for inside in self._preferred_first(roles, level, found):
                if self.attempts_left <= 0:
                    return False
                self.attempts_left -= 1
                draft.snapshot.meter.spend_rows(
                    len(inside) * len(subgroup.groups) + len(self._rows)
                )
                try:
                    with draft.all_or_nothing():
                        self._assign(
                            draft,
                            subgroup.groups,
                            level,
                            inside,
                            subgroup.existing_gpus,
                            among=self._gpus,
                        )
                except DoesNotFit:
                    continue
                if roles is not None and not _on_node(level):
                    role_placement.reassign(draft, roles, inside, mark)
                taken[order[0]] = draft.assignments[mark:]
                if self._place(order[1:], taken):
                    return True
                draft.undo(mark)
        return False

    def _with_existing(
        self, roles: RolePreferences, taken: dict[int, list[Assignment]]
    ) -> RolePreferences:
        """The roles, with the pods of subgroups assigned before as existing members."""
        members = list(roles.existing_members)
        for index, assignments in taken.items():
            if (other := self._subgroups[index].roles) is not None:
                counted = [(a.row, a.spec, a.pods) for a in assignments]
                members += role_placement.split_by_role(other, counted)
        return replace(roles, existing_members=tuple(members))

    def _preferred_first(
        self, roles: RolePreferences | None, level: str, found: Iterator[Ints]
    ) -> Iterator[Ints]:
        """Domains of one level, those first that the role preferences favour."""
        if roles is None or not roles.existing_members:
            yield from found
            return
        domains = list(found)
        if _on_node(level) and domains:
            problem = role_placement.build_problem(
                self._draft.snapshot, roles, np.concatenate(domains)
            )
            counts = tuple(count for _, count in roles.pods)
            costs = [problem.cost_on(place, counts) for place in range(len(domains))]
        else:
            used = [row for row, _, _ in roles.existing_members]
            costs = [-int(np.isin(used, rows).sum()) for rows in domains]
        yield from (domains[i] for i in sorted(range(len(domains)), key=costs.__getitem__))

    def _candidates(self, subgroup: SubgroupRequest, level: str) -> Iterator[Ints]:
        """For each domain of the level that may take the subgroup: those of its rows that may be used."""
        snapshot = self._draft.snapshot
        among = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
        among[self._rows] = True
        capacities = []
        for spec, _ in subgroup.groups:
            view = snapshot.view(spec).refresh()
            capacities.append(CountedDomains(snapshot, np.where(among, view.by_row, 0), view))
        counts = [count for _, count in subgroup.groups]
        choice = DomainChoice(
            snapshot, capacities, counts, subgroup.existing_rows, limit=TRIED_DOMAINS
        )
        for inside in choice.candidates(level):
            yield inside[among[inside]]


def _on_node(level: str) -> bool:
    return level in island_masks.ON_NODE


def _reason(snapshot: Snapshot, request: PlacementRequest, *, gave_up: bool) -> str:
    """The reason of the whole gang if capacity is short for all pods together; else that of the first
    subgroup that does not fit on its own; else that they do not fit together."""
    capacities = [snapshot.view(spec).refresh() for spec, _ in request.groups]
    choice = DomainChoice(
        snapshot, capacities, [count for _, count in request.groups], request.existing_rows
    )
    if not any(
        any(True for _ in choice.candidates(level)) for level in ladder(snapshot, request.required)
    ):
        return explain.reason(
            snapshot,
            request.groups,
            request.required,
            request.existing_rows,
            existing_gpus=request.existing_gpus,
        )
    for subgroup in request.subgroups:
        if not _fits_alone(snapshot, subgroup):
            alone = explain.reason(
                snapshot,
                subgroup.groups,
                subgroup.required,
                subgroup.existing_rows,
                existing_gpus=subgroup.existing_gpus,
            )
            return f"one subgroup {alone}"
    groups = sum(subgroup.copies for subgroup in request.subgroups)
    text = f"{explain.describe_pods(request.groups)} in {groups} subgroups{explain.in_one(request.required)}"
    if gave_up:
        return f"{text}; {explain.SEARCH_LIMIT}"
    return f"{text}; each subgroup fits on its own, but not all together"


def _fits_alone(snapshot: Snapshot, subgroup: SubgroupRequest) -> bool:
    draft = Draft(snapshot)
    request = PlacementRequest(
        subgroup.groups,
        subgroup.required,
        subgroup.existing_rows,
        subgroup.existing_gpus,
        subgroups=(replace(subgroup, copies=1),),
    )
    search = _SubgroupSearch(
        draft, request, sequentially=sequential.pods_affect_each_other(snapshot, subgroup.groups)
    )
    levels = ladder(snapshot, subgroup.required)
    with draft.all_or_nothing():
        found = search.assign(levels, {subgroup.required: levels})
    draft.undo()
    return found
