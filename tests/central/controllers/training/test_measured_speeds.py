"""How fast a Job trains by its size and place, by reports of steps."""

from central.controllers.training.generation import Generation, Place, SizePlan
from central.controllers.training.measured_speeds import MeasuredSpeeds
from central.model import limits
from tests.central.controllers.training.test_membership import process


def generation(number: int, nodes: str) -> Generation:
    """nodes: a letter for the node of each member; a space: unknown."""
    members = [process(member, node=node.strip()) for member, node in enumerate(nodes)]
    return Generation(number, tuple(members), "")


def step(
    speeds: MeasuredSpeeds,
    live: Generation,
    *,
    step_s: float,
    until_s: float = 100.0,
    start_s: float = 0.0,
    records: float = 0.0,
    plan: SizePlan | None = None,
) -> None:
    """Each member reports each step."""
    for number in range(1, int(until_s / step_s) + 1):
        for _ in live.processes:
            speeds.report(start_s + number * step_s, live, plan, 100 + number, records)


def test_a_speed_is_that_of_the_steps_after_the_first() -> None:
    speeds = MeasuredSpeeds()
    step(speeds, generation(1, "aab"), step_s=2.0, until_s=20.0)
    assert speeds.told == {}, "less than 20 s since the first step"
    step(speeds, generation(1, "aab"), step_s=2.0, until_s=22.0)
    assert speeds.told == {(3, 2): 0.5}


def test_slow_steps_are_waited_for() -> None:
    speeds = MeasuredSpeeds()
    step(speeds, generation(1, "a"), step_s=15.0, until_s=75.0)
    assert speeds.told == {}, "four steps after the first"
    step(speeds, generation(1, "a"), step_s=15.0, until_s=90.0)
    assert speeds.told == {(1, 1): 0.0667}


def test_records_count_where_they_are_reported() -> None:
    """Each of three members takes 20 records a step."""
    speeds = MeasuredSpeeds()
    step(speeds, generation(1, "abc"), step_s=1.0, records=20.0)
    assert abs(speeds.told[3, 3] - 60.0) <= 3.0


def test_each_place_has_its_own() -> None:
    """A member whose node nobody knows is alone on it; the scheduler's plan goes before what processes say."""
    speeds = MeasuredSpeeds()
    step(speeds, generation(1, "aaaa"), step_s=1.0)
    step(speeds, generation(2, "aa  "), step_s=2.0, start_s=200.0)
    plan = SizePlan(1, (0, 1), {0: Place(("r", "x")), 1: Place(("r", "y"))})
    step(speeds, generation(3, "aa"), step_s=4.0, start_s=500.0, plan=plan)
    assert speeds.told == {(4, 1): 1.0, (4, 3): 0.5, (2, 2): 0.25}


def test_the_time_between_generations_does_not_count() -> None:
    speeds = MeasuredSpeeds()
    step(speeds, generation(1, "a"), step_s=1.0, until_s=15.0)
    step(speeds, generation(2, "a"), step_s=1.0, start_s=900.0)
    assert speeds.told == {(1, 1): 1.0}


def test_small_differences_are_no_news() -> None:
    speeds, live = MeasuredSpeeds(), generation(1, "a")
    step(speeds, live, step_s=1.0)
    step(MeasuredSpeeds(), live, step_s=1.0)
    for number in range(101, 1000):
        speeds.report(100.0 + (number - 100) * 1.04, live, None, 100 + number, 0.0)
    assert speeds.told == {(1, 1): 1.0}
    for number in range(1000, 2000):
        speeds.report(1036.0 + (number - 1000) * 2.0, live, None, 100 + number, 0.0)
    assert abs(speeds.told[1, 1] - 0.5) < 0.03


def test_the_places_measured_last_are_kept() -> None:
    speeds = MeasuredSpeeds()
    for number in range(limits.MEASURED_SPEEDS + 1):
        step(speeds, generation(number + 1, "a" * (number + 1)), step_s=5.0, until_s=40.0)
    assert len(speeds.told) == limits.MEASURED_SPEEDS
    assert (1, 1) not in speeds.told
    assert (2, 1) in speeds.told


def test_a_successor_goes_on_with_what_was_measured() -> None:
    speeds = MeasuredSpeeds()
    step(speeds, generation(1, "ab"), step_s=1.0)
    other = MeasuredSpeeds.restore(speeds.snapshot())
    assert other.told == speeds.told == {(2, 2): 1.0}
    step(other, generation(2, "ab"), step_s=0.5, until_s=25.0)
    assert other.told == {(2, 2): 1.3}, "three tenths of the newest"
