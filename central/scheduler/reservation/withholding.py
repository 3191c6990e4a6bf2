"""Takes reserved capacity out of the snapshot for gangs that must leave it free, and puts it back."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.model.device_claims import DeviceUse
from central.scheduler.reservation.reservation import Reservation, Withheld
from central.scheduler.reservation.reserved_place import GPU_COLUMN
from central.scheduler.snapshot.snapshot import ReservedGpus, Snapshot
from central.scheduler.state.gangs import GangKey

_volumes = attrgetter("withheld_volumes")
_times_refreshed = attrgetter("refreshed")
_LENT = ("", "", False)  # among the reserved GPUs


def _refreshed(reservations: Sequence[Reservation]) -> int:
    return sum(map(_times_refreshed, reservations))


def _beside(held: Reservation) -> bool:
    return bool(held.withheld_volumes or held.place.devices)


class _Together(NamedTuple):
    rows: Ints
    taken: Ints
    masks: list[int]  # none


class _GivenBack(NamedTuple):
    """The capacity that was withheld last, and given back at once. Slices of a round begin with the same
    reservations."""

    order: list[Reservation]
    refreshed: int
    together: _Together
    claimed: Ints
    taken: dict[GangKey, tuple[Reservation, Withheld]]
    gpus: dict[GangKey, ReservedGpus]
    names: list[str] | None

    def begins(self, reservations: list[Reservation]) -> bool:
        same = reservations[: len(self.order)] == self.order
        return same and self.refreshed == _refreshed(self.order)


class WithheldCapacity:
    """The capacity of reservations that is out of the snapshot now. At the end of a cycle there must be none."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._volumes: frozenset[str] = frozenset()
        self._taken: dict[GangKey, tuple[Reservation, Withheld]] = {}
        self._order: list[Reservation] = []  # of these
        self._beside = False  # whether any of these takes volumes or devices away
        self._by_amounts = True  # no certain GPUs
        self._names: list[str] | None = []  # see holders(); None: not known
        self.volumes_only: list[Reservation] = []  # of these only volumes are withheld
        # By row and column, what claims of these take.
        self._claimed: Ints = np.zeros((0, 0), dtype=np.int64)
        self._lent: tuple[Ints, Ints] | None = None  # rows and amounts, see _lend()
        self._given_back: _GivenBack | None = None

    def set(
        self,
        binding: list[Reservation],
        volumes_only: Sequence[Reservation] = (),
        own: Reservation | None = None,
    ) -> None:
        """Withholds these reservations, and no others. own: of the gang that is tried; with a claim it may take its
        part of what has become free beside the other claims. Where reservations of certain GPUs overlap, what each
        takes depends on those before it, so all of them are given back first. The others stay if they are in both sets:
        with many gangs that wait for victims, sets differ by one or two."""
        if not (binding or volumes_only or self._order or self._volumes or self.volumes_only):
            return  # mostly
        with self._snapshot.changing():
            self._lend(None)
            self._set(binding, volumes_only)
            self._lend(own)

    def _lend(self, own: Reservation | None) -> None:
        """Puts back what other claims withhold of the place of this one, as far as it is free and needed there: pods
        that terminate on its nodes will do for the others."""
        columns, reserved = self._snapshot.columns, self._snapshot.reserved_gpus
        if self._lent is not None:
            rows, amounts = self._lent
            columns.shift(rows, amounts, [0] * len(rows), free=False)
            del reserved[_LENT]
        self._lent = None
        if own is None or not own.by_eviction or not self._claimed.size:
            return
        rows, need = own.place.rows, own.place.need
        free = columns.free[rows, : need.shape[1]]
        there = free + self._claimed[rows, : need.shape[1]]
        self._put_back(rows, np.maximum(np.minimum(there, need) - free, 0))

    def lend_what_victims_use(self) -> None:
        """Puts back what claims withhold beyond what is free, until set() is called: their victims will free it."""
        if self._lent is None and self._claimed.size:
            over = np.minimum(np.maximum(-self._snapshot.columns.free, 0), self._claimed)
            rows = np.flatnonzero(over.any(axis=1))
            self._put_back(rows, over[rows])

    def _put_back(self, rows: Ints, amounts: Ints) -> None:
        if not amounts.any():
            return
        self._lent, none = (rows, amounts), [0] * len(rows)
        self._snapshot.columns.shift(rows, amounts, none, free=True)
        gpus = amounts[:, GPU_COLUMN]
        self._snapshot.reserved_gpus[_LENT] = ReservedGpus("", rows, -gpus, 0 * gpus, none)

    def _count(
        self, reservations: Sequence[Reservation], sign: int, together: _Together | None
    ) -> None:
        """Adds what the claims of these take, or takes it off."""
        claims = [held for held in reservations if held.by_eviction]
        if together is not None and len(claims) == len(reservations):
            self._count_rows(together.rows, sign * together.taken)
            return
        for held in claims:
            self._count_rows(held.place.rows, sign * held.taken)

    def _count_rows(self, rows: Ints, amounts: Ints) -> None:
        if self._claimed.shape != self._snapshot.columns.free.shape:
            self._claimed = np.zeros_like(self._snapshot.columns.free)
        self._claimed[rows, : amounts.shape[1]] += amounts

    def _set(self, binding: list[Reservation], volumes_only: Sequence[Reservation]) -> None:
        if self._by_amounts and not (self._beside or volumes_only or self._volumes):
            if self._order and not binding:
                self._give_back_all()
                return
            if (last := self._given_back) and not self._order and last.begins(binding):
                self._withhold_again(last)
        before = self._order
        added = binding[len(before) :] if before == binding[: len(before)] else None
        if added is not None and not (self._beside or volumes_only or any(map(_beside, added))):
            self._withhold(added)  # what the others take depends on none after them
            return
        self._beside = bool(volumes_only or any(map(_beside, binding)))
        free = self._snapshot.pod_counts.volumes.free
        free.release_all(self._volumes)
        self.volumes_only = [held for held in volumes_only if held.withheld_volumes]
        names = frozenset().union(*map(_volumes, binding), *map(_volumes, self.volumes_only))
        self._volumes = free.reserve_available(names)
        devices = Counter[DeviceUse]()
        for held in binding:
            devices.update(held.place.devices)
        self._snapshot.pod_counts.devices.withhold(devices)
        if added is not None:
            self._withhold(added)
            return
        self._names = None
        keep = _unaffected(before, binding)
        gone = [(held, taken) for held, taken in self._taken.values() if held not in keep]
        reservations = [held for held, _ in gone]
        together = _together(reservations)
        self._count(reservations, -1, together)
        if together is not None:
            self._snapshot.columns.shift(*together, free=True)
            for held in reservations:
                del self._snapshot.reserved_gpus[held.gang.key]
        for held, taken in reversed(gone if together is None else ()):
            held.give_back(self._snapshot, taken)
        stays = {held: taken for held, taken in self._taken.values() if held in keep}
        self._taken, self._order, self._by_amounts = {}, [], _are_amounts(stays)
        self._withhold([held for held in binding if held not in keep])
        taken_now = dict(self._taken.values())
        self._taken = {
            held.gang.key: (held, stays[held] if held in keep else taken_now[held])
            for held in binding
        }
        self._order = list(binding)
        reserved = self._snapshot.reserved_gpus
        self._snapshot.reserved_gpus = {key: reserved[key] for key in self._taken}

    def _give_back_all(self) -> None:
        snapshot, order, claimed = self._snapshot, self._order, self._claimed.copy()
        for held in order:
            if not held.by_eviction:
                self._count_rows(held.place.rows, held.taken)
        rows = np.flatnonzero(self._claimed.any(axis=1))
        together = _Together(rows, self._claimed[rows], [0] * len(rows))
        self._claimed = np.zeros_like(self._claimed)
        snapshot.columns.shift(*together, free=True)
        gpus, snapshot.reserved_gpus = snapshot.reserved_gpus, {}
        self._given_back = _GivenBack(
            order, _refreshed(order), together, claimed, self._taken, gpus, self._names
        )
        self._taken, self._order, self._names = {}, [], []

    def _withhold_again(self, last: _GivenBack) -> None:
        self._count_rows(np.arange(len(last.claimed)), last.claimed)
        self._snapshot.columns.shift(*last.together, free=False)
        self._snapshot.reserved_gpus = last.gpus
        self._taken, self._order, self._names = last.taken, last.order, last.names
        self._given_back = None

    def _withhold(self, added: list[Reservation]) -> None:
        snapshot = self._snapshot
        self._by_amounts = self._by_amounts and _are_amounts(added)
        together = _together(added)
        self._count(added, 1, together)
        if together is None:
            for held in added:
                taken = held.withhold(snapshot)
                self._add(held, taken)
            return
        snapshot.columns.shift(*together, free=False)
        for held in added:
            self._add(held, held.note_withheld(snapshot, [0] * len(held.place.rows), []))

    def _add(self, held: Reservation, taken: Withheld) -> None:
        """Adds the reservation to those that are withheld. Where one claim after the other is, the names stay in
        order."""
        self._taken[held.gang.key] = held, taken
        self._order.append(held)
        if self._names is not None and taken.any_capacity:
            at = bisect_left(self._names, taken.name)
            if self._names[at : at + 1] != [taken.name]:
                self._names.insert(at, taken.name)

    @contextmanager
    def beside(self, claims: Mapping[GangKey, Reservation]) -> Iterator[None]:
        """Inside the block these claims are withheld as well."""
        if claims.keys() <= self._taken.keys():  # mostly
            yield
            return
        before, volumes_only = self.reservations(), self.volumes_only
        more = [held for key, held in claims.items() if key not in self._taken]
        self.set([*before, *more], volumes_only)
        try:
            yield
        finally:
            self.set(before, volumes_only)

    def without(self, held: Reservation) -> None:
        """Gives this one back."""
        volumes_only = [other for other in self.volumes_only if other is not held]
        self.set([other for other in self._order if other is not held], volumes_only)

    def reservations(self) -> list[Reservation]:
        return list(self._order)

    def longest_run_s(self, now: float) -> float:
        """Returns the longest run time with which a gang may use what any of these takes beside volumes; -inf: none."""
        longest_s = inf
        for held, taken in self._taken.values():
            if taken.any_capacity:
                longest_s = min(longest_s, held.longest_run_s(now))
                if longest_s == -inf:
                    break
        return longest_s

    def holders(self) -> Sequence[str]:
        """The names of their gangs, in order."""
        if self._names is None:
            self._names = sorted(
                {taken.name for _, taken in self._taken.values() if taken.any_capacity}
            )
        return self._names

    def with_volumes(self) -> list[Reservation]:
        """The reservations that take volumes away now."""
        if not any(map(_volumes, self._order)):  # in one call, where thousands are withheld
            return list(self.volumes_only)
        return [held for held in self._order if held.withheld_volumes] + self.volumes_only

    def __contains__(self, key: GangKey) -> bool:
        return key in self._taken


def _together(reservations: Sequence[Reservation]) -> _Together | None:
    """Returns what the reservations withhold, to be taken at once; None: they are fewer than two, withhold certain
    GPUs, or differ in their columns."""
    if len(reservations) < 2 or not _are_amounts(reservations):
        return None
    amounts = [held.taken for held in reservations]
    if len({each.shape[1] for each in amounts}) > 1:
        return None
    every = np.concatenate([held.place.rows for held in reservations])
    rows, index = np.unique(every, return_inverse=True)
    taken = np.zeros((len(rows), amounts[0].shape[1]), dtype=np.int64)
    np.add.at(taken, index, np.concatenate(amounts))
    return _Together(rows, taken, [0] * len(rows))


def _are_amounts(reservations: Iterable[Reservation]) -> bool:
    return not any(held.place.has_masks for held in reservations)


def _unaffected(before: Sequence[Reservation], after: Sequence[Reservation]) -> set[Reservation]:
    """Returns the reservations in both sets, if none of them shares a row with any other, or all of them take amounts
    alone; else none."""
    stay, changing = {*before} & {*after}, {*before} ^ {*after}
    if _are_amounts((*stay, *changing)):
        return stay
    rows = {row for held in changing for row in held.place.rows.tolist()}
    alone = all(rows.isdisjoint(held.place.rows.tolist()) for held in stay)
    return stay if alone else set()
