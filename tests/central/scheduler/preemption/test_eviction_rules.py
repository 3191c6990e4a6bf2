"""Who may be evicted for whom, rule by rule: each has a claimant that it serves and one that it does not, a candidate
and a gang that is none."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.defaults import ACROSS_NAMESPACES, ACROSS_NONE, ACROSS_QUEUES
from central.model.facts import Fact, PodSeen, QueueSeen, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.preemption import eviction_rules
from central.scheduler.preemption.eviction_rules import (
    ELASTIC_SURPLUS,
    ENTITLEMENT,
    EVICTION_RULES,
    MOVABLE,
    OWN_SURPLUS,
    PRIORITY,
    SETTLED_S,
    TURN,
    Claimant,
    applies,
    may_evict,
    settled_at,
)
from central.scheduler.queues.queue_claims import Claim
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import job

NOW = 1000.0


def cluster(*facts: Fact) -> Scheduler:
    scheduler = new_scheduler(factories.LEVELS, half_life_s=0.0)
    schedule_once(scheduler, [factories.node("n", gpus=8), *facts], NOW)
    return scheduler


def arrive(scheduler: Scheduler, *facts: Fact) -> None:
    """Pods of these evict no others."""
    kept = [replace(fact, preempts=False) if isinstance(fact, PodSeen) else fact for fact in facts]
    schedule_once(scheduler, kept, NOW)


def gang(scheduler: Scheduler, name: str) -> Gang:
    return next(each for each in scheduler.state.gangs.values() if each.key[1] == name)


def by(scheduler: Scheduler, name: str, across: str = ACROSS_NAMESPACES) -> Claimant:
    context = replace(scheduler.preemption, across=across)
    return Claimant(context, gang(scheduler, name), NOW)


def claiming(scheduler: Scheduler, name: str) -> Claimant:
    """With queues."""
    found = by(scheduler, name)
    account = found.gang.account
    assert account is not None
    return replace(found, claim=Claim(scheduler.queues, found.gang, account.demand, {}))


def test_each_rule_says_what_it_limits() -> None:
    assert len({rule.name for rule in EVICTION_RULES}) == len(EVICTION_RULES) == 6
    assert all(rule.limit for rule in EVICTION_RULES)


def test_priority_is_above_the_lowest_and_above_the_victims() -> None:
    facts = [*job("low", 1, 4, priority=1), *job("mid", 1, 4, priority=2)]
    scheduler = cluster(*facts, *job("new", 1, 8, priority=2))
    assert not may_evict(PRIORITY, by(scheduler, "new"), gang(scheduler, "mid"))
    assert may_evict(PRIORITY, by(scheduler, "new"), gang(scheduler, "low"))
    assert applies(PRIORITY, by(scheduler, "new"))
    assert not applies(PRIORITY, by(scheduler, "low"))


def queued(queue: str, running: int, waiting: int, *, guarantee: int = 0) -> Scheduler:
    """Pods of 1 GPU that run in queue "b", and others that wait in queue "a". guarantee: of queue "b"."""
    facts: list[Fact] = [QueueSeen("a"), QueueSeen("b", guarantee=((GPU, guarantee),))]
    for number in range(running):
        facts += job(f"r{number}", 1, 1, queue="b")
    scheduler = cluster(*facts)
    for number in range(waiting):
        arrive(scheduler, *job(f"w{number}", 1, 1, queue=queue))
    return scheduler


def test_a_queue_above_its_share_gives_to_one_below_it() -> None:
    scheduler = queued("a", 8, 4)
    asks = claiming(scheduler, "w0")
    assert applies(ENTITLEMENT, asks)
    assert may_evict(ENTITLEMENT, asks, gang(scheduler, "r0"))
    assert not applies(ENTITLEMENT, by(scheduler, "w0")), "without queues"
    assert not may_evict(ENTITLEMENT, by(scheduler, "w0"), gang(scheduler, "r0"))
    own = queued("b", 8, 4)
    assert not applies(ENTITLEMENT, claiming(own, "w0"))


@pytest.mark.parametrize(("guarantee", "may"), [(7, True), (8, False)])
def test_priority_leaves_the_guarantee_of_other_queues(guarantee: int, may: bool) -> None:
    scheduler = queued("a", 8, 0, guarantee=guarantee)
    arrive(scheduler, *job("urgent", 1, 1, priority=5, queue="a"))
    asks = claiming(scheduler, "urgent")
    across = replace(asks, context=replace(asks.context, across=ACROSS_QUEUES))
    victim = gang(scheduler, "r0")
    assert may_evict(PRIORITY, across, victim) is may
    assert not may_evict(PRIORITY, asks, victim), "another queue"


def test_a_turn_stays_inside_the_namespace_where_nothing_crosses_it() -> None:
    scheduler = cluster(*job("one", 1, 4), *job("two", 1, 4))
    far = replace(factories.pod("far", 1), namespace="other")
    schedule_once(scheduler, [far], NOW)
    asks, there = by(scheduler, "one"), gang(scheduler, "far")
    assert may_evict(TURN, asks, there)
    assert not may_evict(TURN, by(scheduler, "one", ACROSS_NONE), there)
    assert may_evict(TURN, by(scheduler, "one", ACROSS_NONE), gang(scheduler, "two"))
    assert not applies(TURN, asks), "no queue has a quantum"


def movable_gang(*, started: float = 0.0, priority: int = 0) -> list[Fact]:
    pod = factories.pod("m", 1, node="n", phase="Running", started=started, priority=priority)
    return [replace(pod, movable=True)]


@pytest.mark.parametrize(
    ("facts", "may"),
    [
        (movable_gang(started=NOW - SETTLED_S), True),
        (movable_gang(started=NOW - SETTLED_S + 1), False),
        (movable_gang(priority=3), True),
        (movable_gang(priority=4), False),
        ([factories.pod("m", 1, node="n", phase="Running", started=0.0)], False),
    ],
)
def test_settled_gangs_of_at_most_its_priority_may_be_moved(facts: list[Fact], may: bool) -> None:
    scheduler = cluster(*facts, *job("new", 1, 16, priority=3))
    assert may_evict(MOVABLE, by(scheduler, "new"), gang(scheduler, "m")) is may
    seen = next(fact for fact in facts if isinstance(fact, PodSeen))
    assert applies(MOVABLE, by(scheduler, "new")) is seen.movable


def test_a_pod_whose_start_is_unknown_does_not_settle() -> None:
    scheduler = cluster(*job("new", 1, 16))
    (pod,) = gang(scheduler, "new").members.values()
    assert settled_at(pod) == float("inf")


def test_own_surplus_is_for_a_gang_that_lacks_a_member() -> None:
    facts: list[Fact] = [factories.gang("job", 2, task_min=(("a", 1), ("ps", 1)))]
    for number in range(2):
        pod = factories.pod(f"job-{number}", 4, "job", node="n", phase="Running")
        facts.append(replace(pod, task="a"))
    scheduler = cluster(*facts, *job("other", 1, 1))
    asks = by(scheduler, "job")
    assert applies(OWN_SURPLUS, asks)
    assert not applies(OWN_SURPLUS, by(scheduler, "other"))
    assert may_evict(OWN_SURPLUS, asks, asks.gang)
    assert not may_evict(OWN_SURPLUS, asks, gang(scheduler, "other"))
    never = replace(factories.pod("job-ps", 4, "job"), task="ps", preempts=False)
    schedule_once(scheduler, [never], NOW)
    assert not applies(OWN_SURPLUS, by(scheduler, "job"))


@pytest.mark.parametrize(("priority", "may"), [(0, False), (1, True), (2, True)])
def test_elastic_surplus_leaves_for_its_own_priority_or_above(priority: int, may: bool) -> None:
    scheduler = cluster(*job("elastic", 1, 8, priority=1), *job("new", 1, 8, priority=priority))
    asks = by(scheduler, "new")
    assert applies(ELASTIC_SURPLUS, asks)
    assert may_evict(ELASTIC_SURPLUS, asks, gang(scheduler, "elastic")) is may
    assert eviction_rules.may_evict(ELASTIC_SURPLUS, asks, asks.gang), "equals"


def test_gangs_of_a_queue_with_a_quantum_take_turns_for_their_minimum() -> None:
    scheduler = cluster(QueueSeen("a", quantum_s=600.0), *job("one", 1, 8, queue="a"))
    schedule_once(scheduler, job("two", 1, 8, 3600.0, queue="a", suspension_s=10.0), NOW)
    asks = claiming(scheduler, "two")
    assert applies(TURN, asks)
    assert asks.claim is not None
    asks.claim.growth = True
    assert not applies(TURN, asks)


def test_a_gang_that_has_not_started_is_not_moved() -> None:
    scheduler = cluster(*job("later", 1, 16, movable=True), *job("new", 1, 16))
    assert not may_evict(MOVABLE, by(scheduler, "new"), gang(scheduler, "later"))


def test_priority_takes_surplus_and_its_own_queue_whatever_is_guaranteed() -> None:
    queues = [QueueSeen("a", guarantee=((GPU, 4),)), QueueSeen("b", guarantee=((GPU, 4),))]
    running = [*job("own", 1, 4, queue="a"), *job("other", 4, 1, queue="b", least=1)]
    scheduler = cluster(*queues, *running)
    arrive(scheduler, *job("urgent", 1, 1, priority=5, queue="a"))
    asks = claiming(scheduler, "urgent")
    across = replace(asks, context=replace(asks.context, across=ACROSS_QUEUES))
    assert may_evict(PRIORITY, asks, gang(scheduler, "own"))
    assert may_evict(PRIORITY, across, gang(scheduler, "other"))


def test_elastic_surplus_of_another_queue_leaves_by_priority_or_share() -> None:
    queues = [QueueSeen("a"), QueueSeen("b", reclaimable=False)]
    scheduler = cluster(*queues, *job("elastic", 4, 2, queue="b", least=1, priority=1))
    arrive(scheduler, *job("urgent", 1, 1, priority=5, queue="a"))
    arrive(scheduler, *job("equal", 1, 1, priority=1, queue="a"))
    victim = gang(scheduler, "elastic")
    assert may_evict(ELASTIC_SURPLUS, by(scheduler, "urgent", ACROSS_QUEUES), victim)
    scheduler.queues.cache.clear()
    assert not may_evict(ELASTIC_SURPLUS, by(scheduler, "urgent"), victim), "not reclaimable"
    scheduler.queues.cache.clear()
    assert not may_evict(ELASTIC_SURPLUS, by(scheduler, "equal", ACROSS_QUEUES), victim)


def test_elastic_surplus_of_another_queue_stays_if_the_claimant_needs_more_than_its_share() -> None:
    """The minimum of a gang may change while its pods, and so what it asks for, stay as they are."""
    scheduler = cluster(QueueSeen("a"), QueueSeen("b"), *job("elastic", 8, 1, queue="b", least=1))
    arrive(scheduler, *job("new", 8, 1, queue="a", least=1))
    asks, victim = by(scheduler, "new"), gang(scheduler, "elastic")
    assert may_evict(ELASTIC_SURPLUS, asks, victim)
    schedule_once(scheduler, [factories.gang("new", 8, queue="a")], NOW)
    assert not may_evict(ELASTIC_SURPLUS, asks, victim)


def running(name: str, rank: int, **other: object) -> PodSeen:
    pod = factories.pod(f"{name}-{rank}", 1, name, node="n", phase="Running", started=0.0)
    return replace(pod, **{"movable": True, **other})  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize(
    ("second", "may"),
    [
        ({}, True),
        ({"movable": False}, False),
        ({"started": NOW - 1}, False),
        ({"started": None}, False),
    ],
)
def test_all_members_are_settled_or_none_moves(second: dict[str, object], may: bool) -> None:
    pods = [running("m", 0), running("m", 1, **second)]
    scheduler = cluster(factories.gang("m", 1), *pods, *job("new", 1, 16))
    assert may_evict(MOVABLE, by(scheduler, "new"), gang(scheduler, "m")) is may


@pytest.mark.parametrize(("least", "may"), [(2, True), (3, False)])
def test_a_gang_that_lacks_a_member_is_not_moved(least: int, may: bool) -> None:
    pods = [running("m", rank) for rank in range(2)]
    scheduler = cluster(factories.gang("m", least), *pods, *job("new", 1, 16))
    assert may_evict(MOVABLE, by(scheduler, "new"), gang(scheduler, "m")) is may


def test_a_gang_that_is_evicted_for_another_is_not_moved() -> None:
    scheduler = cluster(*movable_gang(), *job("new", 1, 16))
    victim = gang(scheduler, "m")
    victim.preemption.preempted_for = "ns/other"
    assert not may_evict(MOVABLE, by(scheduler, "new"), victim)


def test_a_gang_with_subgroups_is_not_moved() -> None:
    inside = (SubGroups("s", 1, 1),)
    scheduler = cluster(
        factories.gang("m", 1, subgroups=inside), running("m", 0), *job("new", 1, 16)
    )
    assert not may_evict(MOVABLE, by(scheduler, "new"), gang(scheduler, "m"))


@pytest.mark.parametrize(("across", "may"), [(ACROSS_NONE, False), (ACROSS_NAMESPACES, True)])
def test_elastic_surplus_stays_inside_the_namespace(across: str, may: bool) -> None:
    scheduler = cluster(*job("elastic", 1, 8))
    far = replace(factories.pod("far", 8), namespace="other", uid="uid-far", preempts=False)
    schedule_once(scheduler, [far], NOW)
    asks = by(scheduler, "far", across)
    assert may_evict(ELASTIC_SURPLUS, asks, gang(scheduler, "elastic")) is may


def test_a_gang_whose_surplus_may_go_gives_by_share_what_it_may_not_give_whole() -> None:
    """Queue "b" is one GPU above its share: it may not give all four members, but one of them."""
    queues = [QueueSeen("a"), QueueSeen("b")]
    scheduler = cluster(*queues, *job("r0", 5, 1, queue="b", least=1), *job("own", 1, 3, queue="a"))
    arrive(scheduler, *job("w0", 1, 1, queue="a"))
    assert may_evict(ENTITLEMENT, claiming(scheduler, "w0"), gang(scheduler, "r0"))
    whole = cluster(*queues, *job("r0", 5, 1, queue="b"), *job("own", 1, 3, queue="a"))
    arrive(whole, *job("w0", 1, 1, queue="a"))
    assert not may_evict(ENTITLEMENT, claiming(whole, "w0"), gang(whole, "r0"))
