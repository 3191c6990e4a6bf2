"""Fair shares against a bisection of the water level, and their invariants; water_fill against
every breakpoint."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from central.scheduler.queues.fair_share import (
    Amount,
    Bounds,
    QueueDemand,
    divide,
    in_whole_devices,
    water_fill,
)
from tests.effort import examples

QUEUES = st.lists(
    st.builds(
        QueueDemand,
        weight=st.integers(1, 5),
        demand=st.integers(0, 30),
        deserved=st.sampled_from([0, 0, 0, 3, 8, 15]),
        guarantee=st.sampled_from([0, 0, 0, 2, 6]),
        priority=st.sampled_from([0, 0, 0, 7]),
        strict_priority=st.sampled_from([0, 0, 0, 7]),
    ),
    min_size=1,
    max_size=6,
)


def by_bisection(total: int, queues: list[QueueDemand]) -> list[float]:
    """The same shares by bisecting the level, stage by stage."""

    def level_of(fills: list[tuple[float, float, float, float]], water: float) -> list[float]:
        low, high = 0.0, 1e6

        def at(level: float) -> list[float]:
            return [
                min(most, max(least, base + width * level)) for width, least, most, base in fills
            ]

        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(at(middle)) < water else (low, middle)
        return at(high)

    wanted = min(total, sum(queue.demand for queue in queues))
    sure = [min(queue.guarantee, queue.demand) for queue in queues]
    if sum(sure) > total:
        return [share * total / sum(sure) for share in sure]
    own = [max(s, min(c.deserved, c.demand)) for s, c in zip(sure, queues, strict=True)]
    if sum(own) >= wanted:
        fills = [(c.deserved, s, o, 0) for c, s, o in zip(queues, sure, own, strict=True)]
        return level_of([tuple(map(float, fill)) for fill in fills], wanted)  # type: ignore[misc]  # four numbers
    shares = [float(o) for o in own]
    for strict in sorted({queue.strict_priority for queue in queues}, reverse=True):
        peers = [i for i, queue in enumerate(queues) if queue.strict_priority == strict]
        water = wanted - sum(shares) + sum(own[i] for i in peers)
        fills = [
            (queues[i].weight, own[i], queues[i].demand, min(queues[i].deserved, queues[i].demand))
            for i in peers
        ]
        for i, share in zip(
            peers,
            level_of([tuple(map(float, fill)) for fill in fills], water),  # type: ignore[misc]  # four numbers
            strict=True,
        ):
            shares[i] = share
    return shares


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 80), QUEUES)
def test_the_level_is_found_exactly(total: int, queues: list[QueueDemand]) -> None:
    shares = divide(total, queues)
    expected = by_bisection(total, queues)
    assert all(
        abs(float(share) - other) < 1e-6 for share, other in zip(shares, expected, strict=True)
    ), (shares, expected)


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 80), QUEUES)
def test_shares_add_up_and_stay_within_demand(total: int, queues: list[QueueDemand]) -> None:
    shares = divide(total, queues)
    assert sum(shares) == min(total, sum(queue.demand for queue in queues))
    assert all(0 <= share <= queue.demand for share, queue in zip(shares, queues, strict=True))
    if sum(min(queue.guarantee, queue.demand) for queue in queues) <= total:
        for share, queue in zip(shares, queues, strict=True):
            assert share >= min(queue.guarantee, queue.demand)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 80), st.integers(0, 20), QUEUES)
def test_a_larger_total_lowers_no_share(total: int, more: int, queues: list[QueueDemand]) -> None:
    before, after = divide(total, queues), divide(total + more, queues)
    assert all(b <= a for b, a in zip(before, after, strict=True))


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 80), QUEUES, st.integers(0, 5))
def test_a_greater_weight_never_gets_less(
    total: int, queues: list[QueueDemand], which: int
) -> None:
    which %= len(queues)
    queue = queues[which]
    heavier = [*queues]
    heavier[which] = replace(queue, weight=queue.weight + 1)
    assert divide(total, heavier)[which] >= divide(total, queues)[which]


@pytest.mark.long
@settings(max_examples=examples(100), deadline=None)
@given(st.fractions(0, 40), QUEUES)
def test_a_share_can_be_shared_on(total: Fraction, queues: list[QueueDemand]) -> None:
    """A parent's share is a fraction; its children's add up to it exactly."""
    assert sum(divide(total, queues)) == min(total, sum(queue.demand for queue in queues))


def content(vessel: Bounds, level: Fraction) -> Amount:
    return min(vessel.high, max(vessel.low, vessel.base + vessel.width * level))


def by_breakpoints(total: int, vessels: list[Bounds]) -> list[Amount]:
    """Contents are linear between the levels at which a vessel reaches one of its bounds."""
    bends = sorted(
        {Fraction(bound - v.base) / v.width for v in vessels for bound in (v.low, v.high)}
    )

    def at(level: Fraction) -> Amount:
        return sum(content(vessel, level) for vessel in vessels)

    if at(bends[-1]) <= total:
        return [vessel.high for vessel in vessels]
    right = next(i for i, level in enumerate(bends) if at(level) >= total)
    level = bends[right]
    if at(level) > total:
        left = bends[right - 1]
        level = left + (level - left) * (total - at(left)) / (at(level) - at(left))
    return [content(vessel, level) for vessel in vessels]


VESSELS = st.lists(
    st.builds(
        lambda width, low, more, base: Bounds(width, low, low + more, base),
        width=st.integers(1, 5),
        low=st.integers(0, 15),
        more=st.integers(0, 20),
        base=st.integers(0, 20),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.long
@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 60), VESSELS)
def test_water_stands_level_between_the_bounds(more: int, vessels: list[Bounds]) -> None:
    """low and base are independent here, unlike in divide(), so that guesses break both bounds."""
    total = sum(int(vessel.low) for vessel in vessels) + more
    assert water_fill(total, vessels) == by_breakpoints(total, vessels)


def test_the_side_with_the_larger_error_is_fixed() -> None:
    """The example in the docstring of water_fill."""
    a, b, c = Bounds(1, 0, 2), Bounds(1, 0, 20), Bounds(2, 8, 20)
    assert water_fill(12, [a, b, c]) == [2, 2, 8]
    assert water_fill(12, [Bounds(1, 0, Fraction(5, 2)), b, c]) == [2, 2, 8]


def shares(total: Amount, *queues: QueueDemand) -> list[Amount]:
    return divide(total, queues)


def test_the_rest_is_divided_by_weight() -> None:
    assert shares(12, QueueDemand(1, 100), QueueDemand(2, 100)) == [4, 8]
    assert shares(12, QueueDemand(1, 100), QueueDemand(2, 5)) == [7, 5]
    assert shares(16, QueueDemand(1, 8), QueueDemand(3, 80)) == [4, 12]  # the published experiment
    assert shares(7, QueueDemand(1, 9), QueueDemand(1, 9)) == [Fraction(7, 2)] * 2


def test_guarantee_then_deserved_then_weight() -> None:
    assert shares(100, QueueDemand(1, 100, guarantee=40), QueueDemand(1, 100)) == [50, 50]
    assert shares(100, QueueDemand(1, 100, guarantee=60), QueueDemand(1, 100)) == [60, 40]
    assert shares(100, QueueDemand(1, 100, deserved=40), QueueDemand(1, 100, deserved=20)) == [
        60,
        40,
    ]
    assert shares(30, QueueDemand(1, 100, deserved=40), QueueDemand(1, 100, deserved=20)) == [
        20,
        10,
    ]
    strict = QueueDemand(1, 100, strict_priority=1)
    assert shares(30, strict, QueueDemand(9, 100, deserved=10)) == [20, 10]
    assert shares(20, QueueDemand(1, 100, priority=1), QueueDemand(9, 100)) == [2, 18]
    assert shares(10, QueueDemand(1, 99, guarantee=15), QueueDemand(1, 99, guarantee=5)) == [
        Fraction(15, 2),
        Fraction(5, 2),
    ]


def test_a_whole_device_more_exceeds_no_demand() -> None:
    """The queue with the largest remainder asks for 8 tenths of the last device only; the other takes the rest."""
    queues = [QueueDemand(1, 18), QueueDemand(1, 50)]
    assert in_whole_devices([17, 3], queues, 10) == [18, 2]


def test_a_queue_whose_demand_is_met_keeps_its_part_of_a_device() -> None:
    """Else the last device would go whole to the queue that uses more."""
    queues = [QueueDemand(1, 5), QueueDemand(1, 100, used=20)]
    assert divide(30, queues) == [5, 25]
    assert in_whole_devices([5, 25], queues, 10) == [5, 25]


def test_vessels_without_width_are_full_only_where_all_are() -> None:
    assert water_fill(10, [Bounds(0, 0, 4), Bounds(1, 0, 6)]) == [4, 6]
    assert water_fill(2, [Bounds(0, 2, 5)]) == [2]
