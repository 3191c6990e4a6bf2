"""Free capacity that is kept up to date is what plain books of the same nodes and pods hold, whatever comes and goes,
one by one or many at a time."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from central.model.facts import NodeSeen, PodSpec
from central.model.pod_rules import Port, Rules
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.snapshot.domain_gpus import DomainGpus
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.gpu_sharing import RANKS
from protos.names import BLOCK, DOMAINS, GPU, GPU_SHARE, RACK
from protos.topology import RdmaLimit, Shape, indices_of
from tests.central import factories

NODES = 24
STEPS = 30
SELECTED = (("pool", "a"),)
SPECS = (
    factories.spec(1),
    factories.spec(3, cpu=9_000),
    factories.spec(0, cpu=7_000),
    replace(factories.spec(2), node_selector=SELECTED),
    factories.part("s", 30).spec,
    factories.sure(factories.part("s", 60), "mps").spec,
    replace(factories.spec(0), requests=(("absent", 1), ("cpu", 1))),
    factories.spec(1, rules=Rules(ports=(Port("TCP", 80),))),  # one on each node
    factories.wishing(factories.pod("nics"), 10).spec,
)
ON_PORT, ON_NICS = SPECS[-2:]
NICS, HANDLES = 2, 25


@dataclass
class Node:
    seen: NodeSeen
    shape: Shape | None = None
    healthy: set[int] = field(default_factory=set)
    offered: gpu_shares.Offered = gpu_shares.NOTHING
    taken: Counter[str] = field(default_factory=Counter)
    whole: set[int] = field(default_factory=set)  # GPUs that pods have
    shares: Counter[int] = field(default_factory=Counter)  # hundredths in use, by GPU
    pods: Counter[PodSpec] = field(default_factory=Counter)
    nics: bool = False  # whether NICs have limits

    def free(self, resource: str) -> int:
        return self.seen.allocatable.get(resource, 0) - self.taken[resource]

    def unused(self) -> set[int]:
        return self.healthy - self.whole - set(+self.shares)

    def gpus(self) -> int:
        """Whole ones that are free."""
        have = max(0, self.free(GPU))
        return have if self.shape is None else min(have, len(self.unused()))

    def fits(self, spec: PodSpec) -> int:
        if self.seen.unschedulable or not set(spec.node_selector) <= set(self.seen.labels.items()):
            return 0
        amounts = [(name, amount) for name, amount in spec.requests if amount]
        bounds = [
            (self.gpus() if name == GPU else self.free(name)) // amount for name, amount in amounts
        ]
        if share := spec.request(GPU_SHARE):
            usable = set(indices_of(self.offered[RANKS[spec.memory_level]]))
            opened = [gpu for gpu in usable & self.healthy if self.shares[gpu]]
            parts = sum((100 - self.shares[gpu]) // share for gpu in opened)
            closed = min(len(self.unused() & usable), self.gpus())
            bounds.append(parts + closed * (100 // share))
        if spec == ON_PORT:
            bounds.append(1 - self.pods[spec])
        if spec == ON_NICS and self.nics:
            bounds.append(NICS * (HANDLES // 10) - self.pods[spec])
        return max(0, min(bounds))


class Books:
    """A snapshot, and the same in plain books."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.snapshot = Snapshot((BLOCK, RACK))
        self.nodes: dict[str, Node] = {}
        self.taken: list[Assignment] = []
        for number in range(NODES):
            self.put(f"n{number}")

    def put(self, name: str) -> None:
        """Adds the node, or changes its amounts, its labels or its place."""
        dice = self.dice
        rack = dice.randrange(6)
        labels = {"pool": dice.choice("ab"), RACK: f"r{rack}" if rack else ""}
        labels[BLOCK] = f"b{rack // 2}" if dice.random() < 0.9 else ""
        seen = factories.node(
            name,
            gpus=dice.choice((0, 4, 8, 8)),
            cpu=dice.choice((16_000, 64_000)),
            labels={key: value for key, value in labels.items() if value},
            unschedulable=dice.random() < 0.1,
            shares=True,
        )
        seen = replace(seen, memory_level="kernel")  # the best of its GPUs
        self.nodes.setdefault(name, Node(seen)).seen = seen
        self.snapshot.put_node(seen)

    def drop(self, name: str) -> None:
        if not self.nodes[name].taken.total():
            del self.nodes[name]
            self.snapshot.drop_node(name)

    def report(self, name: str) -> None:
        """GPUs fail or recover, or are no longer offered for shares."""
        dice, node = self.dice, self.nodes[name]
        if node.taken.total() and node.shape is None:
            return  # its pods have no masks
        count = 8
        sick = tuple(gpu for gpu in range(count) if dice.random() < 0.1)
        topology = factories.topology(
            count,
            ((0, 1, 2, 3), (4, 5, 6, 7)),
            sick,
            shares=dice.random() < 0.8,
            level=tuple(dice.choice(("none", "mps", "kernel")) for _ in range(count)),
        )
        node.shape, node.healthy = topology.shape(), set(range(count)) - set(sick)
        node.offered = gpu_shares.offered(topology)
        self._put_gpus(name)
        node.nics = dice.random() < 0.7
        self._put_nics(name)

    def _put_nics(self, name: str) -> None:
        node = self.nodes[name]
        free = {f"mlx5_{nic}": [HANDLES, 2**40, 100] for nic in range(NICS)}
        capacity = NicCapacity(free, RdmaLimit())
        capacity.add_requests(ON_NICS, node.pods[ON_NICS])
        self.snapshot.put_nics(self.row(name), capacity if node.nics else None)

    def _put_gpus(self, name: str) -> None:
        node = self.nodes[name]
        usable = node.healthy & set(indices_of(node.offered[0]))
        left = {gpu: 100 - used if gpu in usable else 0 for gpu, used in (+node.shares).items()}
        mask = sum(1 << gpu for gpu in node.unused())
        self.snapshot.put_gpus(self.row(name), node.shape, mask, node.offered, left)

    def row(self, name: str) -> int:
        return self.snapshot.columns.row[name]

    def take(self) -> None:
        """Some pods on one node, kept or undone."""
        spec = self.dice.choice(SPECS)
        able = [name for name, node in self.nodes.items() if node.fits(spec)]
        if not able:
            return
        name = self.dice.choice(able)
        count = self.dice.randint(1, min(3, self.nodes[name].fits(spec)))
        before, freed, draft = self.state(), self.snapshot.freed, Draft(self.snapshot)
        node, within = self.nodes[name], -1
        wanted = spec.request(GPU) * count
        if wanted and node.shape is not None and self.dice.random() < 0.5:
            usable = self.dice.sample(sorted(node.unused()), wanted)
            within = sum(1 << gpu for gpu in usable)
        draft.take(self.row(name), spec, count, within)
        assert all(not each.gpus & ~within for each in draft.assignments)
        self._end(draft, before, freed)

    def take_many(self) -> None:
        """As many pods as fit on many nodes, at once."""
        spec = self.dice.choice(SPECS)
        able = [name for name, node in self.nodes.items() if node.fits(spec)]
        able = self.dice.sample(able, self.dice.randint(0, len(able)))
        counts = [self.dice.randint(1, min(2, self.nodes[name].fits(spec))) for name in able]
        before, freed, draft = self.state(), self.snapshot.freed, Draft(self.snapshot)
        rows = np.array([self.row(name) for name in able], dtype=np.int64)
        draft.take_all(spec, rows, np.array(counts, dtype=np.int64))
        found = Counter[int]()
        for each in draft.assignments:
            assert each.spec == spec
            found[each.row] += each.pods
        assert found == dict(zip(rows.tolist(), counts, strict=True))
        self._end(draft, before, freed)

    def too_many(self) -> None:
        """One share more than fits is refused, and leaves nothing behind."""
        able = [name for name, node in self.nodes.items() if node.shape is not None]
        if not able:
            return
        name, draft, before = self.dice.choice(able), Draft(self.snapshot), self.state()
        node, spec = self.nodes[name], SPECS[4]
        most = replace(node, seen=replace(node.seen, allocatable={GPU: 99, "pods": 999}))
        most = replace(most, seen=replace(most.seen, labels={}, unschedulable=False))
        fits = most.fits(replace(spec, requests=((GPU_SHARE, 30), ("pods", 1))))
        fits = fits if node.gpus() == most.gpus() else 400
        with pytest.raises(DoesNotFit), draft.all_or_nothing():
            draft.take(self.row(name), spec, 10_000 + fits)
        assert self.state() == before

    def _end(self, draft: Draft, before: object, freed: int) -> None:
        if self.dice.random() < 0.3:
            mark = self.dice.randint(0, len(draft.assignments))
            kept = draft.assignments[:mark]
            again = draft.assignments[mark:]
            draft.undo(mark)
            assert draft.assignments == kept
            if self.dice.random() < 0.5:
                draft.undo()
                assert self.state() == before
                draft.retake(kept)
            draft.retake(again)
        if self.dice.random() < 0.3:
            draft.undo()
            assert self.state() == before
            assert self.snapshot.freed == freed, "it was free before the draft"
            return
        assert self.snapshot.freed == freed
        for each in draft.keep():
            self._book(each, 1)
            self.taken.append(each)
        assert not draft.assignments

    def give(self) -> None:
        if self.taken:
            each = self.taken.pop(self.dice.randrange(len(self.taken)))
            self._book(each, -1)
            self.snapshot.give(each.row, each.spec, each.pods)
            self._put_gpus(self.snapshot.columns.names[each.row])

    def _book(self, each: Assignment, by: int) -> None:
        node = self.nodes[self.snapshot.columns.names[each.row]]
        node.pods[each.spec] += by * each.pods
        for name, amount in each.spec.requests:
            node.taken[name] += by * amount * each.pods
        gpus = set(indices_of(each.gpus))
        if share := each.spec.request(GPU_SHARE):
            if node.shape is None:
                assert not gpus
                return
            (gpu,) = gpus
            node.shares[gpu] += by * share * each.pods
            assert 0 <= node.shares[gpu] <= 100
            assert gpu not in node.whole
        elif by > 0:
            if node.shape is not None:
                assert len(gpus) == each.spec.request(GPU) * each.pods
            assert gpus <= node.unused()
            node.whole |= gpus
        else:
            node.whole -= gpus

    def capacity(self) -> dict[tuple[str, PodSpec], int]:
        return {
            (name, each): node.fits(each) for name, node in self.nodes.items() for each in SPECS
        }

    def state(self) -> object:
        columns = self.snapshot.columns
        gpus = columns.gpus
        open_ = [
            {gpu: part for gpu, part in each.items() if part < 100} for each in gpus.free_shares
        ]
        return (
            columns.free.tolist(),
            gpus.count.tolist(),
            gpus.island.tolist(),
            list(gpus.free_mask),
            open_,
            self.snapshot.changes_begun,
        )

    def change(self) -> None:
        name = self.dice.choice(sorted(self.nodes))
        match self.dice.choice("ppdrrrtttttttmggggggx"):
            case "p":
                self.put(f"n{self.dice.randrange(NODES)}")
            case "d":
                self.drop(name)
            case "r":
                self.report(name)
            case "t":
                self.take()
            case "m":
                self.take_many()
            case "x":
                self.too_many()
            case _:
                self.give()


def domains(node: Node) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The levels and paths of the node's domains."""
    path = (node.seen.labels.get(BLOCK, ""), node.seen.labels.get(RACK, ""))
    for level in range(2):
        if path[level]:
            yield level, path[: level + 1]


def assert_capacity(books: Books) -> None:
    snapshot = books.snapshot
    columns = snapshot.columns
    for spec in SPECS:
        view = snapshot.view(spec).refresh()
        rows = {columns.row[name]: node.fits(spec) for name, node in books.nodes.items()}
        found = {row: count for row, count in enumerate(view.by_row.tolist()) if count}
        assert found == {row: count for row, count in rows.items() if count}, spec
        sums = Counter[tuple[int, tuple[str, ...]]]()
        for name, node in books.nodes.items():
            for key in domains(node):
                sums[key] += rows[columns.row[name]]
                of = int(columns.domains.of[key[0], columns.row[name]])
                assert view.by_domain[key[0]][of] >= rows[columns.row[name]]
        assert Counter(sums.values()) - Counter({0: 10**6}) == Counter(
            int(each) for level in view.by_domain for each in level if each
        )
    for name, node in books.nodes.items():
        domain, rack = node.seen.labels.get(BLOCK, ""), node.seen.labels.get(RACK, "")
        row = columns.row[name]
        assert columns.domains.path(row) == (domain, rack)
        own = [(key, value) for key, value in ((BLOCK, domain), (RACK, rack)) if value]
        joined = [(DOMAINS, "/".join(value for _, value in own))] if own else []
        assert columns.domains.annotations(row) == (*own, *joined)
        if rack:
            of = columns.domains.of[:, row].tolist()
            assert columns.domains.parents(1)[of[1]] == of[0]
    empty = [row for row, name in enumerate(columns.names) if not name]
    assert (columns.domains.of[:, empty] == -1).all()
    order = sorted(range(len(columns.names)), key=lambda row: (columns.names[row], row))
    assert [order.index(row) for row in range(len(order))] == columns.name_rank().tolist()
    most = max((node.seen.allocatable.get(GPU, 0) for node in books.nodes.values()), default=0)
    assert snapshot.most_gpus() == most
    for name, node in books.nodes.items():
        row = columns.row[name]
        assert columns.gpus.count.item(row) == node.gpus()
        islands = (set(range(4)), set(range(4, 8)))
        together = max(len(node.unused() & island) for island in islands) if node.shape else 0
        assert columns.gpus.island.item(row) == min(max(0, node.free(GPU)), together)


def assert_order(books: Books) -> None:
    """By row: whole domains that the pods would break, then free GPUs of the domains, the narrowest first."""
    columns, kept = books.snapshot.columns, books.snapshot.domain_gpus.refresh()
    free, total = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for node in books.nodes.values():
        for _, path in domains(node):
            free[path] += node.gpus()
            total[path] += node.seen.allocatable.get(GPU, 0)
    names = sorted(books.nodes)
    rows = np.array([columns.row[name] for name in names], dtype=np.int64)
    for gpus in (0, 1, 4, 8, 20):
        keys = []
        for name in names:
            mine = dict(domains(books.nodes[name]))
            broken = sum(free[path] == total[path] and free[path] > gpus for path in mine.values())
            keys.append((broken, free[mine.get(1, ())], free[mine.get(0, ())]))
        for order in (kept.order_of_rows, kept.order_from_sums):
            found = order(rows, gpus).tolist()
            assert ranks(found) == ranks(keys)
            few = rows[:2]
            assert ranks(order(few, gpus).tolist()) == ranks(keys[:2])
        for level in range(2):
            paths = sorted(path for path in free if len(path) == level + 1)
            numbers = [number_of(books, path) for path in paths]
            of = np.array(numbers, dtype=np.int64)
            breaks = kept.broken_around(level, of, gpus)
            found = kept.order_of_domains(level, of, gpus)
            keys = []
            for path in paths:
                around = [path[: index + 1] for index in range(level + 1) if path[index]]
                whole = sum(free[each] == total[each] and free[each] > gpus for each in around)
                keys.append((whole, free[path], free[path[:1]] if path[0] else 0))
            assert breaks.tolist() == [key[0] for key in keys]
            assert ranks(found.tolist()) == ranks(keys)
    new = DomainGpus(columns).refresh()
    assert kept.single == new.single


def number_of(books: Books, path: tuple[str, ...]) -> int:
    """The domain's number at its level."""
    columns, level = books.snapshot.columns, len(path) - 1
    of = columns.domains.of[level]
    return next(
        int(of[columns.row[name]])
        for name, node in books.nodes.items()
        if (level, path) in set(domains(node))
    )


def ranks(keys: Sequence[object]) -> list[int]:
    places = sorted(set(keys))  # type: ignore[type-var]  # integers, or tuples of them
    return [places.index(key) for key in keys]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_books_agree(seed: int) -> None:
    books = Books(random.Random(seed))
    for _ in range(STEPS):
        for _ in range(books.dice.choice((1, 1, 3, 20, 50))):
            books.change()
        assert_capacity(books)
        assert_order(books)
        assert not books.snapshot.is_half_changed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_whatever_frees_capacity_is_counted(seed: int) -> None:
    """Gangs that were refused are tried again only then."""
    books = Books(random.Random(100 + seed))
    grown = 0
    for _ in range(150):
        before, freed, taken = books.capacity(), books.snapshot.freed, len(books.taken)
        books.change()
        more = any(count > before.get(key, 0) for key, count in books.capacity().items())
        if more and len(books.taken) <= taken:
            grown += 1
            assert books.snapshot.freed > freed
    assert grown > 20


def test_pods_that_share_nodes_are_given_back_together() -> None:
    snapshot, spec = Snapshot(), factories.spec(1)
    rows = [snapshot.put_node(factories.node(name)) for name in "ab"]
    free, draft = snapshot.columns.free.copy(), Draft(snapshot)
    for number in range(6):
        draft.take(rows[number % 2], spec, 1)
    draft.undo()
    assert np.array_equal(snapshot.columns.free, free)
