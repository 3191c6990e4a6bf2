"""`Order`: which records each step takes, independent of how many processes there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Union

from .batches import Batch, Cursor, Shape, StepPlan
from .sequences import RecordSequence, ShardSequence
from .standstill import LOADS, STEPS

Position = dict[str, Union[int, str]]
Loader = Callable[["BatchSampler"], Iterable[Any]]
Records = Union[RecordSequence, ShardSequence]
_NOTHING = object()
_PER_MEMBER = re.compile(r"per-member:([1-9][0-9]{0,8})")


class HasRank(Protocol):
    """The part of a world that an Order needs."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...


class Order:
    """The order of a data set's records over all epochs, and the position in it.

    Global step s of an epoch takes records [s * batch, (s + 1) * batch) of that epoch's permutation. Each
    rank takes a contiguous part. So the records of each step are the same at every size, and each record
    comes exactly once per epoch, apart from the incomplete last step if `drop_last`.

    batch  records of a step in all processes together; or "per-member:N": N times the number of
           processes, which changes the global batch with the size
    micro  most records that a process computes at once; more are split (gradient accumulation)"""

    def __init__(
        self,
        length: int,
        batch: int | str = 1,
        *,
        seed: int = 0,
        epochs: int = 1,
        drop_last: bool = False,
        micro: int | None = None,
        shuffle: bool = True,
    ) -> None:
        self._begin(RecordSequence(length, seed, shuffle=shuffle), batch, epochs, drop_last, micro)

    @classmethod
    def over(
        cls,
        shards: Sequence[tuple[str, int]],
        batch: int | str = 1,
        *,
        window: int = 10_000,
        seed: int = 0,
        epochs: int = 1,
        drop_last: bool = False,
        micro: int | None = None,
    ) -> Order:
        """Creates an order for sources that are read from their start: records are (shard name, offset). Shards are
        permuted, then records inside windows of `window` consecutive positions."""
        made = cls.__new__(cls)
        made._begin(ShardSequence(shards, seed, window), batch, epochs, drop_last, micro)
        return made

    def _begin(
        self, records: Records, batch: int | str, epochs: int, drop_last: bool, micro: int | None
    ) -> None:
        if epochs < 1:
            raise ValueError(f"epochs={epochs}: must be at least 1")
        if micro is not None and micro < 1:
            raise ValueError(f"micro={micro}: must be at least 1 record")
        self.records, self.batch = records, batch
        self._per_member = _per_member(batch)
        self.epochs, self.drop_last, self.micro = epochs, drop_last, micro
        self.cursor = Cursor()
        self.pieces = 0  # batches of each step on each rank; 0: as many as `micro` needs

    @property
    def step(self) -> int:
        """Steps taken, the one that was handed out last included."""
        return self.cursor.step

    def state(self) -> Position:
        """The position after the step that was handed out last, for a checkpoint. It counts steps, not
        batches that a loader has fetched ahead. With "per-member" it has the record, too."""
        position: Position = {
            "epoch": self.cursor.epoch,
            "step": self.cursor.step,
            "batch": self.batch,
            "seed": self.records.seed,
            "length": self.records.length,
        }
        if self._per_member:
            position["record"] = self.cursor.record
        return position

    @property
    def all_steps(self) -> int:
        """Returns the number of steps from the first to the end of the last epoch; unknown with "per-member"."""
        self._needs_fixed_steps()
        return self.epochs * self.shape(1).steps_per_epoch()

    def state_after(self, step: int) -> Position:
        """The position after that many steps, whatever was handed out: for loops that fetch batches ahead."""
        self._needs_fixed_steps()
        return {**self.state(), "step": step, "epoch": step // self.shape(1).steps_per_epoch()}

    def _needs_fixed_steps(self) -> None:
        if self._per_member:
            raise ValueError(
                f'batch="{self.batch}": here the records of a step must not depend on the size'
            )

    def load(self, position: Mapping[str, Any]) -> None:
        """Continue at a position that `state()` gave. The data set, batch and seed must be the same."""
        mine = self.state()
        for key in ("length", "batch", "seed"):
            if position.get(key) != mine[key]:
                raise ValueError(
                    f"the position of the checkpoint has {key}={position.get(key)!r}, this Order has "
                    f"{mine[key]!r}: it would not be the same records"
                )
        step, epoch = _natural(position, "step"), _natural(position, "epoch")
        if self._per_member:
            record = _natural(position, "record")
        else:
            shape = self.shape(1)
            record = (step - epoch * shape.steps_per_epoch()) * shape.batch
        if epoch > self.epochs or not 0 <= record <= self.records.length:
            raise ValueError(
                f"position epoch={epoch}, step={step}: outside of this Order of {self.epochs} epochs"
            )
        self.cursor = Cursor(step, epoch, record)

    def steps(
        self, world: HasRank, loader: Loader | None = None, part: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Batch]]:
        """(number of the step, from 1; batch) for each batch of this rank, to the end of the last epoch.

        `loader` makes an iterable of batches from a batch sampler, such as
        `lambda sampler: DataLoader(dataset, batch_sampler=sampler, num_workers=8)`. Without one, a batch's
        data are the record numbers. With `micro` a step has several batches; step the optimizer after
        the one with `batch.last`. Ask `world.over(step)` after that, at the end of the loop's body: a step
        that was handed out counts as taken.

        part: which part of each step this rank takes, of how many. Ranks that hold a model together, by
        tensors or stages, take the same one, such as (world.replica, world.replicas)."""
        rank, size = part or (world.rank, world.size)
        sampler = BatchSampler(self, rank, size)
        source = iter(sampler if loader is None else loader(sampler))
        enter = getattr(world, "enter", str)  # of a World
        for plan, ids, records, last in sampler.pieces():
            enter(LOADS)
            data = next(source, _NOTHING)
            enter(STEPS)
            if data is _NOTHING:
                raise RuntimeError(
                    f"the loader ended before step {plan.step + 1}: it must yield one batch for each "
                    "of its batch_sampler"
                )
            if last:
                self.cursor = self._after(plan, size)
            if hasattr(world, "samples"):
                world.samples += records
            if hasattr(world, "epoch_left"):
                world.epoch_left = self._left_in_epoch(plan)
            weight = records * size / plan.count
            yield (
                plan.step + 1,
                Batch(data, ids, weight, records=records, epoch=plan.epoch, last=last),
            )

    def shape(self, size: int) -> Shape:
        """Returns the shape of the steps in a world of `size` processes."""
        batch = self._per_member * size if self._per_member else int(self.batch)
        return Shape(self.records.length, batch, self.epochs, self.drop_last)

    def _left_in_epoch(self, plan: StepPlan) -> int:
        """Records that all ranks together have left after this step."""
        done = self.cursor.epoch > plan.epoch  # a remainder is left out with drop_last
        return 0 if done else self.records.length - plan.start - plan.count

    def _after(self, plan: StepPlan, size: int) -> Cursor:
        shape, record = self.shape(size), plan.start + plan.count
        # With "per-member" the batch of the next step depends on the size that the world has then.
        least = shape.batch if self.drop_last and not self._per_member else 1
        if self.records.length - record < least:
            return Cursor(plan.step + 1, plan.epoch + 1, 0)
        return Cursor(plan.step + 1, plan.epoch, record)


class BatchSampler:
    """The batches of one rank, as lists of what the data set is indexed with, from the position that the
    Order had when this was made."""

    def __init__(self, order: Order, rank: int, size: int) -> None:
        self._records, self._micro, self._fixed = order.records, order.micro, order.pieces
        self._rank, self._size = rank, size
        self._shape, self._start = order.shape(size), order.cursor

    def __iter__(self) -> Iterator[list[Any]]:
        return (ids for _, ids, _, _ in self.pieces())

    def __len__(self) -> int:
        """Batches to the end; counts the steps one by one."""
        plans = self._shape.plans(self._start)
        return sum(max(1, len(self._parts(plan))) for plan in plans)

    def pieces(self) -> Iterator[tuple[StepPlan, list[Any], int, bool]]:
        """(step, what to load, how many of it count, whether it is the step's last)."""
        for plan in self._shape.plans(self._start):
            spans = self._parts(plan) or [(plan.start, plan.start)]
            for number, (start, stop) in enumerate(spans, 1):
                read = (start, stop) if stop > start else (plan.start, plan.start + 1)
                yield plan, self._span(plan, *read), stop - start, number == len(spans)

    def _parts(self, plan: StepPlan) -> list[tuple[int, int]]:
        return plan.micro_parts(self._rank, self._size, self._micro, self._fixed)

    def _span(self, plan: StepPlan, start: int, stop: int) -> list[Any]:
        return self._records.span(plan.epoch, start, stop)


def _per_member(batch: int | str) -> int:
    """N of "per-member:N"; 0 for a fixed global batch."""
    if isinstance(batch, str):
        matched = _PER_MEMBER.fullmatch(batch)
        if matched is None:
            raise ValueError(f'batch="{batch}": a number of records, or "per-member:N"')
        return int(matched[1])
    _whole(batch, 1, f"batch={batch!r}: must be a whole number of at least 1 record")
    return 0


def _natural(position: Mapping[str, Any], key: str) -> int:
    value = position.get(key)
    return _whole(value, 0, f"position: {key}={value!r} is not a whole number of 0 or more")


def _whole(value: Any, least: int, refusal: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(refusal)
    return value
