"""What queues used in the past decides whose turn it is, where it counts."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict, UpdateGangStatus
from central.model.facts import Fact, GangGone, PastUsageSeen, PodGone, QueuePast, QueueSeen
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.cycle import due, schedule_once
from central.scheduler.queues.usage_history import DecayedUsage
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import World, job

HALF_S = 100.0
SLOWER = 36  # than the times that are written: the order looks an hour ahead


def test_the_past_counts_half_as_much_for_each_half_life() -> None:
    usage = DecayedUsage()
    usage.advance(0.0, {}, {}, HALF_S)
    usage.advance(HALF_S, {GPU: 8}, {}, HALF_S)
    assert usage.of(GPU) == pytest.approx(4.0)
    usage.advance(2 * HALF_S, {GPU: 8}, {}, HALF_S)
    assert usage.of(GPU) == pytest.approx(6.0)
    usage.advance(4 * HALF_S, {}, {}, HALF_S)
    assert usage.of(GPU) == pytest.approx(1.5)
    usage.advance(4 * HALF_S, {GPU: 99}, {}, HALF_S)
    assert usage.of(GPU) == pytest.approx(1.5), "no time has passed"


def test_it_makes_no_difference_how_often_it_is_asked() -> None:
    once, often = DecayedUsage(), DecayedUsage()
    once.advance(300.0, {GPU: 5}, {GPU: 2}, HALF_S)
    for now in range(1, 301):
        often.advance(float(now), {GPU: 5}, {GPU: 2}, HALF_S)
    assert once.of(GPU) == pytest.approx(often.of(GPU))
    assert 2 < once.of(GPU) < 3, "what it deserves is no use of others'"


def shares(half_life_s: float, *, weight: int = 1) -> dict[int, int]:
    """GPUs of the second queue by time; the first had all sixteen alone until 500 s. Both always
    have more that wait."""
    scheduler = new_scheduler(factories.LEVELS, half_life_s=SLOWER * half_life_s)
    nodes: list[Fact] = [factories.node(f"n{i}") for i in range(2)]
    facts = [*nodes, QueueSeen("a"), QueueSeen("b", weight=weight)]
    found: dict[int, int] = {}
    for now in range(0, 1100, 25):
        for pod in [pod for pod in scheduler.state.pods.values() if pod.node]:  # they have ended
            facts += [PodGone(pod.seen.uid), GangGone("ns", pod.seen.gang)]
        for queue in ("a", "b") if now >= 500 else ("a",):
            for number in range(16):
                name = f"{queue}{now:04}{number:02}"
                created = SLOWER * now + number / 100
                facts.append(factories.gang(name, 1, queue=queue, created=created))
                facts.append(factories.pod(f"{name}-0", 1, name, created=created))
        schedule_once(scheduler, facts, float(SLOWER * now))
        used = scheduler.queues.by_name["b"].used.get(GPU, 0)
        found[now] = used
        facts = []
        for gang in scheduler.state.pending.waiting.values():
            facts += [*map(PodGone, gang.members), GangGone("ns", gang.name)]
    check_invariants(scheduler)
    return found


@pytest.mark.long
def test_who_had_nothing_usage_has_more_until_it_is_even() -> None:
    now_only, usage = shares(0.0), shares(HALF_S)
    assert all(now_only[now] == 8 for now in range(500, 1100, 25))
    assert usage[500] == 16, "the other one had all, and it had nothing"
    assert 8 < usage[525] <= 16
    assert abs(usage[1075] - 8) <= 1, "and in the end it is even"
    late = [usage[now] for now in range(500, 1100, 25)]
    assert sum(late) > 8.5 * len(late)


@pytest.mark.long
def test_weights_hold_in_the_past_too() -> None:
    usage = shares(HALF_S, weight=3)
    assert abs(usage[1075] - 12) <= 1


def test_means_are_what_advancing_leaves() -> None:
    """So that writing them down changes no decision."""
    one, other = DecayedUsage(), DecayedUsage()
    for past in (one, other):
        past.advance(300.0, {GPU: 5}, {GPU: 2}, HALF_S)
    means = dict(one.means(500.0, {GPU: 7}, {}, HALF_S))
    assert one.of(GPU) == other.of(GPU)
    other.advance(500.0, {GPU: 7}, {}, HALF_S)
    assert means == {GPU: other.of(GPU)}


def test_what_a_leader_before_wrote_down_counts_as_if_it_went_on() -> None:
    """Whoever has used most yields to the other, also after a restart."""

    def first(*past: Fact) -> list[str]:
        made = new_scheduler(factories.LEVELS, half_life_s=600.0)
        facts: list[Fact] = [factories.node("n"), QueueSeen("a"), QueueSeen("b")]
        for number, queue in enumerate("ab"):  # that of a is older
            facts += [factories.gang(queue, 1, queue=queue, created=float(number))]
            facts += [factories.pod(queue, 5, queue, created=float(number))]
        decisions = schedule_once(made, [*past, *facts], 1000.0)
        return [each.pod for each in decisions if isinstance(each, Bind)]

    assert first() == ["uid-a"]
    used = QueuePast("a", ((GPU_EQUIVALENTS, 8.0 * GPU_UNITS),))
    assert first(PastUsageSeen(990.0, (used,))) == ["uid-b"]
    assert first(PastUsageSeen(-1e6, (used,))) == ["uid-a"], "it is forgotten by now"
    gone = QueuePast("gone", used.means)
    assert first(PastUsageSeen(990.0, (gone,))) == ["uid-a"]


def test_a_queue_that_is_seen_later_has_its_past() -> None:
    made = new_scheduler(factories.LEVELS, half_life_s=600.0)
    past = PastUsageSeen(90.0, (QueuePast("a", (("cpu", 1000.0),)),))
    schedule_once(made, [past, factories.node("n"), QueueSeen("b")], 100.0)
    schedule_once(made, [QueueSeen("a")], 200.0)
    assert made.queues.by_name["a"].past_usage.of("cpu") == 1000.0
    schedule_once(made, [QueueSeen("a", weight=3)], 800.0)
    halves = (800.0 - 90.0) / 600.0
    assert made.queues.by_name["a"].past_usage.of("cpu") == pytest.approx(1000.0 * 0.5**halves)


def test_queues_that_have_received_as_much_share_what_is_free() -> None:
    """One that has used a little less does not take all of it: the next hour counts, too."""
    made = new_scheduler(factories.LEVELS, half_life_s=7 * 86400.0)
    past = QueuePast("a", ((GPU_EQUIVALENTS, 0.001 * GPU_UNITS),))
    facts: list[Fact] = [factories.node("n"), *map(QueueSeen, "ab"), PastUsageSeen(0.0, (past,))]
    for number in range(16):
        name = f"{'ab'[number % 2]}{number}"
        facts.append(factories.gang(name, 1, queue=name[0], created=float(number)))
        facts.append(factories.pod(f"{name}-0", 1, name, created=float(number)))
    schedule_once(made, facts, 1.0)
    assert {name: made.queues.by_name[name].used[GPU_EQUIVALENTS] for name in "ab"} == {
        "a": 4 * GPU_UNITS,
        "b": 4 * GPU_UNITS,
    }


@pytest.mark.parametrize("reclaimable", [False, True])
def test_strict_priority_goes_before_past_use(*, reclaimable: bool) -> None:
    """In order and by eviction. Deserved amounts of others, and what is not reclaimable, stay."""
    there = World(
        factories.node("n0"),
        factories.node("n1"),
        QueueSeen("strict", strict_priority=1),
        QueueSeen("plain", reclaimable=reclaimable),
        QueueSeen("owner", deserved=((GPU, 4),)),
        half_life_s=7 * 86400.0,
    )
    old = [*job("own", 1, 4, queue="owner"), *job("low", 1, 4, queue="plain")]
    there.step(0.0, *old, *job("used", 1, 8, 36000.0, queue="strict"))
    assert set(there.began) == {"own", "low", "used"}
    there.step(36000.0)  # strict has used more than all others
    new = [*job("second", 1, 8, queue="plain"), *job("first", 1, 8, queue="strict", created=9.0)]
    there.step(36001.0, *new)
    assert "first" in there.began
    assert "second" not in there.began
    there.step(36100.0, *job("more", 1, 4, queue="strict", created=10.0))
    there.step(36200.0, *job("most", 1, 4, queue="strict", created=11.0))
    there.step(36300.0)
    assert there.evicted == (["low-0"] if reclaimable else [])
    assert [why.rpartition("queue ")[2] for why in there.whys] == [
        "strict has a higher strictPriority" for _ in there.evicted
    ]
    assert ("more" in there.began) is reclaimable
    assert "most" not in there.began


def test_who_was_first_for_a_day_gets_a_fair_share() -> None:
    """Where nothing ends, order alone would never give it anything. Not more than the share."""
    there = World(factories.node("n0"), QueueSeen("a"), QueueSeen("b"), half_life_s=7 * 86400.0)
    old = [fact for number in range(4) for fact in job(f"old{number}", 1, 2, queue="a")]
    there.step(0.0, *old)
    new = [*job("new", 1, 4, queue="b"), *job("more", 1, 4, queue="b", created=1.0)]
    there.step(60.0, *new)
    assert there.told["new"].endswith("only: queue b would use 4 GPUs, and deserves none")
    there.step(80_000.0)
    assert not there.evicted
    wakes = due(there.cluster, 80_000.0)
    there.step(86_400.0 + 60.0)
    assert len(there.evicted) == 2
    assert there.whys[0] == "reclaimed for ns/new; queue b is below its fair share"
    there.step(86_400.0 + 120.0)
    assert "new" in there.began
    there.step(3 * 86_400.0)
    there.step(3 * 86_400.0 + 60.0)
    assert len(there.evicted) == 2
    assert wakes is not None
    assert wakes <= 86_400.0 + 60.0


def test_where_past_use_counts_no_gang_is_evicted_for_a_fair_share() -> None:
    """The other queue waits for an end, and its reason says so; what it deserves it gets at once."""
    found: dict[str, list[Decision]] = {}
    amounts: dict[str, tuple[tuple[str, int], ...]] = {"nothing": (), "all": ((GPU, 8),)}
    for name, deserved in amounts.items():
        made = new_scheduler(factories.LEVELS, half_life_s=7 * 86400.0)
        facts: list[Fact] = [factories.node("n"), QueueSeen("a"), QueueSeen("b", deserved=deserved)]
        facts += [factories.gang("old", 1, queue="a"), factories.pod("old-0", 8, "old")]
        schedule_once(made, facts, 0.0)
        new: list[Fact] = [factories.gang("new", 1, queue="b"), factories.pod("new-0", 8, "new")]
        found[name] = schedule_once(made, new, 86400.0)
    assert not [each for each in found["nothing"] if isinstance(each, Evict)]
    assert [each.pod for each in found["all"] if isinstance(each, Evict)] == ["uid-old-0"]
    [reason] = [
        each.reason
        for each in found["nothing"]
        if isinstance(each, UpdateGangStatus) and each.gang == "new"
    ]
    assert "no victims: queues reclaim deserved amounts and guarantees only" in reason


def test_who_reclaims_what_it_deserves_says_so() -> None:
    deserved = ((GPU, 8),)
    there = World(
        factories.node("n0"),
        *(QueueSeen("b", deserved=deserved), QueueSeen("a")),
        half_life_s=7 * 86400.0,
    )
    there.step(0.0, *job("old", 1, 8, queue="a"))
    there.step(60.0, *job("new", 1, 4, queue="b"))
    assert there.whys == ["reclaimed for ns/new; queue b is below what it deserves"]
