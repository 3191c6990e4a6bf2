"""The rate at which tasks of a queue are done."""

from central.controllers.training.task_rate import WINDOW_S, TaskRate


def test_unknown_until_a_second_task_is_done() -> None:
    rate = TaskRate()
    assert rate.per_s(50.0) == 0
    rate.add(100.0)
    assert rate.per_s(100.0) == 0
    assert rate.per_s(110.0) == 0, "one task says nothing of the time between two"
    rate.add(110.0)
    assert rate.per_s(110.0) == 0.1
    assert rate.per_s(120.0) == 0.05


def test_a_steady_rate_whatever_has_passed() -> None:
    rate = TaskRate()
    for number in range(1000):
        rate.add(number / 2)
    for now in (500.0, 500.4):
        assert abs(rate.per_s(now) - 2.0) < 0.1


def test_it_is_of_late() -> None:
    rate = TaskRate()
    for number in range(1000):
        rate.add(float(number))
    for number in range(100):
        rate.add(1000.0 + 10 * number)
    assert abs(rate.per_s(2000.0) - 0.1) < 0.01


def test_it_is_over_when_nothing_is_done_for_the_whole_window() -> None:
    rate = TaskRate()
    rate.add(0.0)
    rate.add(1.0)
    assert rate.per_s(WINDOW_S - 1) > 0
    assert rate.per_s(WINDOW_S + 12) == 0
    rate.add(5000.0)
    assert rate.per_s(5000.0) == 1 / WINDOW_S, "one in the whole window"


def test_it_is_bounded() -> None:
    rate = TaskRate()
    for number in range(10_000):
        rate.add(number * 11.0)
    assert len(rate._slots) <= 30
