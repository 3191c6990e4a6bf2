"""Who gets which of the volumes that nobody has: for how many pods of a kind each node has enough, and what
those who take a seat get.

A node has enough for some pods exactly where no set of their wants finds fewer volumes than it asks for
(Hall).
"""

from dataclasses import dataclass

import numpy as np

from central.model.arrays import Ints
from central.model.volumes import Volumes, Wanted
from central.scheduler.volumes.free_volumes import FreeVolumes
from central.scheduler.volumes.matching import matched, questions

MANY = np.int64(2**40)
Lot = tuple[str, ...]  # the volumes of one pod, in the order of its wants; empty: none, one is made


@dataclass(slots=True)
class SharedVolumes:
    """A volume that several pods use; empty: it is made once one of them has a node."""

    volume: str
    pods: int = 0


class VolumeAssignment(FreeVolumes):
    def __init__(self) -> None:
        super().__init__()
        self._lots: dict[tuple[int, Volumes], list[Lot]] = {}  # taken, by seat
        self._shared: dict[str, SharedVolumes] = {}  # by claim, taken by seats

    # --- room ---------------------------------------------------------------------

    def version(self, volumes: Volumes) -> tuple[int, ...]:
        """Changes whenever the room for such pods may have changed."""
        return tuple(
            self.moved[wanted.storage_class]
            for wanted in (*(w for w, _ in volumes.wants), *(w for _, w in volumes.shared))
        )

    def room(self, volumes: Volumes, made: dict[Wanted, Ints]) -> Ints:
        """By row, for how many pods there are volumes. made: where one can be made as wanted."""
        room = np.full(self.rows, MANY, dtype=np.int64)
        once = [want for claim, want in volumes.shared if claim not in self._shared]
        kinds = {w.storage_class for w, _ in volumes.wants} | {w.storage_class for w in once}
        for kind in sorted(kinds):
            asked = {w: (n, 0) for w, n in volumes.wants if w.storage_class == kind}
            for want in once:
                if want.storage_class == kind:
                    each, all_together = asked.get(want, (0, 0))
                    asked[want] = (each, all_together + 1)
            np.minimum(room, self._room_of(kind, asked, made), out=room)
        for claim, _ in volumes.shared:
            if claim in self._shared:
                room[~self._within(self._shared[claim].volume)] = 0
        return room

    def _room_of(
        self, kind: str, asked: dict[Wanted, tuple[int, int]], made: dict[Wanted, Ints]
    ) -> Ints:
        """Rows are alike where the same of the wants can be made."""
        wants = list(asked)
        alike = np.zeros(self.rows, dtype=np.int64)
        for place, want in enumerate(wants):
            if want in made:
                alike |= made[want] << place
        room = np.full(self.rows, MANY, dtype=np.int64)
        for code in np.unique(alike).tolist():
            rows = alike == code
            left = tuple(
                (want, *asked[want]) for place, want in enumerate(wants) if not code >> place & 1
            )
            for question, each, once in questions(left):
                there = self.counted(kind, question)[rows] - once
                if each:
                    there //= each
                room[rows] = np.minimum(room[rows], there if each else np.where(there < 0, 0, MANY))
        return np.maximum(room, 0)

    def roams(self, volumes: Volumes) -> bool:
        """Whether one of the volumes that such pods may get can be used from several nodes."""
        return bool(volumes.shared) or any(
            want.takes(volume)
            for want, _ in volumes.wants
            for volume in self.wide.get(want.storage_class, {}).values()
        )

    def _within(self, name: str) -> Ints:
        inside = np.full(self.rows, not name)  # whoever makes it says later from where it is used
        if name in self.free:
            inside[list(self.reach.rows[self.free[name].places])] = True
        return inside

    # --- seats ----------------------------------------------------------------------

    def count(self, row: int | Ints, volumes: Volumes, change: int | Ints) -> None:
        """So many more pods, or fewer, have a seat on the row; or on many different rows."""
        if not volumes.wants and not volumes.shared:
            return
        if isinstance(row, np.ndarray):
            counts = np.broadcast_to(np.asarray(change), row.shape)
            for one, pods in zip(row.tolist(), counts.tolist(), strict=True):
                self._seat(one, volumes, pods)
        else:
            self._seat(int(row), volumes, int(change))

    def _seat(self, row: int, volumes: Volumes, change: int) -> None:
        if change > 0:
            self._take(row, volumes, change)
        elif change < 0:
            self._give(row, volumes, -change)

    def _take(self, row: int, volumes: Volumes, pods: int) -> None:
        each = [want for want, count in volumes.wants for _ in range(count)]
        fresh = [(claim, want) for claim, want in volumes.shared if claim not in self._shared]
        wants = [*each * pods, *(want for _, want in fresh)]
        found = matched(wants, {want: list(self.offers(row, want)) for want in set(wants)})
        for name in found:
            if name:
                self.plan(name)
        own = len(each)
        lots = self._lots.setdefault((row, volumes), [])
        lots += [tuple(found[own * pod : own * (pod + 1)]) for pod in range(pods)]
        for (claim, _), name in zip(fresh, found[own * pods :], strict=True):
            self._shared[claim] = SharedVolumes(name)
        for claim, want in volumes.shared:
            self._shared[claim].pods += pods
            self.moved[want.storage_class] += 1

    def _give(self, row: int, volumes: Volumes, pods: int) -> None:
        lots = self._lots.get((row, volumes), [])
        for _, want in volumes.shared:
            self.moved[want.storage_class] += 1
        for _ in range(min(pods, len(lots))):
            for name in lots.pop():
                self.unplan(name)
            for claim, _ in volumes.shared:
                if (common := self._shared.get(claim)) is not None:
                    common.pods -= 1
                    if not common.pods:
                        self.unplan(common.volume)
                        del self._shared[claim]
        if not lots:
            self._lots.pop((row, volumes), None)

    def settled(self, row: int, volumes: Volumes) -> tuple[list[Lot], dict[str, str]]:
        """What the pods of such seats got, which is theirs from now on: pod by pod, and by claim what
        they share."""
        for _, want in volumes.shared:
            self.moved[want.storage_class] += 1
        shared = {
            claim: self._shared.pop(claim).volume
            for claim, _ in volumes.shared
            if claim in self._shared
        }
        return self._lots.pop((row, volumes), []), shared

    def taken(self) -> set[str]:
        """By seats, and nobody's yet."""
        lots = [name for lots in self._lots.values() for lot in lots for name in lot]
        return {*lots, *(common.volume for common in self._shared.values())} - {""}

    def seated(self) -> dict[tuple[int, Volumes], int]:
        """How many pods have taken volumes that are not theirs yet."""
        return {seat: len(lots) for seat, lots in self._lots.items()}
