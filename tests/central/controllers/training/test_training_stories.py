"""The coordinator's core in seeded stories (stories.py). More of them: LOCKSTEP_TRAINING_STORIES=100000."""

import os
from collections import Counter

import pytest

from tests.central.controllers.training.stories import Story

_STORIES = int(os.environ.get("LOCKSTEP_TRAINING_STORIES", "200"))
_SHARDS = max(8, _STORIES // 100)
_STEPS = 400


@pytest.mark.long
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_nothing_is_lost_or_doubled_in_any_story(shard: int) -> None:
    counts: Counter[str] = Counter()
    seeds = range(shard, _STORIES, _SHARDS)
    for seed in seeds:
        story = Story(seed)
        try:
            story.run(_STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        counts += story.counts
    rare = min(("live", "done", "stale", "crashes"), key=lambda kind: counts[kind])
    assert counts[rare] >= len(seeds), f"the stories have hardly any {rare}"
