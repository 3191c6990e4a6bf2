"""What the GPUs of a Job were used for: every GPU-second once."""

from dataclasses import replace

import pytest

from central.controllers.training.gpu_time import (
    ACTIVITIES,
    DETECTING,
    REPEATING,
    SAVING,
    STARTING,
    TRAINING,
    WAITING,
    GpuTime,
)
from central.controllers.training.membership import Membership
from tests.central.controllers.training.test_membership import ack_all, plan, process, trio


def spent(time: GpuTime) -> dict[str, float]:
    return {name: seconds for name, seconds in time.spent.items() if seconds}


def stepping(first: int = 1, last: int = 5) -> tuple[GpuTime, Membership]:
    """Three members that start at 0 and take a step each two seconds, from 4 s on."""
    made, time = trio(), GpuTime()
    time.elapse(0.0, made)
    for step in range(first, last + 1):
        report(time, made, 4.0 + 2.0 * (step - first), step)
    return time, made


def report(time: GpuTime, made: Membership, now: float, step: int) -> None:
    assert made.live is not None
    for member in sorted(made.live.incarnations().keys() & made.present()):
        made.report(now, member, 1, made.live.number, step)
        time.report(now, made.live.number, step, made)


def test_steps_are_training_and_what_comes_before_the_first_is_a_start() -> None:
    assert spent(stepping()[0]) == {STARTING: 12.0, TRAINING: 24.0}


def test_a_member_counts_by_its_gpus() -> None:
    made, time = trio(), GpuTime()
    there = made.roster.present[1]
    there.process = replace(there.process, gpus=8)
    time.elapse(0.0, made)
    time.elapse(1.0, made)
    assert spent(time) == {STARTING: 10.0}


def test_a_lost_member_costs_the_time_until_it_is_noticed_and_the_start() -> None:
    time, made = stepping()
    made.heard(20.0, 0, 1)
    made.heard(20.0, 1, 1)
    time.elapse(30.0, made)  # nothing since 12 s
    made.leave(30.0, 2, 1, 1, "died")
    assert made.proposal is not None
    time.elapse(33.0, made)
    ack_all(made, 33.0)
    report(time, made, 40.0, 6)
    assert spent(time) == {STARTING: 12.0 + 2 * 10.0, TRAINING: 24.0, DETECTING: 3 * 18.0}


def test_a_planned_change_is_training_until_the_members_stop() -> None:
    time, made = stepping()
    time.elapse(13.0, made)
    made.set_plan(13.0, plan(2, range(2)))
    assert made.proposal is not None
    time.elapse(14.0, made)
    assert DETECTING not in spent(time)
    report(time, made, 14.0, 6)
    ack_all(made, 16.0, step=7)
    time.elapse(17.0, made)
    report(time, made, 20.0, 8)
    found = spent(time)
    assert found[TRAINING] == 24.0 + 3 * 2.0
    assert found[STARTING] + found.get(WAITING, 0.0) == 12.0 + 3 * 3.0 + 3 * 3.0


def test_steps_behind_the_checkpoint_are_repeated() -> None:
    time, made = stepping()
    made.leave(12.0, 2, 1, 1, "died")
    ack_all(made, 12.0)
    report(time, made, 13.0, 3)
    report(time, made, 17.0, 7)  # 4 and 5 again
    assert spent(time)[REPEATING] == 4.0
    assert spent(time)[TRAINING] == 24.0 + 4.0


@pytest.mark.parametrize(("save_s", "saving_s"), [(10.0, 8.0), (1.0, 0.0)])
def test_a_save_costs_what_it_takes_beyond_a_step(save_s: float, saving_s: float) -> None:
    time, made = stepping()
    made.set_saving(saving=True)
    time.elapse(12.0 + save_s, made)
    made.set_saving(saving=False)
    report(time, made, 14.0 + save_s, 6)
    assert spent(time).get(SAVING, 0.0) == pytest.approx(3 * saving_s)
    assert sum(time.spent.values()) == pytest.approx(3 * (14.0 + save_s))


def test_a_save_does_not_make_the_usual_step_longer() -> None:
    time, made = stepping()
    for number in (1, 2):
        made.set_saving(saving=True)
        time.elapse(12.0 * number + 10.0, made)
        made.set_saving(saving=False)
        report(time, made, 12.0 * number + 12.0, 5 + number)
    assert spent(time)[SAVING] == pytest.approx(2 * 3 * 8.0)


def test_a_member_whose_work_is_done_is_not_lost() -> None:
    time, made = stepping()
    made.leave(12.0, 2, 1, 0, "")
    assert made.proposal is None
    time.elapse(13.0, made)
    report(time, made, 14.0, 6)
    assert spent(time) == {STARTING: 12.0, TRAINING: 24.0 + 2 * 2.0}
    made.set_plan(14.0, plan(2, [0, 2]))
    time.elapse(15.0, made)
    ack_all(made, 15.0, step=8)
    time.elapse(16.0, made)
    assert spent(time)[TRAINING] == 24.0 + 2 * 2.0 + 2 * 1.0


def test_newcomers_of_a_proposal_start() -> None:
    time, made = stepping()
    made.set_plan(12.0, plan(2, range(4)))
    made.join(12.0, process(3))
    assert made.proposal is not None
    ack_all(made, 12.0, step=7)
    time.elapse(13.0, made)
    assert spent(time) == {STARTING: 12.0 + 4.0, TRAINING: 24.0}


def test_newcomers_wait() -> None:
    time, made = stepping()
    made.set_plan(12.0, plan(2, range(5)))
    made.join(12.0, process(3))
    time.elapse(13.0, made)
    assert spent(time)[WAITING] == 1.0


def test_a_job_that_is_over_uses_nothing() -> None:
    time, made = stepping()
    made.fail("it has no data")
    time.elapse(14.0, made)
    time.elapse(100.0, made)
    assert spent(time) == {STARTING: 12.0, TRAINING: 24.0 + 6.0}


def test_it_survives_a_restart() -> None:
    time, made = stepping()
    again = GpuTime.restore(time.snapshot())
    assert again.spent == time.spent
    again.elapse(13.0, made)
    made.leave(13.0, 2, 1, 1, "died")
    ack_all(made, 13.0)
    report(again, made, 14.0, 3)
    report(again, made, 15.0, 4)
    assert spent(again)[REPEATING] == 2.0, "the furthest step is known"
    assert sorted(again.spent) == sorted(ACTIVITIES)
