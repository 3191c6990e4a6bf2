"""What a decision may still spend, and when it is asked whether others wait."""

from collections.abc import Callable
from math import inf

import pytest

from central.scheduler.work_meter import ASK_UNITS, ROWS_PER_UNIT, WorkLimitReached, WorkMeter

LIMIT = 10


def flags(meter: WorkMeter) -> tuple[bool, bool, bool]:
    return meter.is_spent, meter.was_short, meter.was_interrupted


def test_outside_of_decisions_nothing_is_limited() -> None:
    meter = WorkMeter(LIMIT)
    assert (meter.used, meter.longest, flags(meter)) == (0, 0, (False, False, False))
    assert not meter.count(10**9)
    assert meter.left == inf
    meter.begin()
    meter.end()
    assert not meter.count(10**9)
    assert meter.left == inf


@pytest.mark.parametrize("factor", [1, 2, 7])
def test_what_is_left_falls_to_nothing_and_the_limit_itself_may_be_used(factor: int) -> None:
    meter = WorkMeter(LIMIT)
    meter.begin(factor)
    for used in range(1, LIMIT * factor + 1):
        assert not meter.count(1)
        assert meter.left == LIMIT * factor - used
        assert flags(meter) == (False, False, False)
    assert meter.count(5)
    assert meter.left == 0
    assert flags(meter) == (True, True, False)
    meter.extend()  # as much again, from here
    assert meter.left == LIMIT * factor
    assert flags(meter) == (False, True, False)
    assert not meter.count(LIMIT * factor)
    assert meter.count(1)


def test_a_decision_begins_with_nothing_of_the_one_before() -> None:
    meter = WorkMeter(LIMIT)
    meter.begin(1, lambda used: True)
    meter.count(ASK_UNITS)
    assert flags(meter) == (True, True, True)
    meter.begin()
    assert flags(meter) == (False, False, False)
    assert (meter.used, meter.left) == (0, LIMIT)
    meter.count(2 * ASK_UNITS)  # asks nobody
    assert not meter.was_interrupted
    meter.end()
    assert flags(meter) == (False, False, False)


def test_the_longest_decision_is_remembered() -> None:
    meter = WorkMeter(LIMIT)
    for used, longest in ((3, 3), (7, 7), (5, 7)):
        meter.begin()
        meter.count(used)
        assert meter.longest == longest


@pytest.mark.parametrize("rows", range(3 * ROWS_PER_UNIT))
def test_rows_are_counted_together_and_an_operation_costs_at_least_one(rows: int) -> None:
    meter = WorkMeter(LIMIT)
    meter.begin()
    meter.spend_rows(rows)
    assert meter.used == 1 + rows // ROWS_PER_UNIT


def test_rows_above_the_limit_are_refused() -> None:
    meter = WorkMeter(LIMIT)
    meter.begin()
    with pytest.raises(WorkLimitReached):
        meter.spend_rows(LIMIT * ROWS_PER_UNIT)


def asking(answer: Callable[[int], bool], counts: list[int]) -> tuple[WorkMeter, list[int]]:
    """The meter after the counts, and at how many units it asked."""
    meter, asked = WorkMeter(10**9), list[int]()

    def interrupt(used: int) -> bool:
        asked.append(used)
        return answer(used)

    meter.begin(1, interrupt)
    for units in counts:
        meter.count(units)
    return meter, asked


def test_a_long_attempt_asks_after_so_much_work_again_and_again() -> None:
    counts = [ASK_UNITS - 1, 1, 1, ASK_UNITS - 2, 1, 3 * ASK_UNITS]
    meter, asked = asking(lambda used: False, counts)
    assert asked == [ASK_UNITS, 2 * ASK_UNITS, 5 * ASK_UNITS]
    assert flags(meter) == (False, False, False)


def test_an_interrupted_attempt_is_over_and_asks_no_more() -> None:
    meter, asked = asking(lambda used: used > ASK_UNITS, [ASK_UNITS, ASK_UNITS, 0, 5 * ASK_UNITS])
    assert asked == [ASK_UNITS, 2 * ASK_UNITS]
    assert flags(meter) == (True, True, True)
    assert meter.left == 0
    meter.extend()  # nor is there more for a smaller request
    assert meter.count(0)
    with pytest.raises(WorkLimitReached):
        meter.spend(0)


@pytest.mark.parametrize("undisturbed", [0, ASK_UNITS - 1, ASK_UNITS + 1, 5 * ASK_UNITS])
def test_an_attempt_is_not_ended_before_its_undisturbed_units(undisturbed: int) -> None:
    meter, asked = WorkMeter(10**9), list[int]()

    def interrupt(used: int) -> bool:
        asked.append(used)
        return True

    meter.begin(1, interrupt, undisturbed)
    first = max(undisturbed, ASK_UNITS)
    assert not meter.count(first - 1)
    assert asked == []
    assert meter.count(1)
    assert asked == [first]
