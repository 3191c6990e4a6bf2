"""No decision about one gang takes more work than its limit, and one that was cut short changed nothing."""

import random

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact
from central.scheduler import gang_attempt, work_meter
from central.scheduler.cycle import due, schedule_once
from central.scheduler.gang_attempt import LONG_S
from central.scheduler.pass_claims import UNDECIDED, UNDECIDED_LARGEST
from central.scheduler.placement.explain import LARGEST_LIMIT, WORK_LIMIT
from central.scheduler.scheduler import Scheduler
from central.scheduler.work_meter import (
    FIRST_LIMIT,
    LONG_FACTOR,
    MAX_FACTOR,
    UNDISTURBED_MOST,
    WorkLimitReached,
    WorkMeter,
)
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.state_copy import fingerprint

NOW = 1000.0
OVERSHOOT = 20_000  # the last operation is counted before it is made


def cluster(nodes: int, facts: list[Fact], limit: int = FIRST_LIMIT) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    made.state.snapshot.meter.first_limit = limit
    placed: list[Fact] = [
        factories.node(f"n{number:03}", rack=f"r{number // 4}", block=f"b{number // 16}")
        for number in range(nodes)
    ]
    schedule_once(made, [*placed, *facts], NOW)
    return made


def running(nodes: int, per_node: int = 8) -> list[Fact]:
    """Pods of one GPU."""
    return [
        factories.pod(f"s-{number}-{gpu}", 1, node=f"n{number:03}", phase="Running", started=gpu)
        for number in range(nodes)
        for gpu in range(per_node)
    ]


def longest(made: Scheduler) -> int:
    return made.state.snapshot.meter.longest


def acts(decisions: list[Decision]) -> list[Bind | Evict]:
    return [each for each in decisions if isinstance(each, Bind | Evict)]


def reason(made: Scheduler, name: str) -> str:
    (gang,) = (gang for gang in made.state.gangs.values() if gang.name == name)
    return gang.attempt.reason


def spread_gang(name: str, pods: int, **other: object) -> list[Fact]:
    """Its pods are placed one by one: each looks at all nodes."""
    rules = factories.even(name, "kubernetes.io/hostname", pods)
    labels = (("app", name),)
    members = [
        factories.pod(f"{name}-{rank}", 8, name, rules=rules, labels=labels) for rank in range(pods)
    ]
    return [factories.gang(name, pods, **other), *members]


def test_a_meter_counts_before_it_refuses() -> None:
    meter = WorkMeter(10)
    meter.spend(10**9)  # no decision has begun
    meter.begin()
    meter.spend(10)
    with pytest.raises(WorkLimitReached):
        meter.spend(1)
    meter.extend()
    meter.spend(10)
    assert meter.count(1)
    assert meter.was_short
    meter.begin(2)
    assert not meter.count(20)
    assert not meter.was_short


def test_a_long_search_ends_and_goes_on_with_more() -> None:
    limit = 2_000
    made = cluster(64, [], limit)
    facts = spread_gang("slow", 60)
    decided = acts(schedule_once(made, [*facts, factories.pod("quick", 1)], NOW))
    assert [each.name for each in decided] == ["quick"]
    assert reason(made, "slow").endswith(WORK_LIMIT)
    assert longest(made) <= limit + OVERSHOOT
    check_invariants(made)
    assert not acts(schedule_once(made, [], NOW + 0.5))
    at = due(made, NOW + 0.5)
    assert at is not None
    assert at <= NOW + 2.0
    assert len(acts(schedule_once(made, [], at))) == 60, longest(made)
    assert reason(made, "slow") == ""


def test_what_needs_more_than_the_most_says_so_and_holds_up_nobody() -> None:
    limit = 20
    made = cluster(64, [], limit)
    schedule_once(made, spread_gang("slow", 60), NOW)
    now = NOW
    for attempt in range(10):
        at = due(made, now)
        assert at is not None
        assert now < at <= now + max(10.0, 1.1 * LONG_S * LONG_FACTOR)
        now = at
        decided = acts(schedule_once(made, [factories.pod(f"quick-{attempt}", 1)], now))
        assert [each.name for each in decided] == [f"quick-{attempt}"]
        assert reason(made, "slow").endswith(LARGEST_LIMIT if attempt > 0 else WORK_LIMIT)
    schedule_once(made, [factories.pod("next", 1)], now + 1.0)  # the reason is computed again
    assert reason(made, "slow").endswith(LARGEST_LIMIT)
    assert longest(made) <= LONG_FACTOR * limit + OVERSHOOT


def urgent(nodes: int) -> list[Fact]:
    """A gang that takes so many nodes."""
    members = [factories.pod(f"urgent-{rank}", 8, "urgent") for rank in range(nodes)]
    return [factories.gang("urgent", nodes, priority=10), *members]


@pytest.mark.slow
def test_a_large_gang_on_a_large_cluster_is_placed_and_holds_up_nobody() -> None:
    """4,000 victims take more work than two attempts in cycles with others may."""
    made = cluster(1000, running(1000))
    now, facts, evicted = NOW, urgent(500), list[Evict]()
    for number in range(20):
        newcomer = factories.pod(f"new-{number}", 0, created=now)
        decided = acts(schedule_once(made, [*facts, newcomer], now, lambda: False))
        evicted = [each for each in decided if isinstance(each, Evict)]
        assert newcomer.name in {each.name for each in decided if isinstance(each, Bind)}
        if evicted:
            break
        facts, now = [], due(made, now) or 0.0
    assert len(evicted) == 4000
    assert now <= NOW + 10.0
    assert longest(made) > MAX_FACTOR * FIRST_LIMIT
    check_invariants(made)


def test_a_long_attempt_has_a_cycle_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_meter, "ASK_UNITS", 1000)
    made = cluster(128, [], 400)
    schedule_once(made, spread_gang("slow", 120), NOW)
    factor, now = 1, NOW
    while factor <= MAX_FACTOR:
        now = due(made, now) or now
        schedule_once(made, [], now, lambda: False)
        (gang,) = made.state.pending.waiting.values()
        factor = gang.attempt.work_factor
    now, attempts = gang.attempt.retry_at, []

    def interrupt(used: int) -> bool:
        attempts.append(used)
        return False

    limit = made.state.snapshot.meter
    limit.first_limit = 50_000  # enough, so it asks
    decided = acts(schedule_once(made, [factories.pod("quick", 1)], now, lambda: False, interrupt))
    assert [each.name for each in decided] == ["quick"]
    assert not attempts
    assert made.state.pending.round is not None
    decided = acts(schedule_once(made, [], now, lambda: False, interrupt))
    assert len(decided) == 120
    assert attempts
    check_invariants(made)


def test_a_long_attempt_ends_when_others_wait_and_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work_meter, "ASK_UNITS", 1000)
    made = cluster(128, [], 400)
    schedule_once(made, spread_gang("slow", 120), NOW)
    (gang,) = made.state.pending.waiting.values()
    gang.attempt.work_factor, made.state.snapshot.meter.first_limit = LONG_FACTOR, 50_000
    before, asked, now = fingerprint(made), list[int](), NOW + 2.0

    def interrupt(used: int) -> bool:
        asked.append(used)
        return True

    for number in range(3):
        assert not acts(schedule_once(made, [], now, None, interrupt))
        assert reason(made, "slow").endswith(WORK_LIMIT)
        assert gang.attempt.work_factor == LONG_FACTOR
        assert fingerprint(made) == before
        assert len(asked) == number + 1
        assert gang.attempt.undisturbed == 2 * asked[-1]
        now += 10.0
        assert due(made, now - 10.0) == now
    assert asked[1] >= 2 * asked[0]
    assert asked[2] >= 2 * asked[1]
    assert len(acts(schedule_once(made, [], now))) == 120
    assert gang.attempt.undisturbed == 0
    check_invariants(made)


def test_the_work_that_others_may_not_end_is_limited() -> None:
    made = cluster(2, [])
    schedule_once(made, [factories.pod("large", 9)], NOW)
    (gang,) = made.state.pending.waiting.values()
    meter = made.state.snapshot.meter
    for used, factor, expected in (
        (UNDISTURBED_MOST // 2 - 1, LONG_FACTOR, UNDISTURBED_MOST - 2),
        (UNDISTURBED_MOST, LONG_FACTOR, UNDISTURBED_MOST),
    ):
        meter.begin(LONG_FACTOR, lambda _: True)
        meter.count(used)
        gang.attempt.work_factor = factor
        gang_attempt.set_work_limit(made, gang)
        assert gang.attempt.undisturbed == expected
        assert gang.attempt.retry_at == NOW + max(10.0, LONG_S * used / FIRST_LIMIT)
    meter.end()


@pytest.mark.parametrize(("factor", "following"), [(1, 2), (MAX_FACTOR, LONG_FACTOR)])
def test_a_search_that_needs_more_gets_twice_as_much_and_then_all(
    factor: int, following: int
) -> None:
    made = cluster(2, [])
    schedule_once(made, [factories.pod("large", 9)], NOW)
    (gang,) = made.state.pending.waiting.values()
    meter = made.state.snapshot.meter
    meter.begin(factor)
    assert meter.count(FIRST_LIMIT * factor + 1)
    gang.attempt.work_factor = factor
    gang_attempt.set_work_limit(made, gang)
    assert gang.attempt.work_factor == following
    assert gang.attempt.retry_at == NOW + 2.0
    meter.end()


def test_after_a_sliced_round_that_is_complete_no_cycle_follows_at_once() -> None:
    made = cluster(4, [])
    assert acts(schedule_once(made, [factories.pod("quick", 1)], NOW, lambda: False))
    assert made.state.pending.round is None
    later = due(made, NOW)
    assert later is None or later > NOW


def test_several_gangs_take_turns_with_long_attempts() -> None:
    made = cluster(64, [], 400)
    schedule_once(made, [*spread_gang("a", 30), *spread_gang("b", 30)], NOW)
    for gang in made.state.pending.waiting.values():
        gang.attempt.work_factor = LONG_FACTOR
    made.state.snapshot.meter.first_limit = 20_000
    first = acts(schedule_once(made, [], NOW + 2.0))
    assert {each.name[0] for each in first} == {"a"}
    second = acts(schedule_once(made, [], due(made, NOW + 2.0) or 0.0))
    assert {each.name[0] for each in second} == {"b"}


def test_the_minimum_has_work_of_its_own() -> None:
    made = cluster(64, [], 4_000)
    _, *members = spread_gang("elastic", 60)
    decided = acts(schedule_once(made, [factories.gang("elastic", 2), *members], NOW))
    assert len(decided) >= 2


def test_a_search_for_victims_ends_and_goes_on_with_more() -> None:
    made = cluster(32, running(32), limit=400)
    facts = [factories.gang("urgent", 8, priority=10)]
    members = [factories.pod(f"urgent-{rank}", 8, "urgent") for rank in range(8)]
    assert not acts(schedule_once(made, [*facts, *members], NOW))
    assert UNDECIDED in reason(made, "urgent")
    assert not any(pod.leaving for pod in made.state.pods.values())
    (gang,) = made.state.pending.waiting.values()
    gang.attempt.work_factor, made.state.snapshot.meter.first_limit = LONG_FACTOR, 10
    at = due(made, NOW)
    assert at == NOW + 2.0
    assert not acts(schedule_once(made, [], at))
    assert UNDECIDED_LARGEST in reason(made, "urgent")
    gang.attempt.work_factor, made.state.snapshot.meter.first_limit = 1, 20_000
    at = due(made, at)
    assert at is not None
    evicted = acts(schedule_once(made, [], at))
    assert len(evicted) == 64
    check_invariants(made)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_no_limit_leaves_half_a_decision(seed: int) -> None:
    """Each limit gives a whole decision or none, and the state of before."""
    dice = random.Random(seed)
    full = [pod for pod in running(16) if dice.random() < 0.95]
    gang: list[Fact] = [
        factories.gang("urgent", 4, priority=10, topology_required=RACK),
        *(factories.pod(f"urgent-{rank}", 6 + rank % 2, "urgent") for rank in range(4)),
    ]
    seen = set[bool]()
    for limit in (1, 10, 50, 100, 200, 400, 700, 1_000, 2_000, 5_000, 20_000, 10**9):
        made = cluster(16, full, limit)
        before = fingerprint(made)
        decided = acts(schedule_once(made, gang, NOW))
        check_invariants(made)
        assert not any(isinstance(each, Bind) for each in decided)
        if not decided:
            assert fingerprint(made) == before, limit
        seen.add(bool(decided))
    assert seen == {True, False}


@pytest.mark.long
def test_hostile_gangs_stay_below_the_limit() -> None:
    """4,000 unlike pods of one tenant, and gangs that require a rack."""
    facts: list[Fact] = [
        factories.pod(f"flood-{number}", 1, cpu=100 + number, created=float(number))
        for number in range(400)
    ]
    for number in range(10):
        facts.append(factories.gang(f"g{number}", 4, priority=10, topology_required=RACK))
        facts += [factories.pod(f"g{number}-{rank}", 8, f"g{number}") for rank in range(4)]
    made = cluster(64, running(64))
    schedule_once(made, facts, NOW)
    assert 0 < longest(made) <= 20_000


@pytest.mark.long
def test_the_work_of_a_claimant_does_not_grow_with_the_number_of_claimants() -> None:
    """Single pods against the surplus of gangs."""
    used = []
    for claimants in (10, 40):
        surplus: list[Fact] = []
        for number in range(48):
            surplus.append(factories.gang(f"e{number}", 4))
            surplus += [
                factories.pod(
                    f"e{number}-{rank}",
                    1,
                    f"e{number}",
                    node=f"n{(number + rank) % 48:03}",
                    phase="Running",
                    started=float(rank),
                )
                for rank in range(8)
            ]
        made = cluster(48, surplus)
        facts: list[Fact] = [
            factories.pod(f"u-{number}", 1, priority=10, created=float(number))
            for number in range(claimants)
        ]
        assert len(acts(schedule_once(made, facts, NOW))) == claimants
        used.append(longest(made))
    assert used[1] <= 1.2 * used[0] + 500


@pytest.mark.parametrize("cpu", [100, 101])
def test_victims_that_were_proven_go_though_the_limit_ends_the_search_for_fewer(cpu: int) -> None:
    """Of unlike pods as of equal ones, in the first attempt."""
    made = cluster(8, running(8), 10_000)
    unlike = factories.pod("w-1", 8, "w", cpu, priority=100)
    wanted: list[Fact] = [
        factories.gang("w", 2, topology_required=RACK),
        factories.pod("w-0", 8, "w", priority=100),
    ]
    decided = schedule_once(made, [*wanted, unlike], NOW + 1)
    assert len([each for each in decided if isinstance(each, Evict)]) == 16
