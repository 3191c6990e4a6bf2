"""What a trial placement took is what is missing from the snapshot since."""

import random
from dataclasses import replace

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.volumes import StorageClassSeen, VolumeRequest, Volumes, VolumeSeen
from central.scheduler import placement
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import DraftMark, taken_capacity
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
        before, mark = columns.free.copy(), DraftMark.of(draft)
        try:
            with draft.all_or_nothing():
                placement.fit(draft, PlacementRequest(groups))
        except DoesNotFit:
            continue
        taken = taken_capacity(draft, mark)
        difference = before - columns.free
        rows = np.flatnonzero(difference.any(axis=1))
        assert taken.rows.tolist() == rows.tolist()
        assert (taken.need == difference[rows]).all()
        gone = [mark.masks[row] & ~columns.gpus.free_mask[row] for row in rows.tolist()]
        assert taken.masks == gone
        rows_taken += len(rows)
    assert rows_taken > 2


def test_volumes_of_an_earlier_placement_are_not_its() -> None:
    """Else two gangs would have the same volumes withheld for them, and neither could start."""
    made = new_scheduler(factories.LEVELS)
    local = StorageClassSeen("local", "kubernetes.io/no-provisioner", waits=True)
    volumes = [
        VolumeSeen(f"v{number}", size=1, storage_class="local", phase="Available")
        for number in range(5)
    ]
    schedule_once(made, [local, *volumes, factories.node("n")], 0.0)
    want = Volumes(wants=((VolumeRequest("local", 1, ()), 1),))
    spec = replace(factories.spec(1), volumes=want)
    snapshot = made.state.snapshot
    draft, found = Draft(snapshot), []
    for pods in (2, 3):
        mark = DraftMark.of(draft)
        placement.fit(draft, PlacementRequest(((spec, pods),)))
        found.append(taken_capacity(draft, mark).volumes)
    assert list(map(len, found)) == [2, 3]
    assert not found[0] & found[1]
    draft.undo()
    assert DraftMark.of(draft).volumes == frozenset()
