"""Facts twice, late and contradictory: the books follow what is true."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import BindFailed, Fact, NodeGone, PodGone, PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.gpu_sharing import SHARE
from protos.names import GPU, GPU_SHARE, REST_OF_POD
from protos.topology import Grant, indices_of
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def binds(decisions: list[Decision]) -> dict[str, tuple[str, list[int]]]:
    return {d.name: (d.node, list(indices_of(d.gpus))) for d in decisions if isinstance(d, Bind)}


@pytest.fixture
def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    schedule_once(
        made, [factories.node("a"), factories.report("a", factories.topology(8, HALVES))], 0.0
    )
    return made


def free(scheduler: Scheduler, name: str) -> list[int]:
    return list(
        indices_of(
            scheduler.state.snapshot.columns.gpus.free_mask[
                scheduler.state.snapshot.columns.row[name]
            ]
        )
    )


def test_a_plan_that_observed_devices_contradict_is_replaced(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [factories.pod("one", 2), factories.pod("two", 2)], 0.0)
    assert [grant.device_ids for grant in scheduler.state.planned_devices("a")] == [
        ("GPU-0", "GPU-1"),
        ("GPU-2", "GPU-3"),
    ]
    # The kubelet gave the second what was meant for the first.
    truth = (factories.grant("two", 0, 1),)
    scheduler.state.nodes_to_notify.clear()
    schedule_once(scheduler, [factories.report("a", factories.topology(8, HALVES), 2, truth)], 0.0)
    check_invariants(scheduler)
    assert [(grant.pod, grant.device_ids) for grant in scheduler.state.planned_devices("a")] == [
        ("one", ("GPU-2", "GPU-3"))
    ]
    assert scheduler.state.nodes_to_notify == {"a"}
    assert free(scheduler, "a") == [4, 5, 6, 7]


def test_a_gpu_given_to_a_stranger_is_not_planned_for(scheduler: Scheduler) -> None:
    stranger = Grant("other", "pod", "main", "nvidia.com/gpu", ("GPU-0",))
    facts: list[Fact] = [
        factories.report("a", factories.topology(8, HALVES), 2, (stranger,)),
        factories.pod("one", 4),
    ]
    assert binds(schedule_once(scheduler, facts, 0.0)) == {"one": ("a", [4, 5, 6, 7])}
    check_invariants(scheduler)


def test_a_sick_gpu_is_not_given_and_comes_back(scheduler: Scheduler) -> None:
    sick = factories.topology(8, HALVES, sick=(0, 5))
    schedule_once(scheduler, [factories.report("a", sick, 2)], 0.0)
    assert free(scheduler, "a") == [1, 2, 3, 4, 6, 7]
    schedule_once(scheduler, [factories.report("a", factories.topology(8, HALVES), 3)], 0.0)
    assert free(scheduler, "a") == list(range(8))


def test_an_old_report_changes_nothing_and_generations_restart_with_the_agent(
    scheduler: Scheduler,
) -> None:
    schedule_once(scheduler, [factories.report("a", factories.topology(4), 5)], 0.0)
    schedule_once(scheduler, [factories.report("a", factories.topology(8), 4)], 0.0)
    assert free(scheduler, "a") == [0, 1, 2, 3]
    schedule_once(scheduler, [factories.report("a", factories.topology(8), 1, boot="later")], 0.0)
    assert free(scheduler, "a") == list(range(8))


def test_a_fact_older_than_the_binding_does_not_unbind_the_pod(scheduler: Scheduler) -> None:
    pod = factories.pod("one", 2)
    assert binds(schedule_once(scheduler, [pod], 0.0))
    late = factories.pod("one", 2, priority=1)
    assert not binds(schedule_once(scheduler, [late], 0.0))
    assert scheduler.state.pods[pod.uid].node == "a"
    check_invariants(scheduler)


def test_a_failed_binding_gives_back_and_is_tried_again_later(scheduler: Scheduler) -> None:
    pod = factories.pod("one", 2)
    schedule_once(scheduler, [pod], 0.0)
    assert not binds(schedule_once(scheduler, [BindFailed(pod.uid, "a", "busy")], 10.0))
    assert free(scheduler, "a") == list(range(8))
    assert binds(schedule_once(scheduler, [], 11.0))
    check_invariants(scheduler)


def test_a_binding_that_can_never_succeed_is_not_tried_again(scheduler: Scheduler) -> None:
    pod = factories.pod("one", 2)
    schedule_once(scheduler, [pod], 0.0)
    schedule_once(scheduler, [BindFailed(pod.uid, "a", "it is forbidden", final=True)], 0.0)
    assert not binds(schedule_once(scheduler, [], 1000.0))
    gang = scheduler.state.gang_of(scheduler.state.pods[pod.uid])
    assert gang is not None
    assert gang.attempt.reason == "it is forbidden"


def test_pods_that_were_listed_before_their_node_take_their_room_when_it_comes() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [factories.pod("old", 6, node="a", phase="Running")], 0.0)
    schedule_once(
        scheduler, [factories.report("a", grants=(factories.grant("old", *range(6)),))], 0.0
    )
    schedule_once(
        scheduler,
        [factories.node("a"), factories.pod("big", 4, created=1.0), factories.pod("small", 2)],
        0.0,
    )
    check_invariants(scheduler)
    assert scheduler.state.pods["uid-small"].gpus == 0b11000000
    assert not scheduler.state.pods["uid-big"].node


def test_a_node_that_goes_and_comes_keeps_nothing_that_is_gone(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [factories.pod("one", 2)], 0.0)
    schedule_once(scheduler, [NodeGone("a")], 0.0)
    check_invariants(scheduler)
    schedule_once(scheduler, [PodGone("uid-one"), factories.node("a"), factories.report("a")], 0.0)
    check_invariants(scheduler)
    assert free(scheduler, "a") == list(range(8))


def test_a_pod_made_again_under_its_name_is_another(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [factories.pod("one", 8)], 0.0)
    again = factories.pod("one", 8)
    fresh = type(again)("uid-new", "ns", "one", again.spec, order=again.order)
    assert binds(schedule_once(scheduler, [fresh], 0.0)) == {"one": ("a", list(range(8)))}
    schedule_once(scheduler, [PodGone("uid-one")], 0.0)
    check_invariants(scheduler)
    assert scheduler.state.pods["uid-new"].node == "a"


def test_others_pods_are_respected_by_count_until_the_truth_is_known(scheduler: Scheduler) -> None:
    other = factories.pod("other", 6, node="a", ours=False, phase="Running")
    schedule_once(scheduler, [other, factories.pod("four", 4)], 0.0)
    assert not scheduler.state.pods["uid-four"].node
    assert binds(schedule_once(scheduler, [factories.pod("two", 2)], 0.0))
    check_invariants(scheduler)


def test_the_agent_is_told_of_planned_gpus(scheduler: Scheduler) -> None:
    scheduler.state.nodes_to_notify.clear()
    schedule_once(scheduler, [factories.pod("plain")], 0.0)
    assert not scheduler.state.nodes_to_notify
    schedule_once(scheduler, [factories.pod("one", 2)], 1.0)
    assert scheduler.state.nodes_to_notify == {"a"}


def test_only_the_agent_that_a_pod_leaves_is_told_of_its_end(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [factories.pod("one", 2)], 0.0)
    scheduler.state.nodes_to_notify.clear()
    schedule_once(scheduler, [PodGone("uid-one")], 1.0)
    assert scheduler.state.nodes_to_notify == {"a"}
    assert free(scheduler, "a") == [*range(8)]
    check_invariants(scheduler)


def test_gpus_that_only_an_init_container_uses_are_planned_too(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [containers("one", main=2, rest=2)], 0.0)
    assert plans(scheduler) == {"main": ("GPU-0", "GPU-1"), REST_OF_POD: ("GPU-2", "GPU-3")}


def containers(name: str, rest: int = 0, **counts: int) -> PodSeen:
    """A pod with these GPUs for its containers, and for init containers alone."""
    whole = factories.pod(name, sum(counts.values()) + rest)
    asked = (*counts.items(), *(((REST_OF_POD, rest),) if rest else ()))
    return replace(whole, spec=replace(whole.spec, gpu_containers=asked))


def plans(scheduler: Scheduler) -> dict[str, tuple[str, ...]]:
    found = scheduler.state.planned_devices("a")
    assert all(grant.uid == f"uid-{grant.pod}" for grant in found)
    return {grant.container: grant.device_ids for grant in found}


def reports(scheduler: Scheduler, generation: int, *grants: Grant) -> None:
    fact = factories.report("a", factories.topology(8, HALVES), generation, grants)
    schedule_once(scheduler, [fact], 0.0)
    check_invariants(scheduler)


def held(container: str, *gpus: int, uid: str = "") -> Grant:
    """By the pod "one", or by a pod whose UID alone is known."""
    ids = tuple(f"GPU-{gpu}" for gpu in gpus)
    return Grant("" if uid else "ns", uid or "one", container, GPU, ids)


def test_containers_without_devices_keep_their_plan(scheduler: Scheduler) -> None:
    """A report between two containers of one admission."""
    schedule_once(scheduler, [containers("one", c0=2, c1=1, rest=1)], 0.0)
    assert plans(scheduler) == {"c0": ("GPU-0", "GPU-1"), "c1": ("GPU-2",), "": ("GPU-3",)}
    reports(scheduler, 2, held("c0", 0, 1))
    assert plans(scheduler) == {"c1": ("GPU-2",), "": ("GPU-3",)}
    assert free(scheduler, "a") == [4, 5, 6, 7]
    reports(scheduler, 3, held("c0", 0, 1))  # again
    assert plans(scheduler) == {"c1": ("GPU-2",), "": ("GPU-3",)}
    # The kubelet gave the next one another GPU; the pod has as many as it asked for.
    reports(scheduler, 4, held("c0", 0, 1), held("c1", 7), held("", 6, uid="uid-one"))
    assert free(scheduler, "a") == [2, 3, 4, 5]


def test_what_other_pods_have_is_not_kept_for_containers_that_wait(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [containers("one", c0=1, c1=1), factories.pod("two", 1)], 0.0)
    theirs = replace(held("main", 1), pod="two")
    reports(scheduler, 2, held("c0", 0), theirs)
    assert [pod.gpus for pod in scheduler.state.pods.values()] == [1, 2]


def test_what_is_kept_for_containers_that_wait_is_planned_for_nobody_else(
    scheduler: Scheduler,
) -> None:
    schedule_once(scheduler, [containers("one", c0=1, c1=1), factories.pod("two", 1)], 0.0)
    reports(scheduler, 2, held("c0", 0), held("", 2, uid="uid-unknown"))
    pods = scheduler.state.nodes["a"].pods
    assert (pods["uid-one"].gpus, pods["uid-two"].gpus) == (0b11, 0b1000)


def test_a_pod_that_a_report_lacks_gets_no_plan_anew(scheduler: Scheduler) -> None:
    """A restarted kubelet lists it only after it has admitted it again."""
    schedule_once(scheduler, [containers("one", c0=1, rest=1)], 0.0)
    reports(scheduler, 2, held("c0", 0), held("", 1, uid="uid-one"))
    reports(scheduler, 3)
    assert not plans(scheduler)
    assert free(scheduler, "a") == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("early", [False, True])
def test_gpus_of_init_containers_are_those_of_the_pod_with_that_uid(
    scheduler: Scheduler, early: bool
) -> None:
    pod = replace(containers("one", c0=1, rest=2), node="a")
    grants = (held("c0", 5), held("", 4, 7, uid="uid-one"), held("", 6, uid="uid-unknown"))
    if not early:
        schedule_once(scheduler, [pod], 0.0)
    reports(scheduler, 2, *grants)
    if early:
        assert scheduler.state.nodes["a"].foreign_gpus == 0b11110000
        schedule_once(scheduler, [pod], 0.0)
    check_invariants(scheduler)
    node = scheduler.state.nodes["a"]
    assert (node.pods["uid-one"].gpus, node.foreign_gpus) == (0b10110000, 0b1000000)
    schedule_once(scheduler, [PodGone("uid-one")], 0.0)
    assert free(scheduler, "a") == [0, 1, 2, 3, 4, 5, 7]


def test_shares_of_init_containers_are_those_of_the_pod_with_that_uid() -> None:
    made = new_scheduler(factories.LEVELS)
    shared = factories.topology(8, HALVES, shares=True)
    pod = factories.part("one", 60)
    pod = replace(pod, spec=replace(pod.spec, share_containers=(("c0", 20), (REST_OF_POD, 40))))
    schedule_once(made, [factories.node("a", shares=True), factories.report("a", shared), pod], 0.0)
    planned = [(g.container, dict(g.limits)[SHARE], g.uid) for g in made.state.planned_devices("a")]
    assert planned == [("", 40, "uid-one"), ("c0", 20, "uid-one")]
    parts = [
        Grant("ns", "one", "c0", GPU_SHARE, ("GPU-5",), ((SHARE, 20),)),
        Grant("", "uid-one", "", GPU_SHARE, ("GPU-5",), ((SHARE, 40),)),
    ]
    for count in (1, 2):
        schedule_once(made, [factories.report("a", shared, 1 + count, tuple(parts[:count]))], 0.0)
        check_invariants(made)
        assert made.state.nodes["a"].free_shares() == {5: 40}
        assert bool(made.state.planned_devices("a")) == (count == 1)


def test_a_pod_of_an_earlier_ones_name_gets_a_plan(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [containers("one", c0=1)], 0.0)
    reports(scheduler, 2, held("c0", 0))
    assert not plans(scheduler)
    again = replace(containers("one", c0=1), uid="uid-two")
    schedule_once(scheduler, [PodGone("uid-one"), again], 0.0)
    assert [grant.uid for grant in scheduler.state.planned_devices("a")] == ["uid-two"]
