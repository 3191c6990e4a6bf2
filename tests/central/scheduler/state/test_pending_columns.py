"""The columns of pending gangs say what their gangs say, whoever comes, goes and changes."""

import random

import pytest

from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.attempt import NEW_ROW, Outcome
from central.scheduler.state.gangs import Account, Gang
from central.scheduler.state.pending_columns import NAMES_KEPT
from central.scheduler.state.pending_gangs import PendingGangs
from central.scheduler.work_meter import MAX_FACTOR
from tests.central import factories
from tests.central.scheduler import recounts


@pytest.fixture
def pending() -> PendingGangs:
    return PendingGangs(Snapshot(factories.LEVELS))


def waiting(pending: PendingGangs, name: str, rank: tuple[int, int, float] = (0, 0, 0.0)) -> Gang:
    gang = Gang(("ns", name, True), pending.columns)
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
        recounts.check_pending(columns, pending.waiting.values())
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
    pending.refuse(first, "too large")
    pending.refused.give(first, "kept")
    pending.forget(first)
    assert (first.attempt.reason, first.attempt.row, columns.at(row)) == ("too large", row, first)
    assert first.attempt.refused_at == -1, "no other gang is refused as it was"
    assert waiting(pending, "second").attempt.row != row
    columns.recycle()
    assert (columns.gangs[row], columns.refusal[row], first.attempt.reason) == (None, None, "")
    third = waiting(pending, "third")
    assert (third.attempt.row, third.attempt.reason) == (row, "")
    third.attempt.reason = "too large as well"
    assert first.attempt.reason == ""


def test_a_row_says_the_same_while_its_gang_does_not_wait(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    row, attempt = gang.attempt.row, gang.attempt
    for waits in (False, True, False):
        attempt.refused_at, attempt.equivalence, attempt.retry_at = 7, 3, 2.5
        attempt.reason, attempt.run_time_s, attempt.work_factor = "no", 60.0, 2 * MAX_FACTOR
        pending.refused.give(gang, "refusal")
        pending.update(gang, waiting=waits, partial=False)
        pending.columns.recycle()
        assert (attempt.refused_at, attempt.equivalence, attempt.retry_at) == (7, 3, 2.5)
        assert (attempt.reason, attempt.run_time_s, attempt.work_factor) == (
            "no",
            60.0,
            2 * MAX_FACTOR,
        )
        assert (attempt.row, pending.refused[gang.key]) == (row, "refusal")
        assert pending.columns.waiting[row] == waits


def test_rows_of_new_gangs_say_nothing(pending: PendingGangs) -> None:
    """Whether the table grew or another gang had the row."""
    gangs = [waiting(pending, f"g{number}") for number in range(40)]
    columns = pending.columns
    for gang in gangs:
        row = gang.attempt.row
        for name, value in NEW_ROW.items():
            if name not in ("gangs", "waiting"):
                assert getattr(columns, name)[row] == value, name
        columns.listed[row], columns.queue[row], columns.reason_turn[row] = True, 4, 9
        columns.work_factor[row], columns.owned[row] = 8, True
        columns.listed[row] = False
    for gang in gangs:
        pending.forget(gang)
    columns.recycle()
    row = waiting(pending, "new").attempt.row
    assert 0 < row <= 40
    found = {name: getattr(columns, name)[row] for name in NEW_ROW}
    assert found == {**NEW_ROW, "gangs": pending.waiting["ns", "new", True], "waiting": True}


def test_another_gang_of_the_same_name_takes_the_place(pending: PendingGangs) -> None:
    before, after = waiting(pending, "g"), waiting(pending, "g")
    assert before.attempt.row != after.attempt.row
    assert pending.columns.rows_of([before, after]).tolist() == [after.attempt.row]
    recounts.check_pending(pending.columns, pending.waiting.values())


def test_a_gang_that_is_never_tried_has_no_row(pending: PendingGangs) -> None:
    assert Gang(("ns", "other", False)).attempt.row == 0
    assert not pending.columns.rows_of([Gang(("ns", "other", False))]).tolist()


def test_names_of_queues_that_no_gang_has_are_dropped(pending: PendingGangs) -> None:
    """A tenant that makes a queue for each gang does not fill the memory."""
    gang, columns = waiting(pending, "g"), pending.columns
    other = waiting(pending, "other")
    for number in range(3 * NAMES_KEPT):
        gang.account = Account(f"q{number}", {}, {})
        pending.update(gang, waiting=True, partial=False)
        columns.in_rank_order()
        columns.recycle()
        recounts.check_pending(columns, pending.waiting.values())
    assert len(columns.queue_names) <= NAMES_KEPT + 1
    assert columns.queue[other.attempt.row] == -1


def test_what_is_left_of_a_round(pending: PendingGangs) -> None:
    """By rank, without gangs that no longer wait."""
    columns = pending.columns
    gangs = [waiting(pending, f"g{each}", (0, 0, -float(each))) for each in range(len(Outcome))]
    for gang, outcome in zip(gangs, Outcome, strict=True):
        columns.outcome[gang.attempt.row] = outcome
    left = [gangs[Outcome.BEHIND], gangs[Outcome.PARTLY], gangs[Outcome.DUE]]
    assert (
        columns.of(columns.due()) == left == [gang for gang in gangs[::-1] if columns.is_due(gang)]
    )
    tried = columns.rows_of(gangs)[columns.were_tried(columns.rows_of(gangs))]
    names = {Outcome.SET_ASIDE, Outcome.REFUSED, Outcome.BOUND, Outcome.LONG, Outcome.PARTLY}
    assert columns.of(tried) == [gangs[outcome] for outcome in sorted(names)]
    assert not columns.drop_left()
    for gang in (gangs[Outcome.BEHIND], gangs[Outcome.REFUSED]):
        pending.update(gang, waiting=False, partial=False)
    assert columns.of(columns.due()) == left[1:]
    assert columns.drop_left()
    assert not columns.drop_left()
    for gang in (gangs[Outcome.BEHIND], gangs[Outcome.REFUSED]):
        pending.update(gang, waiting=True, partial=False)
    assert columns.of(columns.due()) == left[1:], "it was dropped"
    assert columns.were_tried(columns.rows_of([gangs[Outcome.REFUSED]])).all()


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
    """Against a plain dict, with gangs that stop waiting, wait again, or have the name of another one that has gone."""
    dice, columns = random.Random(seed), pending.columns
    refusals, expected = pending.refused, dict[tuple[str, str, bool], str]()
    gangs = [waiting(pending, f"g{number}") for number in range(12)]
    for number in range(150):
        gang = dice.choice(gangs)
        match dice.randrange(5):
            case 0:
                refusals.give(gang, f"r{number}")
                expected[gang.key] = f"r{number}"
            case 1:
                alike = [g for g in dice.sample(gangs, 5) if g.key in pending.waiting]
                rows = columns.rows_of(alike)
                refusals.give_all(rows, f"r{number}")
                refusals.list_new(rows)
                expected |= dict.fromkeys((g.key for g in alike), f"r{number}")
            case 2:
                assert refusals.pop(gang.key) == expected.pop(gang.key, None)
            case 3:
                pending.update(gang, waiting=gang.key not in pending.waiting, partial=False)
            case _:
                pending.forget(gang)
                expected.pop(gang.key, None)
                gangs[gangs.index(gang)] = named = waiting(pending, gang.name)
                if dice.random() < 0.3:
                    refusals.give(named, f"r{number}")
                    expected[gang.key] = f"r{number}"
                columns.recycle()
        assert [*refusals.items()] == [*expected.items()]
        recounts.check_refusals(refusals)
