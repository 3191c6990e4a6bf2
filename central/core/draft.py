"""Tentative placement: take room in the snapshot, look, and give it back unless kept. A gang is
all or nothing, so trying must be cheap to undo."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from central.core.facts import PodSpec
from central.core.snapshot import Snapshot
from protos.closest import closest


class DoesNotFit(Exception):
    """Not an error but an answer: why, and where it was closest."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Seat:
    """count pods of one kind on one node; gpus is the mask for all of them together."""

    row: int
    spec: PodSpec
    count: int
    gpus: int


class Draft:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.seats: list[Seat] = []

    def take(self, row: int, spec: PodSpec, count: int, within: int = -1) -> Seat:
        """Takes room for count pods; the GPUs are the closest free ones of the mask `within`."""
        snapshot = self.snapshot
        shape, gpus = snapshot.shape[row], 0
        wanted = snapshot.view(spec).gpus * count
        if shape is not None and wanted:
            gpus = closest(shape, snapshot.free_mask[row] & within, wanted)
        seat = Seat(row, spec, count, gpus)
        snapshot.take(row, spec, count, gpus)
        self.seats.append(seat)
        return seat

    def undo(self, mark: int = 0) -> None:
        """Gives back everything taken since the mark (a length of seats)."""
        gains = self.snapshot.gains
        while len(self.seats) > mark:
            seat = self.seats.pop()
            self.snapshot.give(seat.row, seat.spec, seat.count, seat.gpus)
        self.snapshot.gains = gains  # nothing was gained: it was there before

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undoes what the block took when it raises."""
        mark = len(self.seats)
        try:
            yield
        except BaseException:
            self.undo(mark)
            raise
