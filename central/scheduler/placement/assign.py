"""Assigns counted pods to the rows of one domain: within one row to its islands, over several rows to the
fewest domains of each level below (fewest.py)."""

from functools import partial

from central.model.arrays import Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import sequential
from central.scheduler.placement.balanced import fill_balanced
from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.placement.fewest import fill_fewest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import WorkMeter

CLASS_UNITS = 150  # of work to divide one class among rows
ROWS_PER_UNIT = 4  # ... beside these


def assign_work(rows: Ints, classes: int) -> int:
    """Units of assign()."""
    return 1 + len(rows) * classes // ROWS_PER_UNIT + CLASS_UNITS * (classes - 1)


def assign(
    draft: Draft,
    groups: PodCounts,
    level: str,
    rows: Ints,
    existing_gpus: int = 0,
    *,
    among: int = -1,
    balanced: bool = False,
    meter: WorkMeter | None = None,
) -> None:
    """Assigns every pod to one of the rows, pods with the most GPUs first because they fit in the fewest
    places.

    existing_gpus: the gang's GPUs on the row, if it is one. among: the GPUs that it may use. balanced: in
    equal parts. meter: counts the work; None: the caller has counted assign_work(). Raises DoesNotFit, with the draft
    half filled, and WorkLimitReached."""
    snapshot = draft.snapshot
    mark = len(draft.assignments)
    within = among
    views = [snapshot.view(spec) for spec, _ in groups] if level in island_masks.PARTS else ()
    if [view for view in views if view.gpus or view.share]:
        masks = sequential.gpu_masks(snapshot, groups, level, rows, existing_gpus, among=among)
        if not masks:
            raise DoesNotFit(f"no {level} has enough capacity")
        within = masks[0]  # of the fullest part
    fill = partial(fill_balanced if balanced else fill_fewest, snapshot)
    for spec, count in _hardest_first(snapshot, groups):
        if len(rows) == 1:
            checked = len(groups) == 1 and not balanced  # by the caller
            if not checked and snapshot.view(spec).refresh().by_row[rows[0]] < count:
                raise DoesNotFit("not enough capacity")
            draft.take(int(rows[0]), spec, count, within)
            continue
        if meter is not None:
            meter.spend(CLASS_UNITS + len(rows) // ROWS_PER_UNIT)
        fits, below = snapshot.view(spec).refresh().by_row, level_below(snapshot, level)
        draft.take_all(spec, *fill(fits, rows, count, below), within)
    if len(groups) > 1:  # the caller knows the groups in their own order
        rank = {spec: index for index, (spec, _) in enumerate(groups)}
        draft.assignments[mark:] = sorted(
            draft.assignments[mark:], key=lambda taken: rank[taken.spec]
        )


def _hardest_first(snapshot: Snapshot, groups: PodCounts) -> PodCounts:
    if len(groups) == 1:
        return groups
    order = gpu_shares.widest_first([snapshot.view(spec) for spec, _ in groups])
    return tuple(groups[index] for index in order)


def assign_sequentially(
    draft: Draft,
    groups: PodCounts,
    level: str,
    rows: Ints,
    existing_gpus: int = 0,
    *,
    among: int = -1,
) -> None:
    """Assigns every pod to one of the rows, one pod after another, for pods whose own rules refer to each other.
    Parameters as in assign(). Raises DoesNotFit, with the draft as it was, and WorkLimitReached."""
    masks = sequential.gpu_masks(draft.snapshot, groups, level, rows, existing_gpus, among=among)
    count = sum(count for _, count in groups)
    if all(sequential.assign_all(draft, groups, rows, within) < count for within in masks):
        raise DoesNotFit("not all pods fit together")


def level_below(snapshot: Snapshot, level: str) -> int:
    """The index of the first level below; past the last: nodes."""
    if level == ANYWHERE:
        return 0
    levels = snapshot.columns.domains.levels
    return levels.index(level) + 1 if level in levels else len(levels)
