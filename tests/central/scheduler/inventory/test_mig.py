"""MIG slices at the centre: counted like any resource, by the smaller of what the API server and the agent
say; whoever holds one that is bad is told."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, EmitWarning
from central.model.facts import Fact, GangSeen, NodeReported, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory import nics
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


def report(
    name: str = "a", slices: int = 3, generation: int = 1, *grants: str, sick: tuple[int, ...] = ()
) -> NodeReported:
    what = factories.sliced(factories.topology(2), slices, sick)
    truth = tuple(factories.grant_slices(pod, i) for i, pod in enumerate(grants))
    return factories.report(name, what, generation, truth)


def binds(decisions: list[Decision]) -> list[tuple[str, str]]:
    return [(each.name, each.node) for each in decisions if isinstance(each, Bind)]


def gang(name: str, size: int, slices: int = 1) -> list[Fact]:
    pods = [factories.slicer(factories.pod(f"{name}-{i}", gang=name), slices) for i in range(size)]
    return [GangSeen("ns", name, size, uid=f"uid-of-{name}"), *pods]


@pytest.fixture
def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    nodes = [factories.node(name, gpus=2, slices=3) for name in "ab"]
    schedule_once(made, [*nodes, report("a"), report("b")], 0.0)
    return made


def reason(scheduler: Scheduler, name: str) -> str:
    return gang_status.describe(scheduler.state, scheduler.state.gangs["ns", name, True])


def test_a_gang_of_slices_goes_whole_or_waits_with_a_sentence(scheduler: Scheduler) -> None:
    assert len(binds(schedule_once(scheduler, gang("g", 4), 1.0))) == 4
    assert binds(schedule_once(scheduler, gang("h", 3), 2.0)) == []
    assert reason(scheduler, "h").startswith(
        "needs 3 pods x 1 1g.5gb slice; the cluster fits 2 of 3 "
        "(2 of 6 1g.5gb slices free on 2 nodes); reserved: "
    )
    check_invariants(scheduler)


@pytest.mark.parametrize("level", ["island", "numa", "pcie-switch"])
def test_slices_are_no_part_of_an_island(scheduler: Scheduler, level: str) -> None:
    (group, *pods) = gang("g", 2)
    assert isinstance(group, GangSeen)
    assert not binds(
        schedule_once(scheduler, [replace(group, topology_required=level), *pods], 1.0)
    )
    words = (
        "can never start: MIG slices cannot be kept to one island, NUMA node or PCIe switch; "
        "require node or a wider level"
    )
    assert reason(scheduler, "g") == words
    near = [replace(group, topology_required="node"), *pods]
    assert len({node for _, node in binds(schedule_once(scheduler, near, 2.0))}) == 1


def test_a_profile_that_no_node_has(scheduler: Scheduler) -> None:
    odd = factories.pod("x")
    requests = (*odd.spec.requests, ("nvidia.com/mig-9g.99gb", 2))
    schedule_once(
        scheduler, [replace(odd, spec=replace(odd.spec, requests=tuple(sorted(requests))))], 1.0
    )
    (waiting,) = scheduler.state.pending.waiting.values()
    assert "needs 1 pod x 2 9g.99gb slices" in waiting.attempt.reason
    assert "there are no 9g.99gb slices" in waiting.attempt.reason


def test_the_agent_tells_sooner_than_the_api_server(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [report("a", 0, 2), report("b", 2, 2)], 1.0)
    assert binds(schedule_once(scheduler, gang("g", 3), 2.0)) == []
    assert {node for _, node in binds(schedule_once(scheduler, gang("h", 2), 3.0))} == {"b"}
    found = binds(schedule_once(scheduler, [report("a", 3, 3)], 4.0))
    assert len(found) == 3
    check_invariants(scheduler)


def test_slices_that_are_not_fit_are_not_counted(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [report("a", 3, 2, sick=(0, 1)), report("b", 3, 2, sick=(2,))], 1.0)
    assert binds(schedule_once(scheduler, gang("g", 4), 2.0)) == []
    assert len(binds(schedule_once(scheduler, gang("h", 3), 3.0))) == 3


def test_a_gpu_in_mig_mode_is_no_whole_gpu(scheduler: Scheduler) -> None:
    """The third GPU of each node; even if the API server still counts it."""
    schedule_once(scheduler, [factories.node("a", gpus=3, slices=3)], 1.0)
    assert binds(schedule_once(scheduler, [factories.pod("w", 3)], 2.0)) == []
    assert len(binds(schedule_once(scheduler, [factories.pod("v", 2)], 3.0))) == 1


def warnings(decisions: list[Decision]) -> list[str]:
    return [each.why for each in decisions if isinstance(each, EmitWarning)]


def test_whoever_holds_a_bad_slice_is_told_once(scheduler: Scheduler) -> None:
    placed = dict(binds(schedule_once(scheduler, gang("g", 2), 1.0)))
    node = placed["g-0"]
    running = [
        replace(each, node=placed[each.name], phase="Running")
        for each in gang("g", 2)
        if isinstance(each, PodSeen)
    ]
    schedule_once(scheduler, [*running, report(node, 3, 2, "g-0", "g-1")], 2.0)
    words = f"GPU 2's 1g.5gb (gi 1, ci 0) of node {node}, held by g-1, is unhealthy: XID 94"
    said = warnings(schedule_once(scheduler, [report(node, 3, 3, "g-0", "g-1", sick=(1,))], 3.0))
    assert said == [words]
    assert words in reason(scheduler, "g")
    assert not warnings(
        schedule_once(scheduler, [report(node, 3, 4, "g-0", "g-1", sick=(1,))], 4.0)
    )
    said = warnings(schedule_once(scheduler, [report(node, 1, 5, "g-0", "g-1")], 5.0))
    assert len(said) == 1
    assert said[0].startswith(
        f"MIG slice MIG-1 of node {node}, held by g-1, is unhealthy: it is gone"
    )
    assert "MIG slice MIG-1" in reason(scheduler, "g")
    assert "is unhealthy: it is gone: its GPU was repartitioned" in reason(scheduler, "g")
    schedule_once(scheduler, [report(node, 3, 6, "g-0", "g-1")], 6.0)
    assert "unhealthy" not in reason(scheduler, "g")
    check_invariants(scheduler)


def test_the_card_beside_a_slice() -> None:
    """Of the slice's GPU, once pod-resources says which that is."""
    what = factories.carded(factories.sliced(factories.topology(1), 2), 64)
    rows = [list(row) for row in what.links]
    rows[1][2:], rows[2][1], rows[3][1] = ["SYS", "PIX"], "SYS", "PIX"
    what = replace(what, links=tuple(map(tuple, rows)))
    pod = factories.wishing(factories.slicer(factories.pod("p"), 1), 4)
    scheduler = new_scheduler(factories.LEVELS)
    near = factories.report("a", what, 1, (factories.grant_slices("p", 0),))
    schedule_once(
        scheduler, [factories.node("a", gpus=1, slices=2), near, replace(pod, node="a")], 0.0
    )
    node = scheduler.state.nodes["a"]
    assert node.report is not None
    topology, gpus = node.report.topology, node.reported.container_gpus
    found = nics.nearest_nics(topology, gpus, node.pods.values(), {})
    assert found == {("ns", "p", "main"): ("mlx5_1",)}
