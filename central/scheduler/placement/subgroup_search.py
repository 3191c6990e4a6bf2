"""Places gangs whose members form subgroups with a topology constraint of their own, for example
tensor-parallel groups in one island each, all of them in one block. Subgroups can be bundled: those of a bundle
share one domain, and bundles can be inside bundles.

Equal subgroups in equal bundles are counted (equal_subgroups.py). Others are
placed one after another, the hardest first, with backtracking and at most ATTEMPTS attempts; a refusal then
says whether the limit was reached.

Design: docs/design/subgroups.md
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.model.wording import counted
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import (
    bundles,
    equal_subgroups,
    explain,
    pod_kinds,
    role_placement,
    sequential,
)
from central.scheduler.placement.assign import assign, assign_sequentially
from central.scheduler.placement.domain_choice import TRIED_DOMAINS, CountedDomains, DomainChoice
from central.scheduler.placement.levels import ladder, narrower
from central.scheduler.placement.packing import Packer
from central.scheduler.placement.request import (
    Bundle,
    PlacementRequest,
    RolePreferences,
    SubgroupRequest,
)
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.gpu_sharing import WHOLE
from protos.names import NODE

Ease = tuple[bool, int, int]  # the least is the hardest to place
Domain = tuple[str, Ints]  # its level and rows
Remainder = tuple[object, ...]  # what is left to place, and what is taken
# Subgroups that found a place, and choices of a bundle's domain, per gang; beside one for each subgroup.
ATTEMPTS = 400
ONE_GROUP = "one group of subgroups "


def fit(draft: Draft, request: PlacementRequest, levels: Sequence[str]) -> list[Assignment]:
    """levels: those that the gang may span, narrowest first. Raises DoesNotFit, with the draft as it was."""
    mark, snapshot = len(draft.assignments), draft.snapshot
    inner = {level: ladder(snapshot, level) for level in _levels_of(request)}
    if (within := _without_common_bundle(snapshot, request)) != request:
        return fit(draft, within, ladder(snapshot, within.required))
    sequentially = sequential.pods_affect_each_other(snapshot, request.groups)
    if not sequentially and equal_subgroups.are_countable(request):
        equal_subgroups.assign_equal(draft, request, levels, inner)
        return draft.assignments[mark:]
    search = _SubgroupSearch(draft, request, sequentially=sequentially)
    if not search.assign(levels, inner):
        raise DoesNotFit(_reason(snapshot, request, gave_up=not search.exact))
    return draft.assignments[mark:]


def _levels_of(request: PlacementRequest) -> set[str]:
    bundles = {bundle.required for subgroup in request.subgroups for bundle in subgroup.bundles}
    return bundles | {subgroup.required for subgroup in request.subgroups}


def _without_common_bundle(snapshot: Snapshot, request: PlacementRequest) -> PlacementRequest:
    """The same request: a bundle of all its subgroups constrains the gang. Not for gangs that have members
    already, because others may be outside of the bundle."""
    first = request.subgroups[0].bundles[:1]
    common = all(subgroup.bundles[:1] == first for subgroup in request.subgroups)
    if not first or not common or request.existing_rows:
        return request
    subgroups = tuple(replace(each, bundles=each.bundles[1:]) for each in request.subgroups)
    required = narrower(snapshot, request.required, first[0].required)
    return replace(request, required=required, subgroups=subgroups)


class _Choice(NamedTuple):
    """The place of one subgroup; or the rows of the domain of a bundle of subgroups, by its number."""

    assigned: Sequence[Assignment]
    bundle: int | None = None
    rows: Ints = np.zeros(0, dtype=np.int64)


class _SubgroupSearch:
    def __init__(self, draft: Draft, request: PlacementRequest, *, sequentially: bool) -> None:
        self._draft, self._request = draft, request
        self._assign = assign_sequentially if sequentially else assign
        self._subgroups = [
            replace(subgroup, copies=1)
            for subgroup in request.subgroups
            for _ in range(subgroup.copies)
        ]
        self.attempts_left = ATTEMPTS + len(self._subgroups)
        self._packer = Packer(draft, self._subgroups, counted=not sequentially)
        # Where the gang is tried: these rows and GPUs, and up to these levels by the level that a subgroup requires.
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._gpus = -1
        self._allowed: dict[str, list[str]] = {}
        self._pods_of = bundles.pods(self._subgroups)
        self._inside: dict[int, Ints] = {}  # rows of the domain of each bundle that has one
        # Attempts that a failed search took, by what was left to place and what was taken. Equal subgroups
        # that swap their domains lead to the same search again. It counts as much, but is not made.
        self._failed: dict[Remainder, int] = {}
        self._remembers = all(
            subgroup.roles is None
            and all(spec.volumes is None and spec.devices is None for spec, _ in subgroup.groups)
            for subgroup in self._subgroups
        )

    @property
    def exact(self) -> bool:
        """Returns whether a refusal is certain."""
        return self._packer.exact

    def assign(self, levels: Sequence[str], inner: dict[str, list[str]]) -> bool:
        """Assigns all subgroups, and puts the assignments in the order of the request."""
        snapshot, request = self._draft.snapshot, self._request
        mark = len(self._draft.assignments)
        widest = levels[-1]
        hardest = sorted(range(len(self._subgroups)), key=lambda i: self._order(i, inner))
        if any(
            subgroup.roles is not None and subgroup.roles.avoids_one_node
            for subgroup in self._subgroups
        ):
            levels = sorted(levels, key=_on_node)  # one node is the last resort
        for level in levels:
            for spec, _ in request.groups:
                snapshot.view(spec).refresh()
            choice = DomainChoice(
                snapshot, request, limit=TRIED_DOMAINS, widest=widest, of_subgroups=True
            )
            self._allowed = {
                required: own[: own.index(level) + 1] if level in own else own
                for required, own in inner.items()
            }
            for self._rows in choice.candidates(level):
                parts = sequential.gpu_masks(
                    snapshot, request.groups, request.required, self._rows, request.existing_gpus
                )
                for self._gpus in parts:
                    taken: dict[int, list[Assignment]] = {}
                    self._inside.clear()
                    if self.attempts_left > 0 and self._place(hardest, taken):
                        self._draft.assignments[mark:] = [
                            s for i in sorted(taken) for s in taken[i]
                        ]
                        return True
                if request.required not in island_masks.PARTS and self._packer.assign(self._rows):
                    return True
        return False

    def _order(self, index: int, inner: dict[str, list[str]]) -> list[tuple[Ease, int]]:
        """The hardest first, and the subgroups of a bundle after each other."""
        subgroup = self._subgroups[index]
        order = [
            (self._ease(bundle, self._pods_of[bundle.number], inner), bundle.number)
            for bundle in subgroup.bundles
        ]
        return [*order, (self._ease(subgroup, subgroup.groups, inner), -1)]

    def _ease(
        self, placed: SubgroupRequest | Bundle, groups: PodCounts, inner: dict[str, list[str]]
    ) -> Ease:
        view = self._draft.snapshot.view
        gpus = sum((view(spec).gpus * WHOLE + view(spec).share) * count for spec, count in groups)
        return not placed.existing_rows, len(inner[placed.required]), -gpus

    def _open_bundles(self, order: Sequence[int]) -> frozenset[object]:
        """Returns number and rows of each bundle that has a domain, and subgroups left to place (order)."""
        return frozenset(
            (bundle.number, self._inside[bundle.number].tobytes())
            for index in order
            for bundle in self._subgroups[index].bundles
            if bundle.number in self._inside
        )

    def _place(self, order: Sequence[int], taken: dict[int, list[Assignment]]) -> bool:
        """Assigns the subgroups in this order, each bundle's domain before its first one. If the next one fits
        nowhere, the last choice is taken back and made otherwise."""
        self._failed = {}
        draft, opened, made = self._draft, list[Iterator[_Choice]](), list[tuple[_Choice, int]]()
        while len(taken) < len(order):
            if len(opened) == len(made):
                opened.append(self._choices(order[len(taken) :], taken))
            mark = len(draft.assignments)
            if (choice := next(opened[-1], None)) is not None:
                made.append((choice, mark))
                if choice.bundle is not None:
                    self._inside[choice.bundle] = choice.rows
                else:
                    taken[order[len(taken)]] = list(choice.assigned)
                continue
            opened.pop()
            if not made:
                return False
            last, mark = made.pop()
            draft.undo(mark)
            if last.bundle is not None:
                del self._inside[last.bundle]
            else:
                del taken[order[len(taken) - 1]]
        return True

    def _state(self, rest: Sequence[int]) -> Remainder:
        """Returns how many subgroups are left to place, what is taken, and the domains of their bundles."""
        taken = frozenset(Counter(self._draft.assignments).items())
        return len(rest), taken, self._open_bundles(rest)

    def _has_failed(self, rest: Sequence[int]) -> bool:
        """Returns whether the search for the rest has failed before. If so, takes its attempts from attempts_left
        again."""
        if not self._failed or not self._remembers:
            return False
        spent = self._failed.get(self._state(rest))
        if spent is None:
            return False
        self.attempts_left = max(0, self.attempts_left - spent)
        return True

    def _choices(
        self, rest: Sequence[int], taken: dict[int, list[Assignment]]
    ) -> Iterator[_Choice]:
        """Takes the next subgroup, or chooses the domain of its next bundle, wherever it fits in turn. The caller takes
        each choice back before it asks for the next one."""
        if self._has_failed(rest):
            return
        entered, subgroup, rows = self.attempts_left, self._subgroups[rest[0]], self._rows
        to_choose = [each for each in subgroup.bundles if each.number not in self._inside]
        for each in subgroup.bundles[: len(subgroup.bundles) - len(to_choose)]:
            rows = self._inside[each.number]
        bundle, roles = to_choose[0] if to_choose else None, None
        if bundle is None:
            roles = subgroup.roles and self._with_existing(subgroup.roles, taken)
            domains = self._to_try(subgroup, roles, rows)
        else:
            domains = self._for_bundle(bundle, rows)
        while self.attempts_left > 0 and (domain := next(domains, None)) is not None:
            made = (
                self._try(subgroup, roles, domain)
                if bundle is None
                else self._choose(bundle, rows, domain)
            )
            if made is not None:
                self.attempts_left -= 1
                yield made
        if self._remembers:
            self._failed.setdefault(self._state(rest), entered - self.attempts_left)

    def _choose(self, bundle: Bundle, rows: Ints, domain: Domain) -> _Choice:
        groups = self._pods_of[bundle.number]
        self._draft.snapshot.meter.spend_rows(len(rows) * len(groups))
        return _Choice([], bundle.number, domain[1])

    def _try(
        self, subgroup: SubgroupRequest, roles: RolePreferences | None, domain: Domain
    ) -> _Choice | None:
        draft, (level, inside) = self._draft, domain
        mark = len(draft.assignments)
        draft.snapshot.meter.spend_rows(len(inside) * len(subgroup.groups) + len(self._rows))
        try:
            with draft.all_or_nothing():
                self._assign(
                    draft, subgroup.groups, level, inside, subgroup.existing_gpus, among=self._gpus
                )
        except DoesNotFit:
            return None
        if roles is not None and not _on_node(level):
            role_placement.reassign(draft, roles, inside, mark)
        return _Choice(draft.assignments[mark:])

    def _for_bundle(self, bundle: Bundle, rows: Ints) -> Iterator[Domain]:
        """Each domain inside of the rows that may take all pods of the bundle, none of which is placed."""
        groups = self._pods_of[bundle.number]
        for level in self._allowed[bundle.required]:
            if level not in island_masks.PARTS:
                for inside in self._candidates(bundle, groups, level, rows):
                    yield level, inside

    def _to_try(
        self, subgroup: SubgroupRequest, roles: RolePreferences | None, rows: Ints
    ) -> Iterator[Domain]:
        """Each domain inside of the rows that may take the subgroup, those first that it should be in."""
        levels = self._allowed[subgroup.required]
        views = [self._draft.snapshot.view(spec) for spec, _ in subgroup.groups]
        if not any(view.gpus or view.share for view in views):  # no part of a node has them
            levels = [NODE, *(level for level in levels if not _on_node(level))]
        if roles is not None and (roles.avoids_one_node or roles.has_absent_partner):
            levels = sorted(levels, key=_on_node)
        for level in levels:
            found = self._candidates(subgroup, subgroup.groups, level, rows)
            for inside in self._preferred_first(roles, level, found):
                yield level, inside

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

    def _candidates(
        self, placed: SubgroupRequest | Bundle, groups: PodCounts, level: str, rows: Ints
    ) -> Iterator[Ints]:
        """Yields for each domain of the level that may take the pods those of the given rows that are in it."""
        snapshot = self._draft.snapshot
        among = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
        among[rows] = True
        classes = []
        for spec, count in groups:
            view = snapshot.view(spec).refresh()
            inside = np.where(among, view.by_row, 0)
            classes.append((CountedDomains(snapshot, inside, view), count))
        request = PlacementRequest(groups, existing_rows=tuple(placed.existing_rows))
        widest = self._allowed[placed.required][-1]
        choice = DomainChoice(snapshot, request, classes, limit=TRIED_DOMAINS, widest=widest)
        for inside in choice.candidates(level):
            yield inside[among[inside]]


def _on_node(level: str) -> bool:
    return level in island_masks.ON_NODE


def _reason(snapshot: Snapshot, request: PlacementRequest, *, gave_up: bool) -> str:
    """The reason of the whole gang if capacity is short for all pods together; else that of the first
    subgroup that does not fit on its own; else that they do not fit together."""
    for spec, _ in request.groups:
        snapshot.view(spec).refresh()
    choice = DomainChoice(snapshot, request)
    if not any(
        any(True for _ in choice.candidates(level)) for level in ladder(snapshot, request.required)
    ):
        return explain.reason(snapshot, request)
    if alone := _reason_of_part(snapshot, request):
        return alone
    groups = sum(subgroup.copies for subgroup in request.subgroups)
    text = f"{pod_kinds.describe(request.groups)} in {counted(groups, 'subgroup')}{explain.in_one(request.required)}"
    if gave_up:
        return f"{text}; {explain.SEARCH_LIMIT}"
    return f"{text}; each subgroup fits on its own, but not all together"


def _reason_of_part(snapshot: Snapshot, request: PlacementRequest) -> str:
    """Returns the reason of the first subgroup, or bundle of them, that does not fit on its own; empty if each does."""
    for subgroup in request.subgroups:
        alone = PlacementRequest(
            subgroup.groups,
            subgroup.required,
            subgroup.existing_rows,
            subgroup.existing_gpus,
            subgroups=(replace(subgroup, copies=1, bundles=()),),
            unit="subgroup",
        )
        if request == alone or _refusal_of(snapshot, alone):
            return f"one subgroup {explain.reason(snapshot, alone)}"
    for bundle in bundles.alone(request):
        if refusal := _refusal_of(snapshot, bundle):
            return refusal if refusal.startswith(ONE_GROUP) else ONE_GROUP + refusal
    return ""


def _refusal_of(snapshot: Snapshot, request: PlacementRequest) -> str:
    """Returns why it does not fit; empty: it does."""
    draft = Draft(snapshot)
    try:
        fit(draft, request, ladder(snapshot, request.required))
    except DoesNotFit as refusal:
        return refusal.why
    draft.undo()
    return ""
