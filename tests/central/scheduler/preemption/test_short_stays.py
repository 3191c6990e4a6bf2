"""What a tenant owes for short stays, to the second: which stays are charged, at which price, and until when it
waits."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from central.scheduler.preemption.short_stays import LEAST_PRICE_S, MOST_OWED_S, SHORT_S, ShortStays

COST_S = 30.0
PRICE_S = 1200.0  # of which two changes are a twentieth


@dataclass
class Pod:
    alive: bool = True
    deleting: bool = False

    @property
    def seen(self) -> "Pod":
        return self


@dataclass(eq=False)
class Gang:
    """What is read of one."""

    name: str
    queue: str = "a"
    namespace: str = "ns"
    members: dict[str, Pod] = field(default_factory=lambda: {"p": Pod()})

    @property
    def key(self) -> tuple[str, str, bool]:
        return self.namespace, self.name, True


class Story:
    """One elastic gang of queue b, and what others take of it."""

    def __init__(self, cost_s: float = COST_S) -> None:
        self.elastic: Any = Gang("e", "b")
        self.stays = ShortStays({self.elastic.key: cost_s})
        self.there: dict[Any, Any] = {self.elastic.key: self.elastic}
        self._numbers: Iterator[int] = iter(range(10**6))

    def takes(self, now: float, queue: str = "a", namespace: str = "ns") -> Any:
        """A gang that starts in seats of the elastic one."""
        gang: Any = Gang(f"g{next(self._numbers)}", queue, namespace)
        self.there[gang.key] = gang
        self.stays.took(gang, [self.elastic], now)
        return gang

    def look(self, now: float) -> list[float]:
        return self.stays.look(self.there, now)

    def short_stay(self, began: float, ended: float) -> list[float]:
        del self.there[self.takes(began).key]
        return self.look(ended)

    def waits_until(self, now: float, queue: str = "a", namespace: str = "ns") -> float | None:
        claimant: Any = Gang("next", queue, namespace)
        assert self.stays.bars(claimant, now) == (self.stays.ends(claimant, now) is not None)
        return self.stays.ends(claimant, now)


def test_one_short_stay_has_no_consequence_and_the_second_one_has() -> None:
    story = Story()
    assert story.short_stay(100.0, 130.0) == []
    assert story.waits_until(130.0) is None
    paid = 130.0 + PRICE_S
    assert story.short_stay(200.0, 230.0) == [paid]
    for now in (230.0, paid - 0.5):
        assert story.waits_until(now) == paid
    assert story.waits_until(paid) is None  # it owes one stay, no more
    assert story.short_stay(paid, paid + 10.0) == [paid + PRICE_S]


@pytest.mark.parametrize(
    ("other", "waits"), [(("a", "ns"), True), (("b", "ns"), False), (("a", "other"), False)]
)
def test_another_tenant_waits_for_nothing(other: tuple[str, str], waits: bool) -> None:
    story = Story()
    story.short_stay(0.0, 10.0)
    story.short_stay(20.0, 30.0)
    assert (story.waits_until(30.0, *other) is not None) == waits


def test_what_is_paid_is_forgotten() -> None:
    story = Story()
    story.short_stay(0.0, 10.0)
    assert story.look(10.0 + PRICE_S) == []
    assert story.short_stay(3000.0, 3010.0) == []
    assert story.waits_until(3010.0) is None


@pytest.mark.parametrize(
    ("cost_s", "price_s"),
    [(0.0, LEAST_PRICE_S), (15.0, 600.0), (16.0, 640.0), (50.0, 2000.0), (500.0, 20_000.0)],
)
def test_the_price_is_the_time_of_which_two_changes_are_the_share(
    cost_s: float, price_s: float
) -> None:
    """Until it has passed a second short stay is one too many."""
    for pause_s, waits in ((price_s - 1.0, True), (price_s, False)):
        story = Story(cost_s)
        story.short_stay(0.0, 10.0)
        assert bool(story.short_stay(10.0 + pause_s, 10.0 + pause_s + 0.5)) == waits


@pytest.mark.parametrize("cost_s", [1.0, 30.0, 90.0, 91.0, 500.0])
def test_after_a_second_stay_the_tenant_waits_until_the_first_is_paid(cost_s: float) -> None:
    """Also where a stay costs more than an hour."""
    price_s = max(LEAST_PRICE_S, 40 * cost_s)
    story = Story(cost_s)
    story.short_stay(0.0, 10.0)
    assert story.short_stay(20.0, 30.0) == [pytest.approx(10.0 + price_s, abs=21.0)]


def test_the_dearest_of_the_victims_counts() -> None:
    story = Story()
    cheap: Any = Gang("cheap", "b")
    story.stays.cost_s = {story.elastic.key: COST_S, cheap.key: 1.0}
    for began in (0.0, 100.0):
        taker: Any = Gang(f"t{began}")
        story.stays.took(taker, [cheap, story.elastic, cheap], began)
        ends = story.look(began + 10.0)
    assert ends == [10.0 + PRICE_S]


def test_rigid_victims_and_those_of_the_tenant_itself_cost_nothing() -> None:
    story = Story()
    rigid: Any = Gang("rigid", "b")
    own: Any = Gang("own", "a")
    story.stays.cost_s = {story.elastic.key: COST_S, own.key: COST_S}
    for began in (0.0, 20.0, 40.0):
        story.stays.took(own, [rigid, own], began)
        assert story.look(began + 10.0) == []
    assert story.waits_until(50.0) is None


@pytest.mark.parametrize(("lasts_s", "charged"), [(SHORT_S, True), (SHORT_S + 0.5, False)])
def test_a_stay_of_a_minute_is_short_and_a_longer_one_is_not(lasts_s: float, charged: bool) -> None:
    story = Story()
    story.short_stay(0.0, 1.0)
    assert bool(story.short_stay(10.0, 10.0 + lasts_s)) == charged
    assert story.look(10.0 + lasts_s) == []  # it is charged once


def test_gangs_of_one_turn_are_one_stay_that_ends_when_more_than_half_are_gone() -> None:
    story = Story()
    story.short_stay(0.0, 1.0)
    gangs = [story.takes(10.0) for _ in range(4)]
    for gang in gangs[:2]:
        del story.there[gang.key]
    assert story.look(20.0) == []
    del story.there[gangs[2].key]
    assert story.look(21.0) == [1.0 + PRICE_S]
    del story.there[gangs[3].key]
    assert story.look(22.0) == []


def test_the_price_of_a_turn_is_that_of_its_dearest_gang() -> None:
    for order in ((1.0, COST_S), (COST_S, 1.0)):
        story = Story()
        gangs = []
        for cost_s in order:
            story.stays.cost_s = {story.elastic.key: cost_s}
            gangs.append(story.takes(0.0))
        for gang in gangs:
            del story.there[gang.key]
        assert story.look(5.0) == []
        story.look(4.0 + PRICE_S)
        assert story.short_stay(4.0 + PRICE_S, 4.5 + PRICE_S) != []


def test_gangs_of_two_tenants_or_turns_are_stays_of_their_own() -> None:
    story = Story()
    for began in (0.0, 10.0):
        story.takes(began)
        other = story.takes(began, namespace="other")
        story.takes(began + 1.0, namespace="other")
        del story.there[other.key]
        story.look(began + 5.0)
    assert story.waits_until(20.0) is None
    assert story.waits_until(20.0, namespace="other") == 5.0 + PRICE_S


@pytest.mark.parametrize(
    ("pods", "over"),
    [
        ([Pod()], False),
        ([], True),
        ([Pod(alive=False)], True),
        ([Pod(deleting=True)], True),
        ([Pod(alive=False), Pod(deleting=True)], True),
        ([Pod(deleting=True), Pod()], False),
    ],
)
def test_a_gang_is_gone_once_none_of_its_pods_stays(pods: list[Pod], over: bool) -> None:
    story = Story()
    story.short_stay(0.0, 1.0)
    gang = story.takes(10.0)
    gang.members = dict(enumerate(pods))
    assert bool(story.look(20.0)) == over


def test_many_stays_at_once_are_owed_for_an_hour_at_most() -> None:
    story = Story()
    for number in range(10):
        story.takes(float(number))
    story.there = {story.elastic.key: story.elastic}
    story.look(20.0)
    assert story.waits_until(20.0) == 20.0 + MOST_OWED_S - PRICE_S
    dear = Story(cost_s=500.0)  # or two stays
    for number in range(10):
        dear.takes(float(number))
    dear.there = {}
    dear.look(20.0)
    assert dear.waits_until(20.0) == 20.0 + 20_000.0


def test_what_is_owed_does_not_grow_less_by_a_cheaper_stay() -> None:
    story = Story()
    for number in range(4):
        story.takes(float(number))
    story.there = {story.elastic.key: story.elastic}
    story.look(10.0)
    story.stays.cost_s = {story.elastic.key: 1.0}
    for now in (20.0, 30.0):
        assert story.short_stay(now - 1.0, now) == [now + MOST_OWED_S - LEAST_PRICE_S]
    story.stays.cost_s = {story.elastic.key: 500.0}
    story.short_stay(40.0, 50.0)
    story.stays.cost_s = {story.elastic.key: 1.0}
    owed_until = 50.0 + MOST_OWED_S - 20.0 + 20_000.0
    assert story.short_stay(60.0, 70.0) == [owed_until - LEAST_PRICE_S]


def test_only_seats_of_others_elastic_gangs_are_kept_from_who_waits() -> None:
    story = Story()
    own: Any = Gang("own", "a")
    rigid: Any = Gang("rigid", "b")
    claimant: Any = Gang("next", "a")
    story.stays.cost_s = {story.elastic.key: COST_S, own.key: COST_S}
    victims = (story.elastic, own, rigid)
    assert not any(story.stays.keeps(victim, claimant, 0.0) for victim in victims)
    story.short_stay(0.0, 10.0)
    story.short_stay(20.0, 30.0)
    assert [story.stays.keeps(each, claimant, 30.0) for each in victims] == [True, False, False]
    after = ShortStays(story.stays.cost_s)
    story.takes(40.0)
    after.adopt(story.stays)
    assert after.keeps(story.elastic, claimant, 30.0)
    assert after.look({}, 45.0)  # the stay that was under way is known too


def test_what_is_owed_is_known_to_a_later_leader() -> None:
    for cost_s in (COST_S, 500.0):
        story = Story(cost_s)
        story.short_stay(0.0, 10.0)
        story.short_stay(20.0, 30.0)
        until = story.waits_until(30.0)
        assert until is not None
        later = ShortStays()
        assert later.restore(40.0, story.stays.debts(40.0), 50.0) == [until]
        claimant: Any = Gang("next", "a")
        assert later.ends(claimant, 50.0) == until
        assert later.debts(50.0) == story.stays.debts(50.0)
        assert story.stays.debts(10.0**6) == ()
        assert ShortStays().restore(40.0, story.stays.debts(40.0), 10.0**6) == []
