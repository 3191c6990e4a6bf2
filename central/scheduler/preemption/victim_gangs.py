"""The gangs that one request may evict, as arrays: their members, who of them may go, and the harm of it.

Most gangs say nothing about who of them may leave, so the rules are asked only about those that do.

Design: docs/design/evictions.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import evictable, harm, surplus_members
from central.scheduler.preemption.least_harm import Allowance
from central.scheduler.preemption.preemption_request import PreemptionContext, PreemptionRequest
from central.scheduler.preemption.victim_columns import PARTS, PodEntries

MEMBER_UNITS = 2  # of work, to read a candidate


@dataclass(slots=True)
class _Members:
    """The members that may go at all, gang by gang: their entries in the table, and the index of the gang."""

    entries: Ints
    gang: Ints
    near: Bools  # on a usable row, and nothing keeps it


class VictimGangs:
    """A gang has a number here, in the order of the slots. candidates: its members on usable rows, of all gangs."""

    def __init__(
        self, context: PreemptionContext, request: PreemptionRequest, slots: Ints, usable: Bools
    ) -> None:
        """slots: of the table, of the gangs that may be evicted. usable: by row."""
        self._context, self._request, self._now = context, request, request.now
        table = context.candidates.table
        self._entries: PodEntries = table.entries
        entries, gang = table.members_of(slots)
        context.state.snapshot.meter.spend(len(slots) + MEMBER_UNITS * len(entries))
        near = usable[self._entries.row[entries]]
        members = _Members(entries, gang, near)
        surplus, kept = table.by_slot.surplus[slots].copy(), np.zeros(len(slots), dtype=np.bool_)
        self.surplus_by_task: dict[Allowance, int] = {}
        self._slots, self._table = slots, table
        self._apply_rules(members, surplus, kept)
        if request.beyond_marks and context.budgets.seen:
            self._keep_own_in_budgets(members)
        members.near &= ~(kept & (surplus == 0))[members.gang]
        self._keep_those_with_candidates(members, surplus, kept)

    def _apply_rules(self, members: _Members, surplus: Ints, kept: Bools) -> None:
        """Asks the rules about gangs that have their own, and about all gangs where queues protect them for a while."""
        context, request, table = self._context, self._request, self._table
        spared = [table.slot_of(context.state.gangs.get(key)) for key in request.spared]
        kept[np.isin(self._slots, spared)] = True
        runtimes, has_rules = evictable.MinRuntimes(context), table.by_slot.has_rules[self._slots]
        asked = np.arange(len(kept)) if runtimes.any_set else np.flatnonzero(has_rules)
        for index in asked.tolist():
            gang = table.gangs[int(self._slots[index])]
            assert gang is not None
            marks_hold = request.marks_hold(gang)
            kept[index] |= bool(runtimes.why_whole(gang, self._now, marks_hold=marks_hold))
            if own := gang is request.gang:
                surplus[index] = surplus_members.own_surplus_count(gang)
            if has_rules[index] and (surplus[index] or not kept[index]):
                mine = np.flatnonzero(members.gang == index)
                pods = self._entries.pods_of(members.entries[mine])
                may = [
                    (evictable.may_leave(gang, pod) or not marks_hold) and not (own and pod.assumed)
                    for pod in pods
                ]
                members.near[mine] &= np.array(may, dtype=np.bool_)
                if members.near[mine].any():
                    self.surplus_by_task |= surplus_members.surplus_by_task(gang, pods)

    def _keep_own_in_budgets(self, members: _Members) -> None:
        """Leaves out gangs of the claimant's queue that budgets cover: of other queues budgets do not count."""
        for index, slot in enumerate(self._slots.tolist()):
            gang = self._table.gangs[slot]
            if gang is not None and self._request.marks_hold(gang):
                mine = members.gang == index
                pods = self._entries.pods_of(members.entries[mine])
                members.near[mine] &= not self._context.budgets.cover_any(pods)

    def _keep_those_with_candidates(self, members: _Members, surplus: Ints, kept: Bools) -> None:
        has = np.zeros(len(self._slots), dtype=np.bool_)
        has[members.gang[members.near]] = True
        number = np.cumsum(has) - 1
        theirs = has[members.gang]
        self._members = members.entries[theirs]
        self._gang_of_member = number[members.gang[theirs]]
        self._first = np.searchsorted(self._gang_of_member, np.arange(int(has.sum()) + 1))
        self.entries = members.entries[members.near]  # of the candidates
        self.gang_of: Ints = number[members.gang[members.near]]  # by candidate
        self.surplus: Ints = surplus[has]
        self.kept_whole: Bools = kept[has]
        self.priority: Ints = self._table.by_slot.rank[self._slots[has]]
        self.pods = self._entries.pods_of(self.entries)
        self.scale = harm.HarmScale(np.unique(self.priority).tolist(), self._now)

    def __len__(self) -> int:
        return len(self.surplus)

    def members(self, number: int) -> list[Pod]:
        """Returns the gang's members that hold capacity, on usable rows or not."""
        return self._entries.pods_of(self._members[self._first[number] : self._first[number + 1]])

    def members_of(self, numbers: Ints) -> list[Pod]:
        """The same of these gangs, one after the other."""
        first = self._first[numbers]
        count = self._first[numbers + 1] - first
        before = np.cumsum(count) - count
        at = np.arange(int(count.sum())) + np.repeat(first - before, count)
        return self._entries.pods_of(self._members[at])

    def harm_of_all(self, numbers: Ints) -> harm.Harm:
        """Returns the harm of evicting all members of these gangs."""
        parts, total = self.whole_parts[numbers], harm.NO_HARM
        for priority in np.unique(parts[:, 0]).tolist():
            sums = parts[parts[:, 0] == priority].astype(object).sum(axis=0).tolist()  # any size
            total = harm.plus(total, self.scale.of_parts(priority, sums[1:7]))
        return total

    @cached_property
    def whole_parts(self) -> Ints:
        """Harm of evicting all members, by gang and part."""
        found = np.zeros((len(self), PARTS), dtype=np.int64)
        parts = self._entries.harm_of(self._members, self._now)
        if len(self):
            found[:, 2:] = np.add.reduceat(parts[:, 2:], self._first[:-1], axis=0)
        found[:, 0], found[:, 1] = self.priority, harm.BREAKS
        return found

    @cached_property
    def whole_harm(self) -> list[harm.Harm]:
        """The harm of evicting all members of a gang, by gang."""
        return self._harm_of(self.whole_parts)

    @cached_property
    def harm_alone(self) -> list[harm.Harm]:
        """The harm of evicting a candidate above its gang's minimum, by candidate."""
        parts = self._entries.harm_of(self.entries, self._now)
        parts[:, 0] = self.priority[self.gang_of]
        return self._harm_of(parts)

    def _harm_of(self, parts: Ints) -> list[harm.Harm]:
        return [self.scale.of_parts(each[0], each[1:7]) for each in parts.tolist()]

    @cached_property
    def backed_off(self) -> Bools:
        """Returns by gang whether an eviction of a member was refused a moment ago."""
        waits = [pod.evict_backoff.not_before > self._now for pod in self._all_members]
        found = np.zeros(len(self), dtype=np.bool_)
        found[self._gang_of_member[np.array(waits, dtype=np.bool_)]] = True
        return found

    @cached_property
    def _all_members(self) -> Sequence[Pod]:
        return self._entries.pods_of(self._members)
