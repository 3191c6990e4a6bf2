"""Tentative placement: take capacity in the snapshot, look, and undo unless it is kept. Gangs are placed whole or
not at all, so undoing must be cheap."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import NamedTuple, cast

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory import gpu_shares
from central.scheduler.snapshot.snapshot import Snapshot
from protos.closest import closest

FEW = 4  # up to this many assignments are given back one by one, which is faster than with arrays
_spec = attrgetter("spec")


class DoesNotFit(Exception):
    """An answer rather than an error: why a placement fails, and which candidate came closest. cause: of
    pending_causes.CAUSES; empty: capacity."""

    def __init__(self, why: str, cause: str = "") -> None:
        super().__init__(why)
        self.why, self.cause = why, cause


class Assignment(NamedTuple):
    """Pods of one class on one node. gpus: the mask of the GPUs of all of them together."""

    row: int
    spec: PodSpec
    pods: int
    gpus: int


class Draft:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.assignments: list[Assignment] = []

    def take(self, row: int, spec: PodSpec, count: int, within: int = -1) -> None:
        """Takes capacity for count pods, with the closest free GPUs of the mask `within`. Raises DoesNotFit if
        no GPU has a requested share free."""
        snapshot, gpus = self.snapshot, 0
        view, columns = snapshot.view(spec), snapshot.columns.gpus
        if view.share:
            self._take_shares(row, spec, count, within)
            return
        if view.gpus and (shape := columns.shape[row]) is not None:
            gpus = closest(shape, columns.free_mask[row] & within, view.gpus * count)
        snapshot.take(row, spec, count, gpus)
        self.assignments.append(Assignment(row, spec, count, gpus))

    def take_all(self, spec: PodSpec, rows: Ints, counts: Ints, within: int = -1) -> None:
        """take() of many different rows at once."""
        snapshot, view = self.snapshot, self.snapshot.view(spec)
        row_list, pods = rows.tolist(), counts.tolist()
        if view.share:
            for row, count in zip(row_list, pods, strict=True):
                self._take_shares(row, spec, count, within)
            return
        masks = [0] * len(row_list)
        if gpus := view.gpus:
            shapes, free = snapshot.columns.gpus.shape, snapshot.columns.gpus.free_mask
            for index, (row, count) in enumerate(zip(row_list, pods, strict=True)):
                if (shape := shapes[row]) is not None:
                    mask, wanted = free[row] & within, gpus * count
                    whole = mask.bit_count() == wanted
                    masks[index] = mask if whole else closest(shape, mask, wanted)
        snapshot.take_many(rows, spec, counts, masks)
        self.assignments += map(_assignment, zip(row_list, repeat(spec), pods, masks, strict=False))

    def retake(self, assignments: Sequence[Assignment]) -> None:
        """Takes assignments again that were undone."""
        for assignment in assignments:
            self.snapshot.take(*assignment)
            self.assignments.append(assignment)

    def _take_shares(self, row: int, spec: PodSpec, count: int, within: int) -> None:
        """Adds an assignment for each GPU that the pods share."""
        view, columns = self.snapshot.view(spec), self.snapshot.columns.gpus
        for gpu, pods in gpu_shares.assign(columns, row, view, count, within):
            if not gpu and columns.shape[row] is not None:
                raise DoesNotFit("no GPU has such a share free")
            self.snapshot.take(row, spec, pods, gpu)
            self.assignments.append(Assignment(row, spec, pods, gpu))

    def keep(self) -> list[Assignment]:
        """Ends the draft without undoing it, and returns its assignments."""
        assignments, self.assignments = self.assignments, []
        return assignments

    def undo(self, mark: int = 0) -> None:
        """Gives back everything that was taken since the mark, a former len(assignments)."""
        snapshot = self.snapshot
        freed = snapshot.freed
        snapshot.changes_begun += 1
        gone, self.assignments[mark:] = self.assignments[mark:], []
        for spec, run in groupby(reversed(gone), key=_spec):
            self._give(spec, [*run])
        snapshot.changes_begun -= 1
        snapshot.freed = freed  # it was free before the draft

    def _give(self, spec: PodSpec, run: list[Assignment]) -> None:
        """Gives assignments of one class back."""
        snapshot, rows = self.snapshot, [each.row for each in run]
        if len(run) > FEW and len({*rows}) == len(run) and not snapshot.view(spec).share:
            counts = np.array([-each.pods for each in run], dtype=np.int64)
            masks = [each.gpus for each in run]
            snapshot.take_many(np.array(rows, dtype=np.int64), spec, counts, masks)
            return
        for row, _, pods, gpus in run:
            snapshot.give(row, spec, pods, gpus)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undoes what the block took if it raises."""
        mark = len(self.assignments)
        try:
            yield
        except BaseException:
            self.undo(mark)
            raise


# Assignment(*each), in a third of the time.
_assignment = cast("Callable[[tuple[object, ...]], Assignment]", partial(tuple.__new__, Assignment))
