"""Where the victims of other claims leave, kept from one claim to the next."""

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.pass_claims import PassClaims
from central.scheduler.pass_reservations import PassReservations
from central.scheduler.reservation.reservation import Reservation
from tests.central import factories


def test_rows_are_those_of_the_claims_that_stand() -> None:
    """Whoever asks, in whatever order, and after one of them has ended."""
    made = new_scheduler()
    facts: list[Fact] = [factories.node(f"n{i}", gpus=1) for i in range(5)]
    facts += [factories.pod(f"s-{i}", 1, node=f"n{i}", phase="Running") for i in range(5)]
    facts += [factories.pod(f"u-{i}", 1, priority=10, created=float(i)) for i in range(5)]
    schedule_once(made, facts, 100.0)
    claims = list(made.reservations.values())
    reservations = PassReservations(made)
    asked = PassClaims(made, reservations, began=101.0)

    def assert_rows(own: Reservation | None) -> None:
        others = [held for held in made.reservations.values() if held is not own]
        found = asked._claims_beside(own)
        assert list(found.by_gang.values()) == others
        assert [row.tolist() for row in found.rows] == [held.place.rows.tolist() for held in others]
        assert not found.not_counted

    assert len(claims) == 5
    assert all(held.by_eviction for held in claims)
    for own in (None, claims[4], None, claims[1], claims[0], None):
        assert_rows(own)
    asked.begin([], resumed=True)
    assert_rows(None)
    reservations.drop(claims[2].gang.key)
    for own in (None, claims[3], None):
        assert_rows(own)
