"""`Tasks`: records for workers that take no common steps, such as those of parameter servers, offline inference
or preprocessing. Each task of an epoch is done by one of the Job's processes.

Design: docs/design/training.md"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any

from . import stop_signal
from .client import Unreachable
from .coordinated_tasks import CoordinatedTasks
from .job import Job, present_job
from .lease_renewal import LeaseRenewal
from .local_tasks import LocalTasks
from .sequences import first_twice
from .sources import TERMINATED
from .task_lease import (
    EpochStatus,
    OtherEpoch,
    QueueSettings,
    TaskLease,
    TaskList,
    TaskQueue,
    TaskResult,
)

MOST_RESULT = 4096  # characters
MOST_NAME = 1024
_LOOK_S = 0.2
_log = logging.getLogger("lockstep_train")
Read = Callable[[Any], Iterable[Any]]


class WorkerStopped(SystemExit):
    """SIGTERM came: this worker takes no further task. The others continue the epoch."""


class Task:
    """One task that this process holds. Its lease is renewed while the process lives.

    name     of the task, as the status shows it
    items    what it consists of: paths, a name, or record numbers
    epoch    in which it is done
    attempt  number of this lease; no other has it
    resume   records of it that an earlier owner finished (see upto)"""

    def __init__(
        self, lease: TaskLease, items: Sequence[Any], queue: TaskQueue, timeout_s: float | None
    ) -> None:
        self._lease, self._queue = lease, queue
        self.number, self.name, self.epoch = lease.task, lease.name, lease.epoch
        self.attempt, self.resume, self.items = lease.attempt, lease.resume, items
        self._renewal = LeaseRenewal(queue, lease, timeout_s)
        self.ended = False  # done, failed or given back

    @property
    def lost(self) -> bool:
        """Another process has the task, or will: what is done here is not counted."""
        return self._renewal.lost

    def records(self, read: Read | None = None, skip: int | None = None) -> Iterator[Any]:
        """The records of the task without the first `skip` (default: `resume`). `read(item)` makes an iterable of
        the records of an item; without it the items are the records."""
        every = (
            iter(self.items)
            if read is None
            else (record for item in self.items for record in read(item))
        )
        return islice(every, self.resume if skip is None else skip, None)

    def upto(self, count: int) -> None:
        """The first `count` records of the task are done: if this process is lost, the next owner starts
        after them. Costs no wait; it is sent a few times per second."""
        self._renewal.note(count)

    def done(self, result: str = "") -> bool:
        """The task is done. False: it was no longer this process's, and somebody else does it.

        Returns when that is stored. `result` is kept with the task: exactly one for each task of the epoch,
        see Tasks.results()."""
        _check_result(result)
        self._close()
        return self._queue.done(self._lease, result)

    def failed(self, why: str) -> bool:
        """Give the task back as failed. One that fails too often is set aside and named in the status."""
        self._close()
        return self._queue.failed(self._lease, why)

    def give_back(self) -> bool:
        """Give the task back; it has not failed. The next owner starts after what upto() said."""
        upto = self._renewal.upto
        self._close()
        with suppress(Unreachable):  # the next owner starts after what it was told before
            if upto > self.resume and self._queue.renew(self._lease, upto) is None:
                return False
        return self._queue.give_back(self._lease)

    def _close(self) -> None:
        if self.ended:
            raise RuntimeError(
                f"task {self.name}: done(), failed() or give_back() was called before"
            )
        self.ended = True
        self._renewal.close()

    def __repr__(self) -> str:
        return f"Task({self.name}, epoch {self.epoch}, attempt {self.attempt})"


class Tasks:
    """A queue of tasks. Made by range(), files() or of(), in each process with the same arguments.

    queue      its name; several queues of a Job (training, evaluation) are independent
    seed       tasks come in an order permuted by it and the epoch
    commit     True or "checkpoint": done() is provisional until a complete checkpoint includes it, and a
               restore makes later ones todo again
    failures   a task that failed more often in an epoch is set aside
    speculate  when nothing is todo, a slow lease is given a second time; the first done() counts
    timeout_s  a task that takes longer is given to another process although this one lives
    job        what join() returned last, if it is not given"""

    def __init__(
        self,
        tasks: TaskList,
        items: Callable[[int], Sequence[Any]],
        *,
        queue: str = "tasks",
        seed: int = 0,
        commit: bool | str = False,
        failures: int = 3,
        speculate: bool = False,
        timeout_s: float | None = None,
        job: Job | None = None,
    ) -> None:
        _check(tasks, queue, commit, failures, timeout_s)
        settings = QueueSettings(queue, seed, bool(commit), failures, speculate)
        self.tasks, self.settings, self._items, self._timeout_s = tasks, settings, items, timeout_s
        self.job = present_job() if job is None else job
        self._queue = self._made()

    @classmethod
    def range(cls, records: int, size: int = 1, **options: Any) -> Tasks:
        """Record numbers 0..records-1 in tasks of `size` records. Options: see the class."""
        _whole("records", records, 1)
        _whole("size", size, 1)
        tasks = TaskList(records=records, size=size)
        return cls(tasks, tasks.span, **options)

    @classmethod
    def files(cls, paths: Sequence[str], per_task: int = 1, **options: Any) -> Tasks:
        """Files in their order, `per_task` of them to a task. All processes give the same list; one with
        another list is refused."""
        _whole("per_task", per_task, 1)
        names = [_text("paths", path) for path in paths]
        _check_differ("paths", names)
        groups = [tuple(names[at : at + per_task]) for at in range(0, len(names), per_task)]
        tasks = TaskList(names=tuple(map(_group_name, groups)))
        return cls(tasks, groups.__getitem__, **options)

    @classmethod
    def of(cls, names: Sequence[str], **options: Any) -> Tasks:
        """One task for each name; what a name means is the program's matter."""
        tasks = TaskList(names=tuple(_text("names", name) for name in names))
        _check_differ("names", tasks.names)
        return cls(tasks, lambda task: (tasks.name(task),), **options)

    def _made(self) -> CoordinatedTasks | LocalTasks:
        if self.job.membership is None:
            return LocalTasks(self.tasks, self.settings)
        if self.job.world is None:
            self.job.follow()
        stop_signal.install()
        return CoordinatedTasks(self.job.membership, self.tasks, self.settings)

    def epoch(self, number: int) -> Generator[Task, None, None]:
        """The tasks of an epoch that this process gets, until all of the Job's processes have finished it.

        Say done() or failed() of each before the next one is asked for. Raises OtherEpoch after a restore
        that went back to an earlier epoch, WorkerStopped after SIGTERM."""
        _whole("epoch", number, 0)
        while True:
            if self.job.membership is not None and stop_signal.came():
                self._leave()
            answer = self._queue.lease(number)
            if answer.lease is not None:
                yield from self._held(answer.lease)
            elif answer.over:
                self._warn_of_set_aside(number)
                return
            else:
                _sleep(answer.wait_s)

    def epochs(self, count: int) -> Iterator[Task]:
        """The tasks of epochs 0..count-1. After a restore it continues in the epoch of the checkpoint. When all
        are over the coordinator is told at the end of this process that its work is done."""
        number = 0
        while number < count:
            went_back_to = yield from self._epoch_or_back(number)
            number = number + 1 if went_back_to is None else went_back_to
        self.job.leave_at_exit()

    def _epoch_or_back(self, number: int) -> Generator[Task, None, int | None]:
        """The tasks of an epoch. Returns the earlier epoch that the queue went back to; None: it did not."""
        try:
            yield from self.epoch(number)
        except OtherEpoch as other:
            _log.warning("%s: going on there", other)
            return other.epoch
        return None

    def _held(self, lease: TaskLease) -> Iterator[Task]:
        task = Task(lease, self._items(lease.task), self._queue, self._timeout_s)
        try:
            yield task
        except BaseException:  # the loop ended in the middle of the task
            if not task.ended:
                task.give_back()
            raise
        if not task.ended:
            task.failed("the next task was asked for before done() or failed() was said")

    def _leave(self) -> None:
        assert self.job.membership is not None
        self.job.membership.leave(TERMINATED, "SIGTERM")
        raise WorkerStopped(TERMINATED)

    def status(self) -> EpochStatus:
        """Returns the status of the present epoch."""
        return self._queue.status()

    def results(self, epoch: int) -> Iterator[TaskResult]:
        """Exactly one for each task of the epoch that is done and gave a result, by number. Of the present
        epoch and the one before. Raises OtherEpoch."""
        start: int | None = 0
        while start is not None:
            found, start = self._queue.results(epoch, start)
            yield from found

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint's data. Empty with a coordinator, which keeps it with the checkpoint
        itself."""
        return self._queue.state() if isinstance(self._queue, LocalTasks) else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what state() gave."""
        if isinstance(self._queue, LocalTasks) and state:
            self._queue.load(state)

    def _warn_of_set_aside(self, epoch: int) -> None:
        found = self._queue.status()
        for each in found.set_aside if found.epoch == epoch else ():
            _log.warning(
                "queue %s, epoch %s: task %s is set aside: %s",
                self.settings.queue,
                epoch,
                each.name,
                each.why,
            )


def _sleep(seconds: float) -> None:
    """Ends early when SIGTERM comes."""
    end_s = time.monotonic() + max(_LOOK_S, seconds)
    while time.monotonic() < end_s and not stop_signal.came():
        time.sleep(_LOOK_S)


def _group_name(paths: tuple[str, ...]) -> str:
    """The first path, how many more there are, and a digest, by which a process with other files is found."""
    if len(paths) == 1:
        return paths[0]
    digest = blake2b("\0".join(paths).encode(), digest_size=4).hexdigest()
    ending = f" +{len(paths) - 1} {digest}"
    return paths[0][-(MOST_NAME - len(ending)) :] + ending


def _check(
    tasks: TaskList, queue: str, commit: bool | str, failures: int, timeout_s: float | None
) -> None:
    if not tasks.total:
        raise ValueError("a queue needs at least one task")
    if not isinstance(commit, bool) and commit != "checkpoint":
        raise ValueError(f'commit={commit!r}: must be True, False or "checkpoint"')
    if timeout_s is not None and not timeout_s > 0:
        raise ValueError(f"timeout_s={timeout_s!r}: must be above 0")
    _text("queue", queue)
    _whole("failures", failures, 0)


def _check_result(result: Any) -> None:
    if not isinstance(result, str) or len(result) > MOST_RESULT:
        raise ValueError(
            f"result: must be a text of at most {MOST_RESULT} characters; "
            "write more elsewhere and give its name"
        )


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least {least}")


def _check_differ(name: str, given: Sequence[str]) -> None:
    if (twice := first_twice(given)) is not None:
        raise ValueError(f'{name}: "{twice}" is given twice; it would be done twice in an epoch')


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME or not value.isprintable():
        shown = f"{value!r:.60}"
        raise ValueError(f"{name}: {shown} is not a text of 1 to {MOST_NAME} printable characters")
    return value
