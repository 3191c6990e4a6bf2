"""`join()`: the way in for a training script, with a coordinator or without."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import stop_signal
from .checkpoints import Checkpoints, CoordinatedRecord, LocalRecord, Saved
from .environment import LaunchedRank, coordinator, launched_rank, pod_place
from .generation import Generation
from .membership import Membership
from .sources import CoordinatorSource, NoChange, SignalSource
from .world import World

FOLDER = "checkpoints"
SIGNAL_WITHIN_S = 60.0


class TakenForLost(SystemExit):
    """The others go on without this process, which must start again: its state is old."""


class Job:
    """One process of a training job. Made by join()."""

    def __init__(
        self, membership: Membership | None, launched: LaunchedRank | None, folder: str
    ) -> None:
        self.membership, self._launched = membership, launched
        record = LocalRecord() if membership is None else CoordinatedRecord(membership)
        self.checkpoints = Checkpoints(folder, record)
        self.world: World | None = None  # of the present turn

    def worlds(self) -> Iterator[World]:
        """One turn for each generation. A turn that ends though over() was not true is the last one: the
        training is done. Without a coordinator there is one turn."""
        if self._launched is not None:
            yield from self._launched_world(self._launched)
        elif self.membership is None:
            yield from self._turn(World(NoChange(), leader=("127.0.0.1", _free_port())))
        else:
            yield from self._generations(self.membership)

    def save(
        self,
        step: int,
        write: Callable[[str], Any],
        *,
        data: Mapping[str, Any] | None = None,
        sharded: bool = False,
    ) -> None:
        """Save a checkpoint; call it on all ranks with the same step.

        `write(path)` makes a file or folder at the path; it may return a future, then training goes on
        and the checkpoint is complete when the future ends. Rank 0 alone writes, unless the state is
        `sharded`: then each rank writes its part. `data`: the position, `order.state()`."""
        world = self._current_world()
        parts = world.size if sharded else 1
        if world.rank < parts:
            self.checkpoints.save(
                step, world.generation, write, rank=world.rank, parts=parts, data=data
            )

    def latest(self) -> Saved | None:
        """The newest complete checkpoint; None: there is none."""
        return self.checkpoints.latest()

    def _current_world(self) -> World:
        if self.world is None:
            raise RuntimeError("save() is called inside of a turn of worlds()")
        return self.world

    def _turn(self, world: World) -> Iterator[World]:
        self.world = world
        yield world
        world.settle()
        self.checkpoints.wait()

    def _generations(self, membership: Membership) -> Iterator[World]:
        stop_signal.install()
        source = CoordinatorSource(membership)
        number = size = 0
        while True:
            found = membership.next_live(number, source.step if number else None)
            if found is None:
                if not membership.left_by_plan:
                    raise TakenForLost(
                        "lockstep_train: the other members took this process for lost; start it again"
                    )
                return
            world = self._world(found, size, source)
            yield from self._turn(world)
            if not world.ended:
                membership.leave(0)
            if not world.ended or source.leaves:
                return
            number, size = found.number, found.size

    def _world(self, found: Generation, previous: int, source: CoordinatorSource) -> World:
        assert self.membership is not None
        place = self.membership.place
        mine = found.find(place.member, place.incarnation)
        assert mine is not None, "next_live() gives generations that this process is in"
        leader = (found.leader_address, found.leader_port)
        return World(
            source,
            rank=mine.rank,
            size=found.size,
            generation=found.number,
            leader=leader,
            previous_size=previous,
        )

    def _launched_world(self, launched: LaunchedRank) -> Iterator[World]:
        stop_signal.install()
        world = World(
            SignalSource(),
            rank=launched.rank,
            size=launched.size,
            local_rank=launched.local_rank,
            local_size=launched.local_size,
            generation=launched.generation,
            restarts=True,
        )
        yield from self._turn(world)
        if world.ended:
            # Another rank's launcher may have spoken first. A process that ended before its own launcher
            # asked for it would be taken for one that is done.
            stop_signal.wait(SIGNAL_WITHIN_S)


def join(checkpoints: str | os.PathLike[str] | None = None) -> Job:
    """Join the job that the environment names; without one, a job of this process alone.

    Under `lockstep-launch` or torchrun the process belongs to one generation, and a change of size ends it
    by SIGTERM. With LOCKSTEP_COORDINATOR alone the process is a member itself and lives through changes.
    `checkpoints`: the folder for checkpoints, the same for all members (LOCKSTEP_CHECKPOINTS, else
    `checkpoints` in the working directory)."""
    folder = os.fspath(checkpoints or os.environ.get("LOCKSTEP_CHECKPOINTS") or FOLDER)
    client, launched = coordinator(), launched_rank()
    membership = None
    if client is not None and (launched is None or "LOCKSTEP_INCARNATION" in os.environ):
        membership = Membership(client, pod_place())
        if launched is None:
            membership.start()
    return Job(membership, launched, folder)


def stopping() -> bool:
    """SIGTERM came to this process. Ranks learn of it at different times: `world.over(step)` gives all of them
    the same answer."""
    stop_signal.install()
    return stop_signal.came()


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])
