"""What the golden journals tell: seeded days and stories, every scenario, and the core's benchmarks on fewer nodes.

Each story has a name and a function that plays it. Names stay when stories are added.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.scheduler import cycle
from protos.names import BLOCK, RACK
from tests.benchmarks import claims, elastic_sizes, first_cycles, turns
from tests.central import factories
from tests.central.scheduler import scenario
from tests.simulation import (
    busy_day,
    layered_day,
    mixed_day,
    test_days_of_claims,
    test_days_of_jobs,
    test_elastic_days,
    test_time_sharing_days,
)
from tests.simulation.fact_strategies import FACTS
from tests.simulation.share_strategies import OF_SHARES
from tests.simulation.volume_strategies import OF_VOLUMES

SCENARIOS = Path(__file__).parents[1] / "scenarios"
MODULES = (  # that check what they do, or apply facts by themselves: see recorder.py
    "tests.benchmarks.claims",
    "tests.benchmarks.elastic_sizes",
    "tests.benchmarks.first_cycles",
    "tests.benchmarks.turns",
    "tests.central.scheduler.small_cluster",
    "tests.simulation.busy_day",
    "tests.simulation.layered_day",
    "tests.simulation.mixed_day",
    "tests.simulation.small_worlds",
    "tests.simulation.test_days_of_claims",
    "tests.simulation.test_elastic_days",
    "tests.simulation.test_time_sharing_days",
)
DRAWN = 20  # random stories, of which the one with most facts is kept


class Story(NamedTuple):
    name: str
    play: Callable[[], object]


def groups() -> dict[str, list[Story]]:
    """By the name of the group, of which each has files of its own."""
    return {
        "busy": [_day("busy day", busy_day.live, n, busy_day.SHORT) for n in range(50)],
        "long": [_day("long busy day", busy_day.broken, n) for n in range(1000, 1004)],
        "mixed": [_day("mixed day", _mixed, n) for n in range(60)],
        "layered": [_day("layered day", _layered, n) for n in range(40)],
        "claims": [_day("day of claims", test_days_of_claims.live, n) for n in range(50)],
        "jobs": [_day("day of Jobs", test_days_of_jobs.lived, n) for n in range(40)],
        "elastic": [_day("elastic day", _elastic, n) for n in range(30)],
        "sharing": [_day("day of time sharing", _sharing, n) for n in range(12)],
        "facts": _random("random facts", FACTS, 20),
        "shares": _random("random shares", OF_SHARES, 10),
        "volumes": _random("random volumes", OF_VOLUMES, 10),
        "scenarios": [
            Story(f"scenario {path.stem}", partial(scenario.play, path.read_text()))
            for path in sorted(SCENARIOS.glob("*.txt"))
        ],
        "benchmarks": list(_benchmarks()),
    }


def _day(name: str, play: Callable[..., object], number: int, *of: object) -> Story:
    return Story(f"{name} {number}", partial(play, number, *of))


def _mixed(number: int) -> None:
    mixed_day.MixedDay(number).live()


def _layered(number: int) -> None:
    layered_day.LayeredDay(number).run()


def _elastic(number: int) -> None:
    test_elastic_days.Day(number, models=number % 2 == 1).live()


def _sharing(number: int) -> None:
    dice = random.Random(number)
    jobs = [test_time_sharing_days.Job(each, dice) for each in range(14)]
    test_time_sharing_days.plays(jobs, new_scheduler(()))


def _random(name: str, facts: st.SearchStrategy[Fact], count: int) -> list[Story]:
    """Facts that arrive every 20 seconds, as in tests/simulation/test_stories.py."""
    drawn: list[list[list[Fact]]] = []

    @seed(1)
    @settings(
        max_examples=count * DRAWN,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.lists(facts, max_size=6), max_size=10))
    def draw(story: list[list[Fact]]) -> None:
        drawn.append(story)

    draw()
    drawn.sort(key=lambda story: -sum(map(len, story)))
    return [_day(name, _told, number, story) for number, story in enumerate(drawn[:count])]


def _told(_: int, story: list[list[Fact]]) -> None:
    made = new_scheduler(factories.LEVELS)
    for now, facts in enumerate(story):
        cycle.schedule_once(made, facts, now * 20.0)


def _benchmarks() -> Iterator[Story]:
    """On at most 1,000 nodes, and with fewer rounds: they are here for what they decide."""
    cases: dict[str, Callable[[], object]] = {
        "one gang": lambda: turns.one_gang(1000, 64, rounds=3),
        "backlog": lambda: turns.backlog(1000, 150, 4, RACK),
        "single pods": lambda: turns.singles(1000, 2000),
        "kinds at once": lambda: turns.kinds_at_once(1000, 40, 1000),
        "kinds one by one": lambda: turns.kinds_one_by_one(500, 40, 300),
        "first cycle": lambda: turns.first_cycle_ms(1000),
        "too big": lambda: turns.too_big(1000, rounds=3),
        "too many for a rack": lambda: turns.too_many(1000, RACK, rounds=3),
        "too many for a block": lambda: turns.too_many(1000, BLOCK, rounds=3),
        "changes": lambda: turns.changes(500, 1000, rounds=10),
        "one queue": lambda: turns.line(1, 2000, nodes=100, rounds=5),
        "many queues": lambda: turns.line(20, 2000, nodes=100, rounds=5),
        "claim": lambda: turns.claim(turns.full(200), 100, attempts=3),
        "claim that is too big": lambda: turns.claim(turns.full(200), 201),
        "nobody less urgent": lambda: turns.claim(turns.full(200, priority=10), 100),
        "elastic events": lambda: elastic_sizes.events(nodes=300, jobs=50, members=40, rounds=3),
        "a free seat": lambda: elastic_sizes.growth(nodes=300, jobs=50, members=40, rounds=1),
        "goodput": lambda: elastic_sizes.goodput(512, 200, rounds=1),
        "after a restart": lambda: first_cycles.longest_ms(300, 500, 50),
        "urgent pods": lambda: claims.urgent_pods(200, 500),
        "urgent gangs": lambda: claims.urgent_gangs(200, 50),
        "services": lambda: claims.services(200, 200),
        "reclaim": lambda: claims.reclaim(200, 400),
        "reclaiming pods": lambda: claims.reclaiming_pods(200, 400),
        "urgent in a queue": lambda: claims.urgent_in_queue(200, 400),
    }
    for name, play in cases.items():
        yield Story(f"benchmark {name}", play)
