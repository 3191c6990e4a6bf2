"""Which members of a gang leave if its pods have unlike priorities, against every single exchange."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from central.model.facts import Fact, GangSeen, PodSeen
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.effort import examples


def unlike(*priorities: int, least: int, gpus: int = 4) -> list[Fact]:
    """A gang whose members have these priorities, by rank."""
    group, *pods = job("mixed", len(priorities), gpus, least=least)
    ranked = zip(pods, priorities, strict=True)
    return [
        group,
        *(replace(pod, priority=each) for pod, each in ranked if isinstance(pod, PodSeen)),
    ]


def evicted_by(gpus: int, members: list[Fact]) -> list[str]:
    world = World(factories.node("n"))
    assert len(world.step(1.0, *members)) == len(members) - 1
    world.step(100.0, *job("urgent", 1, gpus, priority=9, created=100.0))
    return sorted(world.evicted)


def test_the_least_urgent_member_leaves() -> None:
    assert evicted_by(4, unlike(1, 3, least=1)) == ["mixed-0"]
    assert evicted_by(4, unlike(3, 1, least=1)) == ["mixed-1"]
    assert evicted_by(4, unlike(2, 2, least=1)) == ["mixed-1"], "of equals the last rank"


def test_two_leave_and_the_most_urgent_stays() -> None:
    assert evicted_by(4, unlike(1, 3, 2, 5, least=2, gpus=2)) == ["mixed-0", "mixed-2"]


def test_who_must_go_whole_goes_whole() -> None:
    assert evicted_by(4, unlike(1, 3, least=2)) == ["mixed-0", "mixed-1"]


def test_the_least_urgent_leaves_unless_it_is_not_preemptable() -> None:
    group, first, second = unlike(1, 3, least=1)
    assert isinstance(first, PodSeen)
    kept = replace(first, preemptable=False)
    assert evicted_by(4, [group, kept, second]) == ["mixed-1"]
    assert isinstance(second, PodSeen)
    small = replace(second, spec=factories.pod("x", 2).spec)
    assert evicted_by(4, [group, first, small]) == ["mixed-0"], (
        "the least urgent, whatever it holds"
    )


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_budget_keeps_the_less_urgent_member(allowed: int) -> None:
    """Where it allows one disruption, the dry run of the eviction comes first; no pod is evicted in the same cycle."""
    group, first, second = unlike(1, 3, least=1)
    assert isinstance(first, PodSeen)
    labelled = replace(first, labels=(("app", "kept"),))
    members = [factories.budget("kept", allowed), group, labelled, second]
    world = World(factories.node("n"))
    world.step(1.0, *members)
    world.step(100.0, *job("urgent", 1, 4, priority=9, created=100.0))
    world.step(101.0)
    assert world.evicted == (["mixed-0"] if allowed else ["mixed-1"])


@pytest.mark.parametrize("servers", [1, 2])
def test_the_minimum_of_a_task_keeps_its_member(servers: int) -> None:
    """Rank 0 is the least urgent and the only server, or one of two."""
    group, *pods = unlike(1, 3, 2, 3, least=2, gpus=2)
    tasks = ["server"] * servers + ["worker"] * (4 - servers)
    split = [
        replace(pod, task=task)
        for pod, task in zip(pods, tasks, strict=True)
        if isinstance(pod, PodSeen)
    ]
    assert isinstance(group, GangSeen)
    minima = replace(group, task_min=(("server", 1), ("worker", 1)))
    assert evicted_by(2, [minima, *split]) == (["mixed-2"] if servers == 1 else ["mixed-0"])


@pytest.mark.parametrize("gpus", [4, 8])
def test_a_gang_without_enough_surplus_is_not_exchanged(gpus: int) -> None:
    """All of three members go for a whole node, and one, the least urgent, for half."""
    every = ["mixed-0", "mixed-1", "mixed-2"]
    assert evicted_by(gpus, unlike(3, 1, 2, least=2, gpus=2)) == (
        ["mixed-1"] if gpus == 4 else every
    )


@pytest.mark.long
def test_no_exchange_would_spare_a_more_urgent_member() -> None:
    """Gangs on several nodes, and a claimant for one of these: every exchange is tried by counts."""
    exchanged = 0
    for seed in range(examples(80)):
        dice = Random(seed)
        size, nodes = dice.randint(3, 8), dice.randint(1, 3)
        priorities = [dice.choice((1, 2, 3)) for _ in range(size)]
        gpus = dice.choice((2, 4))
        count = min(size, nodes * 8 // gpus)
        members = unlike(*priorities[:count], least=dice.randint(1, count), gpus=gpus)
        world = World(*(factories.node(f"n{number}") for number in range(nodes)))
        world.step(1.0, *members)
        on = {pod.name: pod.node for pod in world.running.values() if pod.node}
        if len(on) < count:
            continue
        need = dice.choice((2, 4, 6, 8))
        world.step(100.0, *job("urgent", 1, need, priority=9, created=100.0))
        gone = set(world.evicted)
        if not gone or len(gone) == count:
            continue
        urgency = {f"mixed-{rank}": each for rank, each in enumerate(priorities)}

        def fits(going: set[str], on=on, gpus=gpus, need=need, nodes=nodes) -> bool:  # type: ignore[no-untyped-def]  # bound now
            used = Counter(node for name, node in on.items() if name not in going)
            return any(8 - used[f"n{number}"] * gpus >= need for number in range(nodes))

        assert fits(gone), seed
        for name in gone:
            for other in on.keys() - gone:
                better = urgency[other] < urgency[name] and fits(gone - {name} | {other})
                assert not better, (seed, name, other)
        exchanged += gone != {f"mixed-{count - 1 - place}" for place in range(len(gone))}
    assert exchanged > 1
