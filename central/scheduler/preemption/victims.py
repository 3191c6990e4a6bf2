"""Who may give way to a gang, as arrays, and which of them do the least harm in each domain that it may
be in. See preemption."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import PodSpec
from central.scheduler import placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import (
    disruption_budgets,
    exact_search,
    least_harm,
    surplus_members,
)
from central.scheduler.preemption.least_harm import EvictionUnit, LeastHarmProblem
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.reservation.release_forecast import ReleasablePods, taken_capacity
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import DoesNotFit, Draft

LOOKS = 4_000  # choices that are looked at for the best one, all domains together
SEARCHED_UNITS = 40  # in a domain: with more, the choice is a good one and no more is claimed
CONFIRMED = 8  # domains in which the seats are taken for a trial
TRIALS = 200  # for gangs of unlike pods

Found = tuple[LeastHarmProblem, list[EvictionUnit] | None]


@dataclass(slots=True)
class _Area:
    """Rows of a domain with somebody who may go, as the resources that one pod asks for."""

    rows: Sequence[int]
    near: Sequence[int]  # who may go there
    free: Ints
    frees: Ints  # by who
    asks: tuple[int, ...]


class VictimSearch:
    """Who may go, as arrays, and what is free beside them."""

    def __init__(self, context: PreemptionContext, claim: PreemptionRequest, usable: Bools) -> None:
        self._context, self._want, self._now = context, claim.want, claim.now
        self._also = claim.also
        want = claim.want
        snapshot = self._snapshot = context.state.snapshot
        fits = np.zeros(len(usable), dtype=np.bool_)
        for spec, _ in want.groups:
            fits[snapshot.view(spec).passed_rows()] = True
        self._usable = usable & fits
        row_of = snapshot.columns.row
        self.gangs: list[tuple[list[Pod], int]] = []  # who is there, and how many are surplus
        self._of: list[int] = []
        pods: list[Pod] = []
        roles: dict[least_harm.Allowance, int] = {}
        for other in context.state.gangs.values():
            if other is claim.gang or not (placed := other.placed()):
                continue
            if not claim.may_take(claim.gang, other):
                continue
            there = [pod for pod in placed if pod.charged_spec is not None and not pod.leaving]
            near = [pod for pod in there if self._usable[row_of[pod.node]]]
            if near:
                pods += near
                self._of += [len(self.gangs)] * len(near)
                self.gangs.append((there, surplus_members.surplus(other, there)))
                roles |= surplus_members.roles(other, there)
        leaving = [
            pod
            for row in np.flatnonzero(self._usable).tolist()
            for pod in context.state.nodes[snapshot.columns.names[row]].pods.values()
            if pod.charged_spec is not None and pod.leaving
        ]
        self._covered = not claim.regardless and any(map(context.budgets.of, pods))
        self._allowed = {
            **(
                disruption_budgets.left(context.budgets, context.state.gangs.values())
                if self._covered
                else {}
            ),
            **roles,
        }
        self._count = len(pods)
        self._leavers = ReleasablePods(context.state, [*pods, *leaving])
        self._already = np.arange(self._count, len(self._leavers.pods))
        self._bounds = self._room(np.arange(len(self._leavers.pods)))
        self._base = self._room(self._already)

    def _room(self, gone: Ints) -> dict[PodSpec, Ints]:
        """By kind, how many fit on each row without those who are gone."""
        with self._leavers.gone(gone) as snapshot:
            found = {}
            for spec, _ in self._want.groups:
                cap = snapshot.view(spec).refresh().by_row.copy()
                cap[~self._usable] = 0
                found[spec] = cap
            return found

    def could(self, rows: Ints) -> bool:
        return all(self._bounds[spec][rows].sum() >= count for spec, count in self._want.groups)

    def single(self, domains: Sequence[Ints]) -> PreemptionPlan | None:
        """A gang of equal pods: by counts, then a trial."""
        found: list[Found] = []
        by_row: dict[int, list[int]] = {}
        for index in range(self._count):
            by_row.setdefault(int(self._leavers.rows[index]), []).append(index)
        for rows in domains:
            for problem in self._problems(rows, by_row):
                if problem.missing <= 0:
                    continue  # those who leave already make the room: it is waited for
                chosen = least_harm.choose(problem)
                if chosen is not None or problem.allowed:
                    found.append((problem, chosen))
        found.sort(key=_harm_of)
        looks = LOOKS
        for index, (problem, chosen) in enumerate(found):
            if len(problem.units) <= SEARCHED_UNITS and looks > 0:
                better, looks = exact_search.improve(problem, chosen, looks)
                found[index] = (problem, better)
        found.sort(key=_harm_of)
        for _, chosen in found[:CONFIRMED]:
            if chosen and (plan := self.trial(self._pods_of(chosen))) is not None:
                return plan
        return None

    def _problems(self, rows: Ints, by_row: dict[int, list[int]]) -> Iterator[LeastHarmProblem]:
        ((spec, count),) = self._want.groups
        view, snapshot = self._snapshot.view(spec), self._snapshot
        columns, asks = view.columns.tolist(), tuple(view.amounts.tolist())
        inside = [int(row) for row in rows if int(row) in by_row]
        amounts = self._leavers.amounts[:, columns]
        near = sorted(index for row in inside for index in by_row[row])
        with self._leavers.gone(self._already):
            free = snapshot.columns.free[inside][:, columns]
            if 0 in columns:  # GPUs that are not healthy are not free
                free[:, columns.index(0)] = snapshot.columns.gpus.count[inside]
            area = _Area(inside, near, free, amounts, asks)
            if self._want.required in island_masks.PARTS and 0 in columns:
                yield from self._islands(area, columns.index(0), count)
                return
        yield self._problem(area, count - int(self._base[spec][rows].sum()))

    def _islands(self, area: _Area, column: int, count: int) -> Iterator[LeastHarmProblem]:
        """The domain is an island, or NUMA node, of the one row: its GPUs are what counts."""
        for row in area.rows:
            shape, mask = (
                self._snapshot.columns.gpus.shape[row],
                self._snapshot.columns.gpus.free_mask[row],
            )
            for island in island_masks.masks(shape, self._want.required):
                if self._want.anchor_gpus & ~island:
                    continue
                inside = _Area(area.rows, area.near, area.free.copy(), area.frees.copy(), area.asks)
                inside.free[:, column] = (mask & island).bit_count()
                for index in area.near:
                    gpus = int(self._leavers.masks[index]) & island
                    inside.frees[index, column] = gpus.bit_count()
                problem = self._problem(inside, count)
                problem.missing -= sum(map(problem.cap, problem.free.values()))
                yield problem

    def _problem(self, area: _Area, missing: int) -> LeastHarmProblem:
        rows = self._leavers.rows.tolist()
        units: list[EvictionUnit] = []
        wholes: dict[int, EvictionUnit | None] = {}
        surplus: dict[int, int] = {}
        for index in area.near:
            number, row = self._of[index], rows[index]
            _, surplus[number] = self.gangs[number]
            frees = tuple(area.frees[index].tolist())
            if number not in wholes:
                wholes[number] = self._whole(number)
                units += filter(None, [wholes[number]])
            if (whole := wholes[number]) is not None:
                have = whole.frees.get(row, (0,) * len(frees))
                whole.frees[row] = tuple(map(int.__add__, have, frees))
            pod = self._leavers.pods[index]
            if surplus[number] and self.may_go([pod], alone=True):
                harm = (0, pod.lost(self._now), 1)
                rank, spends = pod.seen.order[0], self._spends([pod], alone=True)
                units.append(EvictionUnit(number, False, harm, {row: frees}, index, rank, spends))
        by_row = {row: tuple(have) for row, have in zip(area.rows, area.free.tolist(), strict=True)}
        return LeastHarmProblem(by_row, area.asks, missing, units, surplus, self._allowed)

    def _whole(self, number: int) -> EvictionUnit | None:
        there, _ = self.gangs[number]
        if not self.may_go(there):
            return None
        lost = sum(pod.lost(self._now) for pod in there)
        return EvictionUnit(number, True, (1, lost, len(there)), {}, spends=self._spends(there))

    def may_go(self, pods: Sequence[Pod], *, alone: bool = False) -> bool:
        """Whether all of them could be evicted together, if nobody else were."""
        if any(pod.evict_backoff.not_before > self._now for pod in pods):
            return False
        if self._covered and self._context.budgets.hopeless(pods):
            return False
        return not self._allowed or self._lasts(self._spends(pods, alone=alone))

    def _lasts(self, spends: Mapping[least_harm.Allowance, int]) -> bool:
        return all(count <= self._allowed[name] for name, count in spends.items())

    def _spends(
        self, pods: Sequence[Pod], *, alone: bool = False
    ) -> Mapping[least_harm.Allowance, int]:
        """alone: without the rest of its gang, so that its role has one fewer."""
        spent = self._context.budgets.spends(pods) if self._covered else Counter()
        for pod in pods if alone else ():
            gang = self._context.state.gang_of(pod)
            if (
                gang is not None
                and (role := surplus_members.role(gang.key, pod.seen.task)) in self._allowed
            ):
                spent[role] += 1
        return spent

    def _pods_of(self, units: Sequence[EvictionUnit]) -> list[Pod]:
        pods: dict[str, Pod] = {}
        for unit in units:
            for pod in self.gangs[unit.gang][0] if unit.whole else [self._leavers.pods[unit.pod]]:
                pods[pod.seen.uid] = pod
        return list(pods.values())

    def mixed(self, domains: Sequence[Ints]) -> PreemptionPlan | None:
        """A gang of unlike pods: the first so many by harm with whom a trial succeeds, then without
        whoever need not go. Nothing is claimed about other choices."""
        by_row: dict[int, list[int]] = {}
        for index in range(self._count):
            by_row.setdefault(int(self._leavers.rows[index]), []).append(index)
        best: tuple[least_harm.Harm, PreemptionPlan] | None = None
        trials = TRIALS
        for rows in domains[:CONFIRMED]:
            near = sorted(index for row in rows.tolist() for index in by_row.get(row, ()))
            units = self._disjoint(near)
            low, high = 0, len(units)
            if self.trial(self._pods_of(units)) is None:
                continue
            while high - low > 1:
                middle = (low + high) // 2
                trials -= 1
                if self.trial(self._pods_of(units[:middle])) is None:
                    low = middle
                else:
                    high = middle
            kept = units[:high]
            for unit in reversed(units[:high]):
                without = [one for one in kept if one is not unit]
                trials -= 1
                if trials > 0 and self.trial(self._pods_of(without)) is not None:
                    kept = without
            plan = self.trial(self._pods_of(kept))
            harm = least_harm.total(kept)
            if plan is not None and (best is None or harm < best[0]):
                best = (harm, plan)
        return best[1] if best is not None else None

    def _disjoint(self, near: Sequence[int]) -> list[EvictionUnit]:
        """Members above a minimum, then what is left of the gangs, each by harm."""
        left = {number: self.gangs[number][1] for number in {self._of[index] for index in near}}
        wholes = [whole for number in sorted(left) if (whole := self._whole(number)) is not None]
        singles: list[EvictionUnit] = []
        spent: Counter[least_harm.Allowance] = Counter()
        for index in sorted(near, key=lambda index: self._leavers.pods[index].lost(self._now)):
            pod, number = self._leavers.pods[index], self._of[index]
            more = spent + Counter(self._spends([pod], alone=True))
            if left[number] and self.may_go([pod], alone=True) and self._lasts(more):
                left[number], spent = left[number] - 1, more
                singles.append(EvictionUnit(number, False, (0, pod.lost(self._now), 1), {}, index))
        return self._affordable(singles + sorted(wholes, key=lambda unit: unit.harm))

    def _affordable(self, units: list[EvictionUnit]) -> list[EvictionUnit]:
        """As many of them, in this order, as the budgets last for."""
        if not self._allowed:
            return units
        kept: list[EvictionUnit] = []
        gone: set[str] = set()
        spent: Counter[least_harm.Allowance] = Counter()
        for unit in units:
            fresh = [pod for pod in self._pods_of([unit]) if pod.seen.uid not in gone]
            more = spent + Counter(self._spends(fresh))
            if self._lasts(more):
                kept.append(unit)
                gone |= {pod.seen.uid for pod in fresh}
                spent = more
        return kept

    def trial(self, victims: Sequence[Pod]) -> PreemptionPlan | None:
        """The seats that the gang takes when these are gone, too; the proof that it fits."""
        going = ReleasablePods(self._context.state, [*victims, *self._leavers.pods[self._count :]])
        with going.gone(np.arange(len(going.pods))) as snapshot:
            draft = Draft(snapshot)
            free, masks = snapshot.columns.free.copy(), list(snapshot.columns.gpus.free_mask)
            try:
                placement.fit(draft, self._want)
            except DoesNotFit:
                return None
            rows, need, gpus, volumes = taken_capacity(snapshot, free, masks)
            proven = self._also is None or self._also(draft, victims)
            draft.undo()
        if not proven:
            return None
        exact = self._want.by_islands
        masks = gpus if exact else [0] * len(gpus)
        return PreemptionPlan(tuple(victims), rows, need, masks, volumes=volumes)


def _harm_of(found: Found) -> least_harm.Harm:
    return least_harm.total(found[1]) if found[1] is not None else least_harm.MOST
