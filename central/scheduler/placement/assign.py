"""Seats for groups of pods within the rows of one domain."""

from collections.abc import Sequence

from central.model.arrays import Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.placement import sequential
from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.placement.fewest import spread
from central.scheduler.placement.request import Groups
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot


def seat(
    draft: Draft, groups: Groups, level: str, rows: Ints, held: int = 0, *, by: int = 0
) -> None:
    """Seats every group within the rows, the widest pods first since they fit in fewest places.

    held: GPUs that others of theirs hold, where it is one row. by: the rows are divided by the level
    of this index, where the next one is not meant. Raises DoesNotFit."""
    snapshot = draft.snapshot
    mark = len(draft.seats)
    within = -1
    if level in island_masks.PARTS:
        within = _part(snapshot, groups, level, int(rows[0]), held)
    order: Sequence[int] = range(len(groups))
    if len(groups) > 1:
        order = gpu_shares.widest_first([snapshot.view(spec) for spec, _ in groups])
    for index in order:
        spec, count = groups[index]
        if len(rows) == 1:
            if len(order) > 1 and snapshot.view(spec).refresh().by_row[rows[0]] < count:
                raise DoesNotFit("not enough capacity")
            draft.take(int(rows[0]), spec, count, within)
            continue
        cap = snapshot.view(spec).refresh().by_row
        start = max(level_below(snapshot, level), by)
        draft.take_all(spec, *spread(snapshot, cap, rows, count, start), within)
    if len(groups) > 1:
        rank = {spec: index for index, (spec, _) in enumerate(groups)}
        draft.seats[mark:] = sorted(draft.seats[mark:], key=lambda seat: rank[seat.spec])


def seat_entangled(draft: Draft, groups: Groups, level: str, rows: Ints, held: int = 0) -> None:
    """The same for pods whose rules speak of each other."""
    islands = sequential.islands(draft.snapshot, groups, level, rows, held)
    wanted = sum(count for _, count in groups)
    if all(sequential.seat_all(draft, groups, rows, within) < wanted for within in islands):
        raise DoesNotFit("not all pods fit together")


def level_below(snapshot: Snapshot, level: str) -> int:
    """The index of the first level below: what a domain of this level is made of."""
    if level == ANYWHERE:
        return 0
    levels = snapshot.columns.domains.levels
    return levels.index(level) + 1 if level in levels else len(levels)


def _part(snapshot: Snapshot, groups: Groups, level: str, row: int, held: int) -> int:
    """The fullest island, or NUMA node, of the node that takes all of the gang's GPUs."""
    asks = [(snapshot.view(spec), count) for spec, count in groups]
    fitting = island_masks.holding(snapshot, level, row, asks, held)
    if not fitting:
        raise DoesNotFit(f"no {level} has enough capacity")
    return fitting[0]
