"""The same answer on every rank to "is it time to stop?", without a wait at the step.

Each rank contributes two numbers, of which the greatest over all ranks count: the newest generation that it
knows, and the step after which that one wants the present generation to stop. The exchange that is
started after one step is read after the next, so that it runs beside the step's computation. A third number shows
whether the ranks have equal replicas: its greatest and its least value are equal then."""

from __future__ import annotations

import sys
from typing import Any, Protocol

Known = tuple[int, int]


class WatchedReplicas(Protocol):
    def digest(self, turn_step: int) -> int:
        """Returns a number that is the same on equal ranks, for a step of this turn."""

    def compare(self, when: str) -> None:
        """Raises an error that names the ranks which differ. Called on all ranks."""


_watched: list[WatchedReplicas] = []


def watch_replicas(replicas: WatchedReplicas) -> None:
    """The ranks of the turn that begins are compared with each exchange."""
    _watched[:] = [replicas]


class LoneAgreement:
    """Agreement inside one process, or among processes without a process group: each knows only its own values."""

    def exchange(self, known: Known) -> Known | None:
        return known

    def settle(self) -> None:
        """Wait for an exchange that is under way."""


class TorchAgreement:
    """Agreement by an asynchronous all-reduce of the default process group."""

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self._pending: tuple[Any, Any] | None = None
        self._replicas = _watched.pop() if _watched else None  # of this turn only
        self._exchanges = 0

    def exchange(self, known: Known) -> Known | None:
        """Returns the values that all ranks agreed on after the previous step, or None after the first. Starts the
        next exchange with this rank's present values."""
        agreed = self._read()
        self._start(known)
        return agreed

    def settle(self) -> None:
        self._read()

    def _read(self) -> Known | None:
        if self._pending is None:
            return None
        work, tensor = self._pending
        self._pending = None
        work.wait()
        generation, step, *digests = tensor.tolist()
        if sum(digests) and self._replicas is not None:
            self._replicas.compare(f"after step {self._exchanges} of this generation")
        return int(generation), int(step)

    def _start(self, known: Known) -> None:
        torch = sys.modules["torch"]
        device = "cpu"
        if "nccl" in str(self._distributed.get_backend()):
            device = f"cuda:{torch.cuda.current_device()}"
        self._exchanges += 1
        values = [*known]
        if self._replicas is not None:
            digest = self._replicas.digest(self._exchanges)
            values += [digest, -digest]
        tensor = torch.tensor(values, dtype=torch.int64, device=device)
        operation = self._distributed.ReduceOp.MAX
        work = self._distributed.all_reduce(tensor, op=operation, async_op=True)
        self._pending = (work, tensor)


class Ranks:
    """One process that decides for itself."""

    rank, size = 0, 1

    def all(self, agreed: bool) -> bool:
        """Returns whether all ranks agree. Called on all of them."""
        return agreed

    def first(self, value: Any) -> Any:
        """Returns rank 0's value. Called on all ranks."""
        return value


class TorchRanks(Ranks):
    """The ranks of the default process group."""

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def all(self, agreed: bool) -> bool:
        every = [False] * self.size
        self._distributed.all_gather_object(every, agreed)
        return all(every)

    def first(self, value: Any) -> Any:
        values = [value]
        self._distributed.broadcast_object_list(values, src=0)
        return values[0]


def process_ranks() -> Ranks:
    """The ranks of PyTorch's process group; this process alone if there is none."""
    group = process_group()
    return Ranks() if group is None else TorchRanks(group)


def process_group() -> Any:
    """torch.distributed if its default process group is there, else None. Imports nothing."""
    found = sys.modules.get("torch.distributed")
    if found is None or not found.is_available() or not found.is_initialized():
        return None
    return found
