"""How many requests a member may send, how fast it steps by the coordinator's clock, and who is slow."""

import random
from statistics import median

import pytest

from central.coordinator.request_rates import MOST_REPORTS, MOST_REQUESTS, RequestRates


def test_requests_of_a_member_in_a_second() -> None:
    rates = RequestRates()
    for begin in (10.0, 11.0, 50.0):
        for _ in range(2):
            allowed = [rates.allows(1, begin + number / 1000) for number in range(150)]
            if begin == 10.0:
                assert sum(allowed) <= MOST_REQUESTS
        assert not rates.allows(1, begin + 0.999)
        assert rates.allows(2, begin + 0.999), "each member has its own"
    assert rates.allows(1, 51.0)
    fresh = RequestRates()
    assert [fresh.allows(1, 0.0) for _ in range(MOST_REQUESTS + 1)] == [True] * MOST_REQUESTS + [False]  # fmt: skip


def test_members_that_cannot_be_are_not_remembered() -> None:
    """They are refused elsewhere, and there may be very many."""
    rates = RequestRates()
    for member in (-1, 1 << 20, 1 << 60):
        assert all(rates.allows(member, 0.0) for _ in range(MOST_REQUESTS + 5))
    assert rates._members == {}
    assert rates.allows(0, 0.0)
    assert rates.allows((1 << 20) - 1, 0.0)
    assert len(rates._members) == 2


def mean(values: list[float]) -> float:
    """A fifth of the newest value; the first one counts whole."""
    found = 0.0
    for value in values:
        found = value if not found else 0.8 * found + 0.2 * value
    return found


def test_rates_are_means_over_the_reports() -> None:
    dice = random.Random(5)
    rates = RequestRates()
    now, step = 100.0, 10
    rates.report(1, now, step, 7.0, 0.5)
    one = rates.of(1)
    assert (one.step, one.at, one.step_s, one.claimed_s, one.samples_per_s) == (10, 100.0, 0.0, 0.0, 0.0)  # fmt: skip
    own: list[float] = []
    claimed: list[float] = []
    samples: list[float] = []
    for _ in range(30):
        took_s, steps = dice.uniform(0.5, 3.0), dice.randint(1, 5)
        seconds, count = dice.choice((0.0, dice.uniform(0.1, 9.0))), dice.uniform(1, 99)
        now, step = now + took_s, step + steps
        rates.allows(1, now)
        rates.report(1, now, step, count, seconds, epoch_left=step)
        own.append(took_s / steps)
        samples.append(count / took_s)
        if seconds:
            claimed.append(seconds / steps)
        one = rates.of(1)
        assert one.step_s == pytest.approx(mean(own))
        assert one.claimed_s == pytest.approx(mean(claimed))
        assert one.samples_per_s == pytest.approx(mean(samples))
        assert (one.step, one.at, one.epoch_left) == (step, now, step)


@pytest.mark.parametrize(("step", "now"), [(10, 101.0), (9, 101.0), (11, 100.0), (11, 99.0)])
def test_reports_that_say_no_time(step: int, now: float) -> None:
    """Of no new step, or of no time in between: the mean stays, and the next report counts from it."""
    rates = RequestRates()
    rates.report(1, 100.0, 10, 1.0, 1.0)
    rates.report(1, now, step, 5.0, 5.0)
    one = rates.of(1)
    assert (one.step_s, one.claimed_s, one.samples_per_s, one.step, one.at) == (0.0, 0.0, 0.0, step, now)  # fmt: skip


def test_reports_of_a_second_are_bounded() -> None:
    rates = RequestRates()
    rates.allows(1, 5.0)
    for number in range(MOST_REPORTS + 5):
        rates.report(1, 5.0, number, 1.0, 1.0)
    assert rates.of(1).step == MOST_REPORTS - 1
    rates.allows(1, 6.0)
    rates.report(1, 6.0, 99, 1.0, 1.0)
    assert rates.of(1).step == 99


def with_times(*claimed: float) -> RequestRates:
    rates = RequestRates()
    for member, seconds in enumerate(claimed):
        rates.report(member, 0.0, 0, 1.0, 1.0)
        rates.report(member, 1.0, 1, 8.0, seconds, epoch_left=member)
    return rates


def test_who_is_slow() -> None:
    """Above 1.3 times the median of three members at least, by their own time."""
    dice = random.Random(6)
    for _ in range(200):
        times = [dice.choice((0.0, 1.0, 1.25, 1.35, 3.0)) for _ in range(dice.randint(0, 7))]
        known = [each for each in times if each]
        limit = 1.3 * median(known) if len(known) >= 3 else 1e9
        slow = {member for member, each in enumerate(times) if each > limit}
        assert with_times(*times).stragglers(list(range(len(times)))) == slow
    assert with_times(1.0, 1.0, 1.0, 9.0).stragglers([0, 1, 3]) == {3}
    assert with_times(1.0, 1.0, 1.0, 9.0).stragglers([0, 1, 2]) == set()
    assert with_times(1.0, 1.0, 1.3).stragglers([0, 1, 2]) == set()


@pytest.mark.parametrize(
    ("own", "slow"),
    [
        ((1.0, 1.0, 1.0), set()),
        ((1.0, 2.84, 1.0), set()),
        ((1.0, 2.86, 1.0), {1}),  # without it a step would take 8 - 1.86 s
        ((0.001, 0.1, 0.002), set()),  # a hundred times the others' and not worth a word
        ((3.0, 1.0, 3.0, 3.0), set()),
        ((1.0, 0.0, 6.0), set()),  # one does not say it
    ],
)
def test_who_makes_the_others_wait(own: tuple[float, ...], slow: set[int]) -> None:
    """A step takes all of them 8 s, of which they wait for others as long as these let them."""
    rates = RequestRates()
    for member, seconds in enumerate(own):
        rates.report(member, 0.0, 0, 1.0, 0.0)
        rates.report(member, 16.0, 2, 1.0, 16.0, own_s=2 * seconds)
    assert rates.stragglers(list(range(len(own)))) == slow


def test_nobody_works_longer_than_a_step_takes() -> None:
    rates = RequestRates()
    for step in range(2):
        rates.report(1, 8.0 * step, step, 1.0, 8.0 * step, own_s=1e9)
    assert rates.of(1).own_s == 8.0


def test_the_furthest_member() -> None:
    rates = RequestRates()
    assert (rates.furthest([]), rates.furthest([1, 2]), rates.epoch_left([])) == (0, 0, None)
    assert rates.epoch_left([1]) is None
    for member, step in ((1, 5), (2, 9), (3, 7)):
        rates.report(member, 1.0, step, 1.0, 1.0, epoch_left=100 - step)
    assert (rates.furthest([1, 2, 3]), rates.epoch_left([1, 2, 3])) == (9, 91)
    assert (rates.furthest([1, 3]), rates.epoch_left([1, 3])) == (7, 93)
    rates.report(3, 2.0, 12, 1.0, 1.0)
    assert rates.epoch_left([1, 2, 3]) is None, "it does not say it any more"


def test_samples_of_those_that_are_present() -> None:
    rates = with_times(1.0, 1.0, 1.0)
    assert rates.samples_per_s([0, 1, 2]) == 24.0
    assert rates.samples_per_s([0, 9]) == 8.0
    rates.forget({0: 1, 2: 1})
    assert (rates.samples_per_s([0, 1, 2]), rates.of(1).step) == (16.0, -1)
