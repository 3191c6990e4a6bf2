"""One queue of tasks of an elastic Job: who has which task, which are done in the present epoch.

A task is todo, leased (member, incarnation, attempt), done, or set aside after too many failures. Attempts have
numbers that are never given twice, so an answer to an old lease is recognised whatever happened meanwhile.

Guarantee: each task is done at least once in each epoch or set aside; what is done is not done again, unless a
restore to a checkpoint undoes it.

Design: docs/design/coordinator.md
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from central.controllers.training.generation import NotAllowed, Stale
from central.controllers.training.lease_time import LeaseTime
from central.controllers.training.permutation import permuted
from central.controllers.training.task_bitmap import BitMap
from central.controllers.training.task_lease import Owner, TaskLease, TaskLeases
from central.controllers.training.task_rate import TaskRate
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.model.json_types import Json, ReadOnlyJson

MOST_RESULTS = 8 << 20  # characters of all results of one epoch
RESULTS_PART = 1024  # tasks whose results are stored together
MOST_HELD = 256  # tasks that one member may hold
_RECENT = 4096  # done tasks whose attempt is remembered, so that the same answer may be sent again
_UNTRIED, _FIRST = (
    (0, 0, 0),
    (1, 0, 0),
)  # a leased task without an entry in `_progress` has the second one
_MOST_WAIT_S, _LEAST_WAIT_S = 5.0, 0.25


class NoLonger(Stale):
    """The task belongs to another attempt."""


class OtherEpoch(Stale):
    """The queue is in another epoch."""

    def __init__(self, queue: "TaskQueue") -> None:
        self.epoch = max(0, queue.epoch)
        super().__init__(f"queue {queue.name} is in epoch {self.epoch}")


class LeaseKey(NamedTuple):
    """The identity of a lease in an owner's request."""

    owner: Owner
    epoch: int
    task: int
    attempt: int


class StoredQueue(NamedTuple):
    """A snapshot, and the rows (`TaskQueue.rows`) that were stored after it."""

    snapshot: ReadOnlyJson
    entries: Sequence[ReadOnlyJson] = ()


class TaskQueue:
    """Times in seconds."""

    def __init__(
        self, name: str, settings: QueueSettings, source: TaskSource, first_attempt: int = 1
    ) -> None:
        self.name, self.settings, self.source = name, settings, source
        self.epoch = -1  # none has begun
        self.done = BitMap(source.total)
        self.set_aside: dict[int, str] = {}  # why, by task
        self.results: dict[int, tuple[int, str]] = {}  # attempt and result, by task
        self.previous: dict[int, tuple[int, str]] = {}  # of the epoch before
        self.version = 0  # grows with each change that must be stored
        self._changed: set[int] | None = None  # tasks, since they were taken; None: all
        # Parts (RESULTS_PART) that were not taken for storing, by epoch: of this one and of the one before.
        self._changed_results: dict[int, set[int]] = {}
        self._result_characters = 0
        self._leases = TaskLeases()
        # attempts, failures, resume; todo or leased
        self._progress: dict[int, tuple[int, int, int]] = {}
        # Attempt that finished the task, and its owner; None: stored by a version that did not keep it.
        self._recent: dict[int, tuple[int, Owner | None]] = {}
        self.times = LeaseTime()
        self.rate = TaskRate()
        self._next_attempt = first_attempt
        self._position = 0  # in the epoch's permutation
        self._again: list[tuple[int, int]] = []  # heap of (attempts, task) that were given back

    # -- leases

    def lease(self, now: float, owner: Owner, epoch: int, most: int) -> Json:
        """Raises NotAllowed, OtherEpoch."""
        if not self.source.complete:
            raise NotAllowed(f"queue {self.name}: not all of its tasks have been given yet")
        self.expire(now)
        if epoch == self.epoch + 1 and (self.epoch < 0 or self.is_over):
            self._begin(epoch)
        if epoch > self.epoch:
            raise OtherEpoch(self)
        if epoch < self.epoch:
            return {"tasks": [], "wait_s": 0, "over": True}
        given: list[Json] = []
        most, lease_s = min(most, MOST_HELD - self._leases.held_by(owner)), self.times.lease_s
        while len(given) < most and (task := self._next_todo()) is not None:
            given.append(self._give(now, task, owner, lease_s))
        if not given and self.settings.speculate and (slow := self._straggler(now, owner)):
            given.append(self._give(now, slow.task, owner, lease_s))
        wait_s = 0.0 if given or self.is_over else self._wait_s(now)
        return {"tasks": given, "wait_s": wait_s, "over": self.is_over}

    @property
    def is_over(self) -> bool:
        """Returns whether no task is todo or leased in the present epoch."""
        return self.epoch >= 0 and self.done.count + len(self.set_aside) == self.source.total

    def _begin(self, epoch: int) -> None:
        self.epoch, self.done = epoch, BitMap(self.source.total)
        self.previous, self.results, self._result_characters = self.results, {}, 0
        self._changed_results.pop(epoch - 2, None)
        self.set_aside = {}
        self._forget_leases()
        self._all_changed()

    def _forget_leases(self) -> None:
        self._leases, self._progress = TaskLeases(), {}
        self._position, self._again = 0, []

    def _all_changed(self) -> None:
        self._changed = None
        self.version += 1

    def _has_changed(self, task: int) -> None:
        if self._changed is not None:
            self._changed.add(task)
        self.version += 1

    def _next_todo(self) -> int | None:
        """Returns the next task in the epoch's order; tasks that were never leased precede those that were returned."""
        total = self.source.total
        while self._position < total:
            task = permuted(self._position, total, self.settings.seed, self.epoch)
            self._position += 1
            if self._is_todo(task) and task not in self._progress:
                return task
        while self._again:
            attempts, task = heapq.heappop(self._again)
            if self._is_todo(task) and self._of(task)[0] == attempts:
                return task
        return None

    def _is_todo(self, task: int) -> bool:
        return task not in self.done and task not in self.set_aside and task not in self._leases

    def _of(self, task: int) -> tuple[int, int, int]:
        return self._progress.get(task) or (_FIRST if task in self._leases else _UNTRIED)

    def _give(self, now: float, task: int, owner: Owner, lease_s: float) -> Json:
        attempts, failures, resume = self._of(task)
        if attempts:
            self._progress[task] = (attempts + 1, failures, resume)
        attempt, self._next_attempt = self._next_attempt, self._next_attempt + 1
        self._leases.add(TaskLease(task, owner, attempt, now, now + lease_s))
        self._has_changed(task)
        name = self.source.name(task)
        return {
            "task": task,
            "name": name,
            "attempt": attempt,
            "resume": resume,
            "lease_s": lease_s,
        }

    def _straggler(self, now: float, owner: Owner) -> TaskLease | None:
        """The oldest lease that is slow and has no second owner yet."""
        limit, slow = self.times.straggling_s, self._leases.oldest_of_others(owner)
        if limit is None or slow is None or now - slow.since <= limit:
            return None
        return slow

    def _wait_s(self, now: float) -> float:
        first = self._leases.first()
        until = now if first is None else first.until
        return round(min(_MOST_WAIT_S, max(_LEAST_WAIT_S, until - now)), 3)

    # -- answers of owners

    def finish(self, now: float, key: LeaseKey, result: str = "") -> None:
        """Raises NoLonger, NotAllowed."""
        task, attempt = key.task, key.attempt
        known, owner = self._recent.get(task, (None, None))
        finished = key.epoch < self.epoch or (key.epoch == self.epoch and task in self.done)
        if finished and attempt == known and owner in (None, key.owner):
            return  # said before; the answer was lost, and others may have begun the next epoch since
        lease = self._held(key)
        if result:
            self._keep_result(task, attempt, result)
        self.times.add(now - lease.since)
        self.rate.add(now)
        self._close(task)
        self.done.add(task)
        self._recent.pop(task, None)  # of an earlier epoch: the latest one is last
        self._recent[task] = (attempt, key.owner)
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        self._has_changed(task)

    def fail(self, key: LeaseKey, why: str) -> None:
        """Raises NoLonger."""
        self._end_lease(self._held(key), failed=why or "it failed")

    def give_back(self, key: LeaseKey) -> None:
        """The owner stops before the task's end; that is not a failure of the task. Raises NoLonger."""
        self._end_lease(self._held(key))

    def progress(self, now: float, key: LeaseKey, upto: int) -> float:
        """Renews the lease, and notes how many records are done. Returns seconds. Raises NoLonger."""
        lease = self._held(key)
        lease_s = self.times.lease_s
        self._leases.renew(lease, now + lease_s)
        attempts, failures, resume = self._of(key.task)
        if upto > resume:
            self._progress[key.task] = (attempts, failures, upto)
        self._has_changed(key.task)
        return lease_s

    def _held(self, key: LeaseKey) -> TaskLease:
        for lease in self._leases.of(key.task) if key.epoch == self.epoch else ():
            if (lease.attempt, lease.owner) == (key.attempt, key.owner):
                return lease
        raise NoLonger(f"task {key.task} of queue {self.name} is no longer yours")

    def _keep_result(self, task: int, attempt: int, result: str) -> None:
        before = self.results.get(task, (0, ""))[1]
        held = self._result_characters - len(before) + len(result)
        if held > MOST_RESULTS:
            raise NotAllowed(
                f"result: the results of this epoch have {MOST_RESULTS} characters; "
                "write them elsewhere and give their names"
            )
        self.results[task], self._result_characters = (attempt, result), held
        self._changed_results.setdefault(self.epoch, set()).add(task // RESULTS_PART)

    # -- leases that end otherwise

    def expire(self, now: float) -> None:
        for lease in self._leases.due(now):
            self._end_lease(lease, failed="its lease expired")

    def release(self, present: dict[int, int]) -> None:
        """Ends the leases of processes that are not present (incarnations by member)."""
        for owner in self._leases.owners():
            if present.get(owner[0]) != owner[1]:
                for lease in self._leases.of_owner(owner):
                    self._end_lease(lease)

    def _end_lease(self, lease: TaskLease, failed: str = "") -> None:
        """Returns the task to the queue, unless another attempt is running or it failed too often."""
        attempts, failures, resume = self._of(lease.task)
        self._leases.end(lease)
        failures += bool(failed)
        self._progress[lease.task] = (attempts, failures, resume)
        if failed and failures > self.settings.failures:
            self.set_aside[lease.task] = failed
            self._progress.pop(lease.task)
            self._leases.end_all_of(lease.task)
        elif lease.task not in self._leases:
            heapq.heappush(self._again, (attempts, lease.task))
        self._has_changed(lease.task)

    # -- questions

    def summary(self) -> Json:
        leased = len(self._leases)
        finished = self.done.count + len(self.set_aside)
        failed = sorted(self.set_aside.items())[:100]
        return {
            "epoch": max(0, self.epoch),
            "tasks": self.source.total,
            "todo": self.source.total - finished - leased,
            "leased": leased,
            "done": self.done.count,
            "failed": [{"task": t, "name": self.source.name(t), "why": why} for t, why in failed],
            "over": self.is_over,
        }

    def results_of(self, epoch: int, start: int, most: int) -> Json:
        """Raises OtherEpoch."""
        if epoch not in (self.epoch, self.epoch - 1):
            raise OtherEpoch(self)
        results = self.results if epoch == self.epoch else self.previous
        numbers = sorted(task for task in results if task >= start)
        found = [
            {
                "task": t,
                "name": self.source.name(t),
                "attempt": results[t][0],
                "result": results[t][1],
            }
            for t in numbers[:most]
        ]
        return {"results": found, "next": numbers[most] if len(numbers) > most else None}

    def next_time(self) -> float | None:
        """Returns the time at which the first lease expires."""
        first = self._leases.first()
        return None if first is None else first.until

    # -- checkpoints and storing

    def token(self) -> Json:
        """Returns the tasks that count as done for a checkpoint that is taken now."""
        return {"epoch": self.epoch, "done": self.done.to_text()}

    def unbegun(self) -> Json:
        """The token of this queue before its first epoch."""
        return {"epoch": -1, "done": BitMap(self.source.total).to_text()}

    def rewind(self, token: ReadOnlyJson) -> None:
        """Restores a token of this queue: tasks done since are todo again. Only queues with `commit` are rewound."""
        if not self.settings.commit:
            return
        left = self.epoch
        if token["epoch"] == left - 1:
            self.previous, self.results = {}, self.previous
        elif token["epoch"] != left:
            self.previous, self.results = {}, {}
        self.epoch = token["epoch"]
        self.done = BitMap.from_text(token["done"], self.source.total)
        self.results = {task: one for task, one in self.results.items() if task in self.done}
        self._result_characters = sum(len(text) for _, text in self.results.values())
        parts = range(-(-self.source.total // RESULTS_PART))
        self._changed_results[self.epoch] = set(parts)
        if self.epoch != left:  # what is stored of the epochs that it has left
            self._changed_results = {self.epoch: set(parts), self.epoch + 1: set(parts)}
        self.set_aside = {}
        self._forget_leases()
        self._recent = {}
        self._all_changed()

    def take_changed(self) -> set[int] | None:
        """Tasks that changed since the last call; None: all."""
        changed, self._changed = self._changed, set()
        return changed

    def take_results(self) -> Iterator[tuple[int, int, list[list[int | str]]]]:
        """Epoch, part and rows of the results that changed since the last call."""
        changed, self._changed_results = self._changed_results, {}
        for epoch, parts in changed.items():
            results = {self.epoch: self.results, self.epoch - 1: self.previous}.get(epoch, {})
            for part in parts:
                tasks = range(part * RESULTS_PART, (part + 1) * RESULTS_PART)
                yield epoch, part, [[task, *results[task]] for task in tasks if task in results]

    def snapshot(self, now: float) -> Json:
        """Returns the state without the source and the results."""
        recent = list(self._recent.items())[-64:]
        spans = _Spans(now)
        return {
            "settings": self.settings.json(),
            "epoch": self.epoch,
            "done": self.done.to_text(),
            "set_aside": sorted([task, why] for task, why in self.set_aside.items()),
            "progress": sorted((task, *one) for task, one in self._progress.items()),
            "held": [
                (
                    *held.owner,
                    held.tasks.tolist(),
                    held.attempts.tolist(),
                    [-spans[since] for since in held.since],
                    [spans[until] for until in held.until],
                )
                for held in self._leases.held()
            ],
            "recent": [(task, attempt) for task, (attempt, _) in recent],
            "recent_owners": [owner for _, (_, owner) in recent],
            "next_attempt": self._next_attempt,
            "at": round(now, 3),
        }

    def rows(self, tasks: Iterable[int], now: float) -> Json:
        """The present state of these tasks, with their results. Times: on the clock of `at`, as in a snapshot."""
        done: list[tuple[int, ...]] = []
        set_aside, progress, leases, results = [], [], [], []
        spans = _Spans(now)
        for task in tasks:
            if task in self.done:
                attempt, owner = self._recent.get(task, (None, None))
                done.append((task, attempt, *owner) if attempt and owner else (task,))
                if task in self.results:
                    results.append((task, *self.results[task]))
            elif task in self.set_aside:
                set_aside.append((task, self.set_aside[task]))
            elif task in self._progress or task in self._leases:
                progress.append((task, *self._of(task)))
                for one in self._leases.of(task):
                    row = (task, *one.owner, one.attempt, -spans[one.since], spans[one.until])
                    leases.append(row)
        return {
            "done": done,
            "set_aside": set_aside,
            "progress": progress,
            "leases": leases,
            "results": results,
            "next_attempt": self._next_attempt,
            "at": round(now, 3),
        }

    @classmethod
    def restore(
        cls, name: str, source: TaskSource, stored: StoredQueue, now: float, first_attempt: int
    ) -> "TaskQueue":
        """first_attempt: above all attempts that may have been given without being stored."""
        data, entries = stored
        attempts = [first_attempt, data["next_attempt"], *(one["next_attempt"] for one in entries)]
        made = cls(name, QueueSettings(**data["settings"]), source, max(attempts))
        made.epoch = data["epoch"]
        made.done = BitMap.from_text(data["done"], source.total)
        made.set_aside = dict(data["set_aside"])
        owners = data.get("recent_owners") or [None] * len(data["recent"])
        made._recent = {
            task: (attempt, tuple(owner) if owner else None)
            for (task, attempt), owner in zip(data["recent"], owners, strict=True)
        }
        began = data.get("at", 0.0)  # absent: stored by a version without journals
        shift = now - (entries[-1]["at"] if entries else began)
        made._read_open(data, began + shift)
        made._read_held(data.get("held", ()), began + shift)
        for entry in entries:
            made._read_rows(entry, entry["at"] + shift)
        made._again = sorted((made._of(t)[0], t) for t in made._progress if t not in made._leases)
        return made

    def _read_open(self, data: ReadOnlyJson, now: float) -> None:
        """now: when it was stored, by the present clock."""
        for task, *_ in data["progress"]:
            self._leases.end_all_of(task)
        for task, member, incarnation, attempt, age, left in data.get("leases", ()):
            lease = TaskLease(task, (member, incarnation), attempt, now - age, now + left)
            self._leases.add(lease)
        for task, attempts, failures, resume in data["progress"]:
            one = (attempts, failures, resume)
            if one != _FIRST or task not in self._leases:
                self._progress[task] = one

    def _read_held(self, rows: Iterable[Any], now: float) -> None:
        for member, incarnation, *columns in rows:
            owner = (member, incarnation)
            for task, attempt, age, left in zip(*columns, strict=True):
                self._leases.add(TaskLease(task, owner, attempt, now - age, now + left))

    def _read_rows(self, entry: ReadOnlyJson, now: float) -> None:
        for task, *last in entry["done"]:
            self._close(task)
            self.done.add(task)
            if last:
                attempt, *owner = last
                self._recent.pop(task, None)
                self._recent[task] = (attempt, (owner[0], owner[1]))
        for task, why in entry["set_aside"]:
            self._close(task)
            self.set_aside[task] = why
        for task, attempt, text in entry["results"]:
            self._keep_result(task, attempt, text)
        self._read_open(entry, now)

    def _close(self, task: int) -> None:
        self._leases.end_all_of(task)
        self._progress.pop(task, None)

    def read_results(self, epoch: int, rows: Sequence[Any]) -> None:
        """Reads the results that a snapshot was stored with. Those of earlier epochs were overwritten, or are
        skipped."""
        for task, attempt, text in rows:
            if epoch == self.epoch - 1:
                self.previous[task] = (attempt, text)
            elif epoch == self.epoch and task in self.done and task not in self.results:
                self.results[task] = (attempt, text)
                self._result_characters += len(text)


class _Spans(dict[float, float]):
    """Rounded seconds from a time to others: each once, since the leases of a request have the same."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self._start = start

    def __missing__(self, end: float) -> float:
        span = self[end] = round(end - self._start, 3)
        return span
