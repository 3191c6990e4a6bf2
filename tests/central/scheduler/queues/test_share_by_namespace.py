"""A queue that its namespaces share decides as if each namespace had a queue of its own below it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from central.model.decisions import Bind, Evict
from central.model.facts import Fact, GangSeen, PastUsageSeen, PodSeen, QueueSeen
from central.scheduler.rebuild import rebuild
from central.server.queries import explain
from central.server.usage_store import _read_usage
from tests.central import factories
from tests.central.scheduler.queues.queued_gangs import nodes, queue
from tests.central.scheduler.small_cluster import World, job
from tests.effort import seeds

HOUR = 3600.0


def of(namespace: str, facts: Sequence[Fact]) -> list[Fact]:
    return [
        replace(fact, namespace=namespace) if isinstance(fact, GangSeen | PodSeen) else fact
        for fact in facts
    ]


def jobs(namespace: str, count: int, gpus: int = 1, **more: Any) -> list[Fact]:
    found: list[Fact] = []
    name = str(more.pop("name", namespace))
    for number in range(count):
        created: dict[str, Any] = {"created": float(number), **more}
        found += of(namespace, job(f"{name}-{number:02}", 1, gpus, queue="team", **created))
    return found


def running(there: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in there.running.values():
        if pod.node and pod.phase == "Running":
            found[pod.namespace] = found.get(pod.namespace, 0) + 1
    return found


def read(there: World) -> PastUsageSeen:
    """What the leader writes down."""
    reading = _read_usage(there.cluster)
    while True:
        try:
            next(reading)
        except StopIteration as done:
            past: PastUsageSeen = done.value
            return past


@pytest.mark.parametrize(("shared", "served"), [(False, {"a": 8}), (True, {"a": 4, "b": 4})])
def test_many_jobs_of_one_namespace_get_its_share(*, shared: bool, served: dict[str, int]) -> None:
    there = World(*nodes(8), queue("team", by_namespace=shared))
    there.step(0.0, *jobs("a", 20), *jobs("b", 4, created=30.0))
    assert running(there) == served


def test_the_share_is_of_the_queue_and_not_of_the_cluster() -> None:
    """Beside another queue of equal weight, which gets its half whatever namespaces there are."""
    there = World(
        *nodes(8), factories.node("n1", gpus=4), queue("team", by_namespace=True), queue("alone")
    )
    alone = of("c", [fact for i in range(12) for fact in job(f"c-{i:02}", 1, 1, queue="alone")])
    there.step(0.0, *jobs("a", 20), *jobs("b", 20), *alone)
    assert running(there) == {"a": 3, "b": 3, "c": 6}


def day(
    seed: int, queues: Sequence[QueueSeen], own: bool, half_life_s: float
) -> list[tuple[float, str, str]]:
    """The bindings and evictions of a day. own: each namespace names a queue of its own."""
    dice = random.Random(seed)
    there = World(*nodes(16), *queues, half_life_s=half_life_s)
    found: list[tuple[float, str, str]] = []
    for number in range(60):
        namespace = dice.choice("aaabbc")
        name = f"{namespace}.team" if own else "team"
        if dice.random() < 0.2:
            name = "other"
        pods, gpus = dice.choice(((1, 1), (1, 2), (1, 8), (2, 2), (2, 4)))
        terms = {"queue": name, "priority": dice.choice((0, 0, 5)), "created": float(number)}
        facts = of(namespace, job(f"j{number}", pods, gpus, dice.choice((90.0, 700.0)), **terms))
        if number % 7 == 3:  # the tree is built anew
            facts.append(queue("other", weight=dice.choice((1, 2, 3))))
        known = len(there.decisions)
        now = number * dice.choice((20.0, 45.0)) if number < 2 else 45.0 * number
        there.step(now, *facts)
        found += [
            (now, type(each).__name__, each.pod)
            for each in there.decisions[known:]
            if isinstance(each, Bind | Evict)
        ]
    return sorted(found)


@pytest.mark.long
@pytest.mark.parametrize("half_life_s", [0.0, HOUR])
@pytest.mark.parametrize("seed", seeds(20))
def test_it_decides_as_queues_of_the_namespaces(seed: int, half_life_s: float) -> None:
    beside = queue("other", weight=2)
    parts = [queue(f"{each}.team", parent="team") for each in "abc"]
    whole = [queue("team", weight=3, by_namespace=True), beside]
    apart = [queue("team", weight=3), *parts, beside]
    assert day(seed, whole, False, half_life_s) == day(seed, apart, True, half_life_s)


def test_past_use_counts_when_a_namespace_comes_back() -> None:
    """Also after a change of leaders, and when the state was built again."""
    for changes in ("", "leader", "state"):
        there = World(*nodes(8), queue("team", by_namespace=True), half_life_s=24 * HOUR)
        there.step(0.0, *jobs("a", 8, runs_for_s=HOUR))
        there.step(HOUR)  # nothing of it is left
        if changes == "state":
            rebuild(there.cluster)
        if changes == "leader":
            past = read(there)
            assert "a/team" in {each.name for each in past.queues}
            there = World(*nodes(8), queue("team", by_namespace=True), half_life_s=24 * HOUR)
            there.step(HOUR, past)
        again = [
            *jobs("a", 1, 8, name="late", created=HOUR),
            *jobs("b", 1, gpus=8, created=HOUR + 1),
        ]
        there.step(HOUR + 10.0, *again)
        assert running(there) == {"b": 1}, changes


@pytest.mark.parametrize("half_life_s", [0.0, HOUR])
def test_the_past_of_a_namespace_is_that_of_the_state_before(half_life_s: float) -> None:
    there = World(*nodes(8), queue("team", by_namespace=True), half_life_s=half_life_s)
    there.step(0.0, *jobs("a", 12))
    there.step(60.0, *jobs("b", 1, gpus=8))
    there.step(1000.0)

    def past() -> dict[str, float]:
        tree = there.cluster.queues
        return {name: tree.received(tree.by_name[name]) for name in ("a/team", "b/team")}

    before = past()
    assert before["a/team"] > before["b/team"]
    rebuild(there.cluster)
    there.step(1000.0)
    assert past() == before


def test_a_switch_moves_what_runs() -> None:
    there = World(*nodes(8), queue("team"), half_life_s=0.0)
    there.step(0.0, *jobs("a", 20), *jobs("b", 4, created=30.0))
    there.step(10.0, queue("team", by_namespace=True))
    tree = there.cluster.queues
    assert [child.name for child in tree.by_name["team"].children] == ["a/team", "b/team"]
    assert there.evicted  # b gets back what is its own
    there.step(20.0, queue("team"))
    assert not tree.by_name["team"].children
    assert set(tree.by_name) == {"root", "default", "team"}
    rebuild(there.cluster)
    assert set(there.cluster.queues.by_name) == {"root", "default", "team"}


@pytest.mark.parametrize("queues", [(), (queue("a/team"),)])
def test_nobody_takes_the_part_of_another_namespace_by_its_name(queues: tuple[Fact, ...]) -> None:
    there = World(*nodes(8), queue("team", by_namespace=True))
    there.step(0.0, *jobs("a", 1), *of("b", job("b-0", 1, 1, queue="a/team")))
    assert running(there) == {"a": 1}
    assert there.told["b-0"].startswith("queue a_team does not exist")


def test_children_of_the_queue_come_first() -> None:
    """A queue with children runs no gangs, shared or not."""
    there = World(*nodes(8), queue("team", by_namespace=True), queue("child", parent="team"))
    there.step(0.0, *jobs("a", 1))
    assert there.told["a-00"] == "queue team is not a leaf; use one of its children: child"


def test_views_name_the_queue() -> None:
    there = World(*nodes(8), queue("team", by_namespace=True))
    there.step(0.0, *jobs("a", 8), *jobs("b", 1, gpus=8, created=5.0))
    said = explain(there.cluster, "b", "b-00")
    assert said is not None
    assert said.queue.startswith("team (namespace b uses 0 of ")
    counts = there.cluster.queue_statuses._counts["team"]
    assert counts == {"Running": 8, "Inqueue": 1} or sum(counts.values()) == 9
