"""Division of a step's records among the processes, and the batches that each of them gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


def part(count: int, rank: int, size: int) -> tuple[int, int]:
    """The contiguous part [start, stop) of `count` records that a rank takes. Parts of different ranks
    differ by at most one record, for any size."""
    return count * rank // size, count * (rank + 1) // size


@dataclass(frozen=True)
class StepPlan:
    """One global step: the positions [start, start + count) of an epoch."""

    step: int  # steps before this one, over all epochs
    epoch: int
    start: int
    count: int

    def micro_parts(
        self, rank: int, size: int, micro: int | None, pieces: int = 0
    ) -> list[tuple[int, int]]:
        """The spans that a rank computes one after the other, at most `micro` records each and equal
        up to one. Empty if the step has fewer records than there are ranks and none for this one. pieces: as many
        spans, of which some may be empty."""
        first, last = part(self.count, rank, size)
        here = last - first
        count = pieces or (here > 0 if micro is None else -(-here // micro))
        spans = (part(here, piece, count) for piece in range(count))
        base = self.start + first
        return [(base + start, base + stop) for start, stop in spans]


@dataclass(frozen=True)
class Cursor:
    """The position of the next step."""

    step: int = 0  # steps taken
    epoch: int = 0
    record: int = 0  # position in the epoch


@dataclass(frozen=True)
class Shape:
    """The parameters that determine the steps at one size of the world."""

    length: int  # records of an epoch
    batch: int  # of all processes together
    epochs: int
    drop_last: bool

    def steps_per_epoch(self) -> int:
        return self.length // self.batch if self.drop_last else -(-self.length // self.batch)

    def plans(self, at: Cursor) -> Iterator[StepPlan]:
        """Yields the steps from a position to the end of the last epoch."""
        step, epoch, record = at.step, at.epoch, at.record
        while epoch < self.epochs:
            count = min(self.batch, self.length - record)
            if count < (self.batch if self.drop_last else 1):
                if record == 0:
                    raise ValueError(
                        f"drop_last with a batch of {self.batch}: the {self.length} records "
                        "are less than one step"
                    )
                epoch, record = epoch + 1, 0
                continue
            yield StepPlan(step, epoch, record, count)
            step, record = step + 1, record + count


class Batch:
    """A loader's batch of records, with its weight.

    `data` is the loader's own object. Iterating, indexing and len() reach through to it, so
    `inputs, targets = batch` works where it works for `data`.

    weight   multiply the mean loss of this batch by it before backward(): records * size / records of the
             whole step. The mean over ranks that DDP takes is then the mean over the step's records,
             whatever the parts are.
    records  records of this batch that count. 0: this rank has none in this step; it computes the
             step's first record with weight 0, because the others wait for its gradients.
    last     this is the step's last batch of this rank; before it gradients accumulate (see micro)."""

    __slots__ = ("data", "epoch", "ids", "last", "records", "weight")

    def __init__(
        self, data: Any, ids: list[Any], weight: float, *, records: int, epoch: int, last: bool
    ) -> None:
        self.data, self.ids, self.weight = data, ids, weight
        self.records, self.epoch, self.last = records, epoch, last

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]

    def __repr__(self) -> str:
        return f"Batch({self.records} records of epoch {self.epoch}, weight {self.weight:.4g})"
