"""Which pairs of members are weak before a generation starts, which member is the cause, and its replacement."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from central.controllers.training.generation import MembershipRules, Place, SizePlan
from central.controllers.training.pair_checks import BAD_PLACE, BEYOND_S, PairReport
from central.controllers.training.standstills import REPLACED_PER_HOUR
from central.controllers.training.stored_state import StoredState
from tests.central.controllers.training.test_membership import ack_all, process

GOOD_S, WITHIN_S = 0.01, 60.0


class Checked:
    """Members whose first generation is live, each on a node of its own, and reports of their pairs."""

    def __init__(
        self, size: int, *, least: int = 1, paths: Mapping[int, tuple[str, ...]] | None = None
    ) -> None:
        self.state = StoredState("ns/job/uid", MembershipRules(least=least, most=size))
        self.state.pairs.within_s = WITHIN_S
        members = self.state.membership
        places = {member: Place(path) for member, path in (paths or {}).items()}
        members.set_plan(0.0, SizePlan(1, tuple(range(size)), places))
        for member in range(size):
            members.join(0.0, replace(process(member), uid=f"u{member}"))
        ack_all(members, 0.0)
        self.size, self.weak, self.now = size, dict[frozenset[int], float](), 1.0

    def report(self, member: int, *failed: int, without: tuple[int, ...] = ()) -> None:
        others = set(range(self.size)) - {member, *failed, *without}
        spans = {each: self.weak.get(frozenset((member, each)), GOOD_S) for each in others}
        self.state.check_pairs(self.now, PairReport(member, spans, frozenset(failed)))

    def report_all(self) -> None:
        for member in range(self.size):
            self.report(member)

    @property
    def why(self) -> str:
        return self.state.pairs.sentence

    def due(self) -> float:
        return self.state.pairs.due_s(self.state.membership.newest)


def test_pairs_that_are_alike_start() -> None:
    made = Checked(4)
    made.weak[frozenset((0, 1))] = 2.9 * GOOD_S
    assert made.due() == WITHIN_S
    made.report_all()
    assert (made.why, made.state.pairs.blamed, made.due()) == ("", (), 0.0)
    assert len(made.state.membership.present()) == 4


@pytest.mark.parametrize("size", [3, 4, 9])
def test_the_member_of_all_weak_pairs_is_replaced(size: int) -> None:
    made = Checked(size)
    for other in range(size):
        made.weak[frozenset((other, size - 1))] = 0.25
    if size == 3:
        made.weak[frozenset((0, 1))] = GOOD_S
    made.report_all()
    assert made.state.pairs.blamed == (size - 1,)
    assert (
        f"members 0 and {size - 1} need 25.0 times as long as pairs like them (250 ms)" in made.why
    )
    assert made.state.pairs.replaced == {(size - 1, 1): f"u{size - 1}"}
    assert size - 1 not in made.state.membership.present()
    assert made.state.membership.roster.failures[-1].code == BAD_PLACE
    assert made.state.membership.newest is not None
    assert size - 1 not in made.state.membership.newest.incarnations()
    assert made.due() == 0.0, "the others know each other"


def test_of_one_weak_pair_one_member_is_replaced() -> None:
    made = Checked(4)
    made.weak[frozenset((1, 2))] = 0.25
    made.report_all()
    assert made.state.pairs.blamed == (2,)


def test_pairs_are_compared_with_those_that_are_as_near() -> None:
    """Two racks of three nodes: what crosses takes ten times as long, but one pair a hundred times."""
    paths = {member: ("b1", f"r{member // 3}", f"n{member}") for member in range(6)}
    made = Checked(6, paths=paths)
    for a in range(3):
        for b in range(3, 6):
            made.weak[frozenset((a, b))] = 10 * GOOD_S
    made.report_all()
    assert made.why == ""
    made = Checked(6, paths=paths)
    made.weak = {frozenset((a, b)): 10 * GOOD_S for a in range(3) for b in range(3, 6)}
    made.weak[frozenset((2, 5))] = 100 * GOOD_S
    made.report_all()
    assert made.why == "members 2 and 5 need 10.0 times as long as pairs like them (1e+03 ms)"


def test_few_pairs_are_not_compared() -> None:
    made = Checked(2)
    made.weak[frozenset((0, 1))] = 30.0
    made.report_all()
    assert (made.why, made.due()) == ("", 0.0)
    made = Checked(
        3, paths={member: ("b1", f"r{member // 2}", f"n{member}") for member in range(3)}
    )
    made.weak[frozenset((0, 2))] = 30.0  # of two pairs across racks
    made.report_all()
    assert made.why == ""


def test_a_pair_that_hangs_is_the_cause_and_not_those_that_wait_for_it() -> None:
    made = Checked(4)
    made.report(0, 1, without=(2, 3))
    made.report(1, 0, without=(2, 3))
    made.report(2, 0, without=(1,))
    made.report(3, 1, without=(0,))
    assert made.why == "members 0 and 1 do not reach each other"
    assert made.state.pairs.blamed == (1,)


def test_a_member_that_says_nothing_delays_the_start_for_a_bounded_time() -> None:
    made = Checked(3)
    made.report(0, 2)
    made.report(1, 2)
    assert made.due() == WITHIN_S
    made.now += WITHIN_S + BEYOND_S - 1
    made.report(0, 2)
    assert made.due() == WITHIN_S
    made.now += 1
    made.report(0, 2)
    assert made.state.pairs.blamed == (2,)
    assert made.due() == 0.0


def test_replacements_are_bounded() -> None:
    """Then the weak pair is named, and the members start."""
    made = Checked(4)
    for _ in range(REPLACED_PER_HOUR):
        assert made.state.standstills.budget.allows(0.5)
    made.weak[frozenset((1, 2))] = 0.25
    made.report_all()
    assert made.why
    assert (len(made.state.membership.present()), made.due()) == (4, 0.0)


def test_a_newcomer_is_checked_and_those_who_stay_are_not() -> None:
    made = Checked(3)
    made.report_all()
    members = made.state.membership
    members.set_plan(2.0, SizePlan(2, (0, 1)))
    ack_all(members, 2.0)
    assert made.due() == 0.0
    members.join(3.0, replace(process(1, 2), uid="later"))
    assert made.due() == WITHIN_S


def test_it_is_off_without_the_flag() -> None:
    made = Checked(3)
    made.state.pairs.within_s = 0.0
    assert made.due() == 0.0
    made.weak[frozenset((0, 1))] = 9.0
    made.report_all()
    assert made.why == ""
