"""What a trial placement took is what is missing from the snapshot since."""

import random

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.scheduler import placement
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import taken_capacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from tests.central import factories


@pytest.mark.parametrize("seed", range(10))
def test_it_is_the_difference_that_the_draft_made(seed: int) -> None:
    """Of the second of two gangs on one draft, with pods of several kinds on several nodes."""
    dice, made = random.Random(seed), new_scheduler(factories.LEVELS)
    names = [f"n{number}" for number in range(4)]
    facts = [factories.node(name, shares=True) for name in names]
    reports = [factories.report(name, factories.topology(shares=True)) for name in names]
    schedule_once(made, [*facts, *reports], 0.0)
    snapshot, rows_taken = made.state.snapshot, 0
    columns = snapshot.columns
    kinds = [factories.spec(2), factories.spec(3, 500), factories.part("p", 50).spec]
    draft = Draft(snapshot)
    for _ in range(3):
        groups = tuple((spec, dice.randrange(1, 4)) for spec in dice.sample(kinds, 2))
        before, masks, since = (
            columns.free.copy(),
            list(columns.gpus.free_mask),
            len(draft.assignments),
        )
        try:
            with draft.all_or_nothing():
                placement.fit(draft, PlacementRequest(groups))
        except DoesNotFit:
            continue
        taken = taken_capacity(draft, masks, since)
        difference = before - columns.free
        rows = np.flatnonzero(difference.any(axis=1))
        assert taken.rows.tolist() == rows.tolist()
        assert (taken.need == difference[rows]).all()
        gone = [masks[row] & ~columns.gpus.free_mask[row] for row in rows.tolist()]
        assert taken.masks == gone
        rows_taken += len(rows)
    assert rows_taken > 2
