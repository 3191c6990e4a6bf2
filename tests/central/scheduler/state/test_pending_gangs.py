"""PendingGangs: which gangs a cycle tries, their backoff, and what wakes refused gangs."""

import pytest

from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import pending_gangs
from central.scheduler.state.attempt import Outcome
from central.scheduler.state.gangs import Gang
from central.scheduler.state.pending_gangs import PendingGangs
from tests.central import factories


@pytest.fixture
def snapshot() -> Snapshot:
    return Snapshot(factories.LEVELS)


@pytest.fixture
def pending(snapshot: Snapshot) -> PendingGangs:
    return PendingGangs(snapshot)


def waiting(pending: PendingGangs, name: str) -> Gang:
    gang = Gang(("ns", name, True), pending.columns)
    pending.changed(gang)
    pending.update(gang, waiting=True, partial=False)
    return gang


def due(pending: PendingGangs, now: float = 0.0) -> list[str]:
    names = [gang.name for gang in pending.columns.of(pending.due(now))]
    pending.changed_gangs.clear()
    return names


def test_a_refused_gang_is_tried_again_in_the_next_epoch_only(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    assert due(pending) == ["g"]
    pending.refuse(gang, "too large")
    assert (gang.attempt.reason, gang.attempt.refused_at) == ("too large", pending.epoch)
    assert due(pending) == []
    pending.capacity_freed("volume available")
    assert due(pending) == ["g"]


def test_freed_capacity_of_the_snapshot_is_an_epoch_too(
    pending: PendingGangs, snapshot: Snapshot
) -> None:
    before = pending.epoch
    snapshot.freed += 1
    pending.capacity_freed("volume available")
    assert pending.epoch == before + 2


def test_a_changed_gang_is_tried_in_the_same_epoch(pending: PendingGangs) -> None:
    first, second = waiting(pending, "first"), waiting(pending, "second")
    assert due(pending) == ["first", "second"]
    pending.refuse(first, "")
    pending.refuse(second, "")
    pending.changed(second)
    assert due(pending) == ["second"]


def test_gangs_come_in_the_order_of_their_ranks(pending: PendingGangs) -> None:
    for name in ("b", "a", "c"):
        waiting(pending, name)
    assert due(pending) == ["a", "b", "c"]


def test_failed_bindings_back_off_from_1_to_30_seconds(pending: PendingGangs) -> None:
    gang, now, delays = waiting(pending, "g"), 0.0, []
    assert due(pending) == ["g"]
    for _ in range(8):
        gang.attempt.bind_failures += 1
        pending.changed(gang)
        assert due(pending, now) == []
        [retry_at] = pending.retry_times(now)
        delays.append(retry_at - now)
        assert due(pending, retry_at - 0.01) == []
        assert due(pending, retry_at) == ["g"]
        now = retry_at
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]
    assert pending.retry_times(now) == []


def test_the_pods_of_one_attempt_count_once(pending: PendingGangs) -> None:
    """Their answers come one by one."""
    gang = waiting(pending, "g")
    for now in (0.0, 0.1, 0.9):
        gang.attempt.bind_failures += 20
        pending.changed(gang)
        assert due(pending, now) == []
        assert pending.retry_times(now) == [1.0]
    assert due(pending, 1.0) == ["g"]


def test_a_gang_that_is_bound_begins_its_backoff_anew(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    gang.attempt.bind_failures = 1
    assert due(pending) == []
    pending.update(gang, waiting=False, partial=False)
    pending.update(gang, waiting=True, partial=False)
    gang.attempt.bind_failures = 2
    pending.changed(gang)
    assert due(pending, 10.0) == []
    assert pending.retry_times(10.0) == [11.0]


def test_freed_capacity_does_not_end_a_backoff(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    gang.attempt.bind_failures = 1
    assert due(pending) == []
    pending.capacity_freed("volume available")
    assert due(pending, 0.5) == []
    assert due(pending, 1.0) == ["g"]


def test_a_gang_that_stops_waiting_leaves_its_backoff(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    gang.attempt.bind_failures = 1
    due(pending)
    pending.update(gang, waiting=False, partial=True)
    assert pending.retry_times(0.0) == []
    assert list(pending.partial.values()) == [gang]
    pending.changed(gang)
    pending.forget(gang)
    assert not pending.partial
    assert not pending.changed_gangs


def test_refused_before_names_refusals_of_earlier_epochs(pending: PendingGangs) -> None:
    old, new = waiting(pending, "old"), waiting(pending, "new")
    waiting(pending, "never-refused")
    pending.refuse(old, "")
    assert not len(pending.refused_before())
    pending.capacity_freed("reservation dropped")
    pending.refuse(new, "")
    assert pending.columns.of(pending.refused_before()) == [old]


def test_equal_requests_have_equal_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_gangs, "EQUIVALENCES_KEPT", 2)
    pending = PendingGangs(Snapshot())
    one, two = pending.equivalence("one"), pending.equivalence("two")
    assert 0 < one != two > 0
    assert pending.equivalence("one") == one
    three = pending.equivalence("three")  # the cache is full; a number is never given twice
    assert pending.equivalence("two") not in (one, two, three)


def test_the_end_of_a_preemption_backoff_wakes_gangs(pending: PendingGangs) -> None:
    pending.preemption_retry_at |= {5.0, 9.0}
    pending.end_preemption_backoff(4.0)
    assert not pending.wakeups
    pending.end_preemption_backoff(5.0)
    assert pending.wakeups == {"preemption backoff over": 1}
    assert pending.retry_times(5.0) == [9.0]


def test_wakeups_are_counted_by_reason(pending: PendingGangs) -> None:
    for reason in ("volume available", "reservation dropped", "volume available"):
        pending.capacity_freed(reason)
    assert pending.wakeups == {"volume available": 2, "reservation dropped": 1}


def test_gangs_are_accounted_in_slices(pending: PendingGangs) -> None:
    names = [waiting(pending, f"g{number}").name for number in range(5)]
    taken = [[gang.name for gang in pending.take_unaccounted(most)] for most in (2, 3, 3, None)]
    assert taken == [names[:2], names[2:], [], []]
    waiting(pending, "last")
    assert [gang.name for gang in pending.take_unaccounted(None)] == ["last"]
    assert not pending.unaccounted


def test_a_gang_that_is_tried_later_is_due_then_and_not_before(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    assert due(pending) == ["g"]
    pending.refuse(gang, "its search was cut off")
    pending.try_later(gang, 7.0)
    pending.try_later(gang, 5.0)
    assert pending.retry_times(0.0) == [7.0], "no earlier than it was to be"
    assert pending.retry_times(7.0) == []
    assert due(pending, 6.9) == []
    assert due(pending, 7.0) == ["g"]


def test_in_an_epoch_that_is_being_tried_only_changed_and_retrying_gangs_are_due(
    pending: PendingGangs,
) -> None:
    changed, retrying, _, tried = (waiting(pending, name) for name in ("a", "b", "c", "d"))
    assert due(pending) == ["a", "b", "c", "d"]
    gone = waiting(pending, "gone")
    pending.update(gone, waiting=False, partial=False)
    pending.changed(changed)
    for gang in (retrying, tried):
        pending.try_later(gang, 5.0)
    pending.columns.outcome[tried.attempt.row] = Outcome.REFUSED
    found = pending.due_changed(5.0)
    assert pending.columns.of(found) == [changed, retrying]
    assert pending.columns.of(pending.due_changed(4.0)) == [changed]


def test_gangs_that_were_not_refused_are_tried_again_if_asked(pending: PendingGangs) -> None:
    first, _ = waiting(pending, "first"), waiting(pending, "second")
    assert due(pending) == ["first", "second"]
    pending.refuse(first, "")
    assert due(pending) == []
    pending.try_all_again()
    assert due(pending) == ["second"]
    pending.capacity_freed("volume available")
    assert pending.columns.of(pending.refused_before()) == [first]
    assert due(pending) == ["first", "second"]


def test_a_changed_gang_is_due_though_it_was_refused_in_this_epoch(pending: PendingGangs) -> None:
    refused, retried = waiting(pending, "refused"), waiting(pending, "retried")
    due(pending)
    pending.capacity_freed("volume available")
    pending.refuse(refused, "")
    pending.try_later(retried, 9.0)
    pending.changed(refused)
    assert due(pending) == ["refused"], "all of an epoch, with one that backs off"
    pending.capacity_freed("volume available")
    assert due(pending) == ["refused"]


def test_statuses_are_due_in_slices(pending: PendingGangs) -> None:
    gangs = [waiting(pending, name) for name in "abcd"]
    pending.all_decided()
    assert not pending.changed_gangs
    more = [gangs[0], *(waiting(pending, name) for name in "xyz")]
    pending.reasons_changed(pending.columns.rows_of(more))
    taken = [[gang.name for gang in pending.take_unpublished(3, 2)] for _ in range(3)]
    assert taken == [["a", "b", "c", "x", "y"], ["d", "z"], []], "a once, though its reason changed"


def test_touched_gangs_are_followed_up_to_a_bound(
    pending: PendingGangs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_gangs, "TOUCHED_KEPT", 2)
    gangs = [Gang(("ns", name, True)) for name in "abc"]
    pending.touch(gangs[0])
    assert pending.take_touched() is None, "nobody followed them yet"
    for gang in (gangs[1], gangs[0], gangs[1]):
        pending.touch(gang)
    assert list(pending.take_touched() or ()) == [gangs[1], gangs[0]]
    for gang in gangs:
        pending.touch(gang)
    assert pending.take_touched() is None
    assert list(pending.take_touched() or ()) == []


def test_a_gang_that_is_forgotten_is_nowhere(pending: PendingGangs) -> None:
    gang = waiting(pending, "g")
    pending.take_touched()
    pending.update(gang, waiting=True, partial=True)
    pending.try_later(gang, 5.0)
    pending.unpublished[gang.key] = gang
    pending.reasons_changed(pending.columns.rows_of([gang]))
    pending.forget(gang)
    assert not pending.waiting
    assert not pending.partial
    assert not pending.retrying
    assert not pending.changed_gangs
    assert pending.take_unaccounted(None) == pending.take_unpublished(9, 9) == []
    assert list(pending.take_touched() or ()) == [gang]


@pytest.mark.parametrize("more", [0, 5])
def test_a_rebuilt_state_goes_on_in_a_new_epoch(pending: PendingGangs, more: int) -> None:
    for _ in range(3):
        pending.capacity_freed("volume available")
    again = PendingGangs(Snapshot(factories.LEVELS))
    for _ in range(more):
        again.capacity_freed("devices offered again")
    pending.claims_over = 7
    again.continue_from(pending.remembered())
    assert again.epoch == max(3, more) + 1
    assert again.wakeups == {"volume available": 3, "state rebuilt": 1}
    assert again.claims_over == 8, "a backoff of before ends, and none begins again"


def test_a_gang_that_left_and_came_back_still_backs_off(pending: PendingGangs) -> None:
    gang, other = waiting(pending, "g"), waiting(pending, "other")
    assert due(pending) == ["g", "other"]
    for each in (gang, other):
        pending.try_later(each, 5.0)
    pending.update(gang, waiting=False, partial=False)
    pending.update(gang, waiting=True, partial=False)
    pending.capacity_freed("volume available")
    assert due(pending, 4.0) == []
    pending.capacity_freed("volume available")
    assert sorted(due(pending, 5.0)) == ["g", "other"]
    assert not pending.retrying, "its backoff is over"
