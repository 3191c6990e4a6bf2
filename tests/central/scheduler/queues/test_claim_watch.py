"""When gangs are tried again because their queue may claim more, though no capacity was freed."""

from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.cycle import due, schedule_once
from central.scheduler.pass_claims import PREEMPTION_RETRY_S
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
    scheduler = cluster(running("b0", "b", 8), factories.pod("a0", 8, queue="a"))
    found = due(scheduler, 0.0)
    assert found is not None
    assert found <= LOOK_S


def lender(*asked: int, **b: Any) -> tuple[Scheduler, list[str]]:
    """Two queues that deserve a node of 8 GPUs each. Queue a uses its own and asks for a whole node more. Queue b runs
    one pod and asks for pods of so many GPUs. b: further fields of its Queue."""
    scheduler = new_scheduler(factories.LEVELS, half_life_s=7 * 86400.0)
    deserved = (("nvidia.com/gpu", 8),)
    facts: list[Fact] = [factories.node("n"), factories.node("m")]
    facts += [QueueSeen("a", deserved=deserved), QueueSeen("b", deserved=deserved, **b)]
    facts += [factories.pod("old", 8, node="n", phase="Running", queue="a", runs_for_s=1000.0)]
    facts += [factories.pod("own", 1, node="m", phase="Running", queue="b", runs_for_s=500.0)]
    facts += [factories.pod("more", 8, queue="a")]
    facts += [factories.pod(f"b{i}", gpus, queue="b") for i, gpus in enumerate(asked)]
    schedule_once(scheduler, facts, 0.0)
    return scheduler, sorted(key[1] for key in scheduler.reservations)


def test_what_can_never_start_takes_no_reservation_from_others() -> None:
    assert lender()[1] == ["more"]
    assert "more" not in lender(8)[1], "queue b would reclaim it"
    assert lender(9)[1] == ["more"], "no node has nine GPUs"


@pytest.mark.parametrize("left", [(), (1,)])
def test_a_gang_reserves_once_the_others_ask_for_less(left: tuple[int, ...]) -> None:
    """Queue b may run one gang at a time, so that what waits there reserves nothing."""
    scheduler, reserved = lender(7, *left, running_gangs=1)
    assert not reserved
    schedule_once(scheduler, [PodGone("uid-b0")], 1.0)
    now = 1.0
    while (at := due(scheduler, now)) is not None and at <= LOOK_S + PREEMPTION_RETRY_S:
        now = at
        schedule_once(scheduler, [], now)
    assert [key[1] for key in scheduler.reservations] == ([] if left else ["more"])


def test_who_asked_between_two_looks_is_not_missed() -> None:
    scheduler = cluster(running("b0", "b", 8))
    watch = ClaimWatch()
    assert not watch.look(scheduler.queues, 0.0)
    watch.has_unreserved = True  # because of a gang that came and went
    schedule_once(scheduler, [QueueSeen("b", weight=2)], 1.0)
    assert watch.look(scheduler.queues, LOOK_S)
    assert not watch.has_unreserved
