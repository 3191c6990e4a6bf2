"""Of equally close domains the used one goes first and whole ones stay whole, on every level: against the
definition in plain loops, and by what is left."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest

from central.scheduler.placement import PlacementRequest, SubgroupRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, NODE, RACK, ZONE
from tests.central import factories
from tests.effort import examples, seeds

Path = tuple[str, ...]
NODE_GPUS = 8


class Model:
    """Nodes by name with their path (zone, block, rack) and free GPUs."""

    def __init__(self, dice: random.Random) -> None:
        self.free: dict[str, int] = {}
        self.path: dict[str, Path] = {}
        self.snapshot = Snapshot((ZONE, BLOCK, RACK))
        paths = [
            (f"z{zone}", f"b{zone}{block}", f"r{zone}{block}{rack}")
            for zone in range(dice.randint(1, 2))
            for block in range(dice.randint(1, 3))
            for rack in range(dice.randint(1, 3))
            for _ in range(dice.randint(1, 3))
        ]
        names = [f"n{i:02}" for i in range(len(paths))]
        dice.shuffle(names)
        for name, path in zip(names, paths, strict=True):
            self.path[name] = path if dice.random() > 0.1 else ("", "", "")
            labels = dict(zip((ZONE, BLOCK, RACK), self.path[name], strict=True))
            row = self.snapshot.put_node(factories.node(name, gpus=NODE_GPUS, labels=labels))
            used = dice.choice((0, 0, 0, 8, dice.randint(0, 8)))
            self.free[name] = NODE_GPUS - used
            if used:
                self.snapshot.take(row, factories.spec(used), 1, 0)

    def inside(self, path: Path) -> list[str]:
        return [name for name in self.free if self.path[name][: len(path)] == path and path[-1]]

    def around(self, path: Path, gpus: int) -> tuple[int, ...]:
        """Whole domains that so many GPUs would break, then free GPUs, the narrowest domain first."""
        broken, free = 0, []
        for length in range(len(path), 0, -1):
            nodes = self.inside(path[:length])
            free.append(sum(map(self.free.__getitem__, nodes)))
            broken += free[-1] == NODE_GPUS * len(nodes) > gpus
        return broken, *free

    def best_node(self, gpus: int, count: int) -> str:
        def order(name: str) -> tuple[object, ...]:
            left = self.free[name]
            return left, left // gpus, self.around(self.path[name], gpus * count), name

        fits = [name for name in self.free if self.free[name] // gpus >= count]
        return min(fits, key=order, default="")

    def best_domain(self, gpus: int, count: int, length: int) -> list[str]:
        """The nodes of the best domain with so long a path."""

        def capacity(nodes: Sequence[str]) -> int:
            return sum(self.free[name] // gpus for name in nodes)

        def children(path: Path, depth: int) -> int:
            by_child = Counter[object]()
            for name in self.inside(path):
                by_child[(*self.path[name], name)[: depth + 1]] += self.free[name] // gpus
            filled, needed = 0, 0
            for most in sorted(by_child.values(), reverse=True):
                if filled < count:
                    filled, needed = filled + most, needed + 1
            return needed

        def order(path: Path) -> tuple[object, ...]:
            broken, *free = self.around(path, gpus * count)
            needed = [children(path, depth) for depth in range(length, 4)]
            return needed, broken, capacity(self.inside(path)), free, path[-1]

        paths = {path[:length] for path in self.path.values() if path[-1]}
        fits = [path for path in paths if capacity(self.inside(path)) >= count]
        return self.inside(min(fits, key=order)) if fits else []

    def best(self, gpus: int, count: int) -> tuple[str, list[str]]:
        if node := self.best_node(gpus, count):
            return "node", [node]
        for length, level in ((3, RACK), (2, BLOCK), (1, ZONE)):
            if nodes := self.best_domain(gpus, count, length):
                return level, nodes
        return "", []


@pytest.mark.long
def test_the_domain_that_the_definition_names() -> None:
    seen = Counter[str]()
    worlds = examples(500)
    for seed in range(worlds):
        dice = random.Random(seed)
        model = Model(dice)
        draft = Draft(model.snapshot)
        for _ in range(3):
            gpus, count = dice.choice((1, 2, 5, 8)), dice.choice((1, 1, 2, 3, 5))
            level, nodes = model.best(gpus, count)
            try:
                found = fit(draft, PlacementRequest(((factories.spec(gpus), count),)))
            except DoesNotFit:
                assert not nodes
                break
            used = {model.snapshot.columns.names[taken.row] for taken in found}
            assert not nodes or used <= set(nodes), f"seed {seed}"
            seen[level] += 1
            for taken in found:
                model.free[model.snapshot.columns.names[taken.row]] -= gpus * taken.pods
            draft.keep()
    assert min(seen[level] for level in ("node", RACK, BLOCK, ZONE)) > worlds // 25


def test_single_pods_break_as_few_racks_as_they_can_fill() -> None:
    """Whatever the names, how the racks are divided into blocks, and which workloads are typical."""
    for seed in seeds(60):
        dice = random.Random(seed)
        size, racks = dice.randint(2, 5), dice.randint(2, 6)
        names = [f"n{i:02}" for i in range(size * racks)]
        dice.shuffle(names)
        snapshot = Snapshot((BLOCK, RACK))
        for i, name in enumerate(names):
            rack = i // size
            cpu = dice.choice((64_000, 63_000))
            node = factories.node(name, block=f"b{rack // 2}", rack=f"r{rack}", cpu=cpu)
            snapshot.put_node(node)
        for gpus in (1, 8) if dice.random() < 0.5 else ():
            snapshot.mix.observe(factories.spec(gpus))
        pods = dice.randint(1, size * racks)
        for _ in range(pods):
            draft = Draft(snapshot)
            fit(draft, PlacementRequest(((factories.spec(8), 1),)))
            draft.keep()
        free = snapshot.columns.gpus.count
        broken: dict[int, bool] = {}
        for row in snapshot.columns.row.values():
            rack = int(snapshot.columns.domains.of[1, row])
            broken[rack] = broken.get(rack, False) or free[row] < NODE_GPUS
        assert sum(broken.values()) == -(-pods // size), f"seed {seed}"


def test_partitions_leave_an_empty_rack_whole() -> None:
    """A rack in use that holds the gang comes before an empty one of fewer nodes, for equal subgroups and unlike ones:
    each subgroup has the node that it requires in both."""
    spec, seen = factories.spec(2), 0
    for seed in seeds(60):
        dice = random.Random(seed)
        free = {f"0{rack}{node}": 8 for rack in range(4) for node in range(3)}
        for rack in dice.sample(range(4), 3):
            for node in range(3):
                free[f"0{rack}{node}"] = dice.choice((0, 2, 4, 6))
        snapshot = Snapshot((BLOCK, RACK))
        for name, gpus in free.items():
            row = snapshot.put_node(factories.node(name, block="b", rack=name[:2], gpus=8))
            if gpus < 8:
                snapshot.take(row, factories.spec(8 - gpus), 1, 0)
        sizes = dice.choice(((2, 2, 2), (2, 2, 2, 2), (2, 2, 1, 1, 1), (3, 2, 1)))
        parts = tuple(
            SubgroupRequest(((spec, size),), NODE, copies=sizes.count(size))
            for size in sorted(set(sizes), reverse=True)
        )
        request = PlacementRequest(((spec, sum(sizes)),), subgroups=parts)
        draft = Draft(snapshot)
        racks = {snapshot.columns.names[each.row][:2] for each in fit(draft, request)}
        draft.undo()
        used = {rack for rack in {name[:2] for name in free} if holds(free, rack, sizes)}
        assert not used or racks <= used, f"seed {seed}: {free} {sizes}"
        seen += bool(used)
    assert seen >= len(seeds(60)) // 10


def holds(free: dict[str, int], rack: str, sizes: Sequence[int]) -> bool:
    """Whether a rack in use holds these subgroups of pods of two GPUs, each on one node."""
    nodes = [gpus for name, gpus in free.items() if name[:2] == rack]
    return min(nodes) < 8 and any(
        all(
            2 * sum(size for size, at in zip(sizes, places, strict=True) if at == node) <= gpus
            for node, gpus in enumerate(nodes)
        )
        for places in product(range(len(nodes)), repeat=len(sizes))
    )
