"""The order of records: the same at every size, each record once per epoch, weights that give the mean of
the step."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.train import Order
from agent.train.order import BatchSampler
from agent.train.sources import NoChange
from agent.train.world import World
from tests.agent.train.worlds import Rank, taken
from tests.effort import examples

schedules = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7)), min_size=1, max_size=4)


@given(
    length=st.integers(1, 120),
    batch=st.integers(1, 40),
    seed=st.integers(0, 2**64),
    epochs=st.integers(1, 3),
    drop_last=st.booleans(),
    micro=st.none() | st.integers(1, 5),
    schedule=schedules,
)
@settings(deadline=None, max_examples=examples(100))
def test_the_steps_are_the_same_for_every_schedule_of_sizes(  # noqa: PLR0917
    length: int,
    batch: int,
    seed: int,
    epochs: int,
    drop_last: bool,
    micro: int | None,
    schedule: list[tuple[int, int]],
) -> None:
    if drop_last and length < batch:
        batch = length

    def make() -> Order:
        return Order(length, batch, seed=seed, epochs=epochs, drop_last=drop_last, micro=micro)

    alone, _ = taken(make, [(1, 1)])
    steps, orders = taken(make, schedule)
    assert steps == alone
    counts = Counter(record for step in steps for record in step)
    whole = length // batch * batch if drop_last else length
    assert sum(counts.values()) == epochs * whole
    per_epoch = -(-whole // batch)
    for epoch in range(epochs):
        chosen = steps[epoch * per_epoch : (epoch + 1) * per_epoch]
        records = [record for step in chosen for record in step]
        assert len(set(records)) == len(records) == whole
        assert set(records) <= set(range(length))
    assert orders[0].state()["step"] == len(steps) == epochs * per_epoch


@given(
    length=st.integers(1, 120), each=st.integers(1, 9), epochs=st.integers(1, 3), schedule=schedules
)
@settings(deadline=None, max_examples=examples(100))
def test_per_member_batches_take_each_record_once(
    length: int, each: int, epochs: int, schedule: list[tuple[int, int]]
) -> None:
    def make() -> Order:
        return Order(length, f"per-member:{each}", seed=3, epochs=epochs)

    steps, _ = taken(make, schedule)
    assert Counter(record for step in steps for record in step) == dict.fromkeys(
        range(length), epochs
    )
    alone, _ = taken(make, [(1, 1)])
    assert [r for step in steps for r in step] == [r for step in alone for r in step]
    assert len(steps[0]) == min(length, each * schedule[0][0])


@given(
    shards=st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any),
    window=st.integers(1, 50),
    batch=st.integers(1, 20),
    schedule=schedules,
)
@settings(deadline=None, max_examples=examples(100))
def test_shards(
    shards: list[int], window: int, batch: int, schedule: list[tuple[int, int]]
) -> None:
    named = [(f"s{number}", records) for number, records in enumerate(shards)]

    def make() -> Order:
        return Order.over(named, batch, window=window, seed=5, epochs=2)

    steps, _ = taken(make, schedule)
    assert steps == taken(make, [(1, 1)])[0]
    every = {(name, offset) for name, records in named for offset in range(records)}
    assert Counter(record for step in steps for record in step) == dict.fromkeys(every, 2)


def test_a_window_of_shards_reads_few_of_them() -> None:
    named = [(f"s{number}", 100) for number in range(50)]
    order = Order.over(named, 100, window=200, seed=1)
    spans = [{name for name, _ in batch.ids} for _, batch in order.steps(Rank(0, 1))]
    assert max(map(len, spans)) <= 2
    assert len({tuple(sorted(span)) for span in spans[:20]}) > 5, "shards in their own order"


@given(batch=st.integers(1, 300), size=st.integers(1, 64), micro=st.none() | st.integers(1, 7))
def test_parts_differ_by_one_record_at_most(batch: int, size: int, micro: int | None) -> None:
    counts = []
    for rank in range(size):
        order = Order(batch, batch, micro=micro)
        pieces = [piece for _, piece in order.steps(Rank(rank, size))]
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert micro is None or all(len(piece.ids) <= micro for piece in pieces)
        assert all(piece.ids for piece in pieces), "a rank without a record has nothing to compute"
        counts.append(sum(piece.records for piece in pieces))
    assert sum(counts) == batch
    assert max(counts) - min(counts) <= 1


@given(
    length=st.integers(1, 60),
    batch=st.integers(1, 25),
    size=st.integers(1, 30),
    micro=st.none() | st.integers(1, 4),
)
@settings(deadline=None, max_examples=examples(100))
def test_the_weights_make_the_mean_of_ranks_the_mean_of_records(
    length: int, batch: int, size: int, micro: int | None
) -> None:
    """What DDP does: each rank sums weight * mean over its batch, and the ranks' sums are averaged."""
    losses = [Fraction(record * record + 1) for record in range(length)]
    means: dict[int, Fraction] = {}
    records: dict[int, list[int]] = {}
    for rank in range(size):
        for step, piece in Order(length, batch, micro=micro).steps(Rank(rank, size)):
            mean = sum((losses[record] for record in piece.ids), Fraction(0)) / len(piece.ids)
            weight = Fraction(piece.weight).limit_denominator(10**6)
            means[step] = means.get(step, Fraction(0)) + weight * mean / size
            records.setdefault(step, []).extend(piece.ids[: piece.records])
    for step, mean in means.items():
        exact = sum((losses[record] for record in records[step]), Fraction(0)) / len(records[step])
        assert mean == exact


def test_the_position_counts_steps_not_what_was_fetched() -> None:
    order = Order(1000, 10, seed=2)
    fetched = []

    def eager(sampler: Any) -> Iterator[list[int]]:
        every = list(sampler)
        fetched.extend(every)
        return iter(every)

    for step, _ in order.steps(Rank(0, 2), eager):
        if step == 3:
            break
    assert len(fetched) == len(list(order.steps(Rank(0, 2)))) + 3 == 100
    again = Order(1000, 10, seed=2)
    for step, _ in again.steps(Rank(0, 2), eager):
        if step == 3:
            break
    assert again.state() == {"epoch": 0, "step": 3, "batch": 10, "seed": 2, "length": 1000}


def test_a_step_that_accumulates_is_taken_with_its_last_batch() -> None:
    order = Order(100, 10, micro=4)
    seen = []
    for step, batch in order.steps(Rank(0, 1)):
        seen.append((step, batch.records, order.step))
        if step == 2:
            break
    assert seen == [(1, 3, 0), (1, 3, 0), (1, 4, 1), (2, 3, 1)]


def test_a_loader_gets_the_sampler_and_its_data_reach_through() -> None:
    data = [(number, -number) for number in range(10)]

    def loader(sampler: Any) -> Iterator[list[list[int]]]:
        assert len(sampler) == 3
        return ([[data[i][0] for i in ids], [data[i][1] for i in ids]] for ids in sampler)

    for _, batch in Order(10, 4, shuffle=False).steps(Rank(0, 1), loader):
        inputs, targets = batch
        assert inputs == batch.ids == [-target for target in targets]
        assert batch[0] is batch.data[0]
        assert len(batch) == 2


@pytest.mark.parametrize("micro", [None, 1, 2, 7])
@pytest.mark.parametrize("size", [1, 3, 9])
def test_a_sampler_knows_how_many_batches_come(size: int, micro: int | None) -> None:
    """The last step has fewer records than ranks; who has none takes a batch of weight 0."""
    for rank in range(size):
        order = Order(41, 6, epochs=2, micro=micro)
        sampler = BatchSampler(order, rank, size)
        batches = list(sampler)
        assert len(sampler) == len(batches) == len(list(order.steps(Rank(rank, size))))


def test_ranks_of_a_replica_may_take_the_same_records() -> None:
    """Two replicas of three ranks that hold the model together: each record counts once in the mean over replicas."""
    taken = {}
    for rank in range(6):
        steps = Order(41, 5, shuffle=False).steps(Rank(rank, 6), part=(rank // 3, 2))
        taken[rank] = [(step, batch.ids, batch.weight) for step, batch in steps]
    assert taken[0] == taken[1] == taken[2] != taken[3] == taken[4] == taken[5]
    for (step, ids, weight), (_, others, other) in zip(taken[0], taken[3], strict=True):
        whole = [*range((step - 1) * 5, min(41, step * 5))]
        assert [*ids, *others][: len(whole)] == whole or (weight, ids) == (0, whole)
        assert weight + other == 2


def test_without_shuffle_the_records_come_in_their_own_order() -> None:
    order = Order(7, 3, shuffle=False, epochs=2)
    taken = [batch.ids for _, batch in order.steps(Rank(0, 1))]
    assert taken == 2 * [[0, 1, 2], [3, 4, 5], [6]]


def test_a_loader_that_drops_batches_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended before step 2"):
        list(Order(10, 4).steps(Rank(0, 1), lambda sampler: [next(iter(sampler))]))


def test_epochs_have_different_orders_and_seeds_too() -> None:
    def orders(seed: int) -> list[tuple[int, ...]]:
        steps = Order(50, 50, seed=seed, epochs=2).steps(Rank(0, 1))
        return [tuple(batch.ids) for _, batch in steps]

    assert len({*orders(1), *orders(2)}) == 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"length": 0}, "length=0"),
        ({"batch": 0}, "batch=0"),
        ({"batch": True}, "batch=True"),
        ({"batch": 2.5}, "batch=2.5"),
        ({"batch": "per-member:0"}, 'batch="per-member:0"'),
        ({"batch": "per-member"}, 'batch="per-member"'),
        ({"epochs": 0}, "epochs=0"),
        ({"micro": 0}, "micro=0"),
    ],
)
def test_bad_arguments(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Order(**{"length": 10, "batch": 2, **given})


def test_drop_last_with_less_than_one_step() -> None:
    with pytest.raises(ValueError, match="less than one step"):
        list(Order(10, 11, drop_last=True).steps(Rank(0, 1)))


def test_shards_that_are_none() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        Order.over([("a", 0)])
    with pytest.raises(ValueError, match='"a" has -1 records'):
        Order.over([("a", -1)])
    with pytest.raises(ValueError, match='shards: "a" is given twice'):
        Order.over([("a", 2), ("b", 1), ("a", 2)])
    with pytest.raises(ValueError, match="window=0"):
        Order.over([("a", 1)], window=0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"length": 11}, "length=11"),
        ({"seed": 1}, "seed=1"),
        ({"batch": 3}, "batch=3"),
        ({"step": -1}, "step=-1"),
        ({"step": "2"}, "step='2'"),
        ({"epoch": None}, "epoch=None"),
        ({"epoch": 7}, "outside of this Order"),
        ({"step": 900}, "outside of this Order"),
    ],
)
def test_a_position_of_another_order(change: dict[str, Any], says: str) -> None:
    order = Order(10, 2, epochs=2)
    with pytest.raises(ValueError, match=says):
        order.load({**order.state(), **change})


@pytest.mark.parametrize(("drop_last", "left"), [(False, [6, 2, 0, 6, 2, 0]), (True, [6, 0, 6, 0])])
def test_a_world_knows_what_is_left_of_the_epoch(*, drop_last: bool, left: list[int]) -> None:
    """Of all ranks together, after each step; what is left out with drop_last does not come."""
    order = Order(10, 4, epochs=2, drop_last=drop_last)
    world = World(NoChange(), rank=1, size=2)
    assert world.epoch_left is None
    assert [world.epoch_left for _ in order.steps(world)] == left


def test_what_is_left_goes_with_the_report() -> None:
    told: list[int | None] = []

    class Listening(NoChange):
        def report(
            self, generation: int, step: int, samples: int, left: int | None, own_s: float
        ) -> None:
            told.append(left)

    world = World(Listening())
    assert not world.over(1), "without an Order it is not known"
    for step, _ in Order(6, 4).steps(world):
        world.over(step)
    assert told == [None, 2, 0]
