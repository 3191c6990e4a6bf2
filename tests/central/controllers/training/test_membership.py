"""Generations: proposed, acknowledged, live."""

import json
from collections.abc import Iterable

import pytest

from central.controllers.training.generation import (
    PORTS,
    MembershipRules,
    NotAllowed,
    NotJoined,
    Place,
    Process,
    SizePlan,
    Stale,
    first_port,
)
from central.controllers.training.membership import Membership


def process(member: int, incarnation: int = 1, node: str = "") -> Process:
    return Process(member, incarnation, f"worker-{member}", f"worker-{member}", "u", node)


def plan(version: int, members: Iterable[int], **more: object) -> SizePlan:
    return SizePlan(version, tuple(members), **more)  # type: ignore[arg-type]  # fields by name


def trio(**rules: object) -> Membership:
    """Members 0, 1 and 2 are planned, joined and live in generation 1."""
    return team(3, 3, **rules)


def team(planned: int, joined: int, **rules: object) -> Membership:
    """So many are planned, and the first of them have joined and acknowledged generation 1."""
    made = Membership(MembershipRules(least=2, **rules))  # type: ignore[arg-type]  # fields by name
    made.set_plan(0.0, plan(1, range(planned)))
    for member in range(joined):
        made.join(0.0, process(member))
    ack_all(made, 0.0)
    return made


def ack_all(made: Membership, now: float, step: int | None = None) -> None:
    assert made.proposal is not None
    number, present = made.proposal.number, made.present()
    for member in sorted({*made.proposal.incarnations(), *made.proposal.leaving}):
        if member in present:
            made.ack(now, member, present[member], number, step)


def live(made: Membership) -> list[int]:
    assert made.live is not None
    return [one.member for one in made.live.processes]


def proposed(made: Membership) -> dict[int, int] | None:
    """Members of the proposal with their incarnations."""
    return made.proposal.incarnations() if made.proposal else None


def is_over(made: Membership) -> str:
    return made.over


def keep_alive(made: Membership, now: float) -> None:
    for member, incarnation in made.present().items():
        made.heard(now, member, incarnation)
    made.advance(now)


def test_all_planned_members_start_together() -> None:
    made = Membership(MembershipRules(least=2))
    made.set_plan(0.0, plan(1, range(3)))
    made.join(0.0, process(2))
    made.join(0.0, process(0))
    assert proposed(made) is None
    made.join(1.0, process(1))
    assert made.proposal is not None
    assert made.proposal.number == 1
    for member in (0, 1):
        made.ack(1.0, member, 1, 1, None)
    assert made.answer(0.0)["live"] == 0
    made.ack(1.0, 2, 1, 1, None)
    assert live(made) == [0, 1, 2]
    assert made.answer(1.0)["leader"] == {"address": "worker-0", "port": 28702}


def test_those_who_are_there_start_after_the_wait() -> None:
    made = Membership(MembershipRules(least=2, join_wait_s=30))
    made.set_plan(0.0, plan(1, range(3)))
    made.join(0.0, process(0))
    assert made.advance(29.0) > 29.0
    keep_alive(made, 29.0)
    made.join(40.0, process(1))  # the least size
    assert proposed(made) == {0: 1, 1: 1}


def test_ranks_follow_the_topology() -> None:
    made = Membership(MembershipRules(least=1))
    places = {0: Place(("r2", "n3")), 1: Place(("r1", "n2")), 2: Place(("r2", "n3"))}
    made.set_plan(0.0, plan(1, range(3), places=places))
    for member in range(3):
        made.join(0.0, process(member, node=places[member].path[-1]))
    ack_all(made, 0.0)
    assert live(made) == [1, 0, 2]
    assert [one["local"] for one in made.answer(0.0)["members"]] == [0, 0, 1]


def test_growth_is_proposed_when_the_newcomers_have_joined() -> None:
    made = trio(hold_s=30)
    made.set_plan(10.0, plan(2, range(5)))
    keep_alive(made, 10.0)
    made.join(10.0, process(3))
    assert proposed(made) is None
    made.join(12.0, process(4))
    assert made.proposal is not None
    assert len(made.proposal.processes) == 5
    ack_all(made, 12.0)
    assert [one["since"] for one in made.answer(12.0)["members"]] == [1, 1, 1, 2, 2]


def test_a_newcomer_is_not_kept_waiting_for_one_that_does_not_come() -> None:
    made = trio(hold_s=30)
    made.set_plan(10.0, plan(2, range(5)))
    made.join(10.0, process(3))
    keep_alive(made, 39.9)
    assert proposed(made) is None
    keep_alive(made, 40.0)
    assert made.proposal is not None
    assert 3 in made.proposal.incarnations()


def test_a_newcomer_that_does_not_acknowledge_is_left_out() -> None:
    made = trio(join_wait_s=30, hold_s=30)
    made.set_plan(10.0, plan(2, range(4)))
    made.join(10.0, process(3))
    for member in range(3):
        made.ack(11.0, member, 1, 2, None)
    keep_alive(made, 39.9)
    assert live(made) == [0, 1, 2]
    assert proposed(made) is not None
    keep_alive(made, 40.0)
    assert proposed(made) is None
    assert (live(made), made.live and made.live.number) == ([0, 1, 2], 2)
    keep_alive(made, 69.9)
    assert proposed(made) is None
    keep_alive(made, 70.0)  # the next try
    assert proposed(made) is not None


def test_a_loss_is_proposed_at_once() -> None:
    made = trio()
    made.leave(5.0, 1, 1, 137, "killed")
    assert proposed(made) == {0: 1, 2: 1}
    assert (made.roster.failed, made.roster.failures[0].message) == (1, "killed")


def test_a_silent_process_is_lost() -> None:
    made = trio(silent_s=30)
    for member in (0, 2):
        made.heard(29.0, member, 1)
    made.advance(29.9)
    assert proposed(made) is None
    made.advance(30.0)
    assert proposed(made) == {0: 1, 2: 1}


def test_a_silent_process_whose_pod_ended_is_lost_sooner() -> None:
    made = trio(ended_s=10)
    places = {1: Place(pod="worker-1", uid="u", ended=True)}
    made.set_plan(9.0, plan(2, range(3), places=places))
    keep_alive(made, 9.0)
    assert proposed(made) is None
    for member in (0, 2):
        made.heard(19.0, member, 1)
    made.advance(19.0)
    assert proposed(made) is not None


def test_leaders_of_two_jobs_on_one_node_have_ports_of_their_own() -> None:
    names = [f"default/train-{number}/uid-{number}" for number in range(200)]
    found = [first_port(name) for name in names]
    assert found == [first_port(name) for name in names], "the same one after a restart"
    assert len(set(found)) > 190
    assert all(port >= 20_000 and port + PORTS < 30_000 for port in found)


def test_time_in_which_the_coordinator_stood_still_is_no_silence() -> None:
    made = trio()
    for member in range(3):
        made.heard(10.0, member, 1)
    made.stood_still(100.0)
    made.advance(139.0)
    assert proposed(made) is None
    for member in (0, 2):
        made.heard(139.5, member, 1)
    made.advance(140.0)
    assert proposed(made) == {0: 1, 2: 1}


def test_a_younger_incarnation_replaces_the_older_one() -> None:
    made = trio()
    made.join(5.0, process(1, incarnation=2))
    assert proposed(made) == {0: 1, 1: 2, 2: 1}
    with pytest.raises(Stale):
        made.join(5.0, process(1, incarnation=1))
    with pytest.raises(NotJoined):
        made.ack(5.0, 1, 1, made.number, None)


def test_leaving_members_are_waited_for_until_leave_by() -> None:
    made = trio()
    made.set_plan(5.0, plan(2, (0, 1), leave_by=25.0))
    assert made.proposal is not None
    assert made.proposal.leaving == (2,)
    for member in (0, 1):
        made.ack(6.0, member, 1, 2, None)
    keep_alive(made, 24.9)
    assert live(made) == [0, 1, 2]
    keep_alive(made, 25.0)
    assert live(made) == [0, 1]


def test_a_checkpoint_is_waited_for_beyond_leave_by() -> None:
    """By as much as save_s; then, or when it is complete, those who leave are waited for no longer."""
    for complete in (False, True):
        made = trio(save_s=60.0)
        made.set_plan(5.0, plan(2, (0, 1), leave_by=25.0))
        made.set_saving(saving=True)
        for member in (0, 1):
            made.ack(6.0, member, 1, 2, None)
        for now in (25.0, 50.0, 75.0, 84.9):
            keep_alive(made, now)
        assert live(made) == [0, 1, 2]
        if complete:
            made.set_saving(saving=False)
            made.advance(84.9)
        else:
            keep_alive(made, 85.0)
        assert live(made) == [0, 1]


def test_a_leaving_member_acknowledges() -> None:
    made = trio()
    made.set_plan(5.0, plan(2, (0, 1), leave_by=25.0))
    ack_all(made, 6.0)
    assert live(made) == [0, 1]


def test_all_stop_at_one_step() -> None:
    made = trio()
    made.report(1.0, 0, 1, 1, 100)
    made.set_plan(5.0, plan(2, (0, 1)))
    assert made.report(5.0, 1, 1, 1, 100)["stop_after_step"] == 102
    assert made.report(5.0, 2, 1, 1, 103)["stop_after_step"] == 105  # it was not told in time
    assert made.ack(5.0, 0, 1, 2, 102) == {"counted": False, "stop_after_step": 105}
    assert made.ack(5.0, 0, 1, 2, 105)["counted"]
    assert made.report(5.0, 2, 1, 1, 106)["stop_after_step"] == 105  # final


def test_a_change_supersedes_the_proposal() -> None:
    made = trio()
    made.report(1.0, 0, 1, 1, 100)
    made.set_plan(5.0, plan(2, (0, 1)))
    made.leave(6.0, 1, 1, 1, "")
    made.set_plan(6.0, plan(3, (0, 2)))
    assert proposed(made) == {0: 1, 2: 1}
    assert made.answer(6.0)["stop_after_step"] == 102
    with pytest.raises(Stale):
        made.ack(6.0, 0, 1, 2, None)


def test_below_the_least_nothing_is_live_until_others_come() -> None:
    made = trio(below_s=600)
    made.leave(5.0, 1, 1, 1, "")
    made.leave(5.0, 2, 1, 1, "")
    ack_all(made, 6.0)
    assert live(made) == [0, 1, 2]
    made.join(20.0, process(1, incarnation=2))
    ack_all(made, 20.0)
    assert live(made) == [0, 1]
    assert not is_over(made)


def test_below_the_least_for_too_long_the_job_is_over() -> None:
    made = trio(below_s=600)
    made.leave(5.0, 1, 1, 1, "")
    made.leave(5.0, 2, 1, 1, "")
    keep_alive(made, 604.9)
    assert not is_over(made)
    keep_alive(made, 605.0)
    assert is_over(made) == "1 of at least 2 members for 600 s"


def test_when_all_are_done_the_job_is_over() -> None:
    made = trio()
    for member in (2, 0):
        made.leave(5.0, member, 1, 0, "")
        assert proposed(made) is None
        assert not is_over(made)
    made.leave(5.0, 1, 1, 0, "")
    assert is_over(made) == "all members are done"


def test_a_spare_replaces_a_lost_member_at_once() -> None:
    made = team(4, 4, spares=1)
    assert live(made) == [0, 1, 2]
    made.leave(5.0, 1, 1, 1, "")
    assert made.training() == [0, 1, 2], "the others wait for the spare"
    ack_all(made, 5.0)
    assert live(made) == [0, 2, 3]
    made.set_plan(6.0, plan(2, (0, 2, 3)))
    made.advance(6.0)
    assert proposed(made) is None, "it is needed, though the scheduler counts the lost one no more"
    made.set_plan(7.0, plan(3, range(4)))
    made.join(7.0, process(1, incarnation=2))
    assert made.training() == [0, 2, 3, 1]
    made.advance(20.0)
    assert proposed(made) is None
    assert live(made) == [0, 2, 3], "the next one waits"


def test_spares_that_wait_count_as_members_of_the_plan() -> None:
    """Else each change of size would seem to be under way for ever, and a spare that leaves would be waited for."""
    made = team(6, 5, spares=2)
    assert (live(made), made.training()) == ([0, 1, 2, 3], [0, 1, 2, 3, 4])
    made.join(1.0, process(5))
    assert made.training() == [0, 1, 2, 3, 4, 5]
    made.join(1.0, process(6))
    assert made.training() == [0, 1, 2, 3, 4, 5], "not of the plan"
    made.set_plan(2.0, plan(2, (0, 1, 2, 3, 5)))
    assert made.training() == [0, 1, 2, 3, 5]
    made.set_plan(3.0, plan(3, (0, 1, 2)))
    ack_all(made, 3.0)
    assert (live(made), made.training()) == ([0, 1, 2], [0, 1, 2]), "those that train go on"


def test_a_member_belongs_to_its_pod() -> None:
    made = trio(most=8)
    made.set_plan(1.0, plan(2, range(4), places={3: Place(pod="worker-3", uid="other")}))
    with pytest.raises(NotAllowed, match="member 3 is pod worker-3"):
        made.join(1.0, process(3))
    with pytest.raises(NotAllowed, match="at most 8"):
        made.join(1.0, process(8))


def test_numbers_go_on_above_what_members_have_seen() -> None:
    made = trio()
    made.raise_number(5.0, 7)
    assert made.answer(0.0)["live"] == 0
    keep_alive(made, 5.0)
    assert made.proposal is not None
    assert made.proposal.number == 8
    with pytest.raises(NotAllowed):
        made.raise_number(5.0, 10**9)


def test_an_older_plan_is_ignored() -> None:
    made = trio()
    made.set_plan(5.0, plan(5, range(3)))
    made.set_plan(5.0, plan(4, (0, 1)))
    assert proposed(made) is None


def test_a_restored_coordinator_goes_on() -> None:
    made = trio()
    made.report(1.0, 0, 1, 1, 100)
    made.set_plan(5.0, plan(2, (0, 1)))
    made.ack(5.0, 0, 1, 2, 102)
    stored = json.loads(json.dumps(made.snapshot()))
    again = Membership.restore(made.rules, stored, 1000.0)
    assert again.answer(1000.0)["members"] == made.answer(5.0)["members"]
    assert again.snapshot() == made.snapshot()
    again.set_plan(1000.0, plan(2, (0, 1)))
    for member in (1, 2):
        again.ack(1000.0, member, 1, 2, 102)
    assert live(again) == [0, 1]


def test_reports_of_an_old_generation_are_refused() -> None:
    made = trio()
    made.leave(1.0, 1, 1, 1, "")
    ack_all(made, 1.0)
    with pytest.raises(Stale, match="generation 1 is not live"):
        made.report(2.0, 0, 1, 1, 5)
    assert made.report(2.0, 0, 1, 2, 5) == {"generation": 2, "stop_after_step": None}
