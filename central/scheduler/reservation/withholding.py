"""Takes reserved capacity out of the snapshot for gangs that must leave it free, and puts it back."""

from collections.abc import Sequence

from central.scheduler.reservation.reservation import Reservation, Withheld
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import GangKey


class WithheldCapacity:
    """What of the reservations is out of the snapshot now. Nothing may be at the end of a cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._volumes: frozenset[str] = frozenset()
        self._taken: dict[GangKey, tuple[Reservation, Withheld]] = {}
        self.volumes_only: list[Reservation] = []  # of these only volumes are withheld

    def set(self, binding: list[Reservation], volumes_only: Sequence[Reservation] = ()) -> None:
        """Withholds these reservations, and no others. Where reservations overlap, what each takes depends on
        those before it, so all of them are given back first. The others stay if they are in both sets: with
        many gangs that wait for victims, sets differ by one or two."""
        with self._snapshot.changing():
            self._set(binding, volumes_only)

    def _set(self, binding: list[Reservation], volumes_only: Sequence[Reservation]) -> None:
        free = self._snapshot.pod_counts.volumes.free
        free.release_all(self._volumes)
        self.volumes_only = [held for held in volumes_only if held.withheld_volumes]
        names = [held.withheld_volumes for held in (*binding, *volumes_only)]
        self._volumes = free.reserve_available(frozenset().union(*names))
        if self.reservations() == binding:
            return
        keep = _unaffected(self.reservations(), binding)
        for held, taken in reversed(self._taken.values()):
            if held not in keep:
                held.give_back(self._snapshot, taken)
        stays = {held: taken for held, taken in self._taken.values() if held in keep}
        self._taken = {
            held.gang.key: (held, stays[held] if held in keep else held.withhold(self._snapshot))
            for held in binding
        }

    def without(self, held: Reservation) -> None:
        """Gives this one back."""
        self.set([other for other in self.reservations() if other is not held])

    def reservations(self) -> list[Reservation]:
        return [held for held, _ in self._taken.values()]

    def with_capacity(self) -> list[Reservation]:
        """The reservations that take any capacity beside volumes away now."""
        return [held for held in self.reservations() if held.withheld.any()]

    def with_volumes(self) -> list[Reservation]:
        """The reservations that take volumes away now."""
        return [h for h in (*self.reservations(), *self.volumes_only) if h.withheld_volumes]

    def __contains__(self, key: GangKey) -> bool:
        return key in self._taken


def _unaffected(before: Sequence[Reservation], after: Sequence[Reservation]) -> set[Reservation]:
    """Those in both, if none of them shares a row with any of the others; else nothing."""
    stay, changing = {*before} & {*after}, {*before} ^ {*after}
    rows = {row for held in changing for row in held.place.rows.tolist()}
    alone = all(rows.isdisjoint(held.place.rows.tolist()) for held in stay)
    return stay if alone else set()
