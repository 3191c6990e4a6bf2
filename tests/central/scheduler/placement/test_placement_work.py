"""The work that a placement of unlike pods counts."""

import numpy as np
import pytest

from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement import PlacementRequest
from central.scheduler.placement.assign import CLASS_UNITS, assign, assign_work
from central.scheduler.placement.domain_choice import DomainChoice
from central.scheduler.placement.search import _candidates
from central.scheduler.snapshot.draft import Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, RACK
from tests.central import factories

UNLIKE: PodCounts = ((factories.spec(1), 2), (factories.spec(1, cpu=200), 1))


def snapshot(nodes: int) -> Snapshot:
    made = Snapshot((BLOCK, RACK))
    for number in range(nodes):
        made.put_node(factories.node(f"n{number:04}", rack=f"r{number // 2}"))
    return made


def work_to_order(made: Snapshot, groups: PodCounts) -> int:
    before = made.meter.used
    views = [made.view(spec) for spec, _ in groups]
    choice = DomainChoice(made, PlacementRequest(groups))
    assert next(_candidates(made, views, choice, RACK)) is not None
    assert [int(view.by_row[0]) for view in views] == [8] * len(groups)
    return made.meter.used - before


@pytest.mark.parametrize("classes", range(1, 6))
def test_work_that_is_counted_in_advance_is_that_of_each_class(classes: int) -> None:
    """Each costs the same, and a unit for every four rows; the first one is counted by who looks for the domain."""
    groups = tuple((factories.spec(1, cpu=100 + number), 1) for number in range(classes))
    for nodes in (3, 4, 100):
        made = snapshot(nodes)
        rows = np.arange(nodes)
        assign(Draft(made), groups, "", rows, meter=made.meter)
        assert made.meter.used == classes * (CLASS_UNITS + nodes // 4)
        rest = assign_work(rows, classes) - 1 - (made.meter.used - CLASS_UNITS)
        assert 0 <= rest < classes, "of the rows"
        assign(Draft(made), groups, "", rows)
        assert made.meter.used == classes * (CLASS_UNITS + nodes // 4)


def test_the_first_look_at_many_nodes_costs_more_than_the_next() -> None:
    made = snapshot(640)
    alone, first, next_one = (work_to_order(made, of) for of in (UNLIKE[:1], UNLIKE, UNLIKE))
    assert alone == 2 + 1, "to order one class, and to divide it"
    assert next_one == 2 * 2 * len(UNLIKE) + 2, "to count, to order and to divide"
    assert 640 // 64 <= first - next_one <= 2 * 640 // 64


@pytest.mark.long
def test_to_order_domains_costs_by_class_and_node() -> None:
    for nodes, units in ((4, 2), (1024, 3)):
        assert work_to_order(snapshot(nodes), UNLIKE[:1]) == units
