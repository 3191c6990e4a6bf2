"""The situations of sixty_pending.md: each gang reads the reason of the table, which names what the table asks for, and
starts when somebody does what the reason advises."""

import re
from collections.abc import Callable
from inspect import isgeneratorfunction
from pathlib import Path

import pytest

from tests.central.scheduler.pending import (
    situations_of_queues,
    situations_on_nodes,
    situations_over_time,
)
from tests.central.scheduler.pending.pending_world import PendingWorld

Story = Callable[[PendingWorld], "situations_on_nodes.Story"]
STORIES: dict[str, Story] = {
    name.replace("_", " "): found
    for module in (situations_on_nodes, situations_of_queues, situations_over_time)
    for name, found in vars(module).items()
    if isgeneratorfunction(found) and found.__module__ == module.__name__
}
TABLE = [
    [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in Path(__file__).with_name("sixty_pending.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| situation")
]


def test_each_situation_is_in_the_table_once() -> None:
    assert sorted(name for name, *_ in TABLE) == sorted(STORIES)
    assert len(TABLE) >= 60


@pytest.mark.parametrize(("name", "named", "reason"), [(row[0], row[2], row[3]) for row in TABLE])
def test_a_gang_reads_the_cause_and_starts_once_the_advice_is_taken(
    name: str, named: str, reason: str
) -> None:
    world = PendingWorld()
    story = STORIES[name](world)
    gang = next(story)
    said = world.reason(gang)
    assert [each for each in re.findall(r"`([^`]+)`", named) if each not in said] == []
    assert said == reason
    assert next(story, None) is None
    assert world.reason(gang) == "", "it runs"
