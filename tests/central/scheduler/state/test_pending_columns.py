"""The columns of pending gangs say what their gangs say, whoever comes, goes and changes."""

import random

import pytest

from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gang_set import GangSet
from central.scheduler.state.gangs import Gang
from central.scheduler.state.pending_columns import NUMBERS_KEPT
from central.scheduler.state.pending_gangs import PendingGangs
from central.scheduler.state.refusals import Refusals
from central.scheduler.work_meter import MAX_FACTOR
from tests.central import factories


@pytest.fixture
def pending() -> PendingGangs:
    return PendingGangs(Snapshot(factories.LEVELS))


def waiting(pending: PendingGangs, name: str, rank: tuple[int, int, float] = (0, 0, 0.0)) -> Gang:
    gang = Gang(("ns", name, True))
    gang.attempt.rank = (*rank, gang.key)
    pending.update(gang, waiting=True, partial=False)
    return gang


def change(pending: PendingGangs, gang: Gang, dice: random.Random) -> None:
    attempt = gang.attempt
    attempt.rank = (dice.randint(-2, 0), dice.randint(0, 2), float(dice.randint(0, 9)), gang.key)
    attempt.need = {"cpu": dice.randint(1, 4)}
    gang.object = factories.gang(gang.name, 1, owner=dice.choice(("", "job/sweep")))
    attempt.run_time_s = dice.choice((60.0, float("inf")))
    attempt.bind_failures += dice.randint(0, 1)
    attempt.failures_handled = attempt.bind_failures - dice.randint(0, 1)
    pending.update(gang, waiting=dice.random() < 0.9, partial=False)


@pytest.mark.parametrize("seed", range(10))
def test_columns_follow_their_gangs(pending: PendingGangs, seed: int) -> None:
    dice, columns, names = random.Random(seed), pending.columns, iter(range(10_000))
    for _ in range(60):
        for _ in range(dice.choice((1, 1, 5))):
            waiting(pending, f"g{next(names)}")
        for gang in dice.sample([*pending.waiting.values()], min(len(pending.waiting), 3)):
            change(pending, gang, dice)
        if dice.random() < 0.5:
            columns.recycle()
        columns.check(pending.waiting.values())
        for gang in pending.waiting.values():
            assert columns.owned[gang.attempt.row] == bool(gang.owner)
        some = [gang for gang in pending.waiting.values() if dice.random() < 0.7]
        if dice.random() < 0.5:
            ordered = columns.of(columns.in_rank_order(columns.mask(columns.rows_of(some))))
            assert ordered == sorted(some, key=lambda gang: gang.attempt.rank)


def test_one_gang_moves_among_hundreds(pending: PendingGangs) -> None:
    """It is put in its place; the others are not sorted again."""
    columns = pending.columns
    gangs = [waiting(pending, f"g{number:03}", (0, 0, float(number))) for number in range(200)]
    assert columns.of(columns.in_rank_order(columns.waiting)) == gangs
    gangs[7].attempt.rank = (0, 0, 150.5, gangs[7].key)
    gangs[9].attempt.rank = (-1, 0, 300.0, gangs[9].key)
    gangs[5].attempt.rank = (0, 0, 150.4, gangs[5].key)
    pending.update(gangs[60], waiting=False, partial=False)
    gangs[60].attempt.rank = (-2, 0, 0.0, gangs[60].key)  # nobody asks for it any more
    ordered = columns.of(columns.in_rank_order(columns.waiting))
    left = [gang for gang in gangs if gang is not gangs[60]]
    assert ordered == sorted(left, key=lambda gang: gang.attempt.rank)
    assert (ordered[0], ordered.index(gangs[7]) - ordered.index(gangs[5])) == (gangs[9], 1)
    before = columns.mask(columns.rows_of(gangs[:3]))
    for number in range(200):  # who comes later is in no older mask
        waiting(pending, f"late{number}")
    assert columns.of(columns.in_rank_order(before)) == gangs[:3]


def test_a_row_is_given_to_others_after_it_is_recycled(pending: PendingGangs) -> None:
    columns, first = pending.columns, waiting(pending, "first")
    row = first.attempt.row
    first.attempt.reason = "too large"
    pending.update(first, waiting=False, partial=False)
    assert (first.attempt.reason, first.attempt.row) == ("too large", -1)
    assert columns.released.tolist() == [row]
    assert waiting(pending, "second").attempt.row != row
    columns.attempts.refusal[row] = "kept"
    columns.recycle()
    assert (columns.attempts.reason[row], columns.attempts.refusal[row]) == ("", None)
    third = waiting(pending, "third")
    assert (third.attempt.row, third.attempt.reason) == (row, "")
    assert (first.attempt.reason, columns.released.tolist()) == ("too large", [])


def test_what_an_attempt_says_survives_coming_and_going(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    attempt = gang.attempt
    for comes in (False, True, False):
        attempt.refused_at, attempt.equivalence, attempt.retry_at = 7, 3, 2.5
        attempt.reason, attempt.refusal, attempt.listed = "no", "refusal", True
        attempt.work_factor = 2 * MAX_FACTOR
        pending.update(gang, waiting=comes, partial=False)
        assert (attempt.refused_at, attempt.equivalence, attempt.retry_at) == (7, 3, 2.5)
        assert (attempt.reason, attempt.refusal, attempt.listed) == ("no", "refusal", True)
        assert (attempt.row >= 0) == comes
        if comes:
            assert pending.columns.attempts.long[attempt.row]


def test_another_gang_of_the_same_name_takes_the_place(pending: PendingGangs) -> None:
    before, after = waiting(pending, "g"), waiting(pending, "g")
    assert before.attempt.row < 0 <= after.attempt.row
    pending.columns.check(pending.waiting.values())


def test_needs_that_no_gang_has_are_dropped(pending: PendingGangs) -> None:
    """A tenant that requests another amount each time does not fill the memory."""
    gang, columns = waiting(pending, "g"), pending.columns
    other = waiting(pending, "other")
    for amount in range(3 * NUMBERS_KEPT):
        gang.attempt.need = {"cpu": amount}
        columns.recycle()
    assert columns.attempts.different_needs <= NUMBERS_KEPT + 1
    other.attempt.need = {"cpu": 3 * NUMBERS_KEPT - 1}
    columns.check(pending.waiting.values())
    assert columns.attempts.need[gang.attempt.row] == columns.attempts.need[other.attempt.row]


def test_a_set_of_gangs_forgets_who_left(pending: PendingGangs) -> None:
    gangs = [waiting(pending, f"g{number}") for number in range(40)]
    some = GangSet(pending.columns, pending.columns.rows_of(gangs[:2]))
    late = [waiting(pending, f"late{number}") for number in range(200)][-1]
    assert gangs[0] in some
    assert gangs[2] not in some
    assert late not in some
    some.add(late)
    some.discard(gangs[1])
    assert some.gangs() == [gangs[0], late]
    for gang in (gangs[0], late):
        assert some
        pending.update(gang, waiting=False, partial=False)
        some.discard(gang)  # has no row any more
    assert not some
    assert (gangs[0] in some, len(some)) == (False, 0)
    assert not GangSet()


@pytest.mark.parametrize("seed", range(10))
def test_statuses_are_due_in_the_order_in_which_reasons_changed(
    pending: PendingGangs, seed: int
) -> None:
    """Against a plain dict."""
    dice, columns = random.Random(seed), pending.columns
    gangs = [waiting(pending, f"g{number}") for number in range(30)]
    expected: dict[str, Gang] = {}
    for _ in range(40):
        changed = dice.sample(gangs, dice.randint(0, 12))
        pending.reasons_changed(columns.rows_of(changed))
        for gang in changed:
            expected.setdefault(gang.name, gang)
        assert pending.has_changed_reasons == bool(expected)
        for gang in dice.sample(gangs, dice.choice((0, 0, 2))):
            pending.unpublished[gang.key] = gang
        first = [*pending.unpublished.values()]
        for gang in first:
            expected.pop(gang.name, None)
        most = dice.randint(0, 8)
        then = [expected.pop(name) for name in [*expected][:most]]
        assert pending.take_unpublished(100, most) == [*first, *then]


@pytest.mark.parametrize("seed", range(10))
def test_refusals_keep_their_order(pending: PendingGangs, seed: int) -> None:
    """Against a plain dict, with gangs that go, come back, or have the name of another one that has gone."""
    dice, columns = random.Random(seed), pending.columns
    refusals, expected = Refusals[str](), dict[tuple[str, str, bool], str]()
    gangs = [waiting(pending, f"g{number}") for number in range(12)]
    for number in range(150):
        gang = dice.choice(gangs)
        match dice.randrange(5):
            case 0:
                refusals.give(gang, f"r{number}")
                expected[gang.key] = f"r{number}"
            case 1:
                alike = [g for g in dice.sample(gangs, 5) if g.attempt.row >= 0]
                rows = columns.rows_of(alike)
                refusals.give_all(columns, rows, f"r{number}")
                refusals.list_new(columns, rows)
                expected |= dict.fromkeys((g.key for g in alike), f"r{number}")
            case 2:
                assert refusals.pop(gang.key) == expected.pop(gang.key, None)
            case 3:
                pending.update(gang, waiting=gang.attempt.row < 0, partial=False)
            case _:
                pending.forget(gang)
                gangs[gangs.index(gang)] = named = waiting(pending, gang.name)
                if dice.random() < 0.3:
                    refusals.give(named, f"r{number}")
                    expected[gang.key] = f"r{number}"
                    assert not gang.attempt.listed
        assert [*refusals.items()] == [*expected.items()]
        refusals.check()
