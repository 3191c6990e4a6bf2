"""Queues that are first in, first out: nobody starts before who comes first."""

from central.model.facts import Fact, GangGone, PodGone, QueueSeen
from central.scheduler.queues.fifo import FifoQueues
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

FIFO = QueueSeen("q", fifo=True)


def wide(name: str, pods: int, created: float, **fields: object) -> list[Fact]:
    return job(name, pods, queue="q", created=created, **fields)  # type: ignore[arg-type]  # a test's shorthand


def test_nobody_overtakes_the_first() -> None:
    world = World(factories.node("a"), factories.node("b"), FIFO, QueueSeen("other"))
    world.step(1.0, *wide("old", 1, 1.0), *wide("big", 2, 2.0), *wide("small", 1, 3.0))
    assert list(world.began) == ["old"]
    assert world.told["small"] == "queue q is first in, first out; ns/big is ahead of it"
    assert world.step(2.0, *job("else", 1, gpus=4, queue="other", created=9.0)) == ["else-0"]


def test_the_next_one_follows_at_once() -> None:
    world = World(factories.node("a"), factories.node("b"), FIFO)
    world.lasts["old"] = 10.0
    world.step(1.0, *wide("old", 1, 1.0), *wide("big", 2, 2.0), *wide("small", 1, 3.0, gpus=0))
    assert "small" not in world.began
    assert world.step(11.0) == ["big-0", "big-1", "small-0"]


def test_who_gives_up_makes_way() -> None:
    world = World(factories.node("a"), FIFO)
    world.step(1.0, *wide("big", 2, 1.0), *wide("small", 1, 2.0))
    assert not world.began
    gone: list[Fact] = [PodGone("uid-big-0"), PodGone("uid-big-1"), GangGone("ns", "big")]
    assert world.step(2.0, *gone) == ["small-0"]


def test_who_is_not_ready_holds_up_nobody_and_then_it_does() -> None:
    world = World(factories.node("a"), factories.node("b"), FIFO)
    group, first, second = wide("big", 2, 1.0)
    world.step(1.0, group, first)
    assert world.step(2.0, *wide("small", 1, 2.0)) == ["small-0"]
    world.step(3.0, second, *wide("late", 1, 3.0))
    assert world.told["late"] == "queue q is first in, first out; ns/big is ahead of it"


def test_the_more_urgent_come_first_and_the_strategy_may_change() -> None:
    world = World(factories.node("a"), FIFO)
    world.step(1.0, *wide("big", 2, 1.0), *wide("urgent", 1, 2.0, gpus=4, priority=5))
    assert list(world.began) == ["urgent"]
    world.step(2.0, *wide("small", 1, 3.0, gpus=4))
    assert "small" not in world.began
    world.step(3.0, QueueSeen("q"))
    assert "small" in world.began


def test_a_head_that_lost_a_pod_blocks_nobody() -> None:
    """Nothing is freed by it: that the head left its place must wake the next gang."""
    world = World(factories.node("a"), FIFO)
    world.step(1.0, *wide("big", 2, 1.0), *wide("small", 1, 2.0))
    assert not world.began
    assert world.step(2.0, PodGone("uid-big-0")) == ["small-0"]


def test_the_first_is_found_again_when_a_more_urgent_one_arrives() -> None:
    world = World(factories.node("a"), FIFO)
    world.step(1.0, *wide("big", 2, 1.0), *wide("small", 1, 2.0))
    world.step(2.0, *wide("urgent", 2, 3.0, priority=5))
    world.step(3.0, *wide("between", 1, 4.0, priority=3))
    assert not world.began
    assert world.told["between"] == "queue q is first in, first out; ns/urgent is ahead of it"


def test_a_started_gang_grows_though_another_is_first() -> None:
    world = World(factories.node("a"), FIFO)
    group, *members = wide("old", 2, 2.0, gpus=4, least=1)
    world.step(1.0, group, members[0])
    world.step(2.0, *wide("big", 2, 1.0))
    assert world.step(3.0, members[1]) == ["old-1"]


def test_the_first_may_fall_behind() -> None:
    """Its rank is known anew, for example with another priority."""
    queues = FifoQueues()
    first, second = (Gang(("ns", name, True)) for name in ("first", "second"))
    for rank, gang in enumerate((first, second)):
        gang.attempt.rank = (0, rank, 0.0, gang.key)
        queues.update(gang, "q")
    assert queues.first("q") is first
    first.attempt.rank = (0, 2, 0.0, first.key)
    queues.update(first, "q")
    assert queues.first("q") is second
