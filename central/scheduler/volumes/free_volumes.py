"""Volumes that exist and nobody has: how many of what claims want can be used from each node, counted as
volumes and nodes come and go. What is asked is a set of wants: how many volumes do for at least one of
them.

Design: docs/design/0004-existing-volumes.md
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from central.model.arrays import Ints
from central.model.facts import NodeSeen
from central.model.volumes import VolumeSeen, Wanted
from central.scheduler.volumes.matching import Question
from central.scheduler.volumes.reach import Places, VolumeReach

QUESTIONS_KEPT = 256  # of a class


class FreeVolumes:
    def __init__(self) -> None:
        self.free: dict[str, VolumeSeen] = {}  # that the API server says nobody has
        self.out: set[str] = set()  # of them: taken on a draft, or planned for a claim
        self.reach = VolumeReach()
        self._alike: dict[Places, set[str]] = {}  # those that are free, by where they can be used
        self._classes: dict[str, dict[str, VolumeSeen]] = {}  # free and not out
        self._on: dict[tuple[str, int], dict[str, VolumeSeen]] = {}  # of one node only, by its row
        self.wide: dict[str, dict[str, VolumeSeen]] = {}  # of several nodes
        self._counts: dict[str, dict[Question, Ints]] = {}  # by class, then by row
        self.moved: Counter[str] = Counter()  # how often something of a class has changed
        self.rows = 0

    def has(self, storage_class: str) -> bool:
        """Whether there are volumes of the class that nobody has, planned ones among them."""
        return bool(self._classes.get(storage_class)) or any(
            self.free[name].storage_class == storage_class for name in self.out if name in self.free
        )

    def put(self, volume: VolumeSeen) -> None:
        """One that nobody has."""
        if self.free.get(volume.name) == volume:
            return
        self.drop(volume.name)
        self.free[volume.name] = volume
        self._alike.setdefault(volume.places, set()).add(volume.name)
        self.reach.know(volume.places)
        if volume.name not in self.out:
            self._shelve(volume)

    def drop(self, name: str) -> None:
        """It is gone, or somebody has it."""
        volume = self.free.pop(name, None)
        if volume is None:
            return
        if name not in self.out:
            self._unshelve(volume)
        alike = self._alike[volume.places]
        alike.discard(name)
        if not alike:
            del self._alike[volume.places]
            self.reach.forget(volume.places)

    def put_node(self, row: int, node: NodeSeen | None, rows: int) -> None:
        if rows > self.rows:
            more = np.zeros(rows - self.rows, dtype=np.int64)
            self.rows = rows
            for counts in self._counts.values():
                for question in counts:
                    counts[question] = np.append(counts[question], more)
        moved = self.reach.moved(row, node)
        on_shelves = [
            self.free[name]
            for places in moved
            for name in sorted(self._alike[places])
            if name not in self.out
        ]
        for volume in on_shelves:
            self._unshelve(volume)
        self.reach.changed(row, node, moved)
        for volume in on_shelves:
            self._shelve(volume)

    def on_shelves(self, names: frozenset[str]) -> frozenset[str]:
        """Those of them that are there to be had."""
        return frozenset(name for name in names if name in self.free and name not in self.out)

    def withhold(self, names: frozenset[str]) -> frozenset[str]:
        """Takes them off the shelves for a while; for put_back(): which those were."""
        there = self.on_shelves(names)
        for name in sorted(there):
            self.plan(name)
        return there

    def put_back(self, names: frozenset[str]) -> None:
        for name in sorted(names):
            self.unplan(name)

    def plan(self, name: str) -> None:
        """It is for a claim now."""
        if name not in self.out:
            self.out.add(name)
            if name in self.free:
                self._unshelve(self.free[name])

    def unplan(self, name: str) -> None:
        if name in self.out:
            self.out.discard(name)
            if name in self.free:
                self._shelve(self.free[name])

    def _shelve(self, volume: VolumeSeen, sign: int = 1) -> None:
        kind, rows = volume.storage_class, self.reach.rows[volume.places]
        if sign > 0:
            self._classes.setdefault(kind, {})[volume.name] = volume
            self._shelf(kind, rows)[volume.name] = volume
        else:
            del self._classes[kind][volume.name]
            del self._shelf(kind, rows)[volume.name]
        self.moved[kind] += 1
        where = list(rows)
        for question, counts in self._counts.get(kind, {}).items():
            if any(wanted.takes(volume) for wanted in question):
                counts[where] += sign

    def _unshelve(self, volume: VolumeSeen) -> None:
        self._shelve(volume, -1)

    def _shelf(self, kind: str, rows: set[int]) -> dict[str, VolumeSeen]:
        if len(rows) > 1:
            return self.wide.setdefault(kind, {})
        return self._on.setdefault((kind, next(iter(rows), -1)), {})

    def counted(self, kind: str, question: Question) -> Ints:
        """By row, how many volumes would do."""
        counts = self._counts.setdefault(kind, {})
        if question not in counts:
            if len(counts) >= QUESTIONS_KEPT:
                counts.clear()
            found = counts[question] = np.zeros(self.rows, dtype=np.int64)
            for volume in self._classes.get(kind, {}).values():
                if any(wanted.takes(volume) for wanted in question):
                    found[list(self.reach.rows[volume.places])] += 1
        return counts[question]

    def offers(self, row: int, want: Wanted) -> Iterator[str]:
        kind = want.storage_class
        there = [*self._on.get((kind, row), {}).values()]
        there += [
            volume
            for volume in self.wide.get(kind, {}).values()
            if row in self.reach.rows[volume.places]
        ]
        fit = [volume for volume in there if want.takes(volume)]
        fit.sort(key=lambda v: (v.size, len(self.reach.rows[v.places]), len(v.modes), v.name))
        return (volume.name for volume in fit)

    def check(self) -> None:
        """What is counted is what a recount gives."""
        here = {n: v for n, v in self.free.items() if n not in self.out}
        kept = {name: volume for kind in self._classes.values() for name, volume in kind.items()}
        assert kept == here, f"volumes on the shelves: {sorted(kept)}, should be {sorted(here)}"
        for kind, counts in self._counts.items():
            for question, found in counts.items():
                fresh = np.zeros(self.rows, dtype=np.int64)
                for volume in here.values():
                    if volume.storage_class == kind and any(w.takes(volume) for w in question):
                        fresh[list(self.reach.rows[volume.places])] += 1
                assert (found == fresh).all(), f"volumes of {kind} are not what a recount gives"
        self.reach.check()
