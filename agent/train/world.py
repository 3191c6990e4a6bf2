"""`World`: the processes that train together for one generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from . import undo
from .agreement import LoneAgreement, TorchAgreement, process_group
from .standstill import BETWEEN, StepWatch

NO_STEP = -1


class Source(Protocol):
    """The source of the request to stop a world."""

    def newest(self) -> tuple[int, int]:
        """(newest generation known, step after which the present one stops; NO_STEP: at the next)."""

    def report(
        self, generation: int, step: int, samples: int, left: int | None, own_s: float
    ) -> None:
        """Reports the steps and this rank's samples in this generation, without waiting. left: records of the epoch
        that all ranks together have left; None if unknown. own_s: in which it waited for no other rank."""


class World:
    """rank, size                of this process among all of the generation
    local_rank, local_size    among those of its pod
    generation                number; grows with each change
    previous_size             of the generation before; 0: this is the first
    replica, replicas         index and number of the groups of ranks that hold the whole state each; 0 and 1 where
                              the coordinator does not know them
    restarts                  a change of size ends the process (lockstep-launch, torchrun): save when over()"""

    def __init__(
        self,
        source: Source,
        *,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        local_size: int = 1,
        generation: int = 1,
        leader: tuple[str, int] | None = None,
        previous_size: int = 0,
        replica: int = 0,
        restarts: bool = False,
        survives: Callable[[BaseException], bool] | None = None,
        watch: StepWatch | None = None,
    ) -> None:
        self.rank, self.size, self.generation = rank, size, generation
        self.local_rank, self.local_size = local_rank, local_size
        self.previous_size, self.restarts = previous_size, restarts
        of_replica = replica or size
        self.replica, self.replicas = rank // of_replica, size // of_replica
        self._leader, self._source = leader, source
        self._survives, self._watch = survives, watch
        self._agreement: LoneAgreement | TorchAgreement | None = None
        self.samples = 0  # that this rank took; Order counts them
        self.epoch_left: int | None = None  # records of all ranks; Order knows them
        self.ended = False  # over() said so

    def __enter__(self) -> World:
        """Guards the body of the turn: when a member is lost there, this process lives on. The body ends, the state
        that share() was given is that after the last whole step, and the next turn has the others."""
        undo.begin_turn(guarded=self._survives is not None)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        survives = error is not None and self.survives(error)
        if survives:
            self._agreement, self.ended = None, True
        return survives

    def survives(self, error: BaseException) -> bool:
        """Returns whether this process goes on after an error, because a member is lost."""
        return self._survives is not None and self._survives(error)

    @property
    def scale_changed(self) -> bool:
        """The size differs from the generation before: the time for rules about learning rates."""
        return self.previous_size not in (0, self.size)

    def torch(self) -> dict[str, Any]:
        """Arguments of torch.distributed.init_process_group besides the backend."""
        if self._leader is None:
            return {"init_method": "env://", "rank": self.rank, "world_size": self.size}
        address, port = self._leader
        host = f"[{address}]" if ":" in address else address
        return {"init_method": f"tcp://{host}:{port}", "rank": self.rank, "world_size": self.size}

    def over(self, step: int) -> bool:
        """Returns whether this generation ends after this step: the same answer on every rank. Call it on all ranks
        after each step, with the number of steps taken; end the turn when it is true.

        With a process group of PyTorch it is one asynchronous all-reduce of two integers. Without one,
        a single process needs no agreement; several must take each step together by some other means."""
        if self.ended:
            return True
        undo.keep()
        if self._agreement is None:
            group = process_group()
            self._agreement = LoneAgreement() if group is None else TorchAgreement(group)
        own_s = 0.0 if self._watch is None else self._watch.own_s
        self._source.report(self.generation, step, self.samples, self.epoch_left, own_s)
        agreed = self._agreement.exchange(self._source.newest())
        if agreed is not None:
            generation, stop_after = agreed
            self.ended = generation > self.generation and step >= stop_after
        if self.ended:
            self.settle()
        self.enter(BETWEEN)
        return self.ended

    def enter(self, phase: str) -> None:
        """The thread that trains begins this phase, as Order says."""
        if self._watch is not None:
            self._watch.enter(phase)

    def settle(self) -> None:
        """Wait for the exchange that over() started last. worlds() does it at the end of a turn."""
        if self._agreement is not None and process_group() is not None:
            self._agreement.settle()

    def __repr__(self) -> str:
        return f"World(rank {self.rank} of {self.size}, generation {self.generation})"
