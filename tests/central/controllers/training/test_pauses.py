"""What a change of membership costs, by reports of steps alone."""

from central.controllers.training.pauses import PauseMeter


def stepping(until: float = 10.0, step_s: float = 2.0, generation: int = 3) -> PauseMeter:
    """Steps 1 to 5, one every 2 s, by two members that report the same steps."""
    meter, now, step = PauseMeter(), step_s, 1
    while now <= until:
        for _ in range(2):
            meter.report(now, generation, step)
        now, step = now + step_s, step + 1
    return meter


def test_the_pause_is_what_is_more_than_a_step() -> None:
    assert stepping().latest is None, "nothing is known of what was before the first report"
    meter = stepping()
    meter.report(17.0, 4, 6)
    assert meter.latest is not None
    assert (meter.latest.generation, meter.latest.seconds) == (4, 5.0)
    assert (meter.latest.repeated_steps, meter.latest.lost_s) == (0, 5.0)
    meter.report(17.5, 4, 6)
    meter.report(18.0, 3, 9)  # late, of the old generation
    assert meter.latest.seconds == 5.0
    meter.report(40.0, 5, 7)
    assert meter.latest.generation == 5
    assert meter.latest.seconds == 40.0 - 17.0 - 2.0


def test_a_first_report_of_several_steps() -> None:
    meter = stepping()
    meter.report(17.0, 4, 8)
    assert meter.latest is not None
    assert meter.latest.seconds == 1.0, "three steps of 2 s in 7 s"


def test_an_immediate_step_is_no_negative_pause() -> None:
    meter = stepping()
    meter.report(10.5, 4, 6)
    assert meter.latest is not None
    assert meter.latest.lost_s == 0.0


def test_steps_after_the_checkpoint_are_taken_again() -> None:
    """It goes on from step 2: the first report says 3, so 3, 4 and 5 come again."""
    meter = stepping()
    meter.report(17.0, 4, 3)
    assert meter.latest is not None
    assert (meter.latest.repeated_steps, meter.latest.repeated_s) == (3, 6.0)
    assert meter.latest.lost_s == 5.0 + 6.0


def test_without_two_steps_a_steps_time_is_unknown() -> None:
    meter = PauseMeter()
    meter.report(2.0, 1, 1)
    meter.report(9.0, 2, 2)
    assert meter.latest is not None
    assert meter.latest.seconds == 7.0


def test_the_time_of_a_step_follows_the_newest_ones() -> None:
    meter = stepping()
    for number in range(40):
        meter.report(11.0 + number, 3, 6 + number)
    meter.report(60.0, 4, 46)
    assert meter.latest is not None
    assert abs(meter.latest.seconds - 9.0) < 0.01, "steps take 1 s now"
