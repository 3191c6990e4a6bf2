"""What a gang reads that waits because of what other queues are guaranteed."""

from dataclasses import replace

import pytest

from central.model.facts import PodSeen, QueueSeen, Taint
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("selector", [(), (("kind", "b"),)])
def test_free_gpus_that_the_pods_may_not_use_are_no_chance_beside_guarantees(
    selector: tuple[tuple[str, str], ...], closed: bool
) -> None:
    """closed: the other node, whose GPUs do not count as free."""
    nodes = [
        factories.node("a", unschedulable=closed),
        factories.node("b", gpus=4, labels={"kind": "b"}),
    ]
    world = World(*nodes, QueueSeen("x"), QueueSeen("y", guarantee=((GPU, 12),)))
    (group, pod) = job("g", 1, 1, queue="x")
    assert isinstance(pod, PodSeen)
    world.step(1.0, group, replace(pod, spec=replace(pod.spec, node_selector=selector)))
    said = "the nodes that its pods may use have 4 GPUs free"
    assert "guaranteed to queue y" in world.told["g"]
    assert (said in world.told["g"]) == (bool(selector) and not closed)


def test_a_gang_that_a_guarantee_refuses_only_after_others_were_bound() -> None:
    """Found by tests/simulation/mixed_day.py, seed 2037: it was refused a place first, and its reason, which is counted
    again when another gang is bound, did not take the guarantee for what refuses it."""
    kept = factories.node("a", taints=(Taint("job", "", "NoSchedule"),))
    queues = QueueSeen("x"), QueueSeen("y", guarantee=((GPU, 4),))
    other = factories.pod("o", 4, node="b", phase="Running", ours=False)
    world = World(kept, factories.node("b"), other, *queues)
    world.step(1.0, *job("g", 1, 8, queue="x"))
    assert "the cluster fits 0 of 1" in world.told["g"]
    world.step(2.0, *job("h", 1, 4, queue="x", created=2.0))
    words = "needs 8 GPUs; 8 are free, of which 4 are guaranteed to queue y; the nodes that its pods may use have 0 GPUs free"
    assert world.told["g"].startswith(words)


def test_a_guarantee_that_a_claim_will_use_is_not_used_by_another_gang() -> None:
    """The second gang of its queue took what another queue is guaranteed, and then kept the first one from starting
    when its victim had gone."""
    world = World(*(factories.node(name) for name in "abc"))
    eight = ((GPU, 8),)
    world.step(
        0.0, QueueSeen("x", guarantee=eight), QueueSeen("y", guarantee=eight), QueueSeen("z")
    )
    for name in "ab":
        running = factories.pod(f"on-{name}-0", 8, f"on-{name}", node=name, phase="Running")
        world.step(1.0, factories.gang(f"on-{name}", 1, queue="z"), running)
    (group, pod) = job("first", 1, 8, queue="x", created=2.0)
    assert isinstance(pod, PodSeen)
    on_a = replace(pod.spec, node_selector=((factories.HOST, "a"),))
    assert not world.step(2.0, group, replace(pod, spec=on_a))
    assert world.evicted == ["on-a-0"]
    assert not world.step(3.0, *job("second", 1, 8, queue="x", created=3.0))
    assert "guaranteed to queue y" in world.told["second"]
    assert world.step(20.0) == ["first-0"]
