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
)


def fail() -> None:
    raise KeyError("a bug")


def test_a_phase_that_fails_again_is_left_out_twice_as_long() -> None:
    phases, now, waits = CyclePhases(), 100.0, []
    for _ in range(11):
        phases.begin(now)
        waits.append(phases.leave_out(Phase.CLAIMS, "KeyError"))
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
    assert phases.leave_out(Phase.CLAIMS, "KeyError") == FIRST_S, "long after: another bug"


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
    phases.leave_out(Phase.CLAIMS, "KeyError")
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
    phases.leave_out(Phase.CLAIMS, "KeyError")
    trial = phases.for_trial()
    assert not trial.is_left_out(Phase.CLAIMS)
    trial.leave_out(Phase.ORDER, "KeyError")
    assert list(phases.left_out()) == [Phase.CLAIMS]
    assert (
        phases.remark()
        == "nobody gives way for 1 s after a failure of the scheduler (a bug): KeyError"
    )
