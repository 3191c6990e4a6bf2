"""A queue that is stored as a snapshot and what changed since: it is restored as it was, what a write costs depends on
what changed, and the store stays bounded."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from central.controllers.training.generation import MembershipRules
from central.controllers.training.queue_journal import ROWS_PER_SNAPSHOT, JournalLimits
from central.controllers.training.stored_state import SCHEMA, StoredState
from central.controllers.training.task_queue import LeaseKey, TaskQueue
from central.controllers.training.task_source import QueueSettings, TaskSource

RULES = MembershipRules()
OWNERS = ((0, 1), (1, 1), (2, 5))


class Stored:
    """A store, and the sections of the last write."""

    def __init__(self, tasks: int, limits: JournalLimits, **settings: Any) -> None:
        self.limits = limits
        self.state = StoredState("a/b/c", RULES, limits=limits)
        self.state.read({}, 0.0)
        self.state.tasks.create("q", QueueSettings(**settings), TaskSource.of_range(tasks, 1))
        self.sections: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.changed_at = 0.0
        self.write(0.0)

    @property
    def queue(self) -> TaskQueue:
        return self.state.tasks["q"]

    def write(self, now: float) -> None:
        self.last = json.loads(json.dumps(self.state.changes(now)))
        self.sections |= self.last
        self.changed_at = now if self.last else self.changed_at

    def read(self, now: float) -> StoredState:
        found = StoredState("a/b/c", RULES, limits=self.limits)
        found.read(json.loads(json.dumps(self.sections)), now)
        return found

    def take(self, now: float, owner: tuple[int, int], most: int) -> list[LeaseKey]:
        epoch = max(0, self.queue.epoch)
        given = self.queue.lease(now, owner, epoch, most)["tasks"]
        return [LeaseKey(owner, epoch, one["task"], one["attempt"]) for one in given]


def seen(queue: TaskQueue, now: float) -> Any:
    """All that is known of the queue, but for the numbers of attempts that are to come and the order of memories."""
    found = json.loads(json.dumps(queue.snapshot(now)))
    for name in ("next_attempt", "recent", "recent_owners", "at"):
        del found[name]
    found["held"] = sorted(
        [member, incarnation, task, attempt, round(age, 2), round(left, 2)]
        for member, incarnation, *columns in found["held"]
        for task, attempt, age, left in zip(*columns, strict=True)
    )
    epochs = (queue.epoch - 1, queue.epoch)
    results = [queue.results_of(epoch, 0, 1000) for epoch in epochs if epoch >= 0]
    return found, queue.summary(), results


def change(stored: Stored, chosen: random.Random, now: float, held: list[LeaseKey]) -> None:
    queue = stored.queue
    if not held or chosen.random() < 0.4:
        held += stored.take(now, chosen.choice(OWNERS), chosen.randint(1, 4))
    elif chosen.random() < 0.05:
        present = {member: incarnation for member, incarnation in OWNERS if chosen.random() < 0.7}
        queue.release(present)
        held[:] = [key for key in held if present.get(key.owner[0]) == key.owner[1]]
    else:
        key = held.pop(chosen.randrange(len(held)))
        ways: list[Callable[[], object]] = [
            lambda: queue.finish(now, key, chosen.choice(("", "a result"))),
            lambda: queue.finish(now, key, "another"),
            lambda: queue.fail(key, "why"),
            lambda: queue.give_back(key),
        ]
        if chosen.random() < 0.2:
            queue.progress(now, key, chosen.randint(1, 9))
            held.append(key)
        else:
            chosen.choice(ways)()
    if queue.is_over and not held:
        held += stored.take_next(now) if isinstance(stored, Days) else []


class Days(Stored):
    """Epoch after epoch, with a rewind now and then where done is provisional."""

    def take_next(self, now: float) -> list[LeaseKey]:
        epoch = self.queue.epoch + 1
        given = self.queue.lease(now, OWNERS[0], epoch, 2)["tasks"]
        return [LeaseKey(OWNERS[0], epoch, one["task"], one["attempt"]) for one in given]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_restored_is_what_was_there(seed: int) -> None:
    chosen = random.Random(seed)
    limits = chosen.choice((JournalLimits(0, 0), JournalLimits(6, 2), JournalLimits(60, 9)))
    stored = Days(15, limits, failures=1, commit=bool(seed % 2))
    held: list[LeaseKey] = []
    token = stored.queue.unbegun()
    now = 0.0
    for _ in range(300):
        now += chosen.choice((0.0, 0.25, 1.0))
        change(stored, chosen, now, held)
        if chosen.random() < 0.02:
            token = stored.queue.token()
        if chosen.random() < 0.01 and stored.queue.settings.commit:
            stored.queue.rewind(token)
            held.clear()
        if chosen.random() < 0.5:
            stored.write(now)
            assert seen(stored.read(900.0).tasks["q"], 900.0) == seen(
                stored.queue, stored.changed_at
            )


@pytest.mark.long
def test_a_write_has_what_changed_and_no_other_lease() -> None:
    stored = Stored(200_000, JournalLimits())
    keys = [key for n in range(500) for key in stored.take(0.0, (n, 1), 64)]
    stored.write(0.0)
    stored.queue.finish(1.0, keys[0], "r")
    stored.take(1.0, (0, 1), 1)
    stored.write(1.0)
    (entry,) = stored.last.values()
    rows = [len(entry[kind]) for kind in ("done", "progress", "leases", "set_aside", "results")]
    assert rows == [1, 1, 1, 0, 1]
    assert len(json.dumps(stored.last)) < 400
    assert len(json.dumps(stored.sections)) > 1_000_000, "there are many"


@pytest.mark.long
def test_entries_are_bounded_and_snapshots_are_rare() -> None:
    """Of 16,000 leases that end one after the other."""
    stored = Stored(16_000, JournalLimits(100, 10_000))
    keys = [key for n in range(250) for key in stored.take(0.0, (n, 1), 64)]
    stored.write(0.0)
    snapshots = most = 0
    for start in range(0, len(keys), 8):
        for key in keys[start : start + 8]:
            stored.queue.finish(1.0, key)
        stored.write(1.0)
        snapshots += "queue/q" in stored.last
        most = max(most, sum(name.startswith("journal/") for name in stored.sections))
    assert snapshots <= 2, "all leases of a snapshot may change before the next one"
    assert most <= ROWS_PER_SNAPSHOT * 16_250 / 8


def test_at_most_so_many_entries_of_a_single_task() -> None:
    stored = Stored(3000, JournalLimits(10_000, 50))
    (key,) = stored.take(0.0, OWNERS[0], 1)
    for n in range(500):
        stored.queue.progress(0.1 * n, key, n)
        stored.write(0.1 * n)
    assert sum(name.startswith("journal/") for name in stored.sections) == 50
    assert stored.read(0.0).tasks["q"].summary() == stored.queue.summary()


def test_entries_of_the_run_before_are_passed_over() -> None:
    stored = Stored(100, JournalLimits())
    first, second = stored.take(0.0, OWNERS[0], 2)
    stored.write(0.0)
    stored.queue.finish(1.0, first)
    stored.write(1.0)
    assert "journal/q/0" in stored.sections
    again = stored.read(5.0)
    assert first.task in again.tasks["q"].done
    again.tasks["q"].finish(6.0, second)
    stored.sections |= json.loads(json.dumps(again.changes(6.0)))
    third = stored.read(9.0).tasks["q"]
    assert third.summary() == again.tasks["q"].summary() | {"done": 2, "leased": 0}


def test_results_of_the_epoch_before_survive_though_the_next_one_began_before_the_write() -> None:
    stored = Days(2, JournalLimits())
    for key in stored.take(0.0, OWNERS[0], 2):
        stored.queue.finish(1.0, key, f"of {key.task}")
    stored.take_next(1.0)
    stored.write(1.0)
    found = stored.read(2.0).tasks["q"].results_of(0, 0, 10)["results"]
    assert [one["result"] for one in found] == ["of 0", "of 1"]


def test_a_whole_write_has_no_journal() -> None:
    stored = Stored(10, JournalLimits())
    key, *_ = stored.take(0.0, OWNERS[0], 3)
    for now in (1.0, 2.0):
        stored.queue.progress(now, key, int(now))
        found = stored.state.changes(now, whole=True)
        assert "queue/q" in found
        assert not any(name.startswith("journal/") for name in found)


def test_what_a_version_without_journals_has_stored_is_read() -> None:
    """Word by word as that version wrote it: one task of four done, one set aside, one leased, one todo."""
    sections: dict[str, Any] = {
        "meta": {"schema": 1, "job": "a/b/c", "run": 3},
        "source/q": {"records": 4, "size": 1, "total": 4, "names": []},
        "queue/q": {
            "settings": {"seed": 0, "commit": False, "failures": 0, "speculate": False},
            "epoch": 0,
            "done": "eJxjAgAAAwAD",
            "set_aside": [[3, "why"]],
            "progress": [[0, 2, 1, 7]],
            "leases": [[0, 1, 5, 12884901891, 4.5, 55.5]],
            "recent": [[1, 12884901889]],
            "recent_owners": [[1, 5]],
            "next_attempt": 12884901893,
        },
        "results/q/0/0": {"epoch": 0, "results": [[1, 12884901889, "a result"]]},
    }
    state = StoredState("a/b/c", RULES)
    state.read(sections, 100.0)
    queue = state.tasks["q"]
    assert {kind: queue.summary()[kind] for kind in ("done", "todo", "leased")} == {
        "done": 1,
        "todo": 1,
        "leased": 1,
    }
    assert queue.next_time() == 155.5
    key = LeaseKey((1, 5), 0, 0, 12884901891)
    queue.finish(101.0, key, "b")
    assert [one["result"] for one in queue.results_of(0, 0, 9)["results"]] == ["b", "a result"]
    assert state.changes(102.0)["meta"] == {"schema": SCHEMA, "job": "a/b/c", "run": 4}
