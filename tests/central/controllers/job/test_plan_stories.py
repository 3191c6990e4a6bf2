"""Scheduler and coordinator in seeded stories (plan_stories.py). More of them: LOCKSTEP_PLAN_STORIES=100000."""

import os
from collections import Counter

import pytest

from tests.central.controllers.job.plan_stories import PlanStory
from tests.effort import examples

_STORIES = int(os.environ.get("LOCKSTEP_PLAN_STORIES", examples(40)))
_SHARDS = max(min(8, _STORIES // 5), _STORIES // 50)
_STEPS = 80


@pytest.mark.long
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_both_sides_agree_after_any_story(shard: int) -> None:
    counts: Counter[str] = Counter()
    seeds = range(shard, _STORIES, _SHARDS)
    for seed in seeds:
        story = PlanStory(seed)
        try:
            story.run(_STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts += story.counts
    rare = min(("let go", "scheduler restarts", "coordinator restarts"), key=counts.__getitem__)
    assert counts[rare], f"the stories have no {rare}"
    assert counts["agreed"] == len(seeds)
