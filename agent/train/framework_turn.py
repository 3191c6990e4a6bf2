"""A turn of `job.worlds()` for a training loop that is a framework's own: it takes the steps and writes the
checkpoints, and a change of size ends its process (lockstep-launch, torchrun)."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from . import stop_signal
from .agreement import process_group
from .environment import coordinator, launched_rank
from .job import Job, join
from .order import Loader, Order
from .sources import TERMINATED
from .world import World


class FrameworkTurn:
    """order: of the records; each of its steps is one of the framework's. It may have no "per-member" batch."""

    def __init__(self, order: Order, checkpoints: str | os.PathLike[str] | None = None) -> None:
        order.state_after(0)  # refuses what no framework can do
        self.order, self._folder = order, checkpoints
        self._job: Job | None = None
        self._turns: Iterator[World] = iter(())
        self._weights: deque[float] = (
            deque()
        )  # of batches that were fetched and not taken, the next one first

    @property
    def job(self) -> Job:
        """Joins when it is first asked for."""
        if self._job is None:
            if coordinator() is not None and launched_rank() is None:
                raise RuntimeError(
                    "lockstep_train: start this script by lockstep-launch or torchrun, because the framework's "
                    "process ends when the size changes"
                )
            self._job = join(self._folder)
        return self._job

    @property
    def world(self) -> World:
        """Begins the turn when it is first asked for."""
        if self.job.world is None:
            self._turns = self.job.worlds()
            next(self._turns)
        assert self.job.world is not None
        return self.job.world

    def latest(self) -> str | None:
        """The newest complete checkpoint, with the order at its position; None: there is none. Call it on all
        ranks."""
        saved = self.job.latest(together=True)
        if saved is None:
            return None
        self.order.load(saved.data)
        return saved.path

    def batches(self, loader: Loader) -> Batches:
        return Batches(self, loader)

    def over(self, step: int) -> bool:
        """Returns whether to save and to stop after this step: the same answer on every rank."""
        return self.world.over(step)

    def accumulated(self) -> int:
        """Returns how many batches make a step on each rank, so that none exceeds `micro`; the framework divides their
        sum by it."""
        order = self.order
        largest = -(-int(order.batch) // self.world.size)
        order.pieces = -(-largest // (order.micro or largest))
        return order.pieces

    def taken(self) -> None:
        """A batch has had its backward pass."""
        self._weights.popleft()

    def weigh(self, model: Any) -> None:
        """Multiplies the gradients by the weight of this rank's batch, before the ranks' mean is taken: it is the mean
        over the step's records then."""
        for each in model.parameters():
            if each.requires_grad:
                each.register_hook(self._weighted)

    def _weighted(self, gradient: Any) -> Any:
        return gradient * self._weights[0]

    def fetched(self, loader: Loader) -> Iterator[Any]:
        """Yields what the loader made of this rank's batches, from the order's position on, and keeps their weights."""
        for _, batch in self.order.steps(self.world, loader):
            self._weights.append(batch.weight * max(1, self.order.pieces))
            yield batch.data

    def save(self, step: int, write: Callable[[str], Any]) -> None:
        """Saves when all ranks have written the framework's checkpoint. `write(path)` moves it to the path, on rank
        0."""
        if (group := process_group()) is not None:
            group.barrier()  # rank 0 may have been the first to write
        self.job.save(step, write, data=self.order.state_after(step))

    def take_signals(self) -> None:
        """SIGTERM ends the turn at a step that all ranks agree on, whatever the framework would do at it."""
        stop_signal.install(alone=True)

    def end(self) -> None:
        """The framework's loop is over. If that was because the size changes, the process ends here: what
        follows in the script is for a training that is done."""
        ended = self.world.ended
        for _ in self._turns:
            raise RuntimeError("a process of a launcher has one turn")
        if ended:
            raise SystemExit(TERMINATED)


class Batches:
    """The rank's batches from the order's position to the end of the last epoch. It has no length: a framework would
    count the steps before the position."""

    def __init__(self, turn: FrameworkTurn, loader: Loader) -> None:
        self._turn, self._loader = turn, loader

    def __iter__(self) -> Iterator[Any]:
        return self._turn.fetched(self._loader)


def copied(folder: str) -> Callable[[str], None]:
    """Brings a folder to a path, by hard links where the file system has them. So the framework may delete its own."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    def write(path: str) -> None:
        shutil.copytree(folder, path, copy_function=link)

    return write
