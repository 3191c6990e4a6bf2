"""Which ranks are the cause that no step is taken, and their replacement as lost members."""

from dataclasses import replace

import pytest

from central.controllers.training.generation import MembershipRules, Stale
from central.controllers.training.standstills import REPLACED_PER_HOUR, Standstill, Standstills
from central.controllers.training.stored_state import STANDS_STILL, StoredState
from tests.central.controllers.training.test_membership import ack_all, process

IN = "all_reduce 412 of default_pg"
WAITS = Standstill(0, 0, 63.0, "is within a step", 412, IN, "train.py:9 <module>\ngraph.py:4 run")
LOADS = Standstill(1, 1, 64.0, "waits for its loader", 411, "", "train.py:8 <module>\nio.py:2 read")


def waits(rank: int, **more: object) -> Standstill:
    return replace(WAITS, member=rank, rank=rank, **more)  # type: ignore[arg-type]


def found(*every: Standstill) -> Standstills:
    made = Standstills()
    added = [made.add(1, len(every), one) for one in every]
    assert added == [False] * (len(every) - 1) + [True]
    return made


def test_the_rank_that_did_not_enter_the_collective() -> None:
    made = found(WAITS, LOADS, waits(2), waits(3))
    assert made.blamed == (1,)
    assert made.sentence == (
        "no step for 63 s; rank 1 (member 1) waits for its loader, at io.py:2 read < train.py:8 <module>; "
        f"rank 0,2-3 in collective {IN}"
    )
    ranks = made.json()
    assert ranks is not None
    assert [each["rank"] for each in ranks["ranks"]] == [0, 1, 2, 3]


def test_of_two_that_are_behind_the_one_that_waits_in_nothing() -> None:
    """Rank 2 waits in a group of its own for rank 1."""
    pair = waits(2, entered=411, waits_in="all_gather 7 of tensor")
    assert found(WAITS, LOADS, pair, waits(3)).blamed == (1,)


def test_those_that_are_behind_although_they_wait_in_something() -> None:
    pair = [waits(rank, entered=411, waits_in="all_gather 7 of tensor") for rank in (1, 2)]
    assert found(WAITS, *pair).blamed == (1, 2)


def test_it_is_concluded_once() -> None:
    made = found(WAITS, LOADS)
    before = made.sentence
    assert not made.add(1, 2, replace(LOADS, seconds=94.0))
    assert not made.add(1, 2, waits(0, seconds=94.0))
    assert made.sentence == before


def test_without_numbers_the_one_that_waits_in_nothing() -> None:
    every = [waits(rank, entered=-1) for rank in range(3)]
    assert found(*every[:2], replace(every[2], waits_in="")).blamed == (2,)


def test_ranks_that_are_all_alike_have_no_culprit() -> None:
    for every in ([WAITS, waits(1)], [replace(LOADS, rank=0), LOADS]):
        made = found(*every)
        assert made.blamed == ()
        assert "each rank" in made.sentence
    assert found(replace(LOADS, rank=0)).blamed == (1,), "one alone waits for nobody"


def test_a_rank_that_says_nothing_saves_or_evaluates() -> None:
    made = Standstills()
    for _ in range(3):
        for rank in (0, 2):
            assert not made.add(1, 3, waits(rank))
    assert made.json() is None
    assert made.ranks() == 0


def test_a_step_ends_it_and_a_newer_generation_too() -> None:
    made = found(WAITS, LOADS)
    made.end()
    assert (made.sentence, made.blamed, made.json()) == ("", (), None)
    made = found(WAITS, LOADS)
    assert not made.add(2, 2, WAITS)
    assert made.sentence == ""


def trains(rules: MembershipRules, *, replaces: bool = True) -> StoredState:
    state = StoredState("a/b/c", rules)
    state.standstills.replaces = replaces
    for number in range(rules.most):
        state.membership.join(0.0, process(number))
    ack_all(state.membership, 0.0)
    assert state.membership.live is not None
    return state


def test_the_culprit_is_lost_and_its_process_does_not_return() -> None:
    state = trains(MembershipRules(least=1, most=3))
    members = state.membership
    for one in (WAITS, LOADS, waits(2)):
        state.stands_still(1.0, members.number, 3, one)
    assert sorted(members.present()) == [0, 2]
    failure = members.roster.failures[-1]
    assert (failure.member, failure.code) == (1, STANDS_STILL)
    assert "rank 1 (member 1) waits for its loader" in failure.message
    with pytest.raises(Stale, match="has ended"):
        members.join(1.1, process(1))
    members.join(1.2, process(1, incarnation=2))
    ack_all(members, 1.2)
    state.advance(1.3)
    assert state.standstills.sentence == "", "another generation is live"


@pytest.mark.parametrize("returns", [False, True])
def test_a_culprit_that_has_gone_is_not_lost_again(returns: bool) -> None:
    """Nor is the process that has joined in its place."""
    state = trains(MembershipRules(least=1, most=3))
    members = state.membership
    assert members.live is not None
    number = members.live.number
    state.stands_still(1.0, number, 3, LOADS)
    members.leave(1.1, 1, 1, 1, "killed")
    if returns:
        members.join(1.2, process(1, incarnation=2))
    for one in (WAITS, waits(2)):
        state.stands_still(1.3, number, 3, one)
    assert members.live.number == number
    assert members.present() == {0: 1, 2: 1} | ({1: 2} if returns else {})


def test_a_hang_without_a_culprit_takes_nothing_from_the_hour() -> None:
    state = trains(MembershipRules(least=1, most=2))
    for at in range(REPLACED_PER_HOUR):
        for one in (WAITS, waits(1)):
            state.stands_still(float(at), state.membership.number, 2, one)
        state.standstills.end()
    assert state.standstills.may_replace(10.0)


def test_the_policy_to_warn_loses_no_member() -> None:
    state = trains(MembershipRules(least=1, most=2), replaces=False)
    for one in (WAITS, LOADS):
        state.stands_still(1.0, state.membership.number, 2, one)
    assert len(state.membership.present()) == 2
    assert state.standstills.ranks() == 2


def test_so_many_an_hour() -> None:
    made = Standstills(replaces=True)
    assert [made.may_replace(float(at)) for at in range(REPLACED_PER_HOUR)] == [
        True
    ] * REPLACED_PER_HOUR
    assert not made.may_replace(3599.0)
    assert made.may_replace(3600.0)
    assert not made.may_replace(3600.0)


def test_stacks_are_kept_of_some_ranks_that_wait_and_some_that_do_not() -> None:
    made = Standstills()
    ranks = [waits(rank) for rank in range(200)]
    ranks += [replace(LOADS, member=rank, rank=rank) for rank in range(200, 400)]
    for one in [*ranks, *ranks]:  # told twice
        made.add(1, 401, one)
    made.add(1, 401, replace(LOADS, member=400, rank=400, stack=""))
    shown = made.json()
    assert shown is not None
    kept = [each["rank"] for each in shown["ranks"] if each["stack"]]
    assert kept == [*range(64), *range(200, 264)]
