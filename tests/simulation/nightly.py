"""Ten thousand days, a thousand with bugs everywhere, a thousand mixed ones, ten thousand of elastic Jobs and of
liars, a hundred thousand stories, and a thousand runs of the whole program under a nemesis, spread over all processors: `make nightly`.

Smaller runs set LOCKSTEP_DAYS, LOCKSTEP_STORIES, LOCKSTEP_NEMESIS and the seeds to begin with,
LOCKSTEP_FIRST_DAY, LOCKSTEP_FIRST_STORIES and LOCKSTEP_FIRST_NEMESIS. Each failure ends with the command that
repeats it."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from central.model.facts import Fact
from tests.simulation.busy_day import LONG, SHORT, live
from tests.simulation.fact_strategies import FACTS
from tests.simulation.lying_days import ALL, LIES, Gains
from tests.simulation.mixed_day import MixedDay
from tests.simulation.nemesis.story import Story
from tests.simulation.share_strategies import OF_SHARES
from tests.simulation.test_busy_days import assert_healed
from tests.simulation.test_contained_faults import assert_contained
from tests.simulation.test_elastic_days import assert_sizes_kept
from tests.simulation.test_stories import assert_story_is_safe
from tests.simulation.volume_strategies import OF_VOLUMES

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "10000"))
WITH_BUGS = -(-DAYS // 10)
FIRST_DAY = int(os.environ.get("LOCKSTEP_FIRST_DAY", "0"))
STORIES = int(os.environ.get("LOCKSTEP_STORIES", "100000"))
FIRST_STORIES = int(os.environ.get("LOCKSTEP_FIRST_STORIES", "0"))
NEMESES = int(os.environ.get("LOCKSTEP_NEMESIS", "1000"))
FIRST_NEMESIS = int(os.environ.get("LOCKSTEP_FIRST_NEMESIS", "100"))
SHARD = 500  # stories that one seed of Hypothesis makes
SHARDS = -(-STORIES // SHARD)
SOURCES = (FACTS, OF_SHARES, OF_VOLUMES)
Record = Callable[[str, object], None]


def repeat(record_property: Record, *, day: int | None = None, shard: int | None = None) -> None:
    days = (0, 0) if day is None else (day, 1)
    stories = (0, 0) if shard is None else (shard, SHARD)
    command = (
        f"LOCKSTEP_FIRST_DAY={days[0]} LOCKSTEP_DAYS={days[1]} "
        f"LOCKSTEP_FIRST_STORIES={stories[0]} LOCKSTEP_STORIES={stories[1]} LOCKSTEP_NEMESIS=0 "
        "pytest -q tests/simulation/nightly.py"
    )
    record_property("repeat", command)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("day", range(FIRST_DAY, FIRST_DAY + DAYS))
def test_day(day: int, record_property: Record) -> None:
    repeat(record_property, day=day)
    assert_healed(live(day, SHORT))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("day", range(FIRST_DAY, FIRST_DAY + WITH_BUGS))
def test_day_with_bugs(day: int, record_property: Record) -> None:
    repeat(record_property, day=day)
    assert_contained(day, LONG)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("day", range(FIRST_DAY, FIRST_DAY + WITH_BUGS))
def test_mixed_day(day: int, record_property: Record) -> None:
    repeat(record_property, day=day)
    MixedDay(day).live()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("day", range(FIRST_DAY, FIRST_DAY + DAYS))
def test_day_of_elastic_jobs(day: int, record_property: Record) -> None:
    repeat(record_property, day=day)
    assert_sizes_kept(day)
    assert_sizes_kept(day, models=True)


@pytest.mark.timeout(14400)
@pytest.mark.parametrize("lie", [*LIES, ALL])
def test_days_of_liars(lie: str) -> None:
    gains = Gains()
    for day in range(FIRST_DAY, FIRST_DAY + -(-DAYS // (len(LIES) + 1))):
        gains.live(day, lie)
    print(gains.table())
    assert gains.late == []
    assert gains.pays() == {}


@pytest.mark.timeout(7200)  # virtual_runtime.py limits processor time
@pytest.mark.parametrize("number", range(FIRST_NEMESIS, FIRST_NEMESIS + NEMESES))
def test_nemesis(number: int, record_property: Record) -> None:
    record_property("repeat", f"python -m tests.simulation.nemesis.story {number}")
    Story(number).run()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(FIRST_STORIES, FIRST_STORIES + SHARDS))
def test_stories(shard: int, record_property: Record) -> None:
    """Half of them of all facts, the others of shares or of volumes."""
    repeat(record_property, shard=shard)
    facts = SOURCES[max(0, shard % 4 - 1)]

    @seed(shard)
    @settings(
        max_examples=SHARD, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(st.lists(facts, max_size=6), max_size=10))
    def told(story: list[list[Fact]]) -> None:
        assert_story_is_safe(story)

    told()
