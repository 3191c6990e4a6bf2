"""Which reservations bind the gangs of one pass, where what is known of one gang is used for equal ones."""

from central.model.facts import QueueSeen
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def test_each_claimant_of_a_pass_leaves_free_what_is_kept_from_its_queue_and_priority() -> None:
    """4 GPUs become free for a gang of priority 5. In one cycle come pods of the same queue, and of another one."""
    world = World(factories.node("n"), QueueSeen("a"), QueueSeen("b"))
    world.step(1.0, *job("old", 1, 4, queue="a"))
    world.step(2.0, *job("kept", 1, 4, queue="b", priority=9, preemptable=False))
    world.step(3.0, *job("next", 1, 4, queue="a", created=3.0, priority=5))
    assert world.evicted == ["old-0"]
    world.grace_s = 100.0
    world.step(4.0, *job("equal", 1, 1, queue="a", created=4.0, priority=5))
    assert "reserved for ns/next" in world.told["equal"]
    world.step(
        5.0,
        *job("same", 1, 1, queue="a", created=5.0, priority=5),
        *job("urgent", 1, 1, queue="a", created=5.0, priority=9),
        *job("other", 1, 1, queue="b", created=5.0, priority=9),
    )
    assert "reserved for ns/next" in world.told["same"]
    assert "reserved for ns/next" in world.told["other"]
    assert "reserved for ns/next" not in world.told.get("urgent", "")


def test_a_gang_ahead_of_the_head_may_use_what_an_equal_one_behind_it_may_not() -> None:
    """The head waits for 8 GPUs, of which 4 are free. Both newcomers are as urgent as the head, and one is older."""
    world = World(factories.node("n"))
    world.step(1.0, *job("old", 1, 4, runs_for_s=100.0))
    world.step(2.0, *job("head", 1, 8, created=2.0))
    ahead, behind = job("ahead", 1, 1, created=1.0), job("behind", 1, 1, created=3.0)
    assert world.step(3.0, *ahead, *behind) == ["ahead-0"]
    assert "reserved for ns/head" in world.told["behind"]
