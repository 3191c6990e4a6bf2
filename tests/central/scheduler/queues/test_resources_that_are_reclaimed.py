"""Queues reclaim GPUs from each other by weight, and CPU and memory only where a queue has a quota for them."""

from collections.abc import Mapping

import pytest

from central.model.facts import Fact
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.queues.queued_gangs import queue
from tests.central.scheduler.small_cluster import World


def evicted_for_cpu(quota: Mapping[str, object], *share_by_weight: str) -> list[str]:
    """Queue a uses all of 8 CPUs, when b requests two of them. quota: of queue b."""
    node = factories.node("n", gpus=0, cpu=8_000)
    facts: list[Fact] = [node, queue("a"), queue("b", **quota)]
    world = World(*facts, half_life_s=0.0, share_by_weight=share_by_weight)  # type: ignore[arg-type]  # of other settings
    world.step(1.0, *(factories.pod(f"a-{n}", 0, cpu=2_000, queue="a") for n in range(4)))
    world.step(2.0, factories.pod("b", 0, cpu=2_000, queue="b", created=2.0))
    assert world.evicted or "no victims: queue" not in world.told["b"]
    return world.evicted


@pytest.mark.parametrize("quota", [{}, {"deserved": 8}, {"capability": ((GPU, 8),)}])
def test_cpu_that_no_queue_limits_is_not_reclaimed(quota: Mapping[str, object]) -> None:
    assert evicted_for_cpu(quota) == []


@pytest.mark.parametrize("field", ["capability", "deserved"])
def test_cpu_is_reclaimed_where_a_queue_has_a_quota_for_it(field: str) -> None:
    assert len(evicted_for_cpu({field: (("cpu", 6_000),)})) == 1


@pytest.mark.parametrize("names", [("cpu",), ("memory", "cpu"), ("all",)])
def test_cpu_is_reclaimed_by_weight_where_a_flag_says_so(names: tuple[str, ...]) -> None:
    assert len(evicted_for_cpu({}, *names)) == 1
    assert evicted_for_cpu({}, "memory") == []


def test_gpus_are_reclaimed_though_no_queue_limits_them_and_cpu_does_not_count() -> None:
    """Queue b uses more than its share of the CPUs."""
    world = World(factories.node("n", cpu=8_000), queue("a"), queue("b"), half_life_s=0.0)
    world.step(1.0, *(factories.pod(f"a-{n}", 1, queue="a") for n in range(8)))
    world.step(2.0, factories.pod("cpus", 0, cpu=6_000, queue="b", created=2.0))
    world.step(3.0, factories.pod("b", 1, queue="b", created=3.0))
    assert len(world.evicted) == 1
