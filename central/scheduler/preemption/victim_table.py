"""The pods that hold capacity, as arrays, and what the rules of preemption read of their gangs.

Shared by all requests. Only gangs that changed are read again: a portion of them in one cycle, so that whoever
must preempt finds most of them read, and all that are left when a request comes.

Design: docs/design/evictions.md
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

import numpy as np

from central.model.arrays import Bools, Floats, Ints
from central.model.defaults import MAX_GRACE_S
from central.model.facts import PodSpec
from central.scheduler.inventory.dirty_rows import DirtyRows
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import harm, surplus_members
from central.scheduler.preemption.victim_columns import UNKNOWN, GangSlots, PodEntries
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

GONE, STAYS, LEAVES = 0, 1, 2  # state of an entry
KEPT_GONE = 4096  # entries of pods that have gone, before the table is built again
# Gangs that are read in one cycle that decides something, and in one that does not: 4 ms for a thousand pods.
READ_BUSY, READ_QUIET = 500, 4_000
# Up to so many wait for a cycle that decides nothing: what was bound changes again soon.
LEFT_UNREAD = 50
FEW_ROWS = 256  # up to this many are looked up one by one; of more rows all entries are compared


class VictimTable:
    """gangs by slot, in the order of state.gangs; None where one has gone."""

    def __init__(self, state: ClusterState, max_grace_s: float = MAX_GRACE_S) -> None:
        """max_grace_s: that a victim may take to end."""
        self._state, self._max_grace_s = state, max_grace_s
        self.dirty = DirtyRows()  # rows whose candidates changed
        self.reads = 0  # how often gangs were read
        self._clear()
        self.built = False

    def _clear(self) -> None:
        self._unread: dict[Gang, None] = {}  # that changed, in the order of their first change
        self.gangs: list[Gang | None] = []
        self.entries = PodEntries()
        self.by_slot = GangSlots()
        self._slots: dict[Gang, int] = {}
        self._on_row: dict[int, list[int]] = {}  # entries by row, those that are gone among them
        self._gone = 0
        self.classes: list[PodSpec] = []
        self._sizes: Ints = np.zeros(0, dtype=np.int64)  # what their requests are worth
        self._class_of: dict[int, int] = {}  # by id of the spec
        self._groups: dict[object, int] = {}
        self._in_group: list[dict[int, None]] = []  # slots by group
        self._of_queue: dict[str, list[int]] = {}  # groups

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores the table, and finds the ids of its specs again: they have others in a state that is read again."""
        self.__dict__.update(state)
        self._class_of = {id(spec): number for number, spec in enumerate(self.classes)}

    def refresh(self) -> "VictimTable":
        """Reads again what changed."""
        self._collect()
        self._read_first(len(self._unread))
        return self

    def read_portion(self, *, quiet: bool) -> None:
        """Reads a part of what changed, more in a cycle that has nothing else to do. The parts do not depend on any
        clock, because the order in which gangs are read decides between equal victims."""
        self._collect()
        if quiet or len(self._unread) > LEFT_UNREAD:
            self._read_first(READ_QUIET if quiet else READ_BUSY)

    def _collect(self) -> None:
        changed = self._state.pending.take_touched()
        if changed is None or not self.built or self._gone > KEPT_GONE + self.entries.used // 2:
            self._clear()
            self.dirty.reset()
            changed = self._state.gangs.values()
        self._unread |= dict.fromkeys(changed)

    def _read_first(self, count: int) -> None:
        if count >= len(self._unread):
            gangs, self._unread = self._unread, {}
        else:
            gangs = dict.fromkeys(islice(self._unread, count))
            for gang in gangs:
                del self._unread[gang]
        self.reads += bool(gangs)
        self.built = False  # if reading fails, all is read again
        self._read(gangs)
        self.built = True

    def may_evict(
        self, rule: Callable[[Gang], bool], *, by_group: bool, among: Collection[str] | None = None
    ) -> Bools:
        """Returns by slot whether the rule lets the gang be evicted. by_group: it answers alike for the gangs of one
        victim_group(). among: queues; gangs of others may not be evicted."""
        if among is None:
            groups: Iterable[int] = range(len(self._in_group))
        else:
            groups = (group for queue in among for group in self._of_queue.get(queue, ()))
        answers = np.zeros(len(self._in_group), dtype=np.bool_)
        allowed = np.zeros(len(self.gangs), dtype=np.bool_)
        for group in groups:
            for slot in self._in_group[group]:
                if (gang := self.gangs[slot]) is not None and rule(gang):
                    allowed[slot] = answers[group] = True
                if by_group:
                    break
        found: Bools = answers[self.by_slot.group] if by_group else allowed
        return found

    def entries_on(self, rows: Ints) -> Ints:
        """The entries on these rows, in order, those of pods that have gone among them."""
        if len(rows) <= FEW_ROWS:
            found = [entry for row in rows.tolist() for entry in self._on_row.get(row, ())]
            return np.sort(np.array(found, dtype=np.int64))
        here = np.zeros(len(self._state.snapshot.columns.names), dtype=np.bool_)
        here[rows] = True
        return np.flatnonzero(here[self.entries.row])

    def staying_of(self, slots: Ints) -> Ints:
        """The entries of these gangs that are not leaving, in order."""
        every = np.sort(self._entries_of(slots))
        found: Ints = every[self.entries.state[every] == STAYS]
        return found

    def _entries_of(self, slots: Ints) -> Ints:
        """The entries of these gangs, one gang after the other."""
        first, end = self.by_slot.first[slots], self.by_slot.end[slots]
        count = end - first
        before = np.cumsum(count) - count
        found: Ints = np.arange(int(count.sum())) + np.repeat(first - before, count)
        return found

    def members_of(self, slots: Ints) -> tuple[Ints, Ints]:
        """The entries of these gangs that are not leaving, one gang after the other; and the index of the gang in
        `slots` by entry."""
        entries = self._entries_of(slots)
        index = np.repeat(
            np.arange(len(slots)), self.by_slot.end[slots] - self.by_slot.first[slots]
        )
        staying = self.entries.state[entries] == STAYS
        return entries[staying], index[staying]

    def _candidates(self, rows: Bools, allowed: Bools) -> Ints:
        entries, near = self.entries, self.entries_on(np.flatnonzero(rows))
        found: Ints = near[(entries.state[near] == STAYS) & allowed[entries.slot[near]]]
        return found

    def candidates_on(self, rows: Bools, allowed: Bools) -> int:
        """Returns how many staying pods of the allowed gangs (by slot) the rows hold."""
        return len(self._candidates(rows, allowed))

    def slots_on(self, rows: Bools, allowed: Bools) -> Ints:
        """The allowed gangs (by slot) with a candidate on the rows, in order."""
        return np.unique(self.entries.slot[self._candidates(rows, allowed)])

    def pods_by_slot(self, rows: Bools, classes: Bools) -> Ints:
        """Returns by slot how many pods of these classes (by index) stay on the rows."""
        entries = self.entries
        here = self.entries_on(np.flatnonzero(rows))
        here = here[(entries.state[here] == STAYS) & classes[entries.podclass[here]]]
        found: Ints = np.bincount(entries.slot[here], minlength=len(self.gangs))
        return found

    def rows_of(self, slots: Ints) -> Ints:
        """The rows where the gangs hold capacity."""
        found: Ints = self.entries.row[self._entries_of(slots)]
        return found

    def leaving(self, rows: Bools) -> list[Pod]:
        """The terminating pods on these rows, and those of other schedulers. Without those that should have gone."""
        entries, here = self.entries, self.entries_on(np.flatnonzero(rows))
        here = here[entries.state[here] == LEAVES]
        found = entries.pods_of(here[np.argsort(entries.slot[here], kind="stable")])
        return found + self.others_leaving()

    def others_leaving(self) -> list[Pod]:
        """The terminating pods of other schedulers."""
        return self._state.others_leaving()

    def entry_of(self, pod: Pod) -> tuple[int, int]:
        """The slot of the pod's gang, and the pod's entry."""
        gang = self._state.gang_of(pod)
        assert gang is not None
        slot = self._slots[gang]
        return slot, int(self.by_slot.first[slot]) + _holding(gang).index(pod)

    def slot_of(self, gang: Gang | None) -> int:
        """-1: it holds no capacity."""
        return self._slots.get(gang, -1) if gang is not None else -1

    def _read(self, gangs: Iterable[Gang]) -> None:
        pods, slots, described = list[Pod](), list[int](), list[tuple[int, ...]]()
        start, rows, known = self.entries.used, list[int](), len(self.gangs)
        urgencies: list[int] = []
        for gang in gangs:
            slot = self._slots.get(gang, -1)
            if slot >= 0:
                rows += self._drop(slot)
            holding = _holding(gang) if self._state.gangs.get(gang.key) is gang else []
            if not holding:
                if slot >= 0:
                    self._forget(slot, gang)
                continue
            if slot < 0:
                slot = self._slots[gang] = len(self.gangs)
                self.gangs.append(gang)
            first = start + len(pods)
            pods += holding
            urgencies += surplus_members.urgencies(gang, holding)
            slots.append(slot)
            group = self._regroup(slot, gang, -1 if slot >= known else self._group(slot))
            described.append((*_gang_ints(gang, holding), group, first, start + len(pods)))
        self.by_slot.extend(len(self.gangs) - known)
        self.by_slot.set(slots, described)
        if pods:
            of_pod = np.repeat(slots, [end - first for *_, first, end in described])
            self._add_entries(pods, of_pod, np.array(urgencies))
            rows += self.entries.row[start:].tolist()
        self.dirty.add(rows)

    def _add_entries(self, pods: list[Pod], slots: Ints, urgencies: Ints) -> None:
        """Column by column. Gangs of thousands are read in the cycle that places them."""
        row_of, on_row = self._state.snapshot.columns.row, self._on_row
        rows = [row_of[pod.node] for pod in pods]
        for entry, row in enumerate(rows, self.entries.used):
            on_row.setdefault(row, []).append(entry)
        seen = [pod.seen for pod in pods]
        leaves = [bool(pod.life.leaving) or pod.seen.deleting for pod in pods]
        late = [pod.life.late for pod in pods]
        started = [each.started for each in seen]
        podclass = self._podclasses(pods)
        ints = [
            np.array(rows),
            slots,
            podclass,
            np.array([each.order[0] for each in seen]),
            self._sizes[podclass],
            np.where(late, GONE, np.where(leaves, LEAVES, STAYS)),
            urgencies,
            np.array([harm.grace_s(each, self._max_grace_s) for each in seen]),
        ]
        began = [pod.since if at is None else at for pod, at in zip(pods, started, strict=True)]
        times = [
            _known(began),
            _known([pod.checkpoint for pod in pods]),
            np.array([each.created for each in seen]),
        ]
        self.entries.append(pods, ints, times)

    def _podclasses(self, pods: list[Pod]) -> Ints:
        """The indices of their classes, which are added where they are new."""
        ids = [id(pod.spec) for pod in pods]
        known = self._class_of
        for pod, key in zip(pods, ids, strict=True):
            if key not in known:
                known[key] = len(self.classes)
                self.classes.append(pod.spec)  # kept, so that no other has its id
                self._sizes = np.append(self._sizes, harm.gpus(pod.spec))
        return np.array([known[key] for key in ids])

    def _range(self, slot: int) -> tuple[int, int]:
        return int(self.by_slot.first[slot]), int(self.by_slot.end[slot])

    def _group(self, slot: int) -> int:
        return int(self.by_slot.group[slot])

    def _drop(self, slot: int) -> list[int]:
        first, end = self._range(slot)
        self.entries.state[first:end] = GONE
        self.entries.pods[first:end] = [None] * (end - first)
        self._gone += end - first
        self.by_slot.first[slot] = self.by_slot.end[slot] = 0
        rows: list[int] = self.entries.row[first:end].tolist()
        return rows

    def _forget(self, slot: int, gang: Gang) -> None:
        del self._slots[gang]
        self.gangs[slot] = None
        self._in_group[self._group(slot)].pop(slot, None)
        self._gone += 1

    def _regroup(self, slot: int, gang: Gang, before: int) -> int:
        """The group of the gang; -1 before: it was in none."""
        key = victim_group(gang)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = len(self._in_group)
            self._in_group.append({})
            self._of_queue.setdefault(gang.queue, []).append(group)
        if before != group:
            if before >= 0:
                self._in_group[before].pop(slot, None)
            self._in_group[group][slot] = None
        return group


def _holding(gang: Gang) -> list[Pod]:
    """The members that hold capacity."""
    counts = gang.counts
    return [pod for pod in (*counts.placed, *counts.deleting) if pod.charged_spec is not None]


def _gang_ints(gang: Gang, holding: list[Pod]) -> tuple[int, int, int]:
    """Rank, surplus, and whether what evictable.py and surplus_members.py read of it differs from most gangs: they
    need only be asked about these."""
    counts, group = gang.counts, gang.object
    surplus = 0
    if len(holding) > 1:
        staying = [pod for pod in holding if not pod.leaving]
        surplus = surplus_members.surplus_count(gang, staying)
    has_rules = counts.never_evicted or counts.cooldown_s > 0 or bool(gang.task_min)
    if group is not None and group.preemptable is not None:
        has_rules = True
    return harm.rank(gang), surplus, has_rules


def victim_group(gang: Gang) -> tuple[object, ...]:
    """Returns what the rules of who may evict whom read of a victim: gangs with equal groups are alike to them, apart
    from the time."""
    account = gang.account
    used = frozenset(account.used.items()) if account is not None else None
    user = account.user if account is not None else ""
    surplus, leaves = False, frozenset(pod.leaving for pod in gang.members.values())
    if len(gang.members) > 1:  # most are one pod, and thousands are read at once
        surplus = surplus_members.surplus_count(gang, gang.counts.placed) > 0
    partly = gang.key if len(leaves) > 1 else None  # what stays of it is its own
    reserved = gang.preemption.started_by_reservation
    return gang.namespace, user, gang.queue, gang.priority, used, surplus, leaves, partly, reserved


def _known(times: list[float | None]) -> Floats:
    return np.array([UNKNOWN if at is None else at for at in times])
