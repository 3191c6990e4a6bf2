"""The whole program under a nemesis: seeds of test stories, and that a seed tells the same story twice.

More seeds: `make nightly`, or LOCKSTEP_FIRST_STORY and LOCKSTEP_NEMESIS with tests/simulation/nightly.py."""

import itertools
import random
import time
from collections.abc import Callable

import pytest

from tests.simulation.nemesis.story import Story

SEEDS = 10
FOUND = (252,)  # a status that a restored etcd had lost was not written again
Record = Callable[[str, object], None]


@pytest.mark.timeout(300)  # on a machine that is busy with other things
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.slow if seed else ())
        for seed in (*range(SEEDS), *FOUND)
    ],
)
def test_whatever_breaks(seed: int, record_property: Record) -> None:
    record_property("repeat", f"python -m tests.simulation.nemesis.story {seed}")
    story = Story(seed)
    story.run()
    assert story.history.events["bound"] > 10
    assert len(story.deeds) > 5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_same_seed_same_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that stands still for a second whenever somebody looks at its clock, and beside threads that
    draw random numbers."""
    first, second = Story(3), Story(3)
    first.run()
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, _Jumping(getattr(time, name)))
    random.seed(4)
    second.run()
    assert first.trace == second.trace


class _Jumping:
    """A clock that is a second later each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._asked = clock, itertools.count(1)

    def __call__(self) -> float:
        return self._clock() + next(self._asked)
