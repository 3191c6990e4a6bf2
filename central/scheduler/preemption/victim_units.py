"""The units of one eviction search: whole gangs and single members above a minimum, with what each frees of a quota and
uses of allowances.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import disruption_budgets, surplus_members
from central.scheduler.preemption.least_harm import QUOTA, Allowance, EvictionUnit, Vector
from central.scheduler.preemption.preemption_request import PreemptionContext, PreemptionRequest
from central.scheduler.preemption.victim_gangs import VictimGangs
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.shortfall import GANGS
from central.scheduler.state.gangs import Gang


class VictimUnits:
    """Members are named by their index among the candidates, gangs by their number."""

    def __init__(
        self, context: PreemptionContext, request: PreemptionRequest, gangs: VictimGangs
    ) -> None:
        self._context, self.gangs, self._now = context, gangs, request.now
        self._terms = [
            (short, resource, amount)
            for short in request.quota
            for resource, amount in short.amounts.items()
            if amount > 0
        ]
        self.lacking: Vector = tuple(amount for *_, amount in self._terms)
        budgets, every = context.budgets, context.state.gangs.values()
        self._covered = not request.ignore_budgets and budgets.cover_any(gangs.pods)
        left = disruption_budgets.disruptions_left(budgets, every) if self._covered else {}
        self.allowed: Mapping[Allowance, int] = {**left, **gangs.surplus_by_task}

    def of(self, near: Sequence[int]) -> list[EvictionUnit]:
        """Units of these candidates, and those elsewhere that quota may need. What they free of capacity is left
        out."""
        units = self._among(near)
        if not self.lacking:
            return units
        known = {(unit.gang, unit.pod) for unit in units}
        return units + [one for one in self.for_quota if (one.gang, one.pod) not in known]

    def _among(self, near: Iterable[int]) -> list[EvictionUnit]:
        """Each gang as a whole, if it may be evicted, and its members above its minimum."""
        gangs, units, known = self.gangs, list[EvictionUnit](), set[int]()
        for index in near:
            number = int(gangs.gang_of[index])
            if number not in known:
                known.add(number)
                units += filter(None, [self._whole(number)])
            if gangs.surplus[number] and self.may_evict([pod := gangs.pods[index]], alone=True):
                rank, uses = pod.seen.order[0], self._uses([pod], alone=True)
                alone, frees = gangs.harm_alone[index], self._of_quota([pod], whole=False)
                units.append(EvictionUnit(number, False, alone, frees, index, rank, uses))
        return units

    def _whole(self, number: int) -> EvictionUnit | None:
        members = self.gangs.members(number)
        if self.gangs.kept_whole[number] or not self.may_evict(members):
            return None
        whole, frees = self.gangs.whole_harm[number], self._of_quota(members, whole=True)
        return EvictionUnit(number, True, whole, frees, uses=self._uses(members))

    def _of_quota(self, pods: Sequence[Pod], *, whole: bool) -> dict[int, Vector]:
        gang = self._context.state.gang_of(pods[0])
        assert gang is not None
        counts = self._counts(gang)
        if not any(counts):
            return {}
        amounts = {**self._context.queues.currency.counted(sums_of(pods)), GANGS: int(whole)}
        freed = tuple(
            amounts.get(resource, 0) if counted else 0
            for counted, (_, resource, _) in zip(counts, self._terms, strict=True)
        )
        return {QUOTA: freed} if any(freed) else {}

    def _counts(self, gang: Gang) -> list[bool]:
        """Returns by term of the quota whether it counts what the gang uses."""
        queue = self._context.queues.by_name[gang.queue] if self._terms else None
        return [queue is not None and short.counts(gang, queue) for short, *_ in self._terms]

    @cached_property
    def for_quota(self) -> list[EvictionUnit]:
        """The least harmful units that free quota: of those that free and use the same, as many as may be needed."""
        gangs, alike, kept = self.gangs, Counter[object](), list[EvictionUnit]()
        if not len(gangs):
            return kept
        first = np.unique(gangs.gang_of, return_index=True)[1]  # a candidate of each gang
        of = [self._context.state.gang_of(gangs.pods[index]) for index in first.tolist()]
        counts = np.array([gang is not None and any(self._counts(gang)) for gang in of])
        self._context.state.snapshot.meter.spend(len(gangs))
        units = self._among(np.flatnonzero(counts[gangs.gang_of]).tolist())
        for unit in sorted(units, key=lambda unit: (unit.harm, -unit.rank)):
            if (freed := unit.frees.get(QUOTA)) is None:
                continue
            pairs = zip(self.lacking, freed, strict=True)
            most = max(-(-lack // amount) for lack, amount in pairs if amount)
            if not unit.whole:
                most = min(most, int(gangs.surplus[unit.gang]))
            kind = freed, frozenset(unit.uses.items()), -1 if unit.whole else unit.gang
            if alike[kind] < most:
                alike[kind] += 1
                kept.append(unit)
        return kept

    def free_quota(self, units: Iterable[EvictionUnit]) -> bool:
        """Returns whether these units together free the quota that is lacking."""
        units = list(units) if self.lacking else []
        wholes = {unit.gang for unit in units if unit.whole}
        freed = [
            unit.frees[QUOTA]
            for unit in units
            if QUOTA in unit.frees and (unit.whole or unit.gang not in wholes)
        ]
        return all(
            sum(amounts[place] for amounts in freed) >= lack
            for place, lack in enumerate(self.lacking)
        )

    def whole_gangs(self) -> list[list[Pod]]:
        """The members of each gang that may be evicted whole, least harm first."""
        numbers = np.flatnonzero(~self.gangs.kept_whole).tolist()
        ordered = sorted(numbers, key=self.gangs.whole_harm.__getitem__)
        return [self.gangs.members(number) for number in ordered]

    def may_evict(self, pods: Sequence[Pod], *, alone: bool = False) -> bool:
        """Returns whether all these pods may be evicted together. alone: without the rest of their gangs"""
        for pod in pods:
            if pod.evict_backoff.not_before > self._now:
                return False
        if self._covered and self._context.budgets.never_evictable(pods):
            return False
        return not self.allowed or self.within_allowances(self._uses(pods, alone=alone))

    def within_allowances(self, uses: Mapping[Allowance, int]) -> bool:
        return all(count <= self.allowed[name] for name, count in uses.items())

    def _uses(self, pods: Sequence[Pod], *, alone: bool = False) -> Mapping[Allowance, int]:
        """Returns what the evictions use of budgets and, if alone, of the surplus of tasks."""
        if not self.allowed:
            return {}
        used = self._context.budgets.disruptions(pods) if self._covered else Counter()
        for pod in pods if alone else ():
            gang = self._context.state.gang_of(pod)
            if (
                gang is not None
                and (task := surplus_members.task_key(gang.key, pod.seen.task)) in self.allowed
            ):
                used[task] += 1
        return used

    def pods_of(self, units: Iterable[EvictionUnit]) -> list[Pod]:
        pods: dict[str, Pod] = {}
        for unit in units:
            for pod in self.gangs.members(unit.gang) if unit.whole else [self.gangs.pods[unit.pod]]:
                pods[pod.seen.uid] = pod
        return list(pods.values())

    def in_order(self, near: Sequence[int]) -> list[EvictionUnit]:
        """Members above a minimum and whole gangs, in order of harm, as far as allowances suffice: at each priority the
        members come first, and of equal members the one with the highest rank."""
        units = self.of(near)
        left = {unit.gang: int(self.gangs.surplus[unit.gang]) for unit in units}
        wholes = sorted((unit for unit in units if unit.whole), key=lambda unit: unit.gang)
        singles, used = list[EvictionUnit](), Counter[Allowance]()
        ranked = [unit for unit in units if not unit.whole]
        for unit in sorted(ranked, key=lambda unit: (unit.harm, -unit.rank, unit.pod)):
            more = used + Counter(unit.uses)
            if left[unit.gang] and self.within_allowances(more):
                left[unit.gang], used = left[unit.gang] - 1, more
                singles.append(unit)
        ordered = sorted(singles + wholes, key=lambda unit: unit.harm)
        return self._affordable(ordered) if self.allowed else ordered

    def _affordable(self, units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
        """The units, in this order, without those that overspend an allowance."""
        kept, gone, used = list[EvictionUnit](), set[str](), Counter[Allowance]()
        for unit in units:
            fresh = [pod for pod in self.pods_of([unit]) if pod.seen.uid not in gone]
            more = used + Counter(self._uses(fresh))
            if self.within_allowances(more):
                kept.append(unit)
                gone |= {pod.seen.uid for pod in fresh}
                used = more
        return kept
