"""Pods of several classes on the rows of one domain: all of them, or none."""

import numpy as np
import pytest

from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.assign import assign, assign_sequentially, level_below
from central.scheduler.placement.domain_choice import ANYWHERE
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, ISLAND, NODE, RACK
from tests.central import factories

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def snapshot(nodes: int) -> Snapshot:
    made = Snapshot((BLOCK, RACK))
    for number in range(nodes):
        made.put_node(factories.node(f"n{number}", rack=f"r{number // 2}"))
    return made


def test_classes_that_fit_a_node_one_by_one_need_not_fit_together() -> None:
    """And who asks for more GPUs goes first, though the assignments come in the order of the request."""
    made = snapshot(1)
    row = np.array([0])
    for few, many, fits in ((2, 6, True), (3, 6, False), (8, 8, False)):
        draft = Draft(made)
        groups = ((factories.spec(few), 1), (factories.spec(many, cpu=200), 1))
        if fits:
            assign(draft, groups, NODE, row)
            assert [each.spec for each in draft.assignments] == [spec for spec, _ in groups]
        else:
            with pytest.raises(DoesNotFit):
                assign(draft, groups, NODE, row)
        draft.undo()


def test_the_level_below_is_the_next_narrower_one() -> None:
    made = snapshot(1)
    levels = [ANYWHERE, BLOCK, RACK, NODE, ISLAND]
    assert [level_below(made, level) for level in levels] == [0, 1, 2, 2, 2]


@pytest.mark.parametrize(("pods", "fits"), [(3, True), (4, True), (5, False)])
def test_one_by_one_all_of_them_are_assigned_or_it_does_not_fit(pods: int, *, fits: bool) -> None:
    """Pods of 4 GPUs on two nodes."""
    made = snapshot(2)
    draft, groups = Draft(made), ((factories.spec(4), pods),)
    if not fits:
        with pytest.raises(DoesNotFit):
            assign_sequentially(draft, groups, RACK, np.array([0, 1]))
        return
    assign_sequentially(draft, groups, RACK, np.array([0, 1]))
    assert sum(each.pods for each in draft.assignments) == pods


def test_only_the_gpus_that_may_be_used_are_taken() -> None:
    """Of those that take all, the fullest island."""
    made = snapshot(1)
    made.put_gpus(0, factories.topology(8, HALVES).shape(), 0b01111111)
    groups: PodCounts = ((factories.spec(1), 2),)
    for place in (assign, assign_sequentially):
        for among, expected in ((-1, 0b0111_0000), (0b1111, 0b1111), (0b0011, 0b0011)):
            draft = Draft(made)
            place(draft, groups, ISLAND, np.array([0]), among=among)
            taken = 0
            for each in draft.assignments:
                taken |= each.gpus
            assert taken.bit_count() == 2
            assert not taken & ~expected
            draft.undo()
        with pytest.raises(DoesNotFit):
            place(Draft(made), groups, ISLAND, np.array([0]), among=0b1)
