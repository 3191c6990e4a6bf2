"""What a long attempt keeps of a placement of unlike pods, which are assigned class by class: the domains of each level
in the order in which they are tried, those that failed, and in the present one the rows of each class.

The next slice takes the same rows again without looking for them. All of it is found by what the placement reads, so
on other capacity it begins again.

Design: docs/design/unlike-pods.md
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from central.model.arrays import Ints
from central.scheduler.placement.node_choices import read_state
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Assignment, DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import SearchProgress, WorkMeter

CLASS_UNITS = 150  # of work to divide one class among rows
ROWS_PER_UNIT = 4  # ... beside these
REPEAT_UNITS = 20  # for a class whose rows are known
COUNT_UNITS = 2  # to read the capacity for a class
COUNTED_PER_UNIT = 64  # rows that are counted again
ORDER_UNITS = 2  # to look at one class at one level
ORDERED_PER_UNIT = 1024  # ... and this many nodes

Where = tuple[Ints, Ints]  # rows, and the number of pods for each


class DomainTrial:
    """The assignment of all classes to one domain. outcome: for gangs with role preferences, its cost and what was
    assigned."""

    def __init__(self, rows: Ints, progress: SearchProgress | None = None) -> None:
        self.rows, self._progress = rows, progress
        self.outcome: tuple[int, list[Assignment]] | None = None
        self._where: list[Where] = []
        self._refused: DoesNotFit | None = None
        self._turn = 0

    def begin(self) -> None:
        """The classes follow from the first. Raises DoesNotFit if a slice before has found that."""
        if self._refused is not None:
            raise DoesNotFit(self._refused.why, self._refused.cause)
        self._turn = 0

    def next_class(self, meter: WorkMeter, rows: int, divide: Callable[[], Where]) -> Where:
        """Where the pods of the next class go. rows: among that many. Raises WorkLimitReached, and what divide() does."""
        if self._turn < len(self._where):
            meter.spend(REPEAT_UNITS)
        else:
            meter.spend(CLASS_UNITS + rows // ROWS_PER_UNIT)
            try:
                self._where.append(divide())
            except DoesNotFit as refused:
                self._refused = refused
                raise
            self._grew()
        self._turn += 1
        return self._where[self._turn - 1]

    def _grew(self) -> None:
        if self._progress is not None:
            self._progress.grew = True


class DomainSteps:
    """The domains of each level that are tried for one request."""

    def __init__(self) -> None:
        self.progress: SearchProgress | None = None
        self._trials: dict[str, list[DomainTrial]] = {}

    def trials(self, level: str, domains: Callable[[str], Iterable[Ints]]) -> Iterator[DomainTrial]:
        """Those of the level, best first. domains(level): reads the snapshot without the draft."""
        if self.progress is None:
            yield from map(DomainTrial, domains(level))
            return
        if level not in self._trials:
            self._trials[level] = [DomainTrial(rows, self.progress) for rows in domains(level)]
            self.progress.grew = True
        yield from self._trials[level]

    def refresh(self, meter: WorkMeter, views: Sequence[PodClassCapacity]) -> None:
        """Counts the capacity for each class, and the work, so that the first look at very many is cut, too. Raises
        WorkLimitReached."""
        for view in views:
            if len(views) > 1:
                meter.spend(COUNT_UNITS + view.rows_to_count() // COUNTED_PER_UNIT)
            view.refresh()
            if self.progress is not None:
                self.progress.grew = True


def steps_of(snapshot: Snapshot, request: PlacementRequest) -> DomainSteps:
    """Those that a slice before has made; none if this is the first, if this is not a long attempt, or for pods of one
    class, whose placement is short."""
    progress = snapshot.meter.progress
    if progress is None or len(request.groups) == 1:
        return DomainSteps()
    everywhere = np.arange(len(snapshot.columns.names))
    reads = (read_state(snapshot, request.groups, everywhere), request)
    steps = progress.step(reads, DomainSteps)
    steps.progress = progress
    return steps


def spend_order(snapshot: Snapshot, classes: int) -> None:
    """To put the domains of one level in order. Raises WorkLimitReached."""
    nodes = len(snapshot.columns.names)
    snapshot.meter.spend(classes * (ORDER_UNITS + nodes // ORDERED_PER_UNIT))
