"""Places unlike subgroups together in one domain after placing them one after another has failed: each subgroup is
given a domain of its level, and then all pods are packed at once (packing.py). The number of steps is limited, and the
result says whether a refusal is certain.

Design: docs/design/subgroups.md
"""

from collections.abc import Iterator, Sequence

import numpy as np

from central.model.arrays import Ints
from central.scheduler.placement import packing
from central.scheduler.placement.request import Bundle, RolePreferences, SubgroupRequest
from central.scheduler.placement.role_placement import Vector, build_problem
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import GPU_SHARE, NODE

DIVISIONS = 400  # of subgroups among domains, for each gang
PLACES = 32  # nodes of the gang's domain; the search grows fast with them


class JointPacker:
    """For one gang, over all domains that are tried. exact: so far every refusal was certain."""

    def __init__(
        self, draft: Draft, subgroups: Sequence[SubgroupRequest], *, counted: bool
    ) -> None:
        """subgroups: one for each copy. counted: the pods' own rules do not refer to each other."""
        self._draft, self._subgroups = draft, subgroups
        parts = set(island_masks.ON_NODE) - {NODE}
        specs = {spec for subgroup in subgroups for spec, _ in subgroup.groups}
        self._works = counted and not any(subgroup.required in parts for subgroup in subgroups)
        # Unlike GPU shares are assigned to the tightest GPU only, not in every possible way.
        self.exact = self._works and not any(spec.request(GPU_SHARE) for spec in specs)
        self._works = self.exact
        self._steps, self._divisions = packing.STEPS, DIVISIONS

    def assign(self, rows: Ints) -> bool:
        """Assigns all pods to some of the rows, in the order of the subgroups; False if no placement was
        found."""
        if not self._works:
            return False
        snapshot = self._draft.snapshot
        classes = [pods for subgroup in self._subgroups for pods in subgroup.groups]
        specs = {spec for spec, _ in classes}
        usable = np.any([snapshot.view(spec).refresh().by_row[rows] > 0 for spec in specs], axis=0)
        if np.count_nonzero(usable) > PLACES:
            self.exact = False
            return False
        rows = rows[usable]
        capacity = np.stack([snapshot.view(spec).refresh().by_row[rows] for spec, _ in classes])
        for allowed in self._divided(snapshot, rows, capacity):
            if self._divisions <= 0 or self._steps <= 0:
                self.exact = False
                return False
            self._divisions -= 1
            problem = build_problem(snapshot, RolePreferences(tuple(classes)), rows, allowed)
            plan, self._steps = packing.search(problem, self._steps)
            if plan is not None:
                self._take(rows, plan)
                return True
        self.exact &= self._steps > 0
        return False

    def _divided(self, snapshot: Snapshot, rows: Ints, capacity: Ints) -> Iterator[Ints]:
        """Each division of the bundles and subgroups among domains: by row and pod class, 1 where it may go."""
        bundles = {one.number: one for subgroup in self._subgroups for one in subgroup.bundles}
        placed: list[SubgroupRequest | Bundle] = [*bundles.values(), *self._subgroups]
        domains = [self._domains(snapshot, each, rows) for each in placed]
        ends = np.cumsum([len(subgroup.groups) for subgroup in self._subgroups]).tolist()
        starts = [0, *ends[:-1]]
        allowed = np.zeros((len(rows), len(capacity)), dtype=np.int64)
        inside_of: dict[int, Ints] = {}  # by bundle: 1 for the rows in its domain

        def divide(index: int, before: int) -> Iterator[Ints]:
            """before: the domain of the subgroup before; an equal one need not try those before it again."""
            if index == len(domains):
                yield allowed
                return
            each = placed[index]
            if isinstance(each, Bundle):
                for inside in domains[index]:
                    inside_of[each.number] = inside
                    yield from divide(index + 1, 0)
                return
            at = index - len(bundles)
            classes = slice(starts[at], ends[at])
            alike = each == self._subgroups[at - 1]  # of the first, none is before it
            counts = np.array([count for _, count in each.groups])
            for number, domain in enumerate(domains[index]):
                inside = domain
                for bundle in each.bundles:
                    inside = inside * inside_of[bundle.number]
                fits = (capacity[classes] * inside).sum(axis=1) >= counts
                if (alike and number < before) or not fits.all():
                    continue
                allowed[:, classes] = inside[:, None]
                yield from divide(index + 1, number)

        yield from divide(0, 0)

    def _domains(
        self, snapshot: Snapshot, subgroup: SubgroupRequest | Bundle, rows: Ints
    ) -> list[Ints]:
        """For each domain that the subgroup, or the bundle, may be in: 1 for the rows in it. It joins its existing
        members."""
        tree = snapshot.columns.domains
        if subgroup.required == NODE:
            of = np.arange(len(snapshot.columns.names))
        elif subgroup.required in tree.levels:
            of = tree.of[tree.levels.index(subgroup.required)]
        else:
            return [np.ones(len(rows), dtype=np.int64)]
        found = set(of[rows].tolist()) - {-1}
        if subgroup.existing_rows:
            there = set(of[list(subgroup.existing_rows)].tolist())
            found = found & there if len(there) == 1 else set()
        return [(of[rows] == domain).astype(np.int64) for domain in sorted(found)]

    def _take(self, rows: Ints, plan: Sequence[Vector]) -> None:
        numbers = np.array(plan, dtype=np.int64)
        classes = [spec for subgroup in self._subgroups for spec, _ in subgroup.groups]
        for index, spec in enumerate(classes):
            where = np.flatnonzero(numbers[:, index])
            self._draft.take_all(spec, rows[where], numbers[where, index])
