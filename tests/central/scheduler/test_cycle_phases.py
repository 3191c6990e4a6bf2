"""Which phases are left out, for how long, and which gangs show that a phase is at fault."""

import pickle

import pytest

from central.scheduler.cycle_phases import (
    FIRST_S,
    GANGS_MOST,
    LONGEST_S,
    RECENT_S,
    CyclePhases,
    Phase,
    in_phase,
)


def fail() -> None:
    raise KeyError("a bug")


def test_a_phase_that_fails_again_is_left_out_twice_as_long() -> None:
    phases, now, waits = CyclePhases(), 100.0, []
    for _ in range(11):
        phases.begin(now)
        waits.append(phases.leave_out(Phase.CLAIMS))
        phases.begin(now + waits[-1] - 0.1)
        assert phases.is_left_out(Phase.CLAIMS)
        assert phases.run(Phase.CLAIMS, fail, without=None) is None
        assert phases.ends() == [now + waits[-1]]
        now += waits[-1]
        assert phases.begin(now), "it is tried again"
        assert not phases.begin(now)
        assert not phases.is_left_out(Phase.CLAIMS)
        assert not phases.ends()
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert (waits[0], waits[-1]) == (FIRST_S, LONGEST_S)
    phases.begin(now + LONGEST_S + 1)
    assert phases.leave_out(Phase.CLAIMS) == FIRST_S, "long after: another bug"


def test_the_innermost_phase_is_blamed_once() -> None:
    phases = CyclePhases()

    def inner() -> None:
        try:
            phases.run(Phase.CLAIMS, fail, without=None)
        except KeyError as error:
            raise ValueError from error

    with pytest.raises(ValueError) as caught:  # noqa: PT011  any
        phases.run(Phase.TURN, inner, without=None)
    assert phases.blamed(caught.value) is Phase.CLAIMS
    assert phases.failed == {Phase.CLAIMS}
    assert phases.blamed(KeyError()) is Phase.CYCLE
    assert pickle.loads(pickle.dumps(phases)).failed == {Phase.CLAIMS, Phase.CYCLE}


def test_several_gangs_within_a_minute_show_that_something_else_is_at_fault() -> None:
    phases = CyclePhases()
    assert phases.failed_on(Phase.CLAIMS, "a") == []
    assert phases.failed_on(Phase.CLAIMS, "a") == []
    phases.begin(RECENT_S + 1)
    assert phases.failed_on(Phase.CLAIMS, "b") == []
    assert phases.failed_on(Phase.RESERVATIONS, "c") == []
    assert phases.failed_on(Phase.CLAIMS, "c") == ["b", "c"]
    assert GANGS_MOST == 2
    assert phases.take_gangs(Phase.CLAIMS) == ["b", "c"]
    assert phases.take_gangs(Phase.CLAIMS) == []
    phases.leave_out(Phase.CLAIMS)
    phases.begin(phases.now + FIRST_S)
    assert phases.failed_on(Phase.CLAIMS, "d") == ["d"], "it was left out a moment ago"


def test_what_is_found_one_by_one_is_blamed_too() -> None:
    phases = CyclePhases()
    found = phases.each(Phase.ORDER, (10 // number for number in (1, 2, 0)))
    assert [next(found), next(found)] == [10, 5]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert phases.failed == {Phase.ORDER}
    phases.restore(Phase.ORDER)
    assert list(phases.each(Phase.ORDER, [1, 2])) == [1, 2]


def test_a_copy_for_a_trial_knows_no_failure() -> None:
    phases = CyclePhases()
    phases.leave_out(Phase.CLAIMS)
    trial = phases.for_trial()
    assert not trial.is_left_out(Phase.CLAIMS)
    trial.leave_out(Phase.ORDER)
    assert list(phases.left_out()) == [Phase.CLAIMS]
    assert (
        phases.remark()
        == "nobody gives way for 1 s after a failure of the scheduler (a bug), which its log names"
    )


def test_only_the_phase_that_failed_is_left_out() -> None:
    phases = CyclePhases()
    phases.leave_out(Phase.CLAIMS)
    assert phases.run(Phase.ORDER, str, 1, without="") == "1"
    assert phases.run(Phase.CLAIMS, str, 1, without="") == ""
    assert phases.passed == {Phase.ORDER}


def test_each_failure_is_blamed_on_its_own_phase() -> None:
    """Also where nobody asked about the one before, and where an exception comes from another one by chance."""
    phases = CyclePhases()
    for phase in (Phase.CLAIMS, Phase.ORDER):
        with pytest.raises(KeyError) as caught:
            phases.run(phase, fail, without=None)
    assert phases.failed == {Phase.CLAIMS, Phase.ORDER}
    assert phases.blamed(ValueError()) is Phase.CYCLE
    with pytest.raises(KeyError) as caught:
        phases.run(Phase.ORDER, fail, without=None)
    assert phases.blamed(caught.value) is Phase.ORDER


def test_gangs_that_failed_within_a_minute_of_each_other() -> None:
    phases = CyclePhases()
    phases.failed_on(Phase.CLAIMS, "a")
    phases.begin(RECENT_S - 1)
    assert phases.failed_on(Phase.CLAIMS, "b") == ["a", "b"]


def test_a_phase_that_was_left_out_for_long_is_at_fault_for_as_long() -> None:
    phases, now = CyclePhases(), 0.0
    for _ in range(8):  # 1, 2, ... 128 s
        phases.begin(now)
        now += phases.leave_out(Phase.CLAIMS)
    phases.begin(now + 100.0)
    assert phases.failed_on(Phase.CLAIMS, "a") == ["a"]
    phases.begin(now + 130.0)
    assert phases.failed_on(Phase.CLAIMS, "b") == ["a", "b"]
    phases.begin(now + 200.0)
    assert phases.failed_on(Phase.CLAIMS, "c") == []


class Owner:
    """Of methods that belong to a phase."""

    def __init__(self) -> None:
        self.phases = CyclePhases()

    @in_phase(Phase.RESERVED_CAPACITY)
    def divided(self, number: int, *, by: int) -> int:
        """number / by"""
        return number // by


def test_a_method_of_a_phase() -> None:
    owner = Owner()
    assert owner.divided(6, by=2) == 3
    assert owner.divided.__name__ == "divided"
    with pytest.raises(ZeroDivisionError):
        owner.divided(6, by=0)
    assert owner.phases.failed == {Phase.RESERVED_CAPACITY}
