"""What elastic gangs gain: who gets the seats that there are now, and whether a change is worth its cost."""

import random

import pytest

from central.model.jobspec import ElasticTask
from central.scheduler.elastic.autoscaler import SETTLE_S, Autoscaler
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.granted_seats import within_seats
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds


def gang(
    name: str,
    size: int,
    *,
    least: int = 1,
    most: int = 20,
    step: int = 1,
    hold_s: float = 60.0,
    cost_s: float = 1.0,
) -> ElasticGang:
    found = ElasticGang(
        Gang(("ns", name, True)),
        ElasticTask("w", least, most, step, hold_s=hold_s, cost_s=cost_s),
        frozenset(range(size)),
    )
    found.placed = {number: _pod(f"{name}-{number}") for number in range(size)}
    return found


def _pod(name: str) -> Pod:
    seen = factories.pod(name)
    return Pod(seen, seen.spec)


Drawn = tuple[list[ElasticGang], dict[ElasticGang, int]]


def drawn(dice: random.Random, step: int) -> Drawn:
    """Gangs with their sizes and their goals, which are allowed sizes."""
    gangs = []
    for number in range(dice.randrange(1, 6)):
        least = dice.randrange(1, 4)
        gangs.append(
            gang(
                f"g{number}",
                least + step * dice.randrange(4),
                least=least,
                most=least + step * dice.randrange(4, 7),
                step=step,
            )
        )
    return gangs, {each: each.allowed(each.task.least + dice.randrange(7) * step) for each in gangs}


@pytest.mark.parametrize("more_follows", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_the_seats_that_there_are_now_go_to_the_lowest_first(step: int, more_follows: bool) -> None:
    """And those above their goals give no more than is taken, the highest first."""
    grew = gave = 0
    for seed in seeds(150):
        dice = random.Random(seed)
        gangs, goals = drawn(dice, step)
        free = dice.randrange(-2, 6)
        sizes = within_seats(goals, gangs, free, more_follows=more_follows)
        now = {each: len(each.placed) for each in gangs}
        growing = sorted(
            (each for each in gangs if goals[each] > now[each]),
            key=lambda each: each.surplus(now[each]),
        )
        donors = sorted(
            (each for each in gangs if goals[each] < now[each]),
            key=lambda each: -each.surplus(now[each]),
        )
        assert sizes.keys() == {*gangs}
        assert all(
            min(now[each], goals[each]) <= sizes[each] <= max(now[each], goals[each])
            for each in gangs
        )
        assert all(each.allowed(size) == size for each, size in sizes.items())
        left = seats = free + sum(now[each] - goals[each] for each in donors)
        for each in growing:  # one after the other
            lacks = goals[each] - now[each]
            expected = (
                lacks if lacks <= left else 0 if more_follows else max(0, left // step * step)
            )
            assert sizes[each] - now[each] == expected
            left -= expected
        granted = sum(sizes[each] - now[each] for each in growing)
        assert granted <= max(seats, 0)
        needed = max(0, granted - free)
        for each in donors:
            least = min(needed, now[each] - goals[each])
            given = now[each] - sizes[each]
            assert least <= given < least + step, "in whole steps"
            needed -= given
        grew, gave = grew + (granted > 0), gave + any(sizes[each] < now[each] for each in donors)
    assert not ALL_SEEDS or min(grew, gave) > 30


def test_a_change_is_made_if_it_gains_more_than_it_costs_until_the_next_one() -> None:
    """The next one is expected after the hold, or after as long as nothing has changed."""
    decided = set[bool]()
    for seed in seeds(200):
        dice = random.Random(seed)
        scaler, now = Autoscaler(), 1000.0
        scaler._changed_at = now - dice.choice((1.0, 50.0, 400.0))
        gangs = [
            gang(
                f"g{n}",
                dice.randrange(1, 9),
                hold_s=dice.choice((10.0, 60.0)),
                cost_s=dice.choice((1.0, 30.0, 100.0)),
            )
            for n in range(dice.randrange(1, 4))
        ]
        sizes = {each: dice.randrange(1, 12) for each in gangs}
        coming = {each: max(0, sizes[each] - len(each.placed)) for each in gangs}
        if not any(coming.values()):
            continue
        quiet_s = now - scaler._changed_at
        gain = sum(count * max(each.hold_s, quiet_s) for each, count in coming.items())
        loss = sum(each.cost_s * len(each.placed) for each in gangs)
        found = scaler._worth_it(gangs, sizes, now)
        assert found == (gain > loss)
        decided.add(found)
        if not found:
            (at,) = scaler.due()
            assert at >= now + 1.0
            assert scaler._worth_it(gangs, sizes, at + 1.0), "it is tried again once it is worth it"
            assert at == now + max(1.0, loss / sum(coming.values()) - quiet_s)
    assert not ALL_SEEDS or decided == {True, False}


def test_growth_waits_for_needs_for_half_a_minute() -> None:
    scaler, key = Autoscaler(), ("ns", "g", True)
    assert not scaler._needs_wait(0.0)
    scaler.needs = {key: 100.0, ("ns", "old", True): 10.0}
    assert scaler._needs_wait(100.0)
    assert scaler.due() == [130.0]
    scaler.due_at = None
    assert scaler._needs_wait(129.9)
    assert not scaler._needs_wait(130.0)
    assert scaler.due() == [130.0]


def test_members_wait_for_a_seat_for_half_a_minute_unless_others_want_it() -> None:
    """Then the gang is as large as it is, in whole steps."""
    for others_wait in (False, True):
        scaler, waits = Autoscaler(), gang("g", 3, step=1, least=2)
        waits.members, waits.pending = frozenset(range(5)), frozenset({3, 4})
        waits.gang.object = factories.gang("g", 1)
        waits.gang.members = {pod.seen.uid: pod for pod in waits.placed.values()}
        for pod in waits.placed.values():
            pod.node = "n"
        waits.gang.invalidate_counts()
        assert waits.started
        taken = [list(scaler._take_back([waits], others_wait, now)) for now in (0.0, 29.9, 30.0)]
        assert list(map(len, taken)) == ([1, 1, 1] if others_wait else [0, 0, 1])
        (back,) = taken[-1]
        assert (back.key, back.members, back.leaving) == (waits.key, (0, 1, 2), ())
        assert (back.why, back.cause) == ("no seat for more members", "no-seat")
        assert scaler.due() == ([] if others_wait else [30.0])
        scaler, waits.settled = Autoscaler(), False
        assert not list(scaler._take_back([waits], True, 0.0))
    assert SETTLE_S == 10.0
