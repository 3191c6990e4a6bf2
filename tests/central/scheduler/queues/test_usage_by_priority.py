"""What gangs of a queue use by priority is what a recount of them gives."""

import random
from dataclasses import replace

import pytest

from central.model.facts import QueueSeen
from central.model.resources import Sums, add
from central.scheduler.queues.usage_by_priority import UsageByPriority
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.small_cluster import World


def gang(name: str, namespace: str) -> Gang:
    made = Gang((namespace, name, False))
    made.class_priority = 0
    return made


@pytest.mark.parametrize("seed", range(4))
def test_the_sums_are_those_of_a_recount(seed: int) -> None:
    dice, usage = random.Random(seed), UsageByPriority()
    gangs = [gang(f"g{number}", dice.choice("ab")) for number in range(12)]
    used: dict[str, Sums] = {}
    priority: dict[str, int] = {}  # as counted
    for _ in range(300):
        each = dice.choice(gangs)
        if each.name not in used:
            used[each.name] = {"gpu": dice.randrange(1, 4), "cpu": dice.randrange(1, 3)}
            priority[each.name] = each.class_priority or 0
            usage.add(each, used[each.name])
        elif dice.random() < 0.4:
            usage.remove(each)
            del used[each.name]
        else:
            each.class_priority = dice.randrange(-2, 3)
            if dice.random() < 0.8:
                usage.update(each)
                priority[each.name] = each.class_priority
        for limit in range(-3, 5):
            for namespace in (None, "a", "b", "c"):
                expected: Sums = {}
                for one in gangs:
                    inside = namespace in (None, one.namespace)
                    if one.name in used and inside and priority[one.name] < limit:
                        add(expected, used[one.name], 1)
                assert usage.below(limit, namespace) == expected


def test_a_gang_that_is_not_counted_may_be_removed_and_updated() -> None:
    usage, one = UsageByPriority(), gang("g", "a")
    usage.remove(one)
    usage.update(one)
    assert usage.below(10) == {}


def test_a_running_gang_counts_at_its_new_priority() -> None:
    world = World(factories.node("a"), QueueSeen("q"))
    group = factories.gang("g", 1, queue="q", priority=5)
    world.step(0.0, group, factories.pod("g-0", 1, "g"))
    usage = world.cluster.queues.by_name["q"].usage_by_priority
    assert not usage.below(5)
    assert usage.below(6)
    world.step(1.0, replace(group, priority=2))
    assert usage.below(5) == usage.below(3)
    assert usage.below(3)
