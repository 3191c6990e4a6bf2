"""When gangs are tried again because their queue may claim more, though no capacity was freed."""

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.cycle import due, schedule_once
from central.scheduler.queues.claim_watch import LOOK_S, ClaimWatch
from central.scheduler.scheduler import Scheduler
from tests.central import factories


def running(name: str, queue: str, gpus: int) -> PodSeen:
    return factories.pod(name, gpus, node="n", phase="Running", queue=queue)


def cluster(*pods: PodSeen) -> Scheduler:
    """A node of 8 GPUs. The pending pods are larger than what their queue may claim."""
    scheduler = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node("n"), QueueSeen("a"), QueueSeen("b"), *pods]
    schedule_once(scheduler, facts, 0.0)
    return scheduler


def test_it_looks_once_until_something_changes() -> None:
    scheduler = cluster(running("b0", "b", 8), factories.pod("a0", 8, queue="a"))
    watch = ClaimWatch()
    assert watch.look(scheduler.queues, 0.0)
    assert not watch.look(scheduler.queues, 10.0)
    assert watch.due() == []


def test_a_larger_share_lets_a_queue_claim_more() -> None:
    pods = [running(f"b{i}", "b", 2) for i in range(4)]
    scheduler = cluster(*pods, factories.pod("a0", 8, queue="a"), factories.pod("b9", 2, queue="b"))
    watch = ClaimWatch()
    watch.look(scheduler.queues, 0.0)
    schedule_once(scheduler, [PodGone("uid-b9")], 1.0)
    assert not watch.look(scheduler.queues, 1.0), "it looks at most every LOOK_S"
    assert watch.due() == [LOOK_S]
    schedule_once(scheduler, [QueueSeen("a", weight=3)], 2.0)
    assert watch.look(scheduler.queues, LOOK_S)


def test_without_a_queue_that_may_give_nobody_is_tried_again() -> None:
    scheduler = cluster(running("c", "default", 2), factories.pod("a0", 16, queue="a"))
    assert not ClaimWatch().look(scheduler.queues, 0.0)


def test_the_scheduler_tries_again_in_time() -> None:
    scheduler = cluster(running("b0", "b", 8), factories.pod("a0", 16, queue="a"))
    found = due(scheduler, 0.0)
    assert found is not None
    assert found <= LOOK_S
