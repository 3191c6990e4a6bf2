"""Nothing with devices is bound to a node whose agent or kubelet restarts; whoever needs its devices waits, and nobody
is disturbed for that."""

from dataclasses import replace

import pytest

from central.model.facts import Fact, NodeGone, NodeOffers, NodeSilent
from central.scheduler.placement import PlacementRequest, offered_nodes
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from protos.names import GPU, NODE, RDMA
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

AWAY, BACK = NodeOffers("b", offered=False), NodeOffers("b", offered=True)
WAITS = "but the agent or the kubelet is restarting there"


def nodes(*names: str) -> list[Fact]:
    return [factories.node(name, rack="r1") for name in names]


def places(world: World, *names: str) -> list[str]:
    return [world.cluster.state.pods[f"uid-{name}"].node for name in names]


def test_a_pod_waits_for_the_only_node_with_room() -> None:
    world = World(*nodes("a", "b"), *job("low", 1))
    assert places(world, "low-0") == ["a"]
    assert world.step(1.0, AWAY, *job("train", 1, created=1.0)) == []
    assert world.told["train"] == f"needs 1 pod x 8 GPUs; fits with node b, {WAITS}"
    assert world.step(2.0, BACK) == ["train-0"]
    assert places(world, "train-0") == ["b"]


def test_another_place_is_taken_and_pods_without_devices_go_anywhere() -> None:
    world = World(*nodes("b", "c"), AWAY)
    assert world.step(1.0, *job("train", 1)) == ["train-0"]
    assert places(world, "train-0") == ["c"]
    assert world.step(2.0, *(factories.pod(f"p{i}", cpu=40_000) for i in range(2))) == ["p0", "p1"]
    assert set(places(world, "p0", "p1")) == {"b", "c"}


@pytest.mark.parametrize("resource", [GPU, RDMA, "lockstep.dev/rail-0", "nvidia.com/mig-1g.10gb"])
def test_all_devices_count_and_nothing_else(resource: str) -> None:
    has = {GPU: 8, RDMA: 4, "lockstep.dev/rail-0": 4, "nvidia.com/mig-1g.10gb": 2}
    node = replace(factories.node("b"), allocatable={**factories.node("b").allocatable, **has})
    world = World(node, AWAY)
    pod = factories.pod("p", 0)
    wants = replace(pod, spec=replace(pod.spec, requests=(*pod.spec.requests, (resource, 1))))
    plain = replace(factories.pod("plain", 0), spec=pod.spec)
    assert world.step(1.0, wants, plain) == ["plain"]
    assert world.step(2.0, BACK) == ["p"]


def test_shares_of_gpus_count_too() -> None:
    node = factories.node("b", shares=True)
    report = factories.report("b", factories.topology(8, shares=True))
    world = World(node, report, factories.part("first", 30))
    assert world.step(1.0, AWAY, factories.part("p", 50)) == []
    assert world.told["p"].endswith(WAITS)
    assert world.step(2.0, BACK) == ["p"]


def test_what_runs_there_keeps_running_and_stays_counted() -> None:
    world = World(*nodes("b"), *job("old", 1, gpus=6))
    world.step(1.0, AWAY)
    world.step(2.0, *job("two", 1, gpus=2), *job("four", 1, gpus=4, created=2.0))
    assert world.evicted == []
    assert world.told["two"].endswith(WAITS)
    assert "2 of 8 GPUs free" in world.told["four"]
    assert world.step(3.0, BACK) == ["two-0"]


def test_nobody_gives_way_for_a_gang_that_waits_for_a_restart() -> None:
    world = World(*nodes("a", "b"), *job("low", 1))
    world.step(1.0, AWAY, *job("urgent", 1, priority=9))
    for now in range(2, 30):
        world.step(float(now))
    assert world.evicted == []
    assert world.step(30.0, BACK) == ["urgent-0"]
    assert world.evicted == []


def test_victims_that_are_needed_leave_meanwhile() -> None:
    """They would have to leave if the node were there, too."""
    world = World(*nodes("a", "b"), *job("low", 1))
    world.step(1.0, AWAY, *job("urgent", 2, priority=9))
    assert world.evicted == ["low-0"]
    assert world.step(7.0) == []
    assert world.told["urgent"].endswith(WAITS)
    assert world.step(8.0, BACK) == ["urgent-0", "urgent-1"]


def test_a_reservation_stays_where_it_is() -> None:
    world = World(*nodes("a", "b"), *job("long", 1, runs_for_s=600))
    world.step(1.0, *job("big", 2, runs_for_s=600, created=1.0))
    (before,) = world.cluster.reservations.values()
    world.step(2.0, AWAY)
    assert world.step(600.0) == []
    assert world.told["big"].endswith(WAITS)
    assert [*world.cluster.reservations.values()] == [before]
    assert world.step(601.0, *job("late", 1, created=2.0)) == [], "its place is kept"
    assert world.step(602.0, BACK) == ["big-0", "big-1"]


@pytest.mark.parametrize("end", [NodeSilent("b"), BACK], ids=["silent", "back"])
def test_a_silent_node_is_as_any_silent_node(end: Fact) -> None:
    world = World(*nodes("b"), AWAY)
    assert world.step(1.0, *job("train", 1)) == []
    assert world.step(31.0, end) == ["train-0"]


def test_a_node_that_is_gone_is_forgotten() -> None:
    world = World(*nodes("a", "b"), AWAY)
    world.step(1.0, NodeGone("b"))
    assert not world.cluster.state.node_sets.not_offered
    assert world.step(2.0, *nodes("b"), *job("two", 2)) == ["two-0", "two-1"]


@pytest.mark.parametrize(
    ("count", "which"),
    [(2, "2 nodes: b, c"), (3, "3 nodes: b, c, d"), (5, "5 nodes: b, c, d and 2 more")],
)
def test_at_most_three_nodes_are_named(count: int, which: str) -> None:
    world = World(
        *nodes(*"bcdef"[:count]), *(NodeOffers(name, offered=False) for name in "bcdef"[:count])
    )
    assert world.step(1.0, *job("train", count)) == []
    assert world.told["train"] == f"needs {count} pods x 8 GPUs; fits with {which}, {WAITS}"


def test_pods_without_devices_need_not_wait() -> None:
    world = World(*nodes("a", "b"), AWAY)
    snapshot = world.cluster.state.snapshot
    free, masks = snapshot.columns.free.copy(), list(snapshot.columns.gpus.free_mask)
    nothing = replace(factories.spec(0), requests=(*factories.spec(0).requests, (GPU, 0)))
    for spec, bound in ((factories.spec(0), True), (nothing, True), (factories.spec(8), False)):
        request, draft = (
            PlacementRequest(((spec, 2),), required=NODE if bound else ""),
            Draft(snapshot),
        )
        if bound:
            snapshot.take(snapshot.columns.row["a"], factories.spec(0, cpu=64_000))
            offered_nodes.fit(draft, request, ["b", "gone"])
            assert [snapshot.columns.names[each.row] for each in draft.assignments] == ["b"]
            snapshot.give(snapshot.columns.row["a"], factories.spec(0, cpu=64_000))
        else:
            with pytest.raises(DoesNotFit, match=f"{WAITS}$"):
                offered_nodes.fit(draft, request, ["b", "gone"])
        draft.undo()
        assert (snapshot.columns.free == free).all()
        assert snapshot.columns.gpus.free_mask == masks
