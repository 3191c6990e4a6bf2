"""Queues: what may start, what may be taken back, and what stops."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from central.model.facts import Fact, GangGone, PodGone, PodSeen, QueueGone, QueueSeen
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.cycle import schedule_once
from central.scheduler.queues.claimable_quota import shortfalls
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_claims import Claim, Loss
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.quota import usage_level
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.queues.queued_gangs import (
    bound,
    gang,
    gangs,
    nodes,
    played,
    queue,
    used,
    waits,
)

# --- whose turn it is --------------------------------------------------------------


def test_the_level_of_a_queue_is_what_it_uses_above_its_deserved_amount_by_weight() -> None:
    """The example of usage_level()."""
    scheduler, _ = played(
        *nodes(16), queue("b", weight=2, deserved=2), queue("c"), *gangs(6, "b"), *gangs(1, "c")
    )
    queues = scheduler.queues
    b, c = queues.by_name["b"], queues.by_name["c"]
    assert usage_level(b, queues.total) == (True, 0, 0.125, "b")
    assert usage_level(c, queues.total) == (True, 0, 0.0625, "c")
    more = {GPU_EQUIVALENTS: 4 * GPU_UNITS}
    assert usage_level(c, queues.total, more) == (True, 0, 0.3125, "c")


def test_a_queue_below_its_deserved_amount_comes_first_and_by_the_part_that_it_uses() -> None:
    scheduler, _ = played(*nodes(16), queue("b", deserved=8, priority=3), *gangs(6, "b"))
    queues = scheduler.queues
    b = queues.by_name["b"]
    assert usage_level(b, queues.total) == (False, -3, 0.75, "b")
    need = {GPU_EQUIVALENTS: GPU_UNITS}
    assert usage_level(b, queues.total, need) == (False, -3, 0.875, "b")


# --- what victims must free --------------------------------------------------------


def lacking(*facts: Fact, of: int) -> list[tuple[tuple[str, int], ...]]:
    """What a gang of so many GPUs lacks in queue a: alternatives, each by queue in GPUs."""
    scheduler, _ = played(*nodes(16), *facts)
    schedule_once(scheduler, gang("g", "a", gpus=of, created=9.0), 1.0)
    claimant = scheduler.state.gangs["ns", "g", True]
    groups = [(next(iter(claimant.members.values())).spec, 1)]
    found = shortfalls(scheduler.queues, scheduler.min_resources, claimant, groups) or []
    return [
        tuple((each.queue.name, each.amounts[GPU_EQUIVALENTS] // GPU_UNITS) for each in lacks)
        for lacks in found
    ]


def test_what_is_withheld_for_a_guarantee_must_be_free_beside_the_request() -> None:
    facts = (queue("a"), queue("b", guarantee=6), *gangs(8, "a"))
    assert lacking(*facts, of=8) == [(("root", 6),)]
    assert lacking(*facts, of=3) == [(("root", 1),)]


def test_a_queue_may_stay_within_its_own_guarantee_instead() -> None:
    """It uses 6 of 8 and needs 5 more: 3 of its own go, or any 3 beside the 7 that are free and the 5 of these that
    are withheld."""
    facts = (queue("a", guarantee=8), queue("b", guarantee=5), *gangs(6, "a"), *gangs(3, "c"))
    assert lacking(*facts, queue("c"), of=5) == [(("a", 3),), (("root", 3),)]


def test_guarantees_that_are_used_are_in_nobodys_way() -> None:
    facts = (queue("a"), queue("b", guarantee=8), *gangs(8, "b"), *gangs(8, "a"))
    assert lacking(*facts, of=4) == []


# --- what may start ----------------------------------------------------------------


REDUCE = "reduce the request or raise the capability"


def refused(*facts: Fact) -> str:
    _, decisions = played(*nodes(16), *facts, *gang("g", "a", pods=2, gpus=4))
    return waits(decisions).get("g", "")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([queue("b")], "queue a does not exist"),
        ([queue("aa")], "queue a does not exist; did you mean aa?"),
        ([queue("a", closed=True)], "queue a is closed"),
        ([queue("a", parent="p"), queue("p", closed=True)], "queue p (above a) is closed"),
        (
            [queue("a", error="spec.weight: 0 is wrong")],
            "queue a is invalid: spec.weight: 0 is wrong",
        ),
        ([queue("a", parent="p")], "queue a is invalid: spec.parent: queue p does not exist"),
        ([queue("a", parent="a")], "queue a is invalid: spec.parent: the queue is its own parent"),
        (
            [queue("a", parent="p"), queue("p", parent="a")],
            "queue a is invalid: spec.parent: a, p form a cycle",
        ),
        (
            [queue("a", parent="p"), queue("p", error="spec.weight: 0 is wrong")],
            "queue a: its parent queue p is invalid: spec.weight: 0 is wrong",
        ),
        ([queue("a"), queue("b", parent="a")], "queue a is not a leaf; use one of its children: b"),
        (
            [queue("a", capability=4)],
            "can never start: queue a has a capability of 4 GPUs; 8 are needed; " + REDUCE,
        ),
        (
            [queue("a", parent="p"), queue("p", capability=4)],
            "can never start: queue p (above a) has a capability of 4 GPUs; 8 are needed; "
            + REDUCE,
        ),
        (
            [queue("a", capability=(("cpu", 199),))],
            "can never start: queue a has a capability of 0.199 cpu; 0.2 are needed; " + REDUCE,
        ),
        (
            [queue("a"), queue("b", guarantee=12)],
            "needs 8 GPUs; 16 are free, of which 12 are guaranteed to queue b",
        ),
        (
            [
                queue("a"),
                queue("p"),
                queue("b", parent="p", guarantee=4),
                queue("c", parent="p", guarantee=6),
            ],
            "needs 8 GPUs; 16 are free, of which 10 are guaranteed to queue p",
        ),
    ],
)
def test_a_queue_that_may_not_start_a_gang_says_why(facts: list[Fact], why: str) -> None:
    assert refused(*facts) == why


def test_one_bad_queue_stops_only_itself() -> None:
    bad: list[Fact] = [
        queue("bad", error="spec.weight: 0"),
        queue("lost", parent="nowhere"),
        queue("round", parent="robin"),
        queue("robin", parent="round"),
        QueueSeen("root", error="spec.weight: 0"),
    ]
    names = ("bad", "lost", "round", "robin", "unknown", "good", "default")
    everybody = [fact for name in names for fact in gang(f"of-{name}", name)]
    scheduler, decisions = played(*nodes(8), *bad, queue("good"), *everybody)
    assert sorted(bound(decisions)) == ["of-default", "of-good"]
    mended = [queue(name) for name in ("bad", "lost", "round", "robin", "unknown")]
    assert len(bound(schedule_once(scheduler, mended, 1.0))) == 5
    check_invariants(scheduler)


def test_capability_holds_exactly_and_what_is_freed_is_used() -> None:
    scheduler, decisions = played(*nodes(16), queue("a", capability=3), *gangs(5, "a"))
    assert bound(decisions) == ["a000", "a001", "a002"]
    assert (
        waits(decisions)["a003"] == "queue a uses 3 of its capability of 3 GPUs; 1 more is needed"
    )
    ended = factories.pod(
        "a000-0", 1, "a000", node=scheduler.state.pods["uid-a000-0"].node, phase="Succeeded"
    )
    assert bound(schedule_once(scheduler, [ended], 1.0)) == ["a003"]


def test_members_above_the_minimum_come_as_the_capability_allows() -> None:
    group = factories.gang("g", 2, queue="a")
    pods = [factories.pod(f"g-{rank}", 1, "g") for rank in range(5)]
    scheduler, _ = played(*nodes(8), queue("a", capability=4), group, *pods)
    for now in range(1, 5):
        schedule_once(scheduler, [factories.node("n9", gpus=now)], float(now))
    assert used(scheduler, "a") == 4


def test_a_guarantee_is_there_when_its_queue_comes() -> None:
    scheduler, _ = played(*nodes(16), queue("a"), queue("b", guarantee=6), *gangs(16, "a"))
    assert used(scheduler, "a") == 10
    schedule_once(scheduler, gangs(8, "b"), 1.0)
    assert used(scheduler, "b") == 6


def test_a_guarantee_of_more_than_there_is_stops_no_other_guarantee() -> None:
    scheduler, _ = played(
        *nodes(16),
        *(queue("greedy", guarantee=10**15), queue("a", guarantee=4), queue("open")),
        *(
            queue("p", guarantee=3),
            queue("inner", parent="p"),
            queue("deep", parent="p", guarantee=1),
        ),
        *(fact for name in ("a", "open", "inner") for fact in gangs(8, name)),
    )
    assert [used(scheduler, name) for name in ("a", "open", "inner")] == [4, 0, 3]
    schedule_once(scheduler, gangs(8, "deep"), 1.0)
    assert used(scheduler, "deep") == 1


def test_what_is_deleted_leaves_the_books() -> None:
    scheduler, _ = played(*nodes(8), queue("a", capability=4), *gang("g", "a", pods=2, gpus=2))
    assert used(scheduler, "a") == 4
    schedule_once(scheduler, [GangGone("ns", "g"), PodGone("uid-g-0"), PodGone("uid-g-1")], 1.0)
    check_invariants(scheduler)
    assert used(scheduler, "a") == 0
    assert not scheduler.queues.by_name["a"].gangs


def test_the_root_stays_when_the_last_gang_that_names_it_goes() -> None:
    scheduler, _ = played(*nodes(8), queue("a"))
    for now in (1.0, 3.0):
        said = waits(schedule_once(scheduler, gang("g", "root"), now))
        assert said["g"].startswith("queue root is not a leaf")
        schedule_once(scheduler, [PodGone("uid-g-0"), GangGone("ns", "g")], now + 1.0)
        check_invariants(scheduler)
    assert scheduler.queues.by_name["root"] is scheduler.queues.root


def test_a_gang_that_becomes_preemptable_leaves_its_deserved_amount_to_others() -> None:
    eight = queue("a", deserved=8)
    first = gang("first", "a", gpus=8, created=1.0, preemptable=False)
    scheduler, _ = played(*nodes(16), eight, *first)
    second = gang("second", "a", gpus=4, created=2.0, preemptable=False)
    assert "use the deserved 8 GPUs" in waits(schedule_once(scheduler, second, 1.0))["second"]
    mild = gang("first", "a", gpus=8, created=1.0, preemptable=True)[0]
    assert bound(schedule_once(scheduler, [mild], 2.0)) == ["second"]
    check_invariants(scheduler)


def test_a_closed_queue_keeps_what_runs() -> None:
    scheduler, _ = played(*nodes(16), queue("a"), *gang("g", "a", pods=2, gpus=4))
    schedule_once(scheduler, [factories.pod("g-0", 4, "g", node="n0", phase="Running")], 0.5)
    running = [
        factories.pod(
            f"g-{i}", 4, "g", node=scheduler.state.pods[f"uid-g-{i}"].node, phase="Running"
        )
        for i in range(2)
    ]
    schedule_once(scheduler, [*running, queue("a", closed=True)], 1.0)
    again = factories.pod("g-2", 4, "g")
    decisions = schedule_once(scheduler, [again, *gang("new", "a")], 2.0)
    assert bound(decisions) == ["g"]
    assert waits(decisions)["new"] == "queue a is closed"


# --- what may be taken back --------------------------------------------------------


def may_reclaim(
    scheduler: Scheduler, claimant: Gang, victim: Gang, taken: Sequence[Gang] = ()
) -> bool:
    """Whether the victim may go beside those that are taken."""
    queues = scheduler.queues
    if not queues.enabled:
        return False
    claim = Claim(queues, claimant, queues.currency.counted(sums_of(claimant.counts.waiting)), {})
    losses = [
        Loss(gang, queues.by_name[gang.account.queue], gang.account.used, False)
        for gang in (*taken, victim)
        if gang.account is not None
    ]
    return all(map(claim.may_give, (*taken, victim))) and not any(claim.judge(losses))


def asking(facts: Sequence[Fact]) -> list[Fact]:
    """The same pods, which preempt nobody by themselves: nothing is in flight."""
    return [replace(each, preempts=False) if isinstance(each, PodSeen) else each for each in facts]


def full(*facts: Fact, a: int = 8) -> Scheduler:
    """Queue a has taken what there is; then b asks."""
    scheduler, _ = played(*nodes(8), *facts, *gangs(a, "a"), half_life_s=0.0)
    assert used(scheduler, "a") == a
    schedule_once(scheduler, asking(gangs(8, "b")), 1.0)
    return scheduler


def may(scheduler: Scheduler, taken: int = 0) -> bool:
    key = ("ns", "{}", True)
    claimant = next(g for g in scheduler.state.pending.waiting.values() if g.name.startswith("b"))
    victims = [scheduler.state.gangs[key[0], f"a{i:03}", True] for i in range(taken + 1)]
    return may_reclaim(scheduler, claimant, victims[-1], victims[:-1])


def test_what_is_above_the_fair_share_may_be_taken_back() -> None:
    scheduler = full(queue("a"), queue("b", weight=3))
    assert fair_shares(scheduler.queues, GPU_EQUIVALENTS) == {
        "root": 8 * GPU_UNITS,
        "a": 2 * GPU_UNITS,
        "b": 6 * GPU_UNITS,
        "default": 0,
    }
    assert [may(scheduler, taken) for taken in range(7)] == [True] * 6 + [False]


def test_nobody_takes_what_the_other_is_due_or_was_guaranteed() -> None:
    assert not may(full(queue("a", deserved=8), queue("b")))
    assert not may(full(queue("a", reclaimable=False), queue("b")))
    assert not may(full(queue("a", guarantee=8), queue("b")))
    assert may(full(queue("a", guarantee=7), queue("b", deserved=8)))
    assert not may(full(queue("a", guarantee=7), queue("b", deserved=8)), taken=1)


def test_nobody_takes_more_than_it_is_due() -> None:
    queues = queue("a"), queue("b")
    scheduler, _ = played(*nodes(8), *queues, *gangs(8, "a"), half_life_s=0.0)
    asked = asking([*gang("five", "b", gpus=5), *gang("four", "b", gpus=4)])
    schedule_once(scheduler, asked, 1.0)
    victim = scheduler.state.gangs["ns", "a000", True]
    assert not may_reclaim(scheduler, scheduler.state.gangs["ns", "five", True], victim)
    assert may_reclaim(scheduler, scheduler.state.gangs["ns", "four", True], victim)


def test_teams_settle_it_where_they_meet() -> None:
    """a and b are of one team, which is not above its share; between themselves they share."""
    scheduler = full(queue("t"), queue("a", parent="t"), queue("b", parent="t"), queue("c"))
    assert may(scheduler)
    apart = full(queue("t"), queue("a", parent="t"), queue("u", deserved=0), queue("b", parent="u"))
    assert may(apart)
    poor = full(queue("t", deserved=8), queue("a", parent="t"), queue("u"), queue("b", parent="u"))
    assert not may(poor)


def test_without_queues_nothing_is_taken_back() -> None:
    scheduler, _ = played(*nodes(8), queue("a"), *gangs(8, "a"))
    schedule_once(scheduler, [QueueGone("a"), *gangs(1, "b")], 1.0)
    claimant = scheduler.state.gangs["ns", "b000", True]
    assert not may_reclaim(scheduler, claimant, scheduler.state.gangs["ns", "a000", True])


# --- a long line -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("queues", "others"), [((), "default"), ((queue("a"), queue("b", weight=2)), "b")]
)
def test_a_long_line_of_the_like_is_served_and_told_as_any(
    queues: tuple[Fact, ...], others: str
) -> None:
    """Who wants what was just refused is not looked at, but waits with a sentence as true."""
    first = gangs(60, "a" if queues else "", gpus=4)
    facts = [*nodes(8), *queues, *first, *gangs(60, others, gpus=4)]
    scheduler, decisions = played(*facts)
    told = waits(decisions)
    assert len(told) == 118
    assert all(why.startswith("needs 1 pod x 4 GPUs; ") for why in told.values())
    served = len(bound(decisions))
    for now in range(1, 6):
        pod = next(pod for pod in scheduler.state.pods.values() if pod.node and pod.alive)
        ended = factories.pod(pod.seen.name, 4, pod.seen.gang, node=pod.node, phase="Succeeded")
        decisions = schedule_once(scheduler, [ended], float(now))
        check_invariants(scheduler)
        assert len(bound(decisions)) == 1
        served += 1
        assert not schedule_once(scheduler, [], now + 0.5), "nothing was gained"
    assert served == 7
    assert all(gang.attempt.reason for gang in scheduler.state.pending.waiting.values())


def test_unlike_gangs_behind_one_that_is_refused_are_looked_at() -> None:
    big = [f for n in range(3) for f in gang(f"big{n}", "a", pods=2, gpus=8, created=float(n))]
    small = gang("small", "a", gpus=2, created=9.0)
    short: list[Fact] = [
        factories.gang("short", 1, queue="a", created=10.0),
        factories.pod("short-0", 8, "short", runs_for_s=1.0),
    ]
    running = factories.pod("there-0", 8, "there", node="n0", phase="Running", runs_for_s=100.0)
    group = factories.gang("there", 1, queue="a")
    _, decisions = played(*nodes(16), queue("a"), group, running, *big, *short, *small)
    assert bound(decisions) in (["short"], ["small"]), "it ends before the room for big is there"
