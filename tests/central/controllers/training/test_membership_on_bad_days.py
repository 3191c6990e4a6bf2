"""Membership on bad days: the scheduler is away, half of the members are cut off, a member hangs, plans come in a
rush."""

import pytest

from central.controllers.training.generation import MembershipRules, NotJoined, Stale
from central.controllers.training.membership import Membership
from tests.central.controllers.training.test_membership import (
    ack_all,
    is_over,
    keep_alive,
    live,
    plan,
    process,
    proposed,
    trio,
)

HOUR = 3600.0


def quartet(**rules: object) -> Membership:
    """Members 0 to 3 are planned, joined and live in generation 1."""
    made = Membership(MembershipRules(**rules))  # type: ignore[arg-type]  # fields by name
    made.set_plan(0.0, plan(1, range(4)))
    for member in range(4):
        made.join(0.0, process(member))
    ack_all(made, 0.0)
    return made


def heard(made: Membership, now: float, *members: int) -> None:
    for member in members:
        made.heard(now, member, 1)
    made.advance(now)


def test_an_hour_without_the_scheduler() -> None:
    """The last plan holds: nobody else comes in, losses are handled. Its next plan is one change."""
    made = trio()
    made.join(10.0, process(5))  # its plan did not arrive any more
    for minute in range(1, 30):
        keep_alive(made, minute * 20.0)
    assert (live(made), proposed(made)) == ([0, 1, 2], None)
    made.leave(600.0, 1, 1, 137, "killed")
    ack_all(made, 600.0)
    assert (live(made), made.number) == ([0, 2], 2)
    for minute in range(31, 180):
        keep_alive(made, minute * 20.0)
    assert made.number == 2
    made.set_plan(HOUR, plan(2, (0, 2, 5)))
    assert proposed(made) == {0: 1, 2: 1, 5: 1}
    ack_all(made, HOUR)
    assert (live(made), made.number) == ([0, 2, 5], 3)


def test_of_two_halves_the_one_with_the_coordinator_goes_on() -> None:
    made = quartet(least=2, silent_s=30)
    heard(made, 29.0, 0, 1)
    heard(made, 30.0, 0, 1)
    ack_all(made, 30.0)
    assert live(made) == [0, 1]
    heard(made, 50.0, 0, 1)
    for member in (2, 3):  # back again: they are told to join, and are in no old generation
        with pytest.raises(NotJoined):
            made.heard(60.0, member, 1)
        with pytest.raises(NotJoined):
            made.ack(60.0, member, 1, 1, None)
    for member in (2, 3):
        made.join(60.0, process(member))
    ack_all(made, 60.0)
    assert live(made) == [0, 1, 2, 3]


def test_half_that_is_too_small_waits_and_then_the_job_is_over() -> None:
    made = quartet(least=3, silent_s=30, below_s=600)
    for minute in range(1, 31):
        heard(made, minute * 20.0, 0, 1)
    ack_all(made, 600.0)
    assert (live(made), proposed(made)) == ([0, 1, 2, 3], {0: 1, 1: 1})
    with pytest.raises(Stale):
        made.report(610.0, 0, 1, 2, 5)  # nobody trains in a generation that is not live
    assert not is_over(made)
    for minute in range(31, 34):
        heard(made, minute * 20.0, 0, 1)
    assert is_over(made) == "2 of at least 3 members for 600 s"


@pytest.mark.parametrize(("stuck_s", "given_up"), [(0.0, False), (50.0, True)])
def test_a_member_that_hangs_is_given_up_only_where_asked(stuck_s: float, given_up: bool) -> None:
    """Its polls go on, and it never stops training."""
    made = trio(stuck_s=stuck_s)
    made.set_plan(5.0, plan(2, (0, 1), leave_by=25.0))
    made.ack(6.0, 0, 1, 2, None)
    for second in range(10, 100, 10):
        heard(made, float(second), *made.present())
    assert (1 not in made.present()) is given_up
    if given_up:
        made.set_plan(100.0, plan(3, (0, 2)))
        with pytest.raises(NotJoined):
            made.heard(100.0, 1, 1)


def test_a_rush_of_plans_is_one_proposal_at_a_time() -> None:
    made = trio(hold_s=0)
    made.report(1.0, 0, 1, 1, 100)
    numbers: list[int] = []
    for version, members in enumerate([(0, 1), (0, 1, 2), (0, 2), (1, 2), (0, 1)], start=2):
        made.set_plan(float(version), plan(version, members))
        made.report(float(version), 0, 1, 1, 101)
        if made.proposal is not None:
            numbers.append(made.proposal.number)
            assert made.proposal.stop_after_step == 102, (
                "all stop at the step that was agreed first"
            )
    assert numbers == sorted(numbers)
    ack_all(made, 10.0, 102)
    assert live(made) == [0, 1]
    assert made.proposal is None
