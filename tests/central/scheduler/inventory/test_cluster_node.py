"""A node's GPU accounting: what reports confirm, and what stays planned beside it."""

from dataclasses import fields, replace
from random import Random

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodSeen, Taint
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import OBSERVED
from central.scheduler.scheduler import Scheduler
from protos.topology import Grant
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

TOPOLOGY = factories.topology(4, ((0, 1), (2, 3)), shares=True)


def scheduler_with(*pods: PodSeen) -> Scheduler:
    """One node of four GPUs, and pods that are bound to it."""
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node("a", gpus=4, shares=True), factories.report("a", TOPOLOGY)]
    schedule_once(made, facts, 0.0)
    for pod in pods:  # one after another, so that the order of their GPUs is plain
        schedule_once(made, [pod], 0.0)
    assert all(pod.node == "a" for pod in made.state.pods.values())
    return made


def report(made: Scheduler, generation: int, *grants: Grant) -> ClusterNode:
    apply(made, factories.report("a", TOPOLOGY, generation, grants))
    return made.state.nodes["a"]


def gpus_of(made: Scheduler, name: str) -> int:
    return made.state.pods[f"uid-{name}"].gpus


def test_a_planned_share_is_charged_to_its_own_gpu() -> None:
    made = scheduler_with(factories.part("p", 60), factories.part("q", 60))
    assert {gpus_of(made, "p"), gpus_of(made, "q")} == {0b01, 0b10}
    node = report(made, 2)
    assert node.free_shares() == {0: 40, 1: 40}
    assert node.free() == 0b1100


def test_shares_planned_for_one_gpu_do_not_exceed_it() -> None:
    """The report moves p to q's GPU, and q's plan moves away from it, but not onto r's."""
    pods = [factories.part(name, 60) for name in "pqr"]
    made = scheduler_with(*pods)
    before = {name: gpus_of(made, name) for name in "pqr"}
    assert len(set(before.values())) == 3
    taken = before["q"].bit_length() - 1
    report(made, 2, factories.grant_part("p", taken, 60))
    after = {name: gpus_of(made, name) for name in "pqr"}
    assert after["p"] == before["q"]
    assert after["r"] == before["r"]
    assert len(set(after.values())) == 3


def test_whole_gpus_are_planned_beside_planned_shares() -> None:
    """The report gives another pod the GPUs planned for w. What is left beside the share is one
    pair of GPUs with the share on it, so w's two GPUs cannot be planned there."""
    made = scheduler_with(factories.part("a-share", 50), factories.pod("w", 2))
    assert (gpus_of(made, "a-share"), gpus_of(made, "w")) == (0b0001, 0b1100)
    report(made, 2, factories.grant("unknown", 2))
    assert gpus_of(made, "a-share") == 0b0001
    assert gpus_of(made, "w") == 0b1010


def test_a_pod_keeps_observed_gpus_that_a_later_report_leaves_out() -> None:
    """pod-resources leaves out a pod that the kubelet admits again; its GPUs stay its own."""
    made = scheduler_with(factories.part("s", 60), factories.pod("w", 1))
    report(made, 2, factories.grant_part("s", 3, 60), factories.grant("w", 2))
    report(made, 3)
    assert (gpus_of(made, "s"), gpus_of(made, "w")) == (0b1000, 0b0100)
    assert all(pod.observed for pod in made.state.pods.values())


def test_an_observed_gpu_that_a_report_gives_to_another_pod_is_planned_again() -> None:
    made = scheduler_with(factories.pod("w", 1))
    report(made, 2, factories.grant("w", 2))
    report(made, 3, factories.grant("unknown", 2))
    pod = made.state.pods["uid-w"]
    assert not pod.observed
    assert pod.gpus not in (0, 0b0100)


def test_a_gpu_that_is_reported_for_two_pods_belongs_to_one() -> None:
    made = scheduler_with(factories.pod("p", 2), factories.pod("q", 2))
    report(made, 2, factories.grant("p", 0, 1), factories.grant("q", 1, 2))
    assert (gpus_of(made, "p"), gpus_of(made, "q")) == (0b0011, 0b0100)


def test_a_share_that_is_reported_on_a_whole_gpu_is_not_believed() -> None:
    made = scheduler_with(factories.part("s", 60), factories.pod("w", 1))
    node = report(made, 2, factories.grant("w", 3), factories.grant_part("s", 3, 60))
    assert (gpus_of(made, "s"), gpus_of(made, "w")) == (0, 0b1000)
    assert 3 not in node.free_shares()


def test_shares_that_are_reported_beyond_a_whole_gpu_are_not_believed() -> None:
    made = scheduler_with(factories.part("s", 60), factories.part("t", 60))
    report(made, 2, factories.grant_part("s", 3, 60), factories.grant_part("t", 3, 60))
    assert (gpus_of(made, "s"), gpus_of(made, "t")) == (0b1000, 0)


def test_a_pod_that_another_scheduler_takes_over_has_no_planned_share() -> None:
    made = scheduler_with(factories.part("s", 30))
    gpu = gpus_of(made, "s").bit_length() - 1
    apply(made, replace(factories.part("s", 30), node="a", ours=False))
    report(made, 2, factories.grant("unknown", gpu))
    check_invariants(made)
    assert gpus_of(made, "s") == 0


def test_shares_that_fill_a_gpu_exactly_stay_when_a_report_misses_them() -> None:
    made = scheduler_with(factories.part("p", 50), factories.part("q", 50))
    report(made, 2, factories.grant_part("p", 2, 50), factories.grant_part("q", 2, 50))
    report(made, 3, factories.grant_part("p", 2, 50))
    assert gpus_of(made, "p") == gpus_of(made, "q") == 0b100
    assert made.state.pods["uid-q"].observed


def test_a_plan_that_holds_is_not_taken_for_one_that_does_not() -> None:
    """A stranger has one of a's GPUs. What is left of the node is not enough for a, and b keeps its own."""
    made = scheduler_with(factories.pod("a", 2), factories.pod("b", 2))
    assert (gpus_of(made, "a"), gpus_of(made, "b")) == (0b0011, 0b1100)
    report(made, 2, factories.grant("stranger", 0))
    assert (gpus_of(made, "a"), gpus_of(made, "b")) == (0, 0b1100)


def test_what_was_observed_goes_before_plans() -> None:
    made = scheduler_with(factories.pod("planned", 1), factories.pod("seen", 1))
    report(made, 2, factories.grant("seen", 3))
    made.state.pods["uid-planned"].gpus = 0b1000
    report(made, 3)
    assert gpus_of(made, "seen") == 0b1000
    assert gpus_of(made, "planned") not in (0, 0b1000)


@pytest.mark.parametrize("seed", range(60))
def test_to_reconcile_again_changes_nothing(seed: int) -> None:
    dice = Random(seed)
    whole = [factories.pod(f"w{i}", dice.choice((1, 1, 2))) for i in range(dice.randint(0, 3))]
    parts = [factories.part(f"s{i}", dice.choice((30, 60))) for i in range(dice.randint(0, 4))]
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [factories.node("a", gpus=4, shares=True), factories.report("a", TOPOLOGY)]
    bound = [replace(pod, node="a") for pod in (*whole, *parts)]
    schedule_once(made, [*facts, *bound], 0.0)
    for pod in made.state.pods.values():  # whatever was planned and lost before
        pod.gpus = 1 << dice.randrange(4) if pod.share else dice.choice((0, 1, 3, 8, 12))
        if dice.random() < 0.3:
            pod.advance(OBSERVED)
    grants = [factories.grant("w0", dice.randrange(4)), factories.grant_part("s1", 2, 30)]
    node = report(made, 2, *dice.sample(grants, dice.randint(0, 2)))
    find = {(pod.seen.namespace, pod.seen.name): pod for pod in made.state.pods.values()}.get
    before = [(pod.gpus, pod.life) for pod in made.state.pods.values()]
    node.reconcile_devices(find)
    assert [(pod.gpus, pod.life) for pod in made.state.pods.values()] == before
    check_invariants(made)


def test_devices_of_unknown_pods_are_free_once_no_report_lists_them() -> None:
    made = scheduler_with()
    grants = factories.grant("elsewhere", 0), factories.grant_part("beside", 1, 30)
    node = report(made, 2, *grants)
    assert (node.free(), node.free_shares()) == (0b1100, {1: 70})
    node = report(made, 3)
    assert (node.free(), node.free_shares()) == (0b1111, {})


def test_a_report_changes_nothing_else_of_the_node() -> None:
    seen = replace(
        factories.node("a", taints=(Taint("t", "v", "NoSchedule"),), unschedulable=True),
        ready=False,
    )
    node = ClusterNode("a")
    node.seen = seen
    node.apply_report(factories.report("a", TOPOLOGY))
    merged = node.merged()
    assert merged is not None
    of_reports = {"rdma_most", "rdma_exclusive", "memory_level", "gpus", "told"}
    kept = {field.name for field in fields(seen)} - of_reports
    assert {name: getattr(merged, name) for name in kept} == {
        name: getattr(seen, name) for name in kept
    }
