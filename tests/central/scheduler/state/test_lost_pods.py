"""Pods that terminate for ever on a node that died hold no quota, some time after their grace period."""

from dataclasses import replace

import pytest

from central.model.facts import PodGone, QueueSeen
from central.scheduler import rebuild
from central.scheduler.cycle import due
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

GRACE_S, AFTER_S = 30, 300.0
OVER = 2.0 + GRACE_S + AFTER_S


def world_with_a_lost_pod(*, ready: bool = False, grace_s: int = GRACE_S) -> World:
    """The queue may use eight GPUs. Its gang's pod on n0 is asked to end at 2 s, when its node dies, and its
    replacement waits."""
    world = World(factories.node("n0"), factories.node("n1"), lost_after_s=AFTER_S)
    world.step(0.5, QueueSeen("default", capability=((GPU, 8),)))
    world.step(1.0, *job("g", 1, 8))
    (pod,) = world.running.values()
    assert pod.node == "n0"
    ended = replace(pod, deleting=True, ended=2.0, grace_s=grace_s)
    world.step(2.0, replace(factories.node("n0"), ready=ready), ended)
    again = replace(pod, uid="again", name="again", node="", phase="Pending", order=(1, "again"))
    assert world.step(3.0, again) == []
    return world


def test_a_lost_pod_holds_no_quota() -> None:
    world = world_with_a_lost_pod()
    assert due(world.cluster, 3.0) == OVER
    assert world.step(OVER - 0.1) == []
    assert world.step(OVER) == ["again"]
    assert world.running["again"].node == "n1"


def test_a_grace_of_years_counts_as_the_most_of_an_eviction() -> None:
    world = world_with_a_lost_pod(grace_s=10**9)
    assert world.step(2.0 + 600.0 + AFTER_S - 0.1) == []
    assert world.step(2.0 + 600.0 + AFTER_S) == ["again"]


def test_a_pod_on_a_ready_node_ends_when_its_kubelet_says_so() -> None:
    world = world_with_a_lost_pod(ready=True)
    assert world.step(10 * OVER) == []
    assert world.step(10 * OVER + 1, PodGone("uid-g-0")) == ["again"]


def test_a_lost_pod_counts_again_when_its_node_returns() -> None:
    world = world_with_a_lost_pod()
    assert world.step(OVER) == ["again"]
    columns = world.cluster.state.snapshot.columns
    assert columns.free[columns.row["n0"], 0] == 8
    world.step(OVER + 1, factories.node("n0"))
    assert columns.free[columns.row["n0"], 0] == 0
    world.step(OVER + 2, PodGone("uid-g-0"))
    assert columns.free[columns.row["n0"], 0] == 8


@pytest.mark.parametrize("again", [True, False])
def test_a_state_that_is_built_again_loses_it_too(again: bool) -> None:
    world = world_with_a_lost_pod()
    assert world.step(OVER) == ["again"]
    if again:
        rebuild.rebuild(world.cluster)
    world.step(OVER + 1)
    assert not world.cluster.state.pods["uid-g-0"].alive
    columns = world.cluster.state.snapshot.columns
    assert columns.free[columns.row["n0"], 0] == 8
