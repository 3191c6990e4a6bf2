"""PersistentVolumes that no claim has: for each node, how many of those that a claim could use are reachable
from it. Counts are updated as volumes and nodes come and go.

A volume is listed while the API server reports it as free, and available while it is listed and not
reserved. A draft reserves volumes while it tries a placement, and a planned claim reserves its volume until
the API server shows the binding.

Counts are per storage class and per set of requests (AnyOf): how many available volumes satisfy at least one
request of the set. matching.py says which sets must be counted.

Design: docs/design/filters.md
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from central.model.arrays import Ints
from central.model.facts import NodeSeen
from central.model.volumes import VolumeRequest, VolumeSeen
from central.scheduler.volumes.matching import AnyOf
from central.scheduler.volumes.reach import Places, VolumeReach

SETS_KEPT = 256  # of one storage class


class FreeVolumes:
    def __init__(self) -> None:
        self.listed: dict[str, VolumeSeen] = {}  # free, as the API server reports
        self.reserved: set[str] = set()  # by a draft or for a claim
        self.reach = VolumeReach()
        self.versions: Counter[str] = Counter()  # by class: how many changes there were
        self.rows = 0
        self._listed_at: dict[Places, set[str]] = {}  # names of listed volumes
        # Available volumes: by class; by class and row, if reachable from one node at most; the others.
        self._available: dict[str, dict[str, VolumeSeen]] = {}
        self._on_row: dict[tuple[str, int], dict[str, VolumeSeen]] = {}
        self._on_many: dict[str, dict[str, VolumeSeen]] = {}
        self._counts: dict[str, dict[AnyOf, Ints]] = {}  # by class; by row

    def has(self, storage_class: str) -> bool:
        """Returns whether a volume of the class is listed, reserved or not."""
        return bool(self._available.get(storage_class)) or any(
            self.listed[name].storage_class == storage_class
            for name in self.reserved
            if name in self.listed
        )

    def put(self, volume: VolumeSeen) -> None:
        """Lists a free volume, or replaces what is listed under its name."""
        if self.listed.get(volume.name) == volume:
            return
        self.drop(volume.name)
        self.listed[volume.name] = volume
        self._listed_at.setdefault(volume.places, set()).add(volume.name)
        self.reach.track(volume.places)
        if volume.name not in self.reserved:
            self._change(volume, 1)

    def drop(self, name: str) -> None:
        """The volume is deleted or no longer free."""
        volume = self.listed.pop(name, None)
        if volume is None:
            return
        if name not in self.reserved:
            self._change(volume, -1)
        names = self._listed_at[volume.places]
        names.discard(name)
        if not names:
            del self._listed_at[volume.places]
            self.reach.untrack(volume.places)

    def put_node(self, row: int, node: NodeSeen | None, rows: int) -> None:
        """Sets the row's node (None: deleted). rows: how many rows there are now."""
        if rows > self.rows:
            more = np.zeros(rows - self.rows, dtype=np.int64)
            self.rows = rows
            for counts in self._counts.values():
                for any_of in counts:
                    counts[any_of] = np.append(counts[any_of], more)
        affected = self.reach.affected(row, node)
        names = (name for places in affected for name in sorted(self._listed_at[places]))
        available = [self.listed[name] for name in names if name not in self.reserved]
        for volume in available:
            self._change(volume, -1)
        self.reach.update(row, node, affected)
        for volume in available:
            self._change(volume, 1)

    def available(self, names: frozenset[str]) -> frozenset[str]:
        """Returns those of the volumes that are available."""
        return frozenset(n for n in names if n in self.listed and n not in self.reserved)

    def reserve_available(self, names: frozenset[str]) -> frozenset[str]:
        """Reserves those that are available and returns them, for release_all()."""
        found = self.available(names)
        for name in sorted(found):
            self.reserve(name)
        return found

    def release_all(self, names: frozenset[str]) -> None:
        for name in sorted(names):
            self.release(name)

    def reserve(self, name: str) -> None:
        if name not in self.reserved:
            self.reserved.add(name)
            if name in self.listed:
                self._change(self.listed[name], -1)

    def release(self, name: str) -> None:
        if name in self.reserved:
            self.reserved.discard(name)
            if name in self.listed:
                self._change(self.listed[name], 1)

    def _change(self, volume: VolumeSeen, by: int) -> None:
        """Makes the volume available (1) or unavailable (-1)."""
        name, rows = volume.storage_class, self.reach.rows[volume.places]
        if by > 0:
            self._available.setdefault(name, {})[volume.name] = volume
            self._by_reach(name, rows)[volume.name] = volume
        else:
            del self._available[name][volume.name]
            del self._by_reach(name, rows)[volume.name]
        self.versions[name] += 1
        where = list(rows)
        for any_of, counts in self._counts.get(name, {}).items():
            if any(wanted.takes(volume) for wanted in any_of):
                counts[where] += by

    def _by_reach(self, storage_class: str, rows: set[int]) -> dict[str, VolumeSeen]:
        if len(rows) > 1:
            return self._on_many.setdefault(storage_class, {})
        return self._on_row.setdefault((storage_class, next(iter(rows), -1)), {})

    def count(self, storage_class: str, any_of: AnyOf) -> Ints:
        """Returns by row how many available volumes satisfy one of the requests."""
        counts = self._counts.setdefault(storage_class, {})
        if any_of not in counts:
            if len(counts) >= SETS_KEPT:
                counts.clear()
            found = counts[any_of] = np.zeros(self.rows, dtype=np.int64)
            for volume in self._available.get(storage_class, {}).values():
                if any(wanted.takes(volume) for wanted in any_of):
                    found[list(self.reach.rows[volume.places])] += 1
        return counts[any_of]

    def candidates(self, row: int, want: VolumeRequest) -> Iterator[str]:
        """Available volumes that satisfy the request on the row, the best fit first: the smallest, then
        the one that the fewest nodes reach."""
        name = want.storage_class
        there = [*self._on_row.get((name, row), {}).values()]
        there += [
            v for v in self._on_many.get(name, {}).values() if row in self.reach.rows[v.places]
        ]
        fit = [volume for volume in there if want.takes(volume)]
        fit.sort(key=lambda v: (v.size, len(self.reach.rows[v.places]), len(v.modes), v.name))
        return (volume.name for volume in fit)

    def on_many_nodes(self, want: VolumeRequest) -> bool:
        """Returns whether an available volume that satisfies the request is reachable from several nodes."""
        return any(map(want.takes, self._on_many.get(want.storage_class, {}).values()))
