"""Leases and results of a queue of tasks, with a coordinator or without one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class TaskLease:
    """A task that this process may work on."""

    task: int  # its number in the queue
    name: str
    epoch: int
    attempt: int  # never given twice
    resume: int  # records of it that an earlier owner finished
    lease_s: float  # until it is given to another process, unless it is renewed


@dataclass(frozen=True)
class LeaseAnswer:
    """`over`: the epoch has ended. Neither a lease nor over: ask again after `wait_s` seconds."""

    lease: TaskLease | None
    wait_s: float
    over: bool


@dataclass(frozen=True)
class SetAside:
    """A task that failed too often in this epoch, and its last reason."""

    task: int
    name: str
    why: str


@dataclass(frozen=True)
class EpochStatus:
    """The progress of the present epoch, in tasks. `set_aside` names the first 100."""

    epoch: int
    tasks: int
    todo: int
    leased: int
    done: int
    over: bool
    set_aside: tuple[SetAside, ...] = ()


@dataclass(frozen=True)
class TaskResult:
    """The result that the one counted attempt at a task passed to done()."""

    task: int
    name: str
    attempt: int
    result: str


@dataclass(frozen=True)
class QueueSettings:
    """queue     name of the queue in the Job
    seed      tasks are permuted by it and the epoch
    commit    done is provisional until a complete checkpoint includes it
    failures  a task that failed more often than this in an epoch is set aside
    speculate when nothing is todo, a slow lease is given a second time"""

    queue: str = "tasks"
    seed: int = 0
    commit: bool = False
    failures: int = 3
    speculate: bool = False


@dataclass(frozen=True)
class TaskList:
    """The tasks of a queue: `names`, or parts of `size` records of a range of `records`."""

    names: tuple[str, ...] = ()
    records: int = 0
    size: int = 0
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        total = -(-self.records // self.size) if self.size else len(self.names)
        object.__setattr__(self, "total", total)

    def span(self, task: int) -> range:
        """The record numbers of a task of a range."""
        return range(task * self.size, min(self.records, (task + 1) * self.size))

    def name(self, task: int) -> str:
        if not self.size:
            return self.names[task]
        span = self.span(task)
        return f"{span.start}-{span.stop - 1}"


class OtherEpoch(Exception):
    """The queue is in an earlier epoch: a restore to a checkpoint undid the later ones, or the
    coordinator lost its state."""

    def __init__(self, queue: str, asked: int, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(f"queue {queue} is in epoch {epoch}, not {asked}")


class TaskQueue(Protocol):
    """The side that leases tasks to members."""

    def lease(self, epoch: int) -> LeaseAnswer:
        """Raises OtherEpoch."""

    def done(self, lease: TaskLease, result: str) -> bool:
        """False: the task is no longer this process's, and what it did is not counted."""

    def failed(self, lease: TaskLease, why: str) -> bool: ...

    def give_back(self, lease: TaskLease) -> bool: ...

    def renew(self, lease: TaskLease, upto: int) -> float | None:
        """Seconds that the lease has from now; None: it is no longer this process's."""

    def status(self) -> EpochStatus: ...

    def results(self, epoch: int, start: int) -> tuple[list[TaskResult], int | None]:
        """Returns the results from task `start` on, and the start of the next part."""
