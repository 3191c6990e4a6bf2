"""Tasks: leases, attempts, failures, order, storing."""

import json
import random

import pytest

from central.controllers.training.generation import NotAllowed
from central.controllers.training.permutation import permuted
from central.controllers.training.task_bitmap import BitMap
from central.controllers.training.task_queue import (
    LeaseKey,
    NoLonger,
    OtherEpoch,
    StoredQueue,
    TaskQueue,
)
from central.controllers.training.task_source import QueueSettings, TaskSource

A, B = (0, 1), (1, 1)


def queue(tasks: int = 4, **settings: object) -> TaskQueue:
    return TaskQueue("q", QueueSettings(**settings), TaskSource.of_range(tasks, 1))  # type: ignore[arg-type]  # by name


def take(made: TaskQueue, now: float, owner: tuple[int, int], most: int = 1) -> list[LeaseKey]:
    given = made.lease(now, owner, max(0, made.epoch), most)["tasks"]
    return [LeaseKey(owner, made.epoch, one["task"], one["attempt"]) for one in given]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 64, 1000])
def test_an_order_has_each_number_once(n: int) -> None:
    orders = [
        [permuted(i, n, seed, epoch) for i in range(n)] for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert all(sorted(order) == list(range(n)) for order in orders)
    assert n < 10 or len({tuple(order) for order in orders}) == 3


def test_each_task_is_given_once_and_the_epoch_ends() -> None:
    made = queue(5)
    keys = take(made, 0.0, A, 3) + take(made, 0.0, B, 64)
    assert sorted(key.task for key in keys) == list(range(5))
    assert take(made, 1.0, B) == []
    for key in keys:
        assert not made.is_over
        made.finish(1.0, key)
    assert made.lease(1.0, A, 0, 1)["over"]
    assert len(take_epoch(made, 1)) == 5
    with pytest.raises(OtherEpoch):
        made.lease(1.0, A, 2, 1)
    assert made.lease(1.0, A, 0, 1) == {"tasks": [], "wait_s": 0, "over": True}


def test_the_latest_answers_may_be_said_again_in_a_later_epoch() -> None:
    """A snapshot keeps the latest ones, whatever their tasks' places were in the epoch before."""
    made = queue(100)
    keys = take(made, 0.0, A, 100)
    for key in keys:
        made.finish(1.0, key)
    given = {one["task"]: one["attempt"] for one in made.lease(1.0, A, 1, 100)["tasks"]}
    last = LeaseKey(A, 1, keys[0].task, given[keys[0].task])
    made.finish(2.0, last)
    stored = json.loads(json.dumps(made.snapshot(2.0)))
    again = TaskQueue.restore("q", made.source, StoredQueue(stored), 2.0, 1)
    again.finish(3.0, last)


def take_epoch(made: TaskQueue, epoch: int) -> list[int]:
    return [one["task"] for one in made.lease(1.0, A, epoch, 64)["tasks"]]


def test_an_answer_may_be_said_again_by_the_owner_alone() -> None:
    """Also after a restart, and to what a version without owners has stored."""
    made = queue(1)
    (key,) = take(made, 0.0, A)
    made.finish(1.0, key)
    stored = json.loads(json.dumps(made.snapshot(1.0)))
    before = {name: stored[name] for name in stored if name != "recent_owners"}
    for state in (stored, before):
        again = TaskQueue.restore("q", made.source, StoredQueue(state), 1.0, 1)
        again.finish(2.0, key)
        with pytest.raises(NoLonger):
            again.finish(2.0, key._replace(attempt=key.attempt + 1))
    for each in (made, TaskQueue.restore("q", made.source, StoredQueue(stored), 1.0, 1)):
        with pytest.raises(NoLonger):
            each.finish(2.0, key._replace(owner=B))


def test_an_answer_may_be_said_again_when_others_have_begun_the_next_epoch() -> None:
    """Its worker would else believe that the task was not counted, though it is done."""
    made = queue(1, commit=True)
    (key,) = take(made, 0.0, A)
    token = made.token()
    made.finish(1.0, key, "result")
    assert take_epoch(made, 1) == [0]
    stored = json.loads(json.dumps(made.snapshot(1.0)))
    for each in (made, TaskQueue.restore("q", made.source, StoredQueue(stored), 1.0, 2)):
        each.finish(2.0, key, "result")
        assert (each.epoch, each.done.count) == (1, 0)
    made.rewind(token)
    with pytest.raises(NoLonger):
        made.finish(3.0, key, "result")


def test_an_attempt_of_the_epoch_before_finishes_nothing_in_this_one() -> None:
    made = queue(1)
    (first,) = take(made, 0.0, A)
    made.finish(1.0, first)
    made.lease(1.0, A, 1, 1)
    with pytest.raises(NoLonger):
        made.finish(2.0, first._replace(epoch=1))
    made.finish(2.0, first)


def test_an_attempt_of_this_epoch_finishes_nothing_in_the_one_before() -> None:
    made = queue(1)
    (first,) = take(made, 0.0, A)
    made.finish(1.0, first)
    given = made.lease(1.0, A, 1, 1)["tasks"]
    second = LeaseKey(A, 1, 0, given[0]["attempt"])
    with pytest.raises(NoLonger):
        made.finish(2.0, second._replace(epoch=0))
    assert made.done.count == 0
    made.finish(2.0, second)
    version = made.version
    made.finish(3.0, second._replace(epoch=0))  # both are done, by the same owner
    assert (made.version, made.done.count, made.epoch) == (version, 1, 1)


def test_late_answers_are_refused() -> None:
    made = queue(1)
    (old,) = take(made, 0.0, A)
    made.expire(60.0)
    (new,) = take(made, 60.0, B)
    assert new.attempt > old.attempt
    for key in (old, new._replace(owner=A), new._replace(epoch=1)):
        with pytest.raises(NoLonger):
            made.finish(61.0, key)
    made.finish(61.0, new)
    made.finish(61.0, new)  # the answer was lost
    assert made.done.count == 1


def test_leases_of_the_lost_end_at_once_without_a_failure() -> None:
    made = queue(1, failures=0)
    (key,) = take(made, 0.0, A)
    made.progress(1.0, key, 7)
    made.release({0: 2, 1: 1})
    given = made.lease(1.0, B, 0, 1)["tasks"]
    assert [one["resume"] for one in given] == [7]
    assert made.set_aside == {}


def test_a_task_that_is_given_back_has_not_failed() -> None:
    made = queue(1, failures=0)
    (key,) = take(made, 0.0, A)
    made.progress(0.0, key, 7)
    made.give_back(key)
    assert made.lease(0.0, B, 0, 1)["tasks"][0]["resume"] == 7
    with pytest.raises(NoLonger):
        made.give_back(key)


def test_too_many_failures_set_a_task_aside_by_name() -> None:
    made = queue(2, failures=2)
    for _ in range(3):
        keys = take(made, 0.0, A, 2)
        bad = next(key for key in keys if key.task == 1)
        made.fail(bad, "cannot read it")
        made.release({})
    assert made.summary()["failed"] == [{"task": 1, "name": "1-1", "why": "cannot read it"}]
    (good,) = take(made, 0.0, A, 2)
    made.finish(0.0, good)
    assert made.is_over
    assert sorted(take_epoch(made, 1)) == [0, 1]


def test_lease_times_follow_the_durations() -> None:
    made = queue(300)
    assert made.lease(0.0, A, 0, 1)["tasks"][0]["lease_s"] == 60
    for duration in (100.0, 1000.0):
        for key in take(made, 0.0, A, 100):
            made.finish(duration, key)
        lease_s = made.lease(0.0, A, 0, 1)["tasks"][0]["lease_s"]
        assert lease_s == min(1200.0, 3 * duration)


def test_a_straggler_is_given_a_second_time_and_the_first_answer_wins() -> None:
    made = queue(2, speculate=True)
    (slow,) = take(made, 0.0, A)
    (quick,) = take(made, 0.0, B)
    made.finish(5.0, quick)
    assert take(made, 14.0, B) == []
    (second,) = take(made, 16.0, B)
    assert second.task == slow.task
    made.finish(17.0, second)
    with pytest.raises(NoLonger):
        made.finish(17.0, slow)
    assert made.is_over


def test_what_came_back_is_given_after_what_was_never_tried() -> None:
    made = queue(3, failures=9)
    (first,) = take(made, 0.0, A)
    made.fail(first, "x")
    assert [key.task for key in take(made, 0.0, A, 3)][-1] == first.task


def test_of_those_that_came_back_the_least_attempted_is_given_first() -> None:
    made = queue(2)
    low, high = sorted(take(made, 0.0, A, 2), key=lambda key: key.task)
    made.give_back(low)
    (low,) = take(made, 0.0, A)
    made.give_back(low)
    made.give_back(high)
    assert [key.task for key in take(made, 0.0, A, 2)] == [1, 0]


def test_a_member_holds_a_bounded_number() -> None:
    made = queue(1000)
    for _ in range(10):
        take(made, 0.0, A, 64)
    assert made.summary()["leased"] == 256


def test_a_rewind_to_the_epoch_before_keeps_its_results() -> None:
    made = queue(3, commit=True)
    for key in take(made, 0.0, A, 2):
        made.finish(0.0, key, f"r{key.task}")
    token = made.token()
    kept = made.results_of(0, 0, 10)
    (last,) = take(made, 0.0, A)
    made.finish(0.0, last, "later")
    made.lease(0.0, A, 1, 3)
    made.rewind(token)
    assert made.results_of(0, 0, 10) == kept


def test_a_rewind_undoes_what_came_after_the_token() -> None:
    made = queue(4, commit=True)
    first, second, third = take(made, 0.0, A, 3)
    made.finish(0.0, first)
    token = json.loads(json.dumps(made.token()))
    made.finish(0.0, second, "a result")
    made.rewind(token)
    assert (made.done.count, made.results) == (1, {})
    with pytest.raises(NoLonger):
        made.finish(0.0, third)
    assert sorted(key.task for key in take(made, 0.0, B, 4)) == sorted({0, 1, 2, 3} - {first.task})
    plain = queue(4)
    plain.finish(0.0, take(plain, 0.0, A)[0])
    plain.rewind(plain.unbegun())
    assert plain.done.count == 1


def test_names_come_in_parts() -> None:
    made = TaskQueue("q", QueueSettings(), TaskSource.of_names(3))
    made.source.add(0, ["a", "b"])
    with pytest.raises(NotAllowed, match="not all"):
        made.lease(0.0, A, 0, 1)
    with pytest.raises(NotAllowed, match="other tasks"):
        made.source.add(1, ["x", "c"])
    with pytest.raises(NotAllowed, match="tasks: a is given twice"):
        made.source.add(2, ["a"])
    assert made.source.add(1, ["b", "c"])
    assert sorted(one["name"] for one in made.lease(0.0, A, 0, 3)["tasks"]) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(20))
def test_a_restored_queue_goes_on_as_before(seed: int) -> None:
    chosen = random.Random(seed)
    made = queue(20, failures=2)
    held: list[LeaseKey] = []
    for _ in range(60):
        held += take(made, 0.0, chosen.choice((A, B)), chosen.randint(1, 4))
        chosen.shuffle(held)
        for key in [held.pop() for _ in range(len(held) // 2)]:
            made.fail(key, "x") if chosen.random() < 0.3 else made.finish(0.0, key)
        state = json.loads(json.dumps(made.snapshot(0.0)))
        again = TaskQueue.restore("q", made.source, StoredQueue(state), 1000.0, 1)
        assert again.snapshot(1000.0) == made.snapshot(0.0) | {"at": 1000.0}
        assert again.summary() == made.summary()
        if made.is_over:
            made.lease(0.0, A, made.epoch + 1, 1)
            made.release({})
            held = []


@pytest.mark.long
def test_a_million_tasks_half_done_are_small() -> None:
    bits = BitMap(1_000_000)
    for number in range(500_000):
        bits.add(number)
    text = bits.to_text()
    assert len(text) < 4000
    assert BitMap.from_text(text, 1_000_000).count == 500_000
    with pytest.raises(ValueError, match="not a set of 10 tasks"):
        BitMap.from_text(text, 10)
