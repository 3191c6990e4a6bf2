"""Costs are computed once for all nodes in the same state, and a state holds all that they depend on."""

import random
from dataclasses import replace

import numpy as np
import pytest

from central.model.arrays import Ints
from central.model.facts import NodeSeen, PodSpec
from central.model.pod_rules import Requirement
from central.scheduler.inventory.gpu_shares import NOTHING, offered
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.scoring import fragmentation, node_states
from central.scheduler.scoring.node_states import NodeGpus, NodeStates
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler import recounts

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))
ONE: PodCounts = ((factories.spec(1), 1),)


def equal_nodes(*names: str, **fields: object) -> Snapshot:
    """Nodes in the same state, of which pods of two kinds are typical."""
    snapshot = Snapshot()
    for name in names:
        put(snapshot, factories.node(name, **fields))  # type: ignore[arg-type]  # a test's shorthand
    for spec in (factories.spec(1), factories.spec(4)):
        snapshot.mix.observe(spec)
    return snapshot


def put(snapshot: Snapshot, node: NodeSeen, free: int = 0xFF) -> None:
    row = snapshot.put_node(node)
    snapshot.put_gpus(row, factories.topology(8, HALVES).shape(), free)


def rows(snapshot: Snapshot) -> Ints:
    return np.array([snapshot.columns.row[name] for name in sorted(snapshot.columns.row)])


def numbers(snapshot: Snapshot, least: int = 0) -> list[int]:
    """By node in the order of names."""
    states = NodeStates(snapshot.columns, least)
    states.put_allowed(np.zeros(len(snapshot.columns.names), dtype=np.int64))
    return [int(number) for number in states.refresh().of[rows(snapshot)]]


def known(snapshot: Snapshot, pods: PodCounts) -> set[str]:
    """The nodes whose costs are kept."""
    found = recounts.known_rows(snapshot.mix._costs[pods])
    return {snapshot.columns.names[row] for row in found.tolist()}


def assert_kept_as_fresh(snapshot: Snapshot) -> None:
    for kept, fresh in recounts.costs(snapshot.mix):
        assert kept.tolist() == fresh.tolist()


def test_the_cost_of_one_node_is_that_of_all_in_its_state() -> None:
    snapshot = equal_nodes("a", "b", "c", "used")
    snapshot.take(snapshot.columns.row["used"], factories.spec(1), 1, 1)
    snapshot.mix.cost(ONE, rows(snapshot)[:1])
    assert known(snapshot, ONE) == {"a", "b", "c"}
    assert_kept_as_fresh(snapshot)


def test_no_cost_outlives_the_numbers_of_the_states() -> None:
    """They are numbered again where more rows changed than are remembered."""
    snapshot = equal_nodes("a", "b", "c")
    put(snapshot, factories.node("c"), 0x0F)
    snapshot.mix.cost(ONE, rows(snapshot))
    for row in rows(snapshot)[:2].tolist():
        snapshot.take(row, factories.spec(1), 1, 1)
    snapshot.columns.dirty.reset()
    snapshot.mix.cost(ONE, rows(snapshot))
    assert_kept_as_fresh(snapshot)


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        (factories.spec(0, 1000), 0),  # CPUs alone
        (factories.spec(1, 0), 0b1),
        (factories.spec(2, 0), 0b11),
        (factories.spec(2, 0), 0b10001),  # of two islands
    ],
)
def test_what_pods_take_changes_the_state_and_giving_it_back_restores_it(
    spec: PodSpec, gpus: int
) -> None:
    snapshot = equal_nodes("a", "b")
    before = numbers(snapshot)
    snapshot.take(snapshot.columns.row["b"], spec, 1, gpus)
    taken = numbers(snapshot)
    snapshot.give(snapshot.columns.row["b"], spec, 1, gpus)
    assert (before[0] == before[1], taken[0] == taken[1]) == (True, False)
    assert numbers(snapshot) == before


@pytest.mark.parametrize(
    ("left", "same"),
    [
        ({0: 40, 1: 60}, True),  # other GPUs of the same island: interchangeable
        ({0: 60, 1: 40}, True),
        ({0: 60, 1: 30}, False),
        ({0: 60}, False),
    ],
)
def test_open_gpus_are_told_apart_by_what_is_left_of_them(left: dict[int, int], same: bool) -> None:
    snapshot = equal_nodes("a", "b", shares=True)
    shape = factories.topology(8, HALVES, shares=True).shape()
    for name, parts in (("a", {0: 60, 1: 40}), ("b", left)):
        row = snapshot.columns.row[name]
        snapshot.put_gpus(row, shape, 0b11111100, (-1, *NOTHING[1:]), parts)
    one, other = numbers(snapshot)
    assert (one == other) is same


def test_open_gpus_that_enforce_too_little_are_not_those_that_enforce_enough() -> None:
    """Equal for pods that require nothing, unlike for those that require a strict one."""
    snapshot = equal_nodes("a", "b", shares=True)
    levels = ("none", "kernel", *("kernel",) * 6)
    topology = factories.topology(8, HALVES, shares=True, level=levels)
    for name, parts in (("a", {0: 60, 1: 40}), ("b", {0: 40, 1: 60})):
        row = snapshot.columns.row[name]
        snapshot.put_gpus(row, topology.shape(), 0b11111100, offered(topology), parts)
    (one, other), (strict, loose) = numbers(snapshot), numbers(snapshot, len(NOTHING) - 1)
    assert (one == other, strict == loose) == (True, False)


def test_nodes_that_the_filters_tell_apart_are_in_unlike_states() -> None:
    """Also once the classes are taken again, and when a node gets another label."""
    snapshot = Snapshot()
    for name, model in (("a", "x"), ("b", "x"), ("c", "y")):
        put(snapshot, factories.node(name, labels={"model": model}))
    only_x = factories.spec(4, node_terms=((Requirement("model", "In", ("x",)),),))
    for spec in (factories.spec(1), only_x, only_x):
        snapshot.mix.observe(spec)

    def costs() -> list[int]:
        found = snapshot.mix.cost(ONE, rows(snapshot)).tolist()
        assert_kept_as_fresh(snapshot)
        return [int(cost) for cost in found]

    first, same, other = costs()
    assert first == same != other
    for _ in range(10):
        snapshot.mix.observe(only_x)
    again, same, other = costs()
    assert first != again == same != other
    for name, model in (("a", "x"), ("b", "y")):  # both are numbered again
        put(snapshot, factories.node(name, labels={"model": model}))
    first, same, other = costs()
    assert first != same == other


def test_states_begin_anew_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = equal_nodes("a", "b")
    snapshot.mix.cost(ONE, rows(snapshot))
    kept = snapshot.mix._states[0]
    monkeypatch.setattr(node_states, "STATES_MOST", -1 - 4 * len(snapshot.columns.names))
    snapshot.take(snapshot.columns.row["b"], factories.spec(1), 1, 1)
    costs = snapshot.mix.cost(ONE, rows(snapshot)).tolist()
    assert snapshot.mix._states[0] is not kept
    assert costs[0] != costs[1]
    assert_kept_as_fresh(snapshot)


def test_states_of_gpus_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragmentation, "GPU_STATES_MOST", 10)
    snapshot = equal_nodes("a", shares=True)
    snapshot.mix.observe(factories.part("p", 30).spec)
    row, shape = snapshot.columns.row["a"], factories.topology(8, HALVES, shares=True).shape()
    for left in range(1, 100):
        snapshot.put_gpus(row, shape, 0xFE, (-1, *NOTHING[1:]), {0: left})
        snapshot.mix.cost(ONE, rows(snapshot))
        assert_kept_as_fresh(snapshot)
        assert snapshot.mix._typical is not None
        assert len(snapshot.mix._typical.idle) < 99


def test_states_are_bounded_where_every_change_makes_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_states, "STATES_MOST", 100)
    snapshot = equal_nodes("a")
    row, most = snapshot.columns.row["a"], node_states.STATES_MOST + 5 * len(snapshot.columns.names)
    seen = set()
    for _ in range(most):
        snapshot.take(row, factories.spec(0, 1))
        snapshot.mix.cost(ONE, rows(snapshot))
        seen.add(snapshot.mix._states[0].count)
    assert max(seen) < most


def test_more_states_than_before_are_known_or_not_one_by_one() -> None:
    """The costs of the new ones are not kept yet."""
    snapshot = equal_nodes(*(f"n{i:03}" for i in range(200)))
    everywhere = rows(snapshot)
    snapshot.mix.cost(ONE, everywhere)
    for number, row in enumerate(everywhere[1:].tolist()):
        snapshot.take(row, factories.spec(0, 1 + number))
    assert known(snapshot, ONE) == {"n000"}
    snapshot.mix.cost(ONE, everywhere)
    assert len(known(snapshot, ONE)) == 200
    assert_kept_as_fresh(snapshot)


def test_a_resource_that_comes_later_is_part_of_the_state() -> None:
    """Rows that were numbered before the resource was known are numbered beside it."""
    dice, snapshot = random.Random(1), equal_nodes("a", "b")
    snapshot.mix.cost(ONE, rows(snapshot))
    node = factories.node("c")
    put(snapshot, replace(node, allocatable={**node.allocatable, "example.com/x": 3}))
    want = replace(factories.spec(1), requests=(("example.com/x", 1), (GPU, 1)))
    for _ in range(20):
        snapshot.mix.observe(dice.choice((want, factories.spec(2))))
    for pods in (ONE, ((want, 1),)):
        snapshot.mix.cost(pods, rows(snapshot))
    assert len(set(numbers(snapshot))) > 1
    assert_kept_as_fresh(snapshot)


def test_a_node_without_a_resource_is_of_use_to_pods_that_do_not_request_it() -> None:
    """One GPU less spoils nothing for pairs where their number was odd."""
    snapshot = equal_nodes("even", "odd")
    pair, with_x = factories.spec(2), replace(factories.spec(1), requests=(("x", 1), (GPU, 1)))
    node = factories.node("with-x")
    put(snapshot, replace(node, allocatable={**node.allocatable, "x": 3}))
    for spec in (pair, pair, pair, with_x):
        snapshot.mix.observe(spec)
    snapshot.take(snapshot.columns.row["odd"], factories.spec(1), 1, 1)
    even, odd, _ = snapshot.mix.cost(ONE, rows(snapshot)).tolist()
    assert even - odd > fragmentation.UNIT / 4


@pytest.mark.parametrize("seed", range(8))
def test_rows_have_one_number_where_all_that_counts_is_equal(seed: int) -> None:
    """While pods and GPUs come and go, and other classes become typical; against comparing them row by row."""
    dice, names = random.Random(seed), [f"n{number}" for number in range(6)]
    snapshot = equal_nodes(*names, shares=True)
    columns, gpus = snapshot.columns, snapshot.columns.gpus
    shape = factories.topology(8, HALVES, shares=True).shape()
    states = [NodeStates(columns, least) for least in (0, 1)]
    allowed = [np.zeros(len(columns.names), dtype=np.int64) for _ in states]
    for each, mask in zip(states, allowed, strict=True):
        each.put_allowed(mask)
    taken: list[int] = []

    def plain(row: int, least: int) -> NodeGpus:
        fit, left = (
            gpus.offered[row][least],
            sorted((part, gpu) for gpu, part in gpus.free_shares[row].items()),
        )
        sure = tuple(part for part, gpu in left if fit >> gpu & 1)
        rest = tuple(part for part, gpu in left if not fit >> gpu & 1 and part)
        return NodeGpus(
            int(gpus.count[row]),
            gpus.shape[row],
            gpus.free_mask[row],
            gpus.offered[row],
            sure,
            rest,
        )

    for _ in range(25):
        row = columns.row[dice.choice(names)]
        match dice.randrange(4):
            case 0:
                snapshot.take(row, factories.spec(0, 1000))
                taken.append(row)
            case 1 if taken:
                snapshot.give(taken.pop(), factories.spec(0, 1000))
            case 2:
                left = {gpu: dice.choice((0, 40, 60)) for gpu in (0, 1) if dice.random() < 0.6}
                offered = dice.choice(((0b11, 0b1), (0b11, 0b10), (0b01, 0)))
                free = 0b1111_1100 | sum(1 << gpu for gpu in (0, 1) if gpu not in left)
                snapshot.put_gpus(row, shape, free, (*offered, *NOTHING[2:]), left)
            case _:
                which = dice.randrange(2)
                allowed[which] = np.array(
                    [dice.choice((1, 1, 2)) for _ in columns.names], dtype=np.int64
                )
                states[which].put_allowed(allowed[which])
        if dice.random() < 0.3:
            continue  # several changes at once
        for each, mask, least in zip(states, allowed, (0, 1), strict=True):
            each.refresh()
            keys = [
                (columns.free[r].tobytes(), plain(r, least), int(mask[r])) for r in rows(snapshot)
            ]
            numbered = [int(each.of[r]) for r in rows(snapshot)]
            assert [a == b for a in keys for b in keys] == [
                a == b for a in numbered for b in numbered
            ]
            assert max(numbered) < each.count
            assert [each.node_gpus[each.gpus[r]] for r in rows(snapshot)] == [
                key[1] for key in keys
            ]
