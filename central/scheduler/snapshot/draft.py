"""Tentative placement: take room in the snapshot, look, and give it back unless kept. A gang is
all or nothing, so trying must be cheap to undo."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import NamedTuple, cast

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory import gpu_shares
from central.scheduler.snapshot.snapshot import Snapshot
from protos.closest import closest


class DoesNotFit(Exception):
    """Not an error but an answer: why, and where it was closest."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Assignment(NamedTuple):
    """Pods of one kind on one node; gpus is the mask for all of them together."""

    row: int
    spec: PodSpec
    pods: int
    gpus: int


class Draft:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.seats: list[Assignment] = []

    def take(self, row: int, spec: PodSpec, count: int, within: int = -1) -> None:
        """Takes room for count pods; the GPUs are the closest free ones of the mask `within`."""
        snapshot = self.snapshot
        if snapshot.view(spec).share:
            self._take_shares(row, spec, count, within)
            return
        columns, gpus = snapshot.columns.gpus, 0
        shape, wanted = columns.shape[row], snapshot.view(spec).gpus * count
        if shape is not None and wanted:
            gpus = closest(shape, columns.free_mask[row] & within, wanted)
        seat = Assignment(row, spec, count, gpus)
        snapshot.take(row, spec, count, gpus)
        self.seats.append(seat)

    def take_all(self, spec: PodSpec, rows: Ints, counts: Ints, within: int = -1) -> None:
        """take() of many rows at once; no row twice."""
        snapshot = self.snapshot
        places, shares = rows.tolist(), counts.tolist()
        if snapshot.view(spec).share:
            for row, count in zip(places, shares, strict=True):
                self._take_shares(row, spec, count, within)
            return
        masks = [0] * len(places)
        if gpus := snapshot.view(spec).gpus:
            shapes, free = snapshot.columns.gpus.shape, snapshot.columns.gpus.free_mask
            for index, (row, count) in enumerate(zip(places, shares, strict=True)):
                if (shape := shapes[row]) is not None:
                    mask, wanted = free[row] & within, gpus * count
                    whole = mask.bit_count() == wanted
                    masks[index] = mask if whole else closest(shape, mask, wanted)
        snapshot.take_many(rows, spec, counts, masks)
        self.seats += map(_seat, zip(places, repeat(spec), shares, masks, strict=False))

    def retake(self, seats: Sequence[Assignment]) -> None:
        """Takes seats again as they were before they were undone."""
        for seat in seats:
            self.snapshot.take(*seat)
        self.seats += seats

    def _take_shares(self, row: int, spec: PodSpec, count: int, within: int) -> None:
        """A seat for each GPU that pods share."""
        view, columns = self.snapshot.view(spec), self.snapshot.columns.gpus
        for gpu, pods in gpu_shares.assign(columns, row, view, count, within):
            if not gpu and columns.shape[row] is not None:
                raise DoesNotFit("no GPU has so much left")
            self.snapshot.take(row, spec, pods, gpu)
            self.seats.append(Assignment(row, spec, pods, gpu))

    def keep(self) -> list[Assignment]:
        """What was taken stays taken: the seats are the caller's now."""
        seats, self.seats = self.seats, []
        return seats

    def undo(self, mark: int = 0) -> None:
        """Gives back everything taken since the mark (a length of seats)."""
        freed = self.snapshot.freed
        while len(self.seats) > mark:
            seat = self.seats.pop()
            self.snapshot.give(seat.row, seat.spec, seat.pods, seat.gpus)
        self.snapshot.freed = freed  # it was free before the draft

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undoes what the block took when it raises."""
        mark = len(self.seats)
        try:
            yield
        except BaseException:
            self.undo(mark)
            raise


# Seat(*each), at a third of its time.
_seat = cast("Callable[[tuple[object, ...]], Assignment]", partial(tuple.__new__, Assignment))
