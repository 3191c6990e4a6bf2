"""Where each gang takes more than its queue's share, weights decide over time, whatever the tenants' priorities say."""

import random
from collections import Counter

import pytest

from central.model.defaults import USAGE_HALF_LIFE_S
from central.model.facts import Fact, QueueSeen
from central.scheduler.queues.received_service import MOST_OWED_S, ReceivedService
from central.scheduler.queues.turns import QueueTurns
from central.scheduler.rebuild import rebuild
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.queues.queued_gangs import nodes, queue
from tests.central.scheduler.small_cluster import World, job

HOUR = 3600.0


def served(there: World) -> list[str]:
    """The queues, in the order in which their gangs began."""
    return [name.partition("-")[0] for name in sorted(there.began, key=there.began.__getitem__)]


def whole(name: str, number: int, lasts_s: float, priority: int = 0) -> list[Fact]:
    """A gang of the queue that takes all GPUs."""
    of = {"queue": name, "priority": priority, "created": float(number)}
    return job(f"{name}-{number:02}", 1, 8, lasts_s, **of)


@pytest.mark.parametrize("lasts_s", [300.0, HOUR])
@pytest.mark.parametrize("priorities", [(10, 0), (0, 10)])
@pytest.mark.parametrize("weights", [(1, 1), (2, 1)])
def test_turns_follow_the_weights(
    weights: tuple[int, int], priorities: tuple[int, int], lasts_s: float
) -> None:
    """Shorter and longer than --patience."""
    heavy, light = weights
    there = World(*nodes(8), queue("heavy", weight=heavy), queue("light", weight=light))
    turns = 3 * (heavy + light)
    facts = []
    for number in range(turns):
        facts += whole("heavy", number, lasts_s, priorities[0])
        facts += whole("light", number, lasts_s, priorities[1])
    there.step(0.0, *facts)
    for number in range(1, turns):
        there.step(number * lasts_s)
    counts = Counter(served(there))
    assert abs(counts["heavy"] - 3 * heavy) <= 1, served(there)
    assert abs(counts["light"] - 3 * light) <= 1, served(there)


@pytest.mark.long
def test_who_did_not_ask_is_owed_nothing() -> None:
    there = World(*nodes(8), queue("early"), queue("late"), half_life_s=0.0)
    there.step(0.0, *(fact for number in range(20) for fact in whole("early", number, HOUR)))
    for number in range(1, 9):
        there.step(number * HOUR)
    there.step(8.5 * HOUR, *(fact for number in range(9) for fact in whole("late", number, HOUR)))
    for number in range(9, 17):
        there.step(number * HOUR)
    assert abs(Counter(served(there)[-8:])["late"] - 4) <= 1, served(there)


def test_a_queue_that_has_received_more_waits_for_the_turn_of_the_other() -> None:
    """Though its next gang keeps it within its share, and before patience ends. What starts on its turn stays."""
    there = World(*nodes(8), queue("large", weight=3), queue("small"), patience_s=2 * HOUR)
    there.step(0.0, *whole("small", 0, HOUR))
    later = job("small-1", 1, 2, HOUR, queue="small", created=2.0)
    there.step(2.0, *whole("large", 1, HOUR), *later)
    for now in (HOUR, HOUR + 2.0, HOUR + 60.0):
        there.step(now)
    assert "small-1" not in there.began, there.began
    there.step(2 * HOUR)
    assert there.began == {"small-00": 0.0, "large-01": HOUR, "small-1": 2 * HOUR}


@pytest.mark.parametrize(("half_life_s", "hours"), [(0.0, 26), (USAGE_HALF_LIFE_S, 32)])
def test_a_turn_ends_when_a_sibling_has_received_a_day_less(half_life_s: float, hours: int) -> None:
    """The gang has no end. Until then the other queue is not served, though it is within its fair share. Where past use
    counts, a part of it has decayed."""
    there = World(*nodes(8), queue("a"), queue("b"), half_life_s=half_life_s)
    there.step(0.0, *job("b-0", 1, 8, HOUR, queue="b"))
    there.step(2.0, *job("a-0", 1, 8, None, queue="a", created=2.0))
    there.step(HOUR)
    assert there.began["a-0"] == HOUR
    there.step(HOUR + 2.0, *job("b-1", 1, 2, HOUR, queue="b", created=HOUR))
    for hour in range(2, hours - 1):
        there.step(hour * HOUR)
    assert "b-1" not in there.began
    there.step(hours * HOUR, factories.node("another", gpus=1))
    there.step(hours * HOUR + 2.0)
    assert there.told["a-0"] == "preempted by b-1"
    there.step(hours * HOUR + 60.0)
    assert "b-1" in there.began


class Plain:
    """Fair queueing of gangs that take everything: who has had least time for its weight is next, level by level."""

    def __init__(self, queues: list[QueueSeen], lines: dict[str, list[tuple[float, int]]]) -> None:
        """lines: how long the gangs of each queue last, and their priority; all are pending."""
        self.queues = {each.name: each for each in queues}
        self.lines = {name: sorted(line, key=lambda gang: -gang[1]) for name, line in lines.items()}
        self.had = dict.fromkeys(self.queues, 0.0)

    def turn(self) -> tuple[str, float]:
        name = ""
        while below := [each.name for each in self.queues.values() if each.parent == name]:
            name = min(filter(self.waits, below), key=self.key)
        lasts_s, _ = self.lines[name].pop(0)
        leaf = name
        while name:
            self.had[name] += lasts_s / self.queues[name].weight
            name = self.queues[name].parent
        return leaf, lasts_s

    def waits(self, name: str) -> bool:
        below = [each.name for each in self.queues.values() if each.parent == name]
        return any(map(self.waits, below)) if below else bool(self.lines[name])

    def key(self, name: str) -> tuple[object, ...]:
        """Of equal ones the one that uses less for its weight with its next gang; the tests give no two the same."""
        return self.had[name], 1 / self.queues[name].weight


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_turns_are_those_of_plain_fair_queueing(seed: int) -> None:
    """Also when queues change and when the state is built again. Sums are exact: weights are powers of two."""
    dice = random.Random(seed)
    weights = dice.sample((1, 2, 4, 8), 3)
    parents = ["", "", dice.choice(("", "q0"))]
    queues = [
        QueueSeen(f"q{number}", weight=weight, parent=parent)
        for number, (weight, parent) in enumerate(zip(weights, parents, strict=True))
    ]
    if parents[2]:
        queues.append(QueueSeen("q3", weight=weights[2] * 2, parent="q0"))
    leaves = [each.name for each in queues if all(each.name != one.parent for one in queues)]
    lines = {
        name: [(60.0 * dice.randint(3, 90), dice.randrange(3)) for _ in range(10)]
        for name in leaves
    }
    facts = [
        fact
        for name, line in lines.items()
        for number, gang in enumerate(line)
        for fact in whole(name, number, *gang)
    ]
    there, plain, now = World(*nodes(8), *queues), Plain(queues, lines), 0.0
    there.step(now, *facts)
    expected = []
    for _ in range(10):
        name, lasts_s = plain.turn()
        expected.append(name)
        half = now + lasts_s / 2
        there.step(half, QueueSeen("other", weight=dice.randint(1, 9)))
        if dice.random() < 0.3:
            rebuild(there.cluster)
            there.step(half)
        now += lasts_s
        there.step(now)
    assert served(there)[:10] == expected


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_who_waits_for_what_it_never_gets_is_owed_a_week(weight: float) -> None:
    stuck, other, above = ReceivedService(), ReceivedService(), ReceivedService()
    for day in range(1, 30):
        other.advance(day * 86400.0, 0.5, 2.0, above)
        stuck.advance(day * 86400.0, 0.0, weight, above)
    assert (other.amount - stuck.amount) * weight == MOST_OWED_S


def test_nobody_is_owed_what_its_queue_deserves() -> None:
    """Below its deserved amount the share that it uses above that is negative."""
    own, above = ReceivedService(), ReceivedService()
    own.advance(100.0, 0.5, 1.0, above)
    own.advance(200.0, -0.5, 1.0, above)
    assert own.amount == above.most == 50.0


def test_a_rebuilt_state_knows_what_each_queue_has_received() -> None:
    """Also the queue that exists in an empty state."""
    there = World(*nodes(8), queue("default"), queue("other"), half_life_s=0.0)
    there.step(0.0, *whole("default", 0, HOUR), *whole("other", 0, HOUR))
    there.step(HOUR / 2)
    rebuild(there.cluster)
    there.step(HOUR / 2)
    there.step(HOUR)
    received = {name: there.cluster.queues.by_name[name].received for name in ("default", "other")}
    assert received == {"default": HOUR, "other": 0.0}


def test_what_was_received_is_a_part_of_what_there_was_then() -> None:
    """Another node comes after an hour."""
    there = World(*nodes(8), queue("a"), queue("b"), half_life_s=0.0)
    there.step(0.0, *whole("a", 0, 2 * HOUR))
    there.step(HOUR, factories.node("other"))
    there.step(2 * HOUR)
    assert there.cluster.queues.by_name["a"].received == HOUR + HOUR / 2


def test_who_begins_to_wait_in_a_moved_department_is_level() -> None:
    """With what its sibling has received until now."""
    inner = [queue(name, parent="dept") for name in ("x", "y")]
    there = World(*nodes(8), queue("above"), queue("dept"), *inner, half_life_s=0.0)
    there.step(0.0, *whole("x", 0, 2 * HOUR))
    there.step(HOUR, queue("dept", parent="above"), *whole("y", 0, HOUR))
    queues = there.cluster.queues
    assert queues.by_name["y"].received == queues.by_name["x"].received == HOUR


def test_nobody_passes_the_head_of_an_invalid_queue() -> None:
    """What that queue has received is compared with nobody's."""
    there = World(*nodes(8), queue("a"), queue("b"), queue("c"), half_life_s=0.0)
    there.step(0.0, *whole("a", 0, HOUR), *whole("a", 1, HOUR), *whole("b", 0, HOUR))
    there.step(HOUR, *whole("c", 0, HOUR), queue("a", error="spec.weight: -1"))
    gangs = {gang.name: gang for gang in there.cluster.state.gangs.values()}
    turns = QueueTurns(there.cluster.queues, {})
    assert there.cluster.queues.by_name["a"].received == HOUR
    assert not turns.passes(gangs["c-00"], gangs["a-01"])
    assert not turns.passes(gangs["a-01"], gangs["c-00"])


def test_who_passes_depends_on_what_was_received_until_now() -> None:
    """Of the gang's queue and of the head's, whenever their usage changed last."""
    there = World(*nodes(8), queue("a"), queue("b"))
    there.step(0.0, *whole("a", 0, 2 * HOUR), *whole("a", 1, HOUR), *whole("b", 0, HOUR))
    gangs = {gang.name: gang for gang in there.cluster.state.gangs.values()}
    queues = there.cluster.queues
    queues.now = HOUR
    assert QueueTurns(queues, {}).passes(gangs["b-00"], gangs["a-01"])
    queues.by_name["b"]._received.amount = HOUR + 60.0
    queues.now = HOUR + 120.0
    assert not QueueTurns(queues, {}).passes(gangs["a-01"], gangs["b-00"])


@pytest.mark.long
@pytest.mark.parametrize(("deserved", "part"), [((8, 8), 1 / 2), ((16, 8), 2 / 3), ((0, 0), 1 / 2)])
def test_queues_that_deserve_more_than_there_is_get_their_parts_over_a_day(
    deserved: tuple[int, int], part: float
) -> None:
    """One sends gangs of six GPUs of eight, more than its part, the other a stream of single ones. No gang is evicted
    and begins anew: the harm to its queue would be larger than the gain, or it is its turn."""
    a, b = (((GPU, own),) if own else () for own in deserved)
    there = World(*nodes(8), QueueSeen("a", deserved=a), QueueSeen("b", deserved=b))
    used = Counter[str]()
    for hour in range(24):
        now = hour * HOUR
        facts = job(f"a-{hour:02}", 1, 6, HOUR, queue="a", created=now)
        for number in range(8):
            facts += job(f"b-{hour:02}{number}", 1, 1, HOUR, queue="b", created=now)
        there.step(now, *facts)
        there.step(now + 10.0)
        for seen in there.running.values():
            used[seen.gang[0]] += (6 if seen.gang[0] == "a" else 1) * bool(seen.node)
    assert not there.evicted
    assert used.total() == 8 * 24
    assert abs(used["a"] / used.total() - part) < 0.05, used


@pytest.mark.long
def test_a_gang_above_the_part_of_its_queue_is_evicted_once_for_a_claim_of_another() -> None:
    """And begins anew on its turn, which lasts until its queue has received a day of the whole cluster more."""
    there = World(*nodes(8), *(QueueSeen(name, deserved=((GPU, 8),)) for name in "ab"))
    there.step(0.0, *job("a-0", 1, 6, None, queue="a"))
    for hour in range(1, 24):
        now = hour * HOUR
        there.step(now, *job(f"b-{hour}", 1, 4, HOUR / 2, queue="b", created=now))
        there.step(now + 10.0)
        if len(there.evicted) == 1 and "a-1" not in there.names.values():
            there.step(now + 20.0, *job("a-1", 1, 6, None, queue="a", created=now + 20.0))
    assert there.evicted == ["a-0-0"]
    assert there.began["a-1"] <= 3 * HOUR
