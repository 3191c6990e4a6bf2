"""Eviction for a whole gang: who goes, and who need not; and that the room is kept for whom it was made."""

from dataclasses import replace

import pytest

from central.model.decisions import Evict
from central.model.facts import EvictDone, Fact, PodGone, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption.disruption_budgets import disruptions_left
from central.scheduler.state.readiness import end_eviction, not_ready
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def racks() -> list[Fact]:
    return [factories.node(name, rack="r1" if name in "ab" else "r2") for name in "abcd"]


def test_a_gang_makes_find_victims_a_more_urgent_one_and_the_room_is_kept() -> None:
    world = World(*racks())
    world.step(0.0, *job("old", 2, topology_required=RACK), *job("young", 2, created=1.0))
    world.step(50.0)
    urgent = job("urgent", 2, created=50.0, priority=10, topology_required=RACK)
    assert world.step(50.0, *urgent) == []
    assert sorted(world.evicted) in (["old-0", "old-1"], ["young-0", "young-1"])
    gone = world.evicted[0].split("-")[0]
    assert "preempted by ns/urgent (priority 10 > 0)" in world.whys[0]
    assert "waiting for evicted pods to terminate" in world.told["urgent"]
    assert world.step(52.0, *job("small", 1, created=52.0)) == []
    again = [replace(factories.pod(f"{gone}-{i}", 8, gone), uid=f"again-{i}") for i in range(2)]
    assert world.step(55.0, *again) == ["urgent-0", "urgent-1"]
    assert len(world.evicted) == 2
    assert not world.cluster.reservations or not any(
        kept.by_eviction for kept in world.cluster.reservations.values()
    )


def test_equal_priority_is_left_alone() -> None:
    world = World(*racks())
    world.step(0.0, *job("idle", 1, gpus=0), *job("old", 4, priority=3))
    world.step(1.0, *job("same", 1, created=1.0, priority=3))
    assert not world.evicted


def test_never_means_never() -> None:
    world = World(*racks())
    world.step(0.0, *job("old", 4))
    world.step(1.0, *job("polite", 1, created=1.0, priority=3, preempts=False))
    assert not world.evicted
    world.step(2.0, *job("urgent", 1, created=2.0, priority=3))
    assert len(world.evicted) == 4  # its gang needs all four


def test_members_above_the_minimum_go_first_and_one_by_one() -> None:
    world = World(*racks())
    world.step(0.0, *job("elastic", 3, least=2), *job("single", 1, created=1.0))
    world.step(1.0, *job("urgent", 1, created=1.0, priority=3))
    assert len(world.evicted) == 1
    assert world.evicted[0].startswith("elastic")
    assert world.step(6.0) == ["urgent-0"]


def test_each_role_keeps_its_own_minimum() -> None:
    """One server of one, three workers of which two must stay: the third worker goes, and no more."""
    world = World(*racks())
    group = factories.gang("train", 3, task_min=(("server", 1), ("worker", 2)))
    tasks = ("server", "worker", "worker", "worker")
    pods = [factories.pod(f"train-{i}", 8, "train", task=task) for i, task in enumerate(tasks)]
    world.step(0.0, group, *pods)
    world.step(9.0, *job("urgent", 1, created=9.0, priority=3))
    assert world.evicted == ["train-3"]
    world.step(20.0, *job("more", 1, created=20.0, priority=3))
    assert len(world.evicted) == 4, "then it gives way whole"


def test_the_least_work_is_lost() -> None:
    world = World(*racks())
    for number in range(4):
        world.step(100.0 * number, *job(f"j{number}", 1, created=float(number)))
    world.step(500.0, *job("urgent", 1, created=500.0, priority=3))
    assert world.evicted == ["j3-0"]


def test_work_that_is_saved_is_not_lost() -> None:
    world = World(*racks())
    for number in range(4):
        saved = 490.0 if number == 1 else None
        made = job(f"j{number}", 1, created=float(number), checkpoint=saved)
        world.step(100.0 * number, *made)
    world.step(500.0, *job("urgent", 1, created=500.0, priority=3))
    assert world.evicted == ["j1-0"]


def test_nobody_goes_when_it_does_not_help_in_full() -> None:
    world = World(*racks())
    world.step(0.0, *job("high", 3, priority=9), *job("low", 1, created=1.0))
    world.step(1.0, *job("urgent", 2, created=1.0, priority=3))
    world.step(2.0, *job("huge", 5, created=1.0, priority=10))
    assert not world.evicted


def test_who_is_leaving_anyway_makes_room_and_nobody_else_goes() -> None:
    world = World(*racks())
    world.step(0.0, *job("old", 3), *job("going", 1, created=1.0))
    pod = world.cluster.state.pods["uid-going-0"]
    leaving = factories.pod("going-0", 8, "going", node=pod.node, phase="Running", deleting=True)
    world.step(1.0, leaving, *job("urgent", 1, created=1.0, priority=3))
    assert not world.evicted
    assert "waiting for pods to terminate" in world.told["urgent"]


def test_a_budget_that_refuses_sends_the_claimant_to_others() -> None:
    world = World(*racks())
    for number in range(4):
        world.step(100.0 * number, *job(f"j{number}", 1, created=float(number)))
    world.budgets = {"j3-0"}
    world.step(500.0, *job("urgent", 1, created=500.0, priority=3))
    assert not world.evicted
    world.step(501.0)
    assert world.evicted == ["j2-0"]
    assert world.step(506.0) == ["urgent-0"]


def test_when_all_budgets_refuse_it_is_asked_again_later() -> None:
    world = World(factories.node("a"))
    world.step(0.0, *job("j", 1))
    world.budgets = {"j-0"}
    world.step(1.0, *job("urgent", 1, created=1.0, priority=3))
    world.step(2.0)
    world.budgets.clear()
    world.step(30.0)
    assert not world.evicted
    world.step(62.0)
    world.step(62.5)  # it was asked first, and agreed
    assert world.evicted == ["j-0"]


def web(name: str, pods: int, **other: object) -> list[Fact]:
    """A gang that disruption budgets may cover."""
    return job(name, pods, labels=(("app", name),), **other)  # type: ignore[arg-type]  # a test's shorthand


def test_a_budget_that_is_known_is_planned_with() -> None:
    world = World(*racks())
    for number in range(4):
        world.step(100.0 * number, *web(f"j{number}", 1, created=float(number)))
    world.step(490.0, factories.budget("j3", 0))
    world.budgets = {"j3-0"}
    world.step(500.0, *job("urgent", 1, created=500.0, priority=3))
    assert world.evicted == ["j2-0"]
    assert world.step(505.0) == ["urgent-0"]


@pytest.mark.long
def test_nobody_goes_for_nothing_where_a_budget_stands_in_the_way() -> None:
    """Two nodes, of which one can't be emptied: the other's pods stay, however long it is asked."""
    world = World(factories.node("a"), factories.node("b"))
    world.step(0.0, *web("web", 1, gpus=4))
    world.step(1.0, *(fact for i in range(3) for fact in job(f"low{i}", 1, 4, created=1.0)))
    world.step(2.0, factories.budget("web", 0))
    wanted = job("big", 2, gpus=6, created=3.0, priority=9)
    for now in range(3, 130):
        world.step(float(now), *(wanted if now == 3 else ()))
    assert not [each for each in world.decisions if isinstance(each, Evict)]
    assert (
        "preemption blocked by PodDisruptionBudget ns/keep-web (0 disruptions left)"
        in (world.told["big"])
    )
    world.step(130.0, factories.budget("web", 1))
    world.step(133.0)
    assert len(world.evicted) == 4
    assert world.step(140.0) == ["big-0", "big-1"]
    assert "disruption budget" not in world.told["big"]


def test_a_reason_lists_the_budgets_that_allow_too_little() -> None:
    world = World(factories.node("a"), factories.node("b"))
    world.step(0.0, *web("web", 1), *web("low", 1), factories.budget("low", 1))
    world.step(1.0, factories.budget("web", 0))
    world.step(2.0, *job("big", 2, created=2.0, priority=9))
    blocked = "preemption blocked by PodDisruptionBudget ns/keep-web (0 disruptions left)"
    assert blocked in world.told["big"]


@pytest.mark.long
def test_who_is_covered_is_asked_before_anybody_goes() -> None:
    """The budget's status may be old: what the Eviction API says counts, and nobody else has gone."""
    world = World(factories.node("a"), factories.node("b"))
    world.step(0.0, *web("web", 1, gpus=4), factories.budget("web", 1))
    world.step(1.0, *(fact for i in range(3) for fact in job(f"low{i}", 1, 4, created=1.0)))
    world.budgets = {"web-0"}
    for now in range(3, 100):
        world.step(
            float(now), *(job("big", 2, gpus=6, created=3.0, priority=9) if now == 3 else ())
        )
    assert not world.evicted
    asked = [each for each in world.decisions if isinstance(each, Evict)]
    assert [each.trial for each in asked] == [True, True]  # again after a minute
    assert not any(pod.evicting for pod in world.cluster.state.pods.values())
    assert not any(gang.preemption.preempted_for for gang in world.cluster.state.gangs.values())
    world.budgets.clear()
    for now in range(100, 310):
        world.step(float(now))
    assert len(world.evicted) == 4
    assert "big" in world.began


def test_a_pod_that_ends_while_its_eviction_is_tried_is_not_evicted() -> None:
    """Its result stays, and the others go as planned."""
    world = World(factories.node("a"), factories.node("b"))
    world.step(0.0, *web("web", 2), factories.budget("web", 2))
    urgent = job("urgent", 2, created=1.0, priority=9)
    asked = [each for each in schedule_once(world.cluster, urgent, 1.0) if isinstance(each, Evict)]
    assert [each.trial for each in asked] == [True, True]
    answers = [EvictDone(each.pod, trial=True) for each in asked]
    ended = replace(world.running["uid-web-1"], phase="Succeeded")
    decisions = schedule_once(world.cluster, [*answers, ended], 2.0)
    gone = [(each.name, each.trial) for each in decisions if isinstance(each, Evict)]
    assert gone == [("web-0", False)]


def test_what_is_being_evicted_is_spent_already() -> None:
    world = World(*racks())
    world.step(0.0, *(fact for i in range(4) for fact in web("w", 1, created=float(i))))
    pods = [
        replace(factories.pod(f"w{i}", 8, labels=(("app", "w"),)), uid=f"w{i}") for i in range(4)
    ]
    world.step(1.0, *pods, factories.budget("w", 1))
    world.step(2.0, *job("urgent", 1, created=2.0, priority=3))
    world.step(2.5, *job("second", 1, created=2.5, priority=3))
    assert len(world.evicted) == 1
    assert "PodDisruptionBudget ns/keep-w (0 disruptions left)" in world.told["second"]


def test_surplus_that_is_being_evicted_is_spent_though_its_gang_tries_to_grow() -> None:
    """The budget's status does not show the first eviction yet, and the gang has a pending member."""
    world = World(factories.node("a"), factories.node("b"), factories.node("c"))
    world.step(0.0, *web("w", 4, least=1), factories.budget("w", 1))
    world.step(1.0, *job("first", 1, created=1.0, priority=3))
    world.step(2.0)
    assert len(world.evicted) == 1
    state = world.cluster.state
    (leaving,) = [pod for pod in state.pods.values() if pod.evicting]
    leaving.seen = replace(leaving.seen, deleting=False)  # the watch is late
    gang = state.gang_of(leaving)
    assert gang is not None
    assert not_ready(gang, 0, world.cluster.quarantine) == ("", "")
    end_eviction(gang)
    left = disruptions_left(world.cluster.budgets, state.gangs.values())
    assert left == {("ns", "keep-w"): 0}


def test_whoever_two_budgets_cover_is_never_evicted() -> None:
    world = World(factories.node("a"))
    both = (("app", "x"), ("tier", "y"))
    world.step(0.0, *job("j", 1, labels=both), factories.budget("x", 5))
    world.step(0.5, replace(factories.budget("x", 5), name="other"))
    world.step(1.0, *job("urgent", 1, created=1.0, priority=3))
    world.step(9.0)
    assert not [each for each in world.decisions if isinstance(each, Evict)]


def test_a_claimant_that_gives_up_leaves_the_room_to_others() -> None:
    world = World(factories.node("a"))
    world.step(0.0, *job("j", 1))
    world.step(1.0, *job("urgent", 1, created=1.0, priority=3))
    world.step(2.0, *job("small", 1, created=2.0))
    assert world.step(7.0, PodGone("uid-urgent-0")) == ["small-0"]


def test_an_island_is_emptied_not_just_a_node() -> None:
    world = World(
        factories.node("a"),
        factories.report("a", factories.topology(8, ((0, 1, 2, 3), (4, 5, 6, 7)))),
    )
    for number in range(4):
        world.step(10.0 * number, *job(f"j{number}", 1, gpus=2, created=float(number)))
    wanted = job("urgent", 4, gpus=1, created=99.0, priority=3, topology_required="island")
    world.step(100.0, *wanted)
    assert len(world.evicted) == 2
    assert world.step(105.0) == [f"urgent-{i}" for i in range(4)]


def test_a_gang_of_unlike_pods_makes_room_too() -> None:
    world = World(*racks())
    for number in range(4):
        world.step(10.0 * number, *job(f"j{number}", 1, created=float(number)))
    mixed: list[Fact] = [
        factories.gang("mixed", 3, priority=5, created=50.0),
        factories.pod("mixed-0", 8, "mixed"),
        factories.pod("mixed-1", 4, "mixed"),
        factories.pod("mixed-2", 4, "mixed"),
    ]
    world.step(50.0, *mixed)
    assert len(world.evicted) == 2
    assert world.step(55.0) == ["mixed-0", "mixed-1", "mixed-2"]


def test_a_queue_below_its_share_takes_back_what_the_other_has_above_its_own() -> None:
    world = World(QueueSeen("ours"), QueueSeen("theirs"), *racks(), half_life_s=0.0)
    for number in range(4):
        world.step(10.0 * number, *job(f"t{number}", 1, queue="theirs", created=float(number)))
    assert world.step(50.0, *job("mine", 2, queue="ours", created=50.0)) == []
    assert sorted(world.evicted) == ["t2-0", "t3-0"]
    assert "queue ours is below its fair share" in world.whys[0]
    assert world.step(55.0) == ["mine-0", "mine-1"]
    world.step(56.0, *job("more", 1, queue="ours", created=56.0))
    assert len(world.evicted) == 2


def test_what_a_queue_loses_is_counted_together() -> None:
    world = World(QueueSeen("ours"), QueueSeen("theirs"), *racks(), half_life_s=0.0)
    across = [
        factories.gang(name, 2, queue="theirs", created=float(number))
        for number, name in enumerate(("j", "k"))
    ]
    pods = [
        factories.pod(f"{name}-{rank}", 8, name, node=node, phase="Running")
        for name, where in (("j", "ac"), ("k", "bd"))
        for rank, node in enumerate(where)
    ]
    world.step(0.0, *across, *pods)
    world.step(1.0, *job("wide", 2, queue="ours", topology_required=RACK, created=9.0))
    assert not world.evicted  # one rack takes both gangs, and theirs would be left with nothing
    world.step(2.0, *job("one", 1, queue="ours", created=10.0))
    assert len(world.evicted) == 2


def test_a_vain_search_for_victims_in_one_queue_says_nothing_of_another() -> None:
    """The same request: queue a has nobody to evict, and queue b has."""
    world = World(factories.node("n"), QueueSeen("a"), QueueSeen("b"))
    world.step(1.0, *job("old", 1, queue="b", priority=-1))
    world.step(2.0, *job("x", 1, queue="a", created=2.0), *job("y", 1, queue="b", created=2.0))
    assert world.evicted == ["old-0"]
    assert world.whys == ["preempted by ns/y (priority 0 > -1)"]
