"""Volumes that exist and nobody has: how many of what a claim wants can be used from each node, counted as
volumes and nodes come and go, and which of them whoever takes a seat gets.

What is asked is a set of wants: how many volumes do for at least one of them. A node has enough for
some pods exactly where no set of their wants finds fewer volumes than it asks for (Hall).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from central.core.facts import NodeSeen
from central.core.filters.reach import Places, Reach
from central.core.filters.volumes import Volumes, VolumeSeen, Wanted
from central.core.fleet.domains import Ints

MANY = np.int64(2**40)
UNLIKE = 8  # ways in which one pod's claims of a class may differ
QUESTIONS_KEPT = 256  # of a class
Question = frozenset[Wanted]
Lot = tuple[str, ...]  # the volumes of one pod, in the order of its wants; empty: none, one is made


@dataclass(slots=True)
class Common:
    """A volume that several pods use; empty: it is made once one of them has a node."""

    volume: str
    pods: int = 0


class Stock:
    def __init__(self) -> None:
        self.free: dict[str, VolumeSeen] = {}  # that the API server says nobody has
        self.out: set[str] = set()  # of them: taken on a draft, or planned for a claim
        self._reach = Reach()
        self._alike: dict[Places, set[str]] = {}  # those that are free, by where they can be used
        self._classes: dict[str, dict[str, VolumeSeen]] = {}  # free and not out
        self._on: dict[tuple[str, int], dict[str, VolumeSeen]] = {}  # of one node only, by its row
        self._wide: dict[str, dict[str, VolumeSeen]] = {}  # of several nodes
        self._counts: dict[str, dict[Question, Ints]] = {}  # by class, then by row
        self._lots: dict[tuple[int, Volumes], list[Lot]] = {}  # taken, by seat
        self._shared: dict[str, Common] = {}  # by claim, taken by seats
        self._moved: Counter[str] = Counter()  # how often something of a class has changed
        self._rows = 0

    # --- what there is ------------------------------------------------------------

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
        self._reach.know(volume.places)
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
            self._reach.forget(volume.places)

    def put_node(self, row: int, node: NodeSeen | None, rows: int) -> None:
        if rows > self._rows:
            more = np.zeros(rows - self._rows, dtype=np.int64)
            self._rows = rows
            for counts in self._counts.values():
                for question in counts:
                    counts[question] = np.append(counts[question], more)
        moved = self._reach.moved(row, node)
        on_shelves = [
            self.free[name]
            for places in moved
            for name in sorted(self._alike[places])
            if name not in self.out
        ]
        for volume in on_shelves:
            self._unshelve(volume)
        self._reach.changed(row, node, moved)
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
        kind, rows = volume.storage_class, self._reach.rows[volume.places]
        if sign > 0:
            self._classes.setdefault(kind, {})[volume.name] = volume
            self._shelf(kind, rows)[volume.name] = volume
        else:
            del self._classes[kind][volume.name]
            del self._shelf(kind, rows)[volume.name]
        self._moved[kind] += 1
        where = list(rows)
        for question, counts in self._counts.get(kind, {}).items():
            if any(wanted.takes(volume) for wanted in question):
                counts[where] += sign

    def _unshelve(self, volume: VolumeSeen) -> None:
        self._shelve(volume, -1)

    def _shelf(self, kind: str, rows: set[int]) -> dict[str, VolumeSeen]:
        if len(rows) > 1:
            return self._wide.setdefault(kind, {})
        return self._on.setdefault((kind, next(iter(rows), -1)), {})

    # --- room ---------------------------------------------------------------------

    def stamp(self, volumes: Volumes) -> tuple[int, ...]:
        """Changes whenever the room for such pods may have changed."""
        return tuple(
            self._moved[wanted.storage_class]
            for wanted in (*(w for w, _ in volumes.wants), *(w for _, w in volumes.shared))
        )

    def room(self, volumes: Volumes, made: dict[Wanted, Ints]) -> Ints:
        """By row, for how many pods there are volumes. made: where one can be made as wanted."""
        room = np.full(self._rows, MANY, dtype=np.int64)
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
        alike = np.zeros(self._rows, dtype=np.int64)
        for place, want in enumerate(wants):
            if want in made:
                alike |= made[want] << place
        room = np.full(self._rows, MANY, dtype=np.int64)
        for code in np.unique(alike).tolist():
            rows = alike == code
            left = tuple(
                (want, *asked[want]) for place, want in enumerate(wants) if not code >> place & 1
            )
            for question, each, once in _questions(left):
                there = self._count(kind, question)[rows] - once
                if each:
                    there //= each
                room[rows] = np.minimum(room[rows], there if each else np.where(there < 0, 0, MANY))
        return np.maximum(room, 0)

    def _count(self, kind: str, question: Question) -> Ints:
        """By row, how many volumes would do."""
        counts = self._counts.setdefault(kind, {})
        if question not in counts:
            if len(counts) >= QUESTIONS_KEPT:
                counts.clear()
            found = counts[question] = np.zeros(self._rows, dtype=np.int64)
            for volume in self._classes.get(kind, {}).values():
                if any(wanted.takes(volume) for wanted in question):
                    found[list(self._reach.rows[volume.places])] += 1
        return counts[question]

    def roams(self, volumes: Volumes) -> bool:
        """Whether one of the volumes that such pods may get can be used from several nodes."""
        return bool(volumes.shared) or any(
            want.takes(volume)
            for want, _ in volumes.wants
            for volume in self._wide.get(want.storage_class, {}).values()
        )

    def _within(self, name: str) -> Ints:
        inside = np.full(self._rows, not name)  # whoever makes it says later from where it is used
        if name in self.free:
            inside[list(self._reach.rows[self.free[name].places])] = True
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
        found = self._matched(row, [*each * pods, *(want for _, want in fresh)])
        for name in found:
            if name:
                self.plan(name)
        own = len(each)
        lots = self._lots.setdefault((row, volumes), [])
        lots += [tuple(found[own * pod : own * (pod + 1)]) for pod in range(pods)]
        for (claim, _), name in zip(fresh, found[own * pods :], strict=True):
            self._shared[claim] = Common(name)
        for claim, want in volumes.shared:
            self._shared[claim].pods += pods
            self._moved[want.storage_class] += 1

    def _give(self, row: int, volumes: Volumes, pods: int) -> None:
        lots = self._lots.get((row, volumes), [])
        for _, want in volumes.shared:
            self._moved[want.storage_class] += 1
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
            self._moved[want.storage_class] += 1
        shared = {
            claim: self._shared.pop(claim).volume
            for claim, _ in volumes.shared
            if claim in self._shared
        }
        return self._lots.pop((row, volumes), []), shared

    def _matched(self, row: int, wants: Sequence[Wanted]) -> list[str]:
        """A volume for each, the smallest that does; empty where none is left, or one is made."""
        got: dict[str, int] = {}
        offers = {want: list(self._offers(row, want)) for want in set(wants)}
        # Whoever must have one comes before those for whom one can be made, if it is not too large.
        order = ((wants[i].made is not None, -wants[i].size, i) for i in range(len(wants)))
        for _, _, index in sorted(order):
            _find(index, wants, offers, got, set())
        names = [""] * len(wants)
        for name, index in got.items():
            names[index] = name
        return names

    def _offers(self, row: int, want: Wanted) -> Iterator[str]:
        kind = want.storage_class
        there = [*self._on.get((kind, row), {}).values()]
        there += [
            volume
            for volume in self._wide.get(kind, {}).values()
            if row in self._reach.rows[volume.places]
        ]
        fit = [volume for volume in there if want.takes(volume)]
        fit.sort(key=lambda v: (v.size, len(self._reach.rows[v.places]), len(v.modes), v.name))
        return (volume.name for volume in fit)

    # --- for promises ------------------------------------------------------------------

    def check(self) -> None:
        """What is counted is what a recount gives."""
        here = {n: v for n, v in self.free.items() if n not in self.out}
        kept = {name: volume for kind in self._classes.values() for name, volume in kind.items()}
        assert kept == here, f"volumes on the shelves: {sorted(kept)}, should be {sorted(here)}"
        for kind, counts in self._counts.items():
            for question, found in counts.items():
                fresh = np.zeros(self._rows, dtype=np.int64)
                for volume in here.values():
                    if volume.storage_class == kind and any(w.takes(volume) for w in question):
                        fresh[list(self._reach.rows[volume.places])] += 1
                assert (found == fresh).all(), f"volumes of {kind} are not what a recount gives"
        self._reach.check()

    def taken(self) -> set[str]:
        """By seats, and nobody's yet."""
        lots = [name for lots in self._lots.values() for lot in lots for name in lot]
        return {*lots, *(common.volume for common in self._shared.values())} - {""}

    def seated(self) -> dict[tuple[int, Volumes], int]:
        """How many pods have taken volumes that are not theirs yet."""
        return {seat: len(lots) for seat, lots in self._lots.items()}


def _find(
    index: int,
    wants: Sequence[Wanted],
    offers: dict[Wanted, list[str]],
    got: dict[str, int],
    tried: set[str],
) -> bool:
    """A volume for this one, if need be by giving others another."""
    for name in offers[wants[index]]:
        if name not in got:
            got[name] = index
            return True
    for name in offers[wants[index]]:
        if name not in tried:
            tried.add(name)
            if _find(got[name], wants, offers, got, tried):
                got[name] = index
                return True
    return False


Asked = tuple[tuple[Wanted, int, int], ...]  # how many for each pod, and how many in all


@lru_cache(maxsize=4096)
def _questions(asked: Asked) -> list[tuple[Question, int, int]]:
    """The sets of wants whose volumes must be enough, with how many are asked for. Of wants one of which
    is harder than the other, the easier says it all."""
    found: dict[Question, tuple[int, int]] = {}
    for size in range(1, len(asked) + 1):
        for some in combinations(asked, size):
            wants = [want for want, _, _ in some]
            easiest = frozenset(
                want
                for place, want in enumerate(wants)
                if not any(
                    want.harder(other) and (other_place < place or not other.harder(want))
                    for other_place, other in enumerate(wants)
                    if other_place != place
                )
            )
            each, once = sum(n for _, n, _ in some), sum(n for _, _, n in some)
            have = found.get(easiest, (0, 0))
            found[easiest] = (max(have[0], each), max(have[1], once))
    return [(question, each, once) for question, (each, once) in found.items()]
