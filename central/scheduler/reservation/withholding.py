"""Takes reserved capacity out of the snapshot for gangs that must leave it free, and puts it back."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.scheduler.reservation.reservation import Reservation, Withheld
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import GangKey

_volumes = attrgetter("withheld_volumes")


class WithheldCapacity:
    """What of the reservations is out of the snapshot now. Nothing may be at the end of a cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._volumes: frozenset[str] = frozenset()
        self._taken: dict[GangKey, tuple[Reservation, Withheld]] = {}
        self._order: list[Reservation] = []  # of these
        self._names: list[str] | None = []  # see holders(); None: not known
        self.volumes_only: list[Reservation] = []  # of these only volumes are withheld

    def set(self, binding: list[Reservation], volumes_only: Sequence[Reservation] = ()) -> None:
        """Withholds these reservations, and no others. Where reservations overlap, what each takes depends on
        those before it, so all of them are given back first. The others stay if they are in both sets: with
        many gangs that wait for victims, sets differ by one or two."""
        if not (binding or volumes_only or self._order or self._volumes or self.volumes_only):
            return  # mostly
        with self._snapshot.changing():
            self._set(binding, volumes_only)

    def _set(self, binding: list[Reservation], volumes_only: Sequence[Reservation]) -> None:
        free = self._snapshot.pod_counts.volumes.free
        free.release_all(self._volumes)
        self.volumes_only = [held for held in volumes_only if held.withheld_volumes]
        names = frozenset().union(*map(_volumes, binding), *map(_volumes, self.volumes_only))
        self._volumes = free.reserve_available(names)
        before = self.reservations()
        if before == binding[: len(before)]:  # what the others take depends on none after them
            self._withhold(binding[len(before) :])
            return
        self._names = None
        keep = _unaffected(before, binding)
        gone = [(held, taken) for held, taken in self._taken.values() if held not in keep]
        together = _together([held for held, _ in gone])
        if together is not None:
            columns = self._snapshot.columns
            columns.shift(together.rows, together.withheld, together.masks, free=True)
            for held, _ in gone:
                del self._snapshot.reserved_gpus[held.gang.key]
        for held, taken in reversed(gone if together is None else ()):
            held.give_back(self._snapshot, taken)
        stays = {held: taken for held, taken in self._taken.values() if held in keep}
        self._taken, self._order = {}, []
        self._withhold([held for held in binding if held not in keep])
        taken_now = dict(self._taken.values())
        self._taken = {
            held.gang.key: (held, stays[held] if held in keep else taken_now[held])
            for held in binding
        }
        self._order = list(binding)

    def _withhold(self, added: list[Reservation]) -> None:
        snapshot, together = self._snapshot, _together(added)
        if together is None:
            for held in added:
                taken = held.withhold(snapshot)
                self._add(held, taken)
            return
        gpus, rows = snapshot.columns.gpus, together.rows
        before = gpus.count[rows]
        snapshot.columns.shift(rows, together.withheld, together.masks, free=False)
        gone, at = before - gpus.count[rows], 0
        so_far = np.concatenate([[0], np.cumsum(together.withheld.any(axis=1))]).tolist()
        for held in added:
            end = at + len(held.place.rows)
            name, own = held.gang.qualified_name, held.place.rows
            snapshot.reserved_gpus[held.gang.key] = name, own, gone[at:end]
            taken = Withheld([0] * len(own), [], so_far[end] > so_far[at], name)
            self._add(held, taken)
            at = end

    def _add(self, held: Reservation, taken: Withheld) -> None:
        """Where one claim after the other is withheld, the names stay in order."""
        self._taken[held.gang.key] = held, taken
        self._order.append(held)
        if self._names is not None and taken.any_capacity:
            at = bisect_left(self._names, taken.name)
            if self._names[at : at + 1] != [taken.name]:
                self._names.insert(at, taken.name)

    def on_bound(self, nodes: AbstractSet[str]) -> None:
        """A gang was bound to these nodes. A pod that shares a GPU leaves fewer whole GPUs that a reservation could take
        away, so all reservations are given back where one of them is on such a node. The next gang withholds them again."""
        names = self._snapshot.columns.names
        if any(names[row] in nodes for held in self._order for row in held.place.rows.tolist()):
            self.set([])

    def without(self, held: Reservation) -> None:
        """Gives this one back."""
        self.set([other for other in self.reservations() if other is not held])

    def reservations(self) -> list[Reservation]:
        return list(self._order)

    def with_capacity(self) -> Iterator[Reservation]:
        """The reservations that take any capacity beside volumes away now."""
        return (held for held, taken in self._taken.values() if taken.any_capacity)

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


class _Together(NamedTuple):
    rows: Ints
    withheld: Ints
    masks: list[int]  # none


def _together(reservations: Sequence[Reservation]) -> _Together | None:
    """What many reservations withhold, where it can be taken at once: of different rows, and of no certain GPUs."""
    if len(reservations) < 2 or any(held.place.has_masks for held in reservations):
        return None
    rows = np.concatenate([held.place.rows for held in reservations])
    widths = {held.withheld.shape[1] for held in reservations}
    if len(widths) > 1 or len(np.unique(rows)) < len(rows):
        return None
    withheld = np.concatenate([held.withheld for held in reservations])
    return _Together(rows, withheld, [0] * len(rows))


def _unaffected(before: Sequence[Reservation], after: Sequence[Reservation]) -> set[Reservation]:
    """Those in both, if none of them shares a row with any of the others; else nothing."""
    stay, changing = {*before} & {*after}, {*before} ^ {*after}
    rows = {row for held in changing for row in held.place.rows.tolist()}
    alone = all(rows.isdisjoint(held.place.rows.tolist()) for held in stay)
    return stay if alone else set()
