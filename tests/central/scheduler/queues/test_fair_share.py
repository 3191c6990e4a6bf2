"""Fair shares against water poured drop by drop, and what must hold of any of them."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from central.scheduler.queues.fair_share import Amount, QueueDemand, divide

CLAIMS = st.lists(
    st.builds(
        QueueDemand,
        weight=st.integers(1, 5),
        most=st.integers(0, 30),
        deserved=st.sampled_from([0, 0, 0, 3, 8, 15]),
        guarantee=st.sampled_from([0, 0, 0, 2, 6]),
        priority=st.sampled_from([0, 0, 0, 7]),
    ),
    min_size=1,
    max_size=6,
)


def by_bisection(total: int, claims: list[QueueDemand]) -> list[float]:
    """The same by another way: bisect the level until the water is used up, stage by stage."""

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

    wanted = min(total, sum(claim.most for claim in claims))
    sure = [min(claim.guarantee, claim.most) for claim in claims]
    if sum(sure) > total:
        return [share * total / sum(sure) for share in sure]
    own = [max(s, min(c.deserved, c.most)) for s, c in zip(sure, claims, strict=True)]
    if sum(own) >= wanted:
        fills = [(c.deserved, s, o, 0) for c, s, o in zip(claims, sure, own, strict=True)]
        return level_of([tuple(map(float, fill)) for fill in fills], wanted)  # type: ignore[misc]  # four numbers
    shares = [float(o) for o in own]
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        peers = [i for i, claim in enumerate(claims) if claim.priority == priority]
        water = wanted - sum(shares) + sum(own[i] for i in peers)
        fills = [
            (
                claims[i].weight,
                own[i],
                claims[i].most,
                min(claims[i].deserved, claims[i].most),
            )
            for i in peers
        ]
        for i, share in zip(
            peers,
            level_of([tuple(map(float, fill)) for fill in fills], water),  # type: ignore[misc]  # four numbers
            strict=True,
        ):
            shares[i] = share
    return shares


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 80), CLAIMS)
def test_the_level_is_found_exactly(total: int, claims: list[QueueDemand]) -> None:
    shares = divide(total, claims)
    expected = by_bisection(total, claims)
    assert all(
        abs(float(share) - other) < 1e-6 for share, other in zip(shares, expected, strict=True)
    ), (shares, expected)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 80), CLAIMS)
def test_nothing_is_lost_and_nobody_gets_more_than_it_can_use(
    total: int, claims: list[QueueDemand]
) -> None:
    shares = divide(total, claims)
    assert sum(shares) == min(total, sum(claim.most for claim in claims))
    assert all(0 <= share <= claim.most for share, claim in zip(shares, claims, strict=True))
    if sum(min(claim.guarantee, claim.most) for claim in claims) <= total:
        for share, claim in zip(shares, claims, strict=True):
            assert share >= min(claim.guarantee, claim.most)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 80), st.integers(0, 20), CLAIMS)
def test_more_to_share_takes_from_nobody(total: int, more: int, claims: list[QueueDemand]) -> None:
    before, after = divide(total, claims), divide(total + more, claims)
    assert all(b <= a for b, a in zip(before, after, strict=True))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 80), CLAIMS, st.integers(0, 5))
def test_a_greater_weight_never_gets_less(
    total: int, claims: list[QueueDemand], which: int
) -> None:
    which %= len(claims)
    claim = claims[which]
    heavier = [*claims]
    heavier[which] = QueueDemand(
        claim.weight + 1, claim.most, claim.deserved, claim.guarantee, claim.priority
    )
    assert divide(total, heavier)[which] >= divide(total, claims)[which]


@settings(max_examples=100, deadline=None)
@given(st.fractions(0, 40), CLAIMS)
def test_a_share_can_be_shared_on(total: Fraction, claims: list[QueueDemand]) -> None:
    """A parent's share is a fraction; its children's add up to it exactly."""
    assert sum(divide(total, claims)) == min(total, sum(claim.most for claim in claims))


def shares(total: Amount, *claims: QueueDemand) -> list[Amount]:
    return divide(total, claims)


def test_the_rest_goes_by_weight_to_whoever_wants_more() -> None:
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
    assert shares(30, QueueDemand(1, 100, priority=1), QueueDemand(9, 100, deserved=10)) == [20, 10]
    assert shares(10, QueueDemand(1, 99, guarantee=15), QueueDemand(1, 99, guarantee=5)) == [
        Fraction(15, 2),
        Fraction(5, 2),
    ]
