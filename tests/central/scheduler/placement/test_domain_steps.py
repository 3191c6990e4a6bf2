"""What a long attempt keeps of a placement of unlike pods, and the work that it counts."""

import numpy as np
import pytest

from central.model.arrays import Ints
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.placement.assign import assign_work
from central.scheduler.placement.domain_steps import (
    CLASS_UNITS,
    REPEAT_UNITS,
    DomainSteps,
    DomainTrial,
    Where,
    spend_order,
    steps_of,
)
from central.scheduler.placement.request import PlacementRequest
from central.scheduler.snapshot.draft import DoesNotFit
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import SearchProgress, WorkLimitReached, WorkMeter
from protos.names import BLOCK, RACK
from tests.central import factories

UNLIKE: PodCounts = ((factories.spec(1), 2), (factories.spec(1, cpu=200), 1))


def snapshot(nodes: int = 4) -> Snapshot:
    made = Snapshot((BLOCK, RACK))
    for number in range(nodes):
        made.put_node(factories.node(f"n{number:04}", rack=f"r{number // 2}"))
    return made


def where(row: int) -> Where:
    return np.array([row], dtype=np.int64), np.array([1], dtype=np.int64)


def long_attempt(made: Snapshot) -> SearchProgress:
    progress = SearchProgress(0.0)
    made.meter.begin(progress=progress)
    return progress


@pytest.mark.parametrize("classes", range(1, 6))
def test_work_that_is_counted_in_advance_is_that_of_each_class(classes: int) -> None:
    """Each costs the same, and a unit for every four rows; the first one is counted by who looks for the domain."""
    for rows in (1, 3, 4, 100, 1001):
        meter = WorkMeter()
        trial, everywhere = DomainTrial(np.arange(rows)), np.arange(rows)
        for number in range(classes):
            before = meter.used
            trial.next_class(meter, rows, lambda number=number: where(number))  # type: ignore[misc]  # its default
            assert meter.used == before + CLASS_UNITS + rows // 4
        rest = assign_work(everywhere, classes) - 1 - (meter.used - CLASS_UNITS)
        assert 0 <= rest < classes, "of the rows"


def test_classes_whose_rows_are_known_are_not_looked_for_again() -> None:
    meter, progress = WorkMeter(), SearchProgress(0.0)
    trial = DomainTrial(np.arange(8), progress)
    asked: list[int] = []

    def found(number: int) -> Where:
        def divide() -> Where:
            asked.append(number)
            return where(number)

        before, progress.grew = meter.used, False
        known = trial.next_class(meter, 8, divide)
        assert progress.grew == (number in asked[-1:] and meter.used - before > CLASS_UNITS)
        return known

    first = [found(number) for number in range(3)]
    for more in (3, 4):
        trial.begin()
        before = meter.used
        assert [found(number) for number in range(len(first))] == first
        assert meter.used - before == len(first) * REPEAT_UNITS < len(first) * CLASS_UNITS // 4
        first.append(found(more))
    assert asked == [0, 1, 2, 3, 4]
    assert [int(rows[0]) for rows, _ in first] == asked


def test_a_domain_that_refused_a_class_refuses_at_once_in_the_next_slice() -> None:
    meter = WorkMeter()
    trial = DomainTrial(np.arange(8), SearchProgress(0.0))

    def refuse() -> Where:
        raise DoesNotFit("not enough")

    trial.begin()
    with pytest.raises(DoesNotFit):
        trial.next_class(meter, 8, refuse)
    before = meter.used
    with pytest.raises(DoesNotFit, match="not enough"):
        trial.begin()
    assert meter.used == before


def test_a_class_that_was_cut_goes_on_in_the_next_slice() -> None:
    meter = WorkMeter(first_limit=CLASS_UNITS)
    trial = DomainTrial(np.arange(8), SearchProgress(0.0))
    meter.begin()
    with pytest.raises(WorkLimitReached):
        trial.next_class(meter, 8, lambda: where(0))
    meter.begin(factor=2)
    trial.begin()
    assert trial.next_class(meter, 8, lambda: where(7))[0].tolist() == [7]


def test_domains_are_put_in_order_once_for_each_level() -> None:
    made, asked = snapshot(), list[str]()

    def domains(level: str) -> list[Ints]:
        asked.append(level)
        return [np.array([0, 1]), np.array([2, 3])]

    steps = DomainSteps()
    once, again = list(steps.trials(RACK, domains)), list(steps.trials(RACK, domains))
    assert {*once}.isdisjoint(again), "outside of a long attempt nothing is kept"
    steps.progress = long_attempt(made)
    kept = list(steps.trials(RACK, domains))
    assert [trial.rows.tolist() for trial in kept] == [[0, 1], [2, 3]]
    assert steps.progress.grew
    assert list(steps.trials(RACK, domains)) == kept
    assert {*steps.trials(BLOCK, domains)}.isdisjoint(kept)
    assert asked == [RACK] * 3 + [BLOCK]


def test_steps_are_kept_for_unlike_pods_of_a_long_attempt_on_the_same_capacity() -> None:
    made = snapshot()
    unlike, other = PlacementRequest(UNLIKE), PlacementRequest(UNLIKE, required=RACK)
    assert steps_of(made, unlike) is not steps_of(made, unlike)
    progress = long_attempt(made)
    kept = steps_of(made, unlike)
    assert kept.progress is progress
    assert steps_of(made, unlike) is kept
    assert steps_of(made, other) is not kept
    alone = PlacementRequest(UNLIKE[:1])
    assert steps_of(made, alone).progress is None
    made.take(3, factories.spec(8))
    assert steps_of(made, unlike) is not kept


def test_the_first_look_at_many_nodes_costs_more_than_the_next() -> None:
    made = snapshot(640)
    progress, steps = long_attempt(made), DomainSteps()
    steps.progress = progress
    costs = []
    for groups in (UNLIKE[:1], UNLIKE, UNLIKE):
        before, progress.grew = made.meter.used, False
        views = [made.view(spec) for spec, _ in groups]
        steps.refresh(made.meter, views)
        assert [int(view.by_row[0]) for view in views] == [8] * len(groups)
        assert progress.grew
        costs.append(made.meter.used - before)
    alone, first, next_one = costs
    assert (alone, next_one) == (0, 2 * len(UNLIKE))
    assert 640 // 64 <= first - next_one <= 2 * 640 // 64


@pytest.mark.long
def test_to_order_domains_costs_by_class_and_node() -> None:
    for nodes, units in ((4, 2), (1024, 3)):
        made = snapshot(nodes)
        for classes in (1, 3):
            before = made.meter.used
            spend_order(made, classes)
            assert made.meter.used - before == classes * units
