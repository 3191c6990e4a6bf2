"""Pods of a controller return to the nodes that its earlier pods have left, where nothing else tells nodes apart."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, NodeReported, OwnerSeen, PodGone, PodSeen, Taint
from central.model.pod_rules import Requirement, Rules
from central.scheduler.cycle import schedule_once
from central.scheduler.rebuild import rebuild
from central.scheduler.state.former_nodes import NODES_MOST, OWNERS_MOST, FormerNodes
from tests.central import factories

NODES = [factories.node(f"n{number}", rack=f"r{number // 4}") for number in range(8)]
WEB = OwnerSeen("rs-1", "replicaset/web-1", "deployment/web")
NEXT = OwnerSeen("rs-2", "replicaset/web-2", "deployment/web")


def nodes(decisions: list[Decision]) -> list[str]:
    return sorted(each.node for each in decisions if isinstance(each, Bind))


def replica(name: str, owner: OwnerSeen, gpus: int = 8, **more: object) -> PodSeen:
    made = factories.pod(name, gpus=gpus)
    return replace(made, owner=owner.uid, owner_name=owner.name, **more)  # type: ignore[arg-type]


def after(old: PodSeen, *leaving: Fact, others: tuple[Fact, ...] = (), gpus: int = 8) -> str:
    """The node of the first pod of the next ReplicaSet. old ran, then leaving followed."""
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*NODES, WEB, NEXT, *others, old], 1000.0)
    schedule_once(scheduler, [*leaving, PodGone(old.uid)], 1010.0)
    [node] = nodes(schedule_once(scheduler, [replica("new", NEXT, gpus)], 1020.0))
    return node


def test_a_rollout_returns_to_its_node() -> None:
    old = replica("old", WEB, node="n2", phase="Running")
    assert after(old, replace(old, deleting=True)) == "n2"
    assert after(old) == "n2", "it was deleted by force"


def test_another_owner_goes_where_it_would_have_gone() -> None:
    old = replica(
        "old", OwnerSeen("rs-3", "replicaset/db-1", "deployment/db"), node="n2", phase="Running"
    )
    assert after(old, replace(old, deleting=True)) == "n0"


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Pending"])
def test_a_pod_that_did_not_run_to_its_deletion_leaves_no_trace(phase: str) -> None:
    old = replica("old", WEB, node="n2", phase=phase)
    assert after(old, replace(old, deleting=True)) == "n0"


def test_closeness_and_best_fit_win() -> None:
    old = replica("old", WEB, node="n2", phase="Running")
    busy = factories.pod("busy", gpus=4, node="n1", phase="Running")
    assert after(old, replace(old, deleting=True), others=(busy,), gpus=4) == "n1"
    taken = factories.pod("taken", gpus=4, node="n6", phase="Running")
    half = replica("old", WEB, gpus=4, node="n6", phase="Running")
    assert after(half, replace(half, deleting=True), others=(taken,)) == "n4"


def placed(*facts: Fact, new: Sequence[PodSeen]) -> list[str]:
    """The nodes of the new pods once another pod of their owner has left n2."""
    scheduler, old = (
        new_scheduler(factories.LEVELS),
        replica("old", WEB, node="n2", phase="Running"),
    )
    schedule_once(scheduler, [*NODES, WEB, NEXT, *facts, old], 1000.0)
    schedule_once(scheduler, [replace(old, deleting=True), PodGone(old.uid)], 1010.0)
    return nodes(schedule_once(scheduler, new, 1020.0))


def test_two_pods_share_no_node_that_one_fills() -> None:
    grouped = replace(NEXT, gang_min=2)
    assert placed(grouped, new=[replica("a", NEXT), replica("b", NEXT)]) == ["n1", "n2"]


def test_a_member_of_the_gang_attracts_more() -> None:
    grouped = replace(NEXT, gang_min=1)
    member = replica("a", NEXT, gpus=4, node="n1", phase="Running")
    foreign = factories.pod("b", gpus=4, node="n2", phase="Running")
    found = placed(grouped, member, foreign, new=[replica("c", NEXT, gpus=4)])
    assert found == ["n1"]


def test_system_pods_do_not_matter_to_pods_with_gpus() -> None:
    system = factories.pod("system", cpu=300, node="n2", phase="Running")
    assert placed(system, new=[replica("new", NEXT)]) == ["n2"]
    full = factories.pod("full", cpu=63_950, node="n2", phase="Running")
    assert placed(full, new=[replica("new", NEXT)]) == ["n0"]


def test_gpus_that_others_could_not_use_are_taken_first() -> None:
    usual = [
        factories.pod(f"u-{i}", gpus=1, cpu=8_000, node=f"n{4 + i // 8}", phase="Running")
        for i in range(32)
    ]
    busy = factories.pod("busy", cpu=32_000, node="n1", phase="Running")
    assert placed(*usual, busy, new=[replica("new", NEXT, gpus=1)]) == ["n1"]


def test_pods_without_gpus_return_to_the_same_room() -> None:
    def web(name: str) -> PodSeen:
        return replica(name, NEXT, gpus=0)

    assert placed(new=[web("new")]) == ["n2"]
    assert placed(factories.pod("busy", cpu=32_000, node="n2"), new=[web("new")]) == ["n2"]
    assert placed(factories.pod("busy", cpu=32_000, node="n1"), new=[web("new")]) == ["n1"]


def test_other_gpus_are_another_state() -> None:
    topologies = [factories.topology(), factories.topology(islands=((0, 1, 2, 3), (4, 5, 6, 7)))]
    reports = [NodeReported(node.name, "b", 1, topologies[node.name == "n2"]) for node in NODES]
    assert placed(*reports, new=[replica("new", NEXT, gpus=4)]) == ["n2"]
    reports = [NodeReported(node.name, "b", 1, topologies[node.name != "n2"]) for node in NODES]
    assert placed(*reports, new=[replica("new", NEXT, gpus=4)]) == ["n0"]


def test_preferences_of_the_pods_win() -> None:
    wanted = Requirement(factories.HOST, "In", ("n3",))
    rules = Rules(nodes=((1, (wanted,)),))
    new = replica("new", NEXT)
    assert placed(new=[replace(new, spec=replace(new.spec, rules=rules))]) == ["n3"]
    soft = Taint("old", "", "PreferNoSchedule")
    assert placed(replace(NODES[2], taints=(soft,)), new=[new]) == ["n0"]


def test_it_returns_to_no_other_rack_and_to_no_cordoned_node() -> None:
    old = replica("old", WEB, node="n6", phase="Running")
    assert after(old, replace(old, deleting=True)) == "n0"
    old = replica("old", WEB, node="n2", phase="Running")
    cordoned = replace(NODES[2], unschedulable=True)
    assert after(old, replace(old, deleting=True), cordoned) == "n0"


def test_a_state_that_is_built_again_still_knows_them() -> None:
    old = replica("old", WEB, node="n2", phase="Running")
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*NODES, WEB, NEXT, old], 1000.0)
    schedule_once(scheduler, [replace(old, deleting=True), PodGone(old.uid)], 1010.0)
    rebuild(scheduler)
    assert nodes(schedule_once(scheduler, [replica("new", NEXT)], 1020.0)) == ["n2"]


def test_what_is_remembered_is_bounded() -> None:
    known = FormerNodes()
    for number in range(OWNERS_MOST + 1):
        known.left(("ns", f"deployment/d{number}"), "n0")
    for number in range(NODES_MOST + 1):
        known.left(("ns", "deployment/d9"), f"n{number}")
    assert len(known.by_owner) == OWNERS_MOST
    assert known.nodes(("ns", "deployment/d0")) == ()
    assert known.nodes(("ns", "deployment/d9")) == tuple(f"n{n + 1}" for n in range(NODES_MOST))


def test_all_pods_of_a_gang_return() -> None:
    pods = [
        replica(f"w{number}", WEB, node=f"n{number + 1}", phase="Running") for number in range(3)
    ]
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(
        scheduler, [*NODES, replace(WEB, gang_min=3), replace(NEXT, gang_min=3), *pods], 1000.0
    )
    gone = [each for pod in pods for each in (replace(pod, deleting=True), PodGone(pod.uid))]
    schedule_once(scheduler, gone, 1010.0)
    found = nodes(
        schedule_once(scheduler, [replica(f"v{number}", NEXT) for number in range(3)], 1020.0)
    )
    assert found == ["n1", "n2", "n3"]
