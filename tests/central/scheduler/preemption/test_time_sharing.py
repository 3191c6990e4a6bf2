"""Gangs of a queue with a quantum share time: who is behind its fair share takes the place of who is ahead of its
own."""

from dataclasses import replace

import pytest

from central.model.decisions import SUSPENSION, Evict, UpdateGangStatus
from central.model.facts import Fact, GangSeen, PodGone, PodSeen, QueueSeen
from central.model.past_turns import PastTurns
from central.scheduler import cycle
from central.scheduler.preemption.time_sharing import TimeSharing
from central.scheduler.queues import claimable_quota
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

QUANTUM_S = 600.0


def world(*, nodes: int = 1, quantum_s: float | None = QUANTUM_S, **queue: object) -> World:
    machines = [factories.node(f"n{index}") for index in range(nodes)]
    return World(*machines, QueueSeen("default", quantum_s=quantum_s, **queue))  # type: ignore[arg-type]


def trains(name: str, gpus: int, hours: float, at_s: float = 0.0, **other: object) -> list[Fact]:
    other = {"suspension_s": 10.0, "created": at_s, **other}
    return job(name, 1, gpus, 3600 * hours, **other)


def plays(there: World, until_s: float, from_s: float = 0.0, step_s: float = 60.0) -> None:
    now = from_s
    while now <= until_s:
        there.step(now)
        now += step_s


def sharing(there: World) -> TimeSharing:
    return there.cluster.preemption.time_sharing


def test_a_gang_that_becomes_late_takes_the_place_of_one_that_has_had_its_quantum() -> None:
    """Two ask for all GPUs, so each should end within 1.7 times its run time: the short one is late after 0.7 h."""
    there = world()
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    assert (
        "not behind its fair share; others may be suspended for it in about 40 min"
        in there.told["short"]
    )
    assert "reserved" not in there.told["short"], "its turn comes"
    plays(there, 2520.0, 120.0)
    assert not there.evicted
    there.grace_s = 100.0
    plays(there, 2700.0, 2580.0)
    assert there.evicted == ["long-0"]
    assert there.whys == ["suspended after its quantum: it is the turn of ns/short"]
    (evict,) = [each for each in there.decisions if isinstance(each, Evict)]
    assert evict.cause == SUSPENSION
    assert there.told["long"] == "suspended for short after its quantum"
    plays(there, 2820.0, 2760.0)
    assert there.running["uid-short-0"].node


def test_nobody_is_suspended_before_its_quantum() -> None:
    there = world()
    there.step(0.0, *trains("late", 8, 0.1))
    there.step(10.0, *trains("other", 8, 0.1, 10.0))
    plays(there, 340.0, 10.0, 10.0)
    assert not there.evicted  # it is late after 252 s, and the first one ends after 360 s


def test_a_suspension_costs_no_more_than_a_twentieth_of_the_run_time() -> None:
    there = world()
    there.step(0.0, *trains("long", 8, 10, suspension_s=120.0))
    gang = there.cluster.state.gangs["ns", "long", True]
    assert sharing(there).quantum_s(there.cluster.queues, gang) == 2400.0


@pytest.mark.long
def test_whose_suspension_costs_more_than_ten_quanta_allow_shares_no_time() -> None:
    """It would suspend others and in practice never be suspended."""
    for cost_s, quantum_s in ((300.0, 6000.0), (301.0, None), (3e9, None)):
        there = world()
        there.step(0.0, *trains("long", 8, 10))
        there.step(60.0, *trains("costly", 8, 1, 60.0, suspension_s=cost_s))
        gang = there.cluster.state.gangs["ns", "costly", True]
        assert sharing(there).quantum_s(there.cluster.queues, gang) == quantum_s
        plays(there, 2700.0, 120.0)
        assert bool(there.evicted) == (quantum_s is not None)


def test_without_a_quantum_or_consent_nobody_is_suspended() -> None:
    for quantum_s, cost_s in ((None, 10.0), (0.0, 10.0), (QUANTUM_S, None)):
        there = world(quantum_s=quantum_s)
        there.step(0.0, *trains("long", 8, 10, suspension_s=cost_s))
        there.step(60.0, *trains("short", 8, 1, 60.0, suspension_s=cost_s))
        plays(there, 6000.0, 120.0, 600.0)
        assert not there.evicted
        assert "behind its fair share" not in there.told["short"]


def test_consent_of_every_pod_and_equal_priority_are_asked_for() -> None:
    there = world()
    members = trains("long", 4, 10) + trains("more", 4, 10, suspension_s=None)
    there.step(0.0, *members)
    there.step(60.0, *trains("short", 8, 1, 60.0))
    plays(there, 6000.0, 120.0, 600.0)
    assert not there.evicted, "half of the place is not enough"
    assert "no gang that may be suspended for it frees enough" in there.told["short"]


@pytest.mark.long
def test_the_least_run_time_of_a_queue_protects_from_suspension() -> None:
    there = world(min_runtime_s=7200.0)
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    plays(there, 7140.0, 120.0)
    assert not there.evicted
    plays(there, 7320.0, 7200.0)
    assert there.evicted == ["long-0"]


def test_all_of_a_gang_starts_in_the_place_of_all_who_go_or_nobody_goes() -> None:
    there = world(nodes=2)
    there.step(0.0, *trains("a", 8, 10), *trains("b", 8, 10))
    there.step(60.0, *job("wide", 2, 8, 3600.0, suspension_s=10.0, created=60.0))
    plays(there, 4000.0, 120.0)
    assert sorted(there.evicted) == ["a-0", "b-0"]
    gang = there.cluster.state.gangs["ns", "wide", True]
    assert len(gang.counts.placed) == 2


@pytest.mark.long
def test_the_gang_that_was_suspended_does_not_take_the_place_back() -> None:
    there = world()
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    plays(there, 2700.0, 120.0)
    assert there.evicted == ["long-0"]
    there.step(2760.0, *trains("long", 8, 10))
    plays(there, 2640.0 + 3600.0, 2820.0)
    assert there.evicted == ["long-0"]
    gang = there.cluster.state.gangs["ns", "long", True]
    plays(there, 6600.0, 6360.0)
    assert len(gang.counts.placed) == 1, "it goes on when the short one has ended"


def test_what_ran_before_counts_though_its_pods_are_new() -> None:
    there = world()
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    plays(there, 2700.0, 120.0)
    there.step(2760.0, *trains("long", 8, 10, 2760.0))
    history = sharing(there).histories.by_key["ns", "long", True]
    assert 2500 < history.attained_s < 2700
    assert history.created == 0.0


def _alone(name: str, at_s: float) -> Fact:
    """A gang by labels."""
    _, pod = trains(name, 8, 10, at_s)
    assert isinstance(pod, PodSeen)
    return replace(pod, gang_min=1)


@pytest.mark.long
def test_a_pod_without_an_object_is_known_again_after_a_suspension_and_only_then() -> None:
    for suspended in (True, False):
        there = world()
        there.step(0.0, _alone("long", 0.0))
        if suspended:
            there.step(60.0, *trains("short", 8, 1, 60.0))
        plays(there, 2700.0, 120.0)
        assert bool(there.evicted) == suspended
        if not suspended:
            there.step(2710.0, PodGone("uid-long-0"))
        there.step(2760.0, _alone("long", 2760.0))
        history = sharing(there).histories.by_key["ns", "long", True]
        assert (history.attained_s > 2500) == suspended
        assert (history.created == 0.0) == suspended


def test_the_first_in_turn_learns_when_its_turn_comes_at_the_latest() -> None:
    there = world()
    there.step(0.0, *trains("first", 8, 0.2), *trains("next", 8, 0.2, 1.0))
    there.step(2.0, *trains("last", 8, 9, 2.0))
    plays(there, 1500.0, 60.0)
    assert "next-0" in {each.name for each in there.running.values()}
    said = {
        reason
        for reason in there.told.values()
        if "running gangs are suspended for it in" in reason
    }
    assert not said
    there = world()
    there.step(0.0, *trains("long", 8, 20))
    there.step(60.0, *trains("small", 8, 0.02, 60.0))
    there.step(300.0)
    assert (
        "running gangs are suspended for it in about 5 min at the latest, unless other gangs get ahead of it"
        in there.told["small"]
    )


def test_a_gang_that_does_not_say_its_run_time_shares_time_by_what_it_has_run() -> None:
    there = world()
    there.step(0.0, *job("old", 1, 8, None, suspension_s=10.0))
    there.step(3600.0, *job("new", 1, 8, None, suspension_s=10.0, created=3600.0))
    plays(there, 7200.0, 3660.0)
    assert there.evicted == ["old-0"]


@pytest.mark.long
def test_equals_at_the_capability_of_their_queue_share_time_too() -> None:
    there = world(nodes=2, capability=(("nvidia.com/gpu", 8),))
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    plays(there, 4000.0, 120.0)
    assert there.evicted == ["long-0"]


def test_pods_are_made_at_the_capability_if_equals_share_time_but_not_beside_more_urgent_ones() -> (
    None
):
    """Only pods can claim, and no claim takes what is more urgent."""
    for urgent, may_claim in ((0, True), (1, False)):
        there = world(nodes=2, capability=(("nvidia.com/gpu", 8),))
        there.step(0.0, *trains("runs", 8, 10, priority=urgent))
        there.step(60.0, *trains("waits", 8, 1, 60.0))
        scheduler = there.cluster
        gang = scheduler.state.gangs["ns", "waits", True]
        groups = [(pod.spec, 1) for pod in gang.members.values()]
        found = claimable_quota.may_claim(scheduler.queues, scheduler.min_resources, gang, groups)
        assert found == may_claim


def test_two_gangs_without_victims_do_not_have_each_other_searched_for_ever() -> None:
    """Each searched at another moment, and one that searches again has the other one tried."""
    there = world(quantum_s=None)
    there.step(0.0, *job("all", 1, 7), *job("short", 1, 1, 1.2))
    there.step(0.3, *job("wide", 1, 8, created=0.3))
    there.step(0.9, *job("half", 1, 4, created=0.9))
    now, wakes = 1.2, 0
    while now < 60:
        there.step(now)
        due = cycle.due(there.cluster, now)
        if due is None:
            break
        now, wakes = max(due, now), wakes + 1
    assert wakes < 10


@pytest.mark.long
def test_of_those_that_may_go_the_one_that_ends_first_goes() -> None:
    there = world()
    there.step(0.0, *trains("ends-first", 4, 5))
    there.step(1.0, *trains("young", 4, 20, 1.0))
    there.step(60.0, *trains("short", 4, 1, 60.0))
    plays(there, 3600.0, 120.0)
    assert there.evicted == ["ends-first-0"]


def test_nobody_wakes_for_the_turn_of_gangs_that_share_time_no_longer() -> None:
    """A wake-up in the past would be due again and again."""
    there = world()
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    assert sharing(there).due()
    there.step(120.0, QueueSeen("default"))
    assert not sharing(there).due()


def test_without_a_quantum_the_gangs_of_a_queue_are_in_the_order_of_their_creation_again() -> None:
    there = world()
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("first", 8, 1, 60.0), *trains("then", 8, 5, 61.0))
    gangs = [there.cluster.state.gangs["ns", name, True] for name in ("first", "then")]
    assert gangs[1].attempt.rank < gangs[0].attempt.rank, "nobody is late, so the longest is first"
    there.step(120.0, QueueSeen("default"))
    assert gangs[0].attempt.rank < gangs[1].attempt.rank
    assert [gang.attempt.run_time_s for gang in gangs] == [3600.0, 18_000.0]


def test_in_their_first_cycle_too_the_longest_of_those_that_are_not_late_goes_first() -> None:
    """Behind the first refused gang those that take no turns go by their run times, the shortest first."""
    there = world()
    there.step(0.0, *trains("runs", 4, 10))
    there.step(
        60.0,
        *trains("head", 8, 10, 60.0),
        *trains("short", 4, 1, 60.0),
        *trains("long", 4, 5, 60.0),
    )
    assert there.began.keys() == {"runs", "long"}


def test_its_status_says_what_it_has_run_until_it_takes_no_turns_any_more() -> None:
    there = world()
    there.step(5.0, *trains("long", 8, 10))
    there.step(60.0, QueueSeen("default"))
    said = [each.past_turns for each in there.decisions if isinstance(each, UpdateGangStatus)]
    assert said == [PastTurns(0, 1.0, 5, runs=True), None]


def test_what_its_status_says_counts_before_it_has_pods_and_with_them() -> None:
    """As after a restart of the scheduler, which may come while a suspended gang has no pods."""
    there = world()
    group, pod = trains("long", 8, 10)
    assert isinstance(group, GangSeen)
    turns = PastTurns(1800, 2.5, 2)
    there.step(0.0, replace(group, past_turns=turns))
    gang = there.cluster.state.gangs["ns", "long", True]
    assert sharing(there).past_turns(gang) == turns
    there.step(3.0, pod)
    assert sharing(there).past_turns(gang) == PastTurns(1800, 2.5, 3, runs=True)
    assert sharing(there).latest_start(gang) == 36_000 * (1 + 0.7 * 1.5) - (36_000 - 1800)


def test_a_late_gang_says_how_many_have_their_turn_before_it() -> None:
    """Those of equal turns are in the order of their names."""
    there = world(quantum_s=7200.0)
    there.step(0.0, *trains("long", 8, 20))
    names = ("c", "a", "b")
    there.step(60.0, *(fact for name in names for fact in trains(name, 8, 0.1, 60.0)))
    plays(there, 2400.0, 120.0, 600.0)
    assert "running gangs are suspended for it in" in there.told["a"]
    assert "running gangs are suspended for 1 gang of its queue first" in there.told["b"]
    assert "running gangs are suspended for 2 gangs of its queue first" in there.told["c"]


def test_between_two_looks_new_gangs_have_their_own_latest_start() -> None:
    """As in a round of several slices."""
    there = world()
    there.step(0.0, *trains("long", 8, 10))
    cycle.apply_facts(there.cluster, trains("new", 8, 1, 60.0), 60.0)
    gang = there.cluster.state.gangs["ns", "new", True]
    sharing(there).update(there.cluster.queues, gang, 60.0)
    assert sharing(there).latest_start(gang) == 60.0


def test_between_two_looks_nobody_goes_who_is_no_equal_any_more() -> None:
    there = world(quantum_s=7200.0)
    there.step(0.0, *trains("long", 8, 10))
    there.step(60.0, *trains("short", 8, 1, 60.0))
    plays(there, 3200.0, 120.0, 600.0)
    long, short = (there.cluster.state.gangs["ns", name, True] for name in ("long", "short"))
    assert sharing(there).may_be_suspended(short) == [(long, 7200.0)]
    more_urgent, _ = trains("long", 8, 10, priority=5)
    cycle.apply_facts(there.cluster, [more_urgent], 3201.0)
    sharing(there).update(there.cluster.queues, long, 3201.0)
    assert not sharing(there).may_be_suspended(short)
