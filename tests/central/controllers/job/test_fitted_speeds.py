"""The speeds of an elastic Job that follow from a few measured ones."""

import random
from itertools import pairwise

import pytest

from central.controllers.job.fitted_speeds import Measured, with_measured
from central.model import speed_table
from central.model.jobspec import ElasticTask
from central.model.speed_table import SpeedTable

TASK = ElasticTask("w", 1, 32)


def declaring(text: str) -> ElasticTask:
    table = speed_table.parse(text)
    return ElasticTask("w", 1, 32, speeds=table, useful=table.useful(range(1, 33)))


def fitted(measured: Measured, task: ElasticTask = TASK, on_node: int = 8) -> SpeedTable:
    found = with_measured(task, measured, on_node).speeds
    assert found is not None
    return found


def really(members: int, nodes: int, work_s: float = 2.0, wait_s: float = 0.25) -> float:
    """Steps a second of a Job that waits for the network between nodes."""
    return 1 / (work_s / members + (wait_s if nodes > 1 else 0.0))


def test_what_nobody_measured_stays_as_it_is() -> None:
    for task in (TASK, declaring("1:1 8:4")):
        assert with_measured(task, (), 8) is task


@pytest.mark.parametrize(("eight", "stays"), [(8.0, False), (5.9, True), (2.7, True), (2.6, False)])
def test_declared_speeds_hold_while_they_are_about_right(eight: float, *, stays: bool) -> None:
    """One member takes a step in a second, eight take four: the unit does not matter."""
    task = declaring(f"1:30 8:{30 * eight}")
    assert (with_measured(task, ((1, 1, 1.0), (8, 1, 4.0)), 8) is task) == stays


def test_one_measured_size_contradicts_no_table() -> None:
    task = declaring("1:1 8:8")
    assert with_measured(task, ((8, 1, 1e-3),), 8) is task


def test_a_table_that_promises_too_much_is_replaced() -> None:
    table = fitted(((1, 1, 1.0), (8, 1, 2.0)), declaring("1:1 8:8 32:32"))
    assert table.at(8, 1) / table.at(1, 1) == pytest.approx(2.0, rel=0.1)
    assert table.at(32, 1) < 3.0


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.25, 2.0])
def test_two_places_tell_the_others(wait_s: float) -> None:
    places = [(1, 1), (2, 1), (8, 1), (8, 2), (12, 2), (24, 3), (32, 4)]
    table = fitted(tuple((*each, really(*each, wait_s=wait_s)) for each in ((4, 1), (16, 2))))
    for place in places:
        expected = really(*place, wait_s=wait_s) / really(1, 1)
        assert table.at(*place) == pytest.approx(expected, rel=0.15), place


def test_sizes_that_several_nodes_make_slower_are_not_useful() -> None:
    """Eight on one node are as fast as on several are sixteen: a step waits a quarter of a second there."""
    measured = tuple((*each, really(*each, wait_s=0.125)) for each in ((8, 1), (12, 2)))
    task = with_measured(TASK, measured, 8)
    assert next(size for size in task.useful if size > 8) in (16, 17)
    assert task.useful[:8] == (1, 2, 3, 4, 5, 6, 7, 8)


def test_where_places_are_alike_every_size_is_useful() -> None:
    """A Job that was measured on several nodes alone is not brought onto one for a guess."""
    task = with_measured(TASK, ((8, 2, 4.0), (16, 3, 5.0)), 8)
    assert task.useful == tuple(range(1, 33))
    assert task.speeds is not None
    assert task.speeds.at(8, 1) == task.speeds.at(8, 3)


@pytest.mark.long
def test_nobody_is_faster_than_in_proportion_or_slower_with_more() -> None:
    """Whatever is measured, and whatever a coordinator makes up."""
    dice = random.Random(7)
    for _ in range(500):
        sizes = dice.sample(range(1, 33), dice.randint(1, 5))
        measured = tuple(
            (size, dice.randint(1, min(size, 4)), 10 ** dice.uniform(-9, 9)) for size in sizes
        )
        task = with_measured(TASK, measured, dice.randint(0, 9))
        assert task.speeds is not None
        speeds = [task.speeds.at(size, 2) for size in range(1, 33)]
        assert all(0 < speed <= size * 1.0001 for size, speed in enumerate(speeds, 1))
        assert all(after >= before for before, after in pairwise(speeds[1:]))
        assert task.useful[0] == 1


def test_a_job_of_great_sizes_has_a_short_table() -> None:
    table = fitted(((100, 13, 5.0), (4000, 500, 60.0)), ElasticTask("w", 4, 100_000, 4))
    assert len(table.by_nodes[0][1]) <= 130
    assert table.at(100_000, 12_500) > table.at(4000, 500)
