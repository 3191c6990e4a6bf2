"""Whom a higher priority may evict (--preempt-across)."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import PodSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from protos.names import GPU
from tests.central import factories


def pod(name: str, namespace: str, queue: str = "", priority: int = 0, gpus: int = 8) -> PodSeen:
    plain = factories.pod(name, gpus, queue=queue, priority=priority)
    return replace(plain, namespace=namespace)


def evictions(
    across: str, running: list[PodSeen], claimant: PodSeen, *queues: QueueSeen
) -> list[Evict]:
    cluster = new_scheduler(factories.LEVELS, preempt_across=across)
    schedule_once(cluster, [factories.node("a"), *queues, *running], 0.0)
    decisions = schedule_once(cluster, [claimant], 1.0)
    return [each for each in decisions if isinstance(each, Evict)]


def victims(across: str, victim: PodSeen, claimant: PodSeen, *queues: QueueSeen) -> list[str]:
    return [each.why for each in evictions(across, [victim], claimant, *queues)]


@pytest.mark.parametrize("queues", [(), (QueueSeen("default"),)], ids=["no queues", "one queue"])
@pytest.mark.parametrize(
    ("across", "namespace", "evicts"),
    [
        ("none", "x", True),
        ("none", "y", False),
        ("namespaces", "x", True),
        ("namespaces", "y", True),
        ("queues", "y", True),
    ],
)
def test_in_one_queue(
    across: str, namespace: str, *, evicts: bool, queues: tuple[QueueSeen, ...]
) -> None:
    low, urgent = pod("low", "x"), pod("urgent", namespace, priority=5)
    assert bool(victims(across, low, urgent, *queues)) == evicts


def test_who_finds_no_victim_does_not_speak_for_other_namespaces() -> None:
    """Equal requests: the first one's namespace runs nothing, the second one's runs what may give way. The head waits
    for another node, so that the first one holds no reservation."""
    cluster = new_scheduler(factories.LEVELS, preempt_across="none")
    nodes = factories.node("a", cpu=1_000), factories.node("b", gpus=0)
    busy = factories.pod("busy", cpu=64_000, node="b", phase="Running", priority=9)

    schedule_once(cluster, [*nodes, pod("low", "y"), busy], 0.0)
    schedule_once(cluster, [factories.pod("head", cpu=60_000, priority=9)], 1.0)
    arrivals = [pod("first", "x", priority=5), pod("second", "y", priority=5)]
    decisions = schedule_once(cluster, arrivals, 2.0)
    whys = [each.why for each in decisions if isinstance(each, Evict)]
    assert whys == ["preempted by y/second (priority 5 > 0)"]


@pytest.mark.parametrize(("across", "evicts"), [("none", 0), ("namespaces", 0), ("queues", 1)])
def test_in_another_queue_that_is_within_its_share(across: str, evicts: int) -> None:
    queues = QueueSeen("p", deserved=((GPU, 8),)), QueueSeen("q")
    low, urgent = pod("low", "x", "p"), pod("urgent", "y", "q", priority=5)
    whys = victims(across, low, urgent, *queues)
    assert whys == ["preempted by y/urgent (priority 5 > 0)"] * evicts


def test_a_guarantee_holds_against_every_priority() -> None:
    queues = QueueSeen("p", guarantee=((GPU, 8),)), QueueSeen("q")
    low, urgent = pod("low", "x", "p"), pod("urgent", "y", "q", priority=5)
    assert victims("queues", low, urgent, *queues) == []


@pytest.mark.parametrize(("gpus", "evicted"), [(4, 1), (8, 0)])
def test_a_guarantee_holds_against_all_victims_together(gpus: int, evicted: int) -> None:
    """Each of the two alone leaves the queue what it is guaranteed."""
    queues = QueueSeen("p", guarantee=((GPU, 4),)), QueueSeen("q")
    low = [pod(name, "x", "p", gpus=4) for name in ("low", "other")]
    urgent = pod("urgent", "y", "q", priority=5, gpus=gpus)
    assert len(evictions("queues", low, urgent, *queues)) == evicted


def test_reclaim_by_shares_does_not_depend_on_it() -> None:
    queues = QueueSeen("p"), QueueSeen("q", deserved=((GPU, 8),))
    low, rightful = pod("low", "x", "p"), pod("rightful", "y", "q")
    assert victims("none", low, rightful, *queues) == [
        "reclaimed for y/rightful; queue q is below what it deserves"
    ]
