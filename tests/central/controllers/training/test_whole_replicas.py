"""Replicas of several members: a generation has whole ones alone, and the others of a broken one wait."""

import pytest

from central.controllers.training.generation import MembershipRules, Place, Process, SizePlan
from central.controllers.training.membership import Membership

PLACES = {0: "b", 1: "a", 2: "a", 3: "c", 4: "c", 5: "b"}


def three_pairs(**rules: float) -> Membership:
    """Members 0 to 5 train in generation 1, by twos."""
    given = {"least": 2, "most": 8, "replica": 2, "hold_s": 5.0, **rules}
    made = Membership(MembershipRules(**given))  # type: ignore[arg-type]  # fields by name
    plan(made, 0.0, 1, range(6))
    for member in range(6):
        join(made, 0.0, member)
    acknowledge(made, 0.0)
    return made


def plan(made: Membership, now: float, version: int, members: range | list[int]) -> None:
    places = {number: Place((rack,)) for number, rack in PLACES.items()}
    made.set_plan(now, SizePlan(version, tuple(members), places))


def join(made: Membership, now: float, member: int, incarnation: int = 1) -> None:
    made.join(now, Process(member, incarnation, f"w{member}"))


def acknowledge(made: Membership, now: float, *silent: int) -> None:
    assert made.proposal is not None
    number, present = made.proposal.number, made.present()
    for member in {*made.proposal.incarnations(), *made.proposal.leaving}.difference(silent):
        if member in present:
            made.ack(now, member, present[member], number, None)


def ranks(made: Membership) -> list[int]:
    assert made.live is not None
    assert made.proposal is None
    return [one.member for one in made.live.processes]


def said(made: Membership, now: float = 0.0) -> tuple[list[int], list[int]]:
    """Who waits, and who leaves."""
    answer = made.answer(now)
    return answer["waiting"], answer["leaving"]


def lose(made: Membership, now: float, member: int) -> None:
    made.leave(now, member, made.present()[member], 1, "")


def test_ranks_of_a_replica_are_successive_in_the_order_of_their_numbers() -> None:
    """Replicas by the place of their first member: 2 in rack a, 0 in b, 4 in c."""
    assert ranks(three_pairs()) == [2, 3, 0, 1, 4, 5]


def test_a_lost_member_takes_its_replica_out_and_the_other_one_waits() -> None:
    made = three_pairs()
    lose(made, 1.0, 1)
    assert made.proposal is not None
    assert made.proposal.reason == "1 lost"
    assert said(made) == ([0], [])
    acknowledge(made, 1.0)
    assert ranks(made) == [2, 3, 4, 5]
    assert said(made) == ([0], [])
    assert made.answer(1.0)["replica"] == 2
    join(made, 2.0, 1, 2)
    acknowledge(made, 2.0)
    assert ranks(made) == [2, 3, 0, 1, 4, 5]
    assert said(made) == ([], [])


def test_a_broken_replica_stays_out_until_it_is_whole() -> None:
    """A newcomer of another replica, that is not whole either, changes nothing."""
    made = three_pairs()
    plan(made, 0.0, 2, range(8))
    lose(made, 1.0, 1)
    acknowledge(made, 1.0)
    join(made, 2.0, 6)
    made.advance(20.0)
    assert ranks(made) == [2, 3, 4, 5]
    assert said(made) == ([0], []), "a newcomer has not trained"


def test_a_plan_that_takes_one_member_of_a_replica() -> None:
    """Both stop at the same step; the one that may stay waits."""
    made = three_pairs()
    plan(made, 1.0, 2, [0, 1, 2, 3, 4])
    assert said(made) == ([4], [5])
    acknowledge(made, 1.0, 4)
    assert made.proposal is not None, "4 has not stopped yet"
    assert made.unacknowledged(4)
    acknowledge(made, 1.0)
    assert ranks(made) == [2, 3, 0, 1]
    assert said(made) == ([4], [5])
    plan(made, 2.0, 3, [0, 1, 2, 3])
    assert said(made) == ([], [4, 5]), "4 is not needed any more"


def test_who_waits_through_several_losses_leaves_when_it_is_not_needed() -> None:
    made = three_pairs()
    lose(made, 1.0, 1)
    acknowledge(made, 1.0)
    lose(made, 2.0, 3)
    acknowledge(made, 2.0)
    assert said(made) == ([0, 2], [])
    plan(made, 3.0, 2, [1, 2, 3, 4, 5])
    assert said(made) == ([2], [0])


def test_a_member_without_a_replica_is_not_waited_for() -> None:
    made = Membership(MembershipRules(least=2, most=8, replica=2))
    plan(made, 0.0, 1, range(7))
    for member in range(6):
        join(made, 0.0, member)
    acknowledge(made, 0.0)
    assert ranks(made) == [2, 3, 0, 1, 4, 5]


def test_a_replica_of_spares_takes_the_place_of_a_broken_one() -> None:
    made = three_pairs(spares=2)
    assert ranks(made) == [2, 3, 0, 1]
    lose(made, 1.0, 2)
    acknowledge(made, 1.0)
    assert ranks(made) == [0, 1, 4, 5]
    assert said(made) == ([3], [])
    join(made, 2.0, 2, 2)
    assert ranks(made) == [0, 1, 4, 5], "it is the spare now"


def test_a_late_newcomer_takes_its_replica_out_of_the_proposal() -> None:
    made = three_pairs(join_wait_s=5.0)
    lose(made, 1.0, 1)
    acknowledge(made, 1.0)
    join(made, 2.0, 1, 2)
    acknowledge(made, 2.0, 1)
    made.heard(7.0, 0, 1)
    made.advance(7.0)
    assert ranks(made) == [2, 3, 4, 5]
    assert said(made) == ([0], [])


def test_members_that_are_done_break_no_replica() -> None:
    made = three_pairs()
    made.leave(1.0, 1, 1, 0, "")
    made.advance(1.0)
    assert ranks(made) == [2, 3, 0, 1, 4, 5]


def heard(made: Membership, now: float, *members: int) -> None:
    for member in members:
        made.heard(now, member, made.present()[member])


def test_a_member_that_does_not_answer_a_question_is_lost() -> None:
    made = three_pairs(answer_s=2.0)
    join(made, 1.0, 6)
    made.ask(5.0, 0, 1, 1)
    assert made.is_asked(1)
    assert not made.is_asked(0), "it has just been heard"
    heard(made, 6.0, 1, 2, 4, 5)
    made.ask(6.5, 4, 1, 1)
    assert made.advance(6.9) == 7.0
    assert made.number == 1
    made.advance(7.0)
    assert made.proposal is not None
    assert made.proposal.incarnations().keys() == {0, 1, 4, 5}
    assert said(made) == ([2], [])
    assert 6 in made.present(), "it does not train, so nobody waits for it"
    made.ask(10.0, 0, 1, 1)
    assert made.is_asked(1), "another question"


@pytest.mark.parametrize("why", ["saving", "another generation", "never", "the coordinator"])
def test_a_question_that_proves_nothing_loses_nobody(why: str) -> None:
    made = three_pairs(answer_s=0.0 if why == "never" else 2.0)
    made.set_saving(saving=why == "saving")
    made.ask(5.0, 0, 1, 2 if why == "another generation" else 1)
    if why == "the coordinator":
        made.stood_still(3.0)
    made.advance(8.0 - 0.1)
    assert made.present().keys() == {*range(6)}
