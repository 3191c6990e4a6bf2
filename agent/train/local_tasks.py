"""A queue of tasks for one process without a coordinator, with the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .permutation import Permutation
from .task_lease import (
    EpochStatus,
    LeaseAnswer,
    OtherEpoch,
    QueueSettings,
    SetAside,
    TaskLease,
    TaskList,
    TaskResult,
)

_TASKS = 3  # keeps this permutation apart from those of Order
_FOREVER_S = 3600.0  # no other process could take the task


class LocalTasks:
    """A queue of tasks in memory. `state()` and `load()` carry it through a checkpoint."""

    def __init__(self, tasks: TaskList, settings: QueueSettings) -> None:
        self._tasks, self._settings = tasks, settings
        self._next_attempt = 1
        self._epoch = -1
        self._done: set[int] = set()
        self._results: dict[int, dict[int, TaskResult]] = {}  # by epoch and task
        self._begin(0)

    def _begin(self, epoch: int) -> None:
        """Orders the tasks that are not done."""
        if epoch != self._epoch:
            self._done = set()
        self._epoch = epoch
        self._results = {e: found for e, found in self._results.items() if e >= epoch - 1}
        self._set_aside: dict[int, str] = {}
        self._held: dict[int, int] = {}  # attempt by task
        self._failures: dict[int, int] = {}
        self._resume: dict[int, int] = {}
        order = Permutation(self._tasks.total, _TASKS, self._settings.seed, epoch)
        self._todo = [task for task in order.span(0, self._tasks.total) if task not in self._done]

    def lease(self, epoch: int) -> LeaseAnswer:
        if epoch == self._epoch + 1 and self._over():
            self._begin(epoch)
        if epoch > self._epoch:
            raise OtherEpoch(self._settings.queue, epoch, self._epoch)
        if epoch < self._epoch or not self._todo:
            return LeaseAnswer(None, 0.0, epoch < self._epoch or self._over())
        task = self._todo.pop(0)
        attempt, self._next_attempt = self._next_attempt, self._next_attempt + 1
        self._held[task] = attempt
        resume = self._resume.get(task, 0)
        lease = TaskLease(task, self._tasks.name(task), epoch, attempt, resume, _FOREVER_S)
        return LeaseAnswer(lease, 0.0, over=False)

    def _over(self) -> bool:
        return not self._todo and not self._held

    def _ended(self, lease: TaskLease) -> bool:
        """Ends the lease. Returns whether it was held."""
        if lease.epoch != self._epoch or self._held.get(lease.task) != lease.attempt:
            return False
        del self._held[lease.task]
        return True

    def done(self, lease: TaskLease, result: str) -> bool:
        if not self._ended(lease):
            return False
        self._done.add(lease.task)
        if result:
            found = TaskResult(lease.task, lease.name, lease.attempt, result)
            self._results.setdefault(lease.epoch, {})[lease.task] = found
        return True

    def failed(self, lease: TaskLease, why: str) -> bool:
        if not self._ended(lease):
            return False
        failures = self._failures[lease.task] = self._failures.get(lease.task, 0) + 1
        if failures > self._settings.failures:
            self._set_aside[lease.task] = why
        else:
            self._todo.append(lease.task)
        return True

    def give_back(self, lease: TaskLease) -> bool:
        if not self._ended(lease):
            return False
        self._todo.append(lease.task)
        return True

    def renew(self, lease: TaskLease, upto: int) -> float | None:
        if lease.epoch != self._epoch or self._held.get(lease.task) != lease.attempt:
            return None
        self._resume[lease.task] = max(upto, self._resume.get(lease.task, 0))
        return _FOREVER_S

    def status(self) -> EpochStatus:
        aside = [
            SetAside(t, self._tasks.name(t), why) for t, why in sorted(self._set_aside.items())
        ]
        return EpochStatus(
            self._epoch,
            self._tasks.total,
            len(self._todo),
            len(self._held),
            len(self._done),
            self._over(),
            tuple(aside[:100]),
        )

    def results(self, epoch: int, start: int) -> tuple[list[TaskResult], int | None]:
        found = self._results.get(epoch, {})
        return [found[task] for task in sorted(found) if task >= start], None

    def state(self) -> dict[str, Any]:
        """Returns the done tasks of the present epoch as JSON, for a checkpoint."""
        return {"epoch": self._epoch, "tasks": self._tasks.total, "done": sorted(self._done)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a state; tasks done since are to do again. Raises ValueError for another queue's state."""
        epoch, done = state.get("epoch"), state.get("done")
        if state.get("tasks") != self._tasks.total:
            raise ValueError(
                f"the checkpoint has a queue of {state.get('tasks')!r} tasks, this one has "
                f"{self._tasks.total}: it would not be the same tasks"
            )
        if not isinstance(epoch, int) or epoch < 0 or not isinstance(done, list):
            raise ValueError(f"the checkpoint's state of the tasks is damaged: epoch={epoch!r}")
        if not all(isinstance(task, int) and 0 <= task < self._tasks.total for task in done):
            raise ValueError("the checkpoint's state of the tasks is damaged: done")
        self._epoch, self._done, self._results = epoch, set(done), {}
        self._begin(epoch)
