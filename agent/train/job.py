"""`join()`: the way in for a training script, with a coordinator or without."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from . import collectives, member_files, standstill, stop_signal, undo
from .agreement import Ranks, process_ranks
from .checkpoints import Checkpoints, CoordinatedRecord, LocalRecord, Saved
from .client import CoordinatorError, Stale
from .environment import LaunchedRank, coordinator, launched_rank, pod_place
from .generation import Generation
from .generation_lease import CUT_OFF, CutOff, HangWatch, end_process
from .membership import Membership
from .sources import CoordinatorSource, NoChange, SignalSource
from .standstill import StepWatch
from .world import Source, World

FOLDER = "checkpoints"
SIGNAL_WITHIN_S = 60.0
SAVE_WITHIN_S = 15.0  # how long save() waits for an answer of the coordinator
_AGAIN_S = 0.2
_TELL_S = 2.0  # how long the coordinator is waited for when this process stands still
_OTHERS_CONTINUE = "the other members took this process for lost; start it again"
_log = logging.getLogger("lockstep_train")
_present: list[Job] = []  # what join() returned last


class TakenForLost(SystemExit):
    """Raised when the others continue without this process, which must start again: its state is old."""

    def __init__(self, sentence: str) -> None:
        super().__init__(CUT_OFF)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


class Job:
    """One process of a training job. Made by join()."""

    def __init__(
        self, membership: Membership | None, launched: LaunchedRank | None, folder: str
    ) -> None:
        self.membership, self._launched = membership, launched
        self._record = None if membership is None else CoordinatedRecord(membership)
        self.checkpoints = Checkpoints(folder, self._record or LocalRecord(folder))
        self._hangs: HangWatch | None = None
        self._steps = StepWatch(self._tell_standstill)
        self.world: World | None = None  # of the present turn
        self._follows = self._leaves = False
        self._before = frozenset[str]()  # sockets that were open when the turn began
        self.save_within_s = SAVE_WITHIN_S

    def worlds(self) -> Iterator[World]:
        """One turn for each generation. A turn that ends though over() was not true is the last one: the
        training is done. Without a coordinator there is one turn."""
        if self._launched is not None:
            yield from self._launched_world(self._launched)
        elif self.membership is None:
            yield from self._turn(World(NoChange(), leader=("127.0.0.1", _free_port())))
        else:
            self._follows = False
            self.membership.unfollow()
            yield from self._generations(self.membership)

    def follow(self) -> World:
        """Joins each generation without a turn of worlds(), for workers that take no common steps, such as those of
        Tasks. Returns the present world as soon as this process is in a live generation, which is before latest() and
        save() are called."""
        if self._launched is not None:
            self.world = self.world or self._launched_as(self._launched, SignalSource())
        elif self.membership is None:
            self.world = self.world or World(NoChange())
        else:
            stop_signal.install()
            self.membership.follow()
            live = self.membership.wait_live()
            if live is None:
                raise SystemExit(0)
            self.world = self._followed(live)
        return self.world

    def _followed(self, live: Generation) -> World:
        self._follows = True
        return self._world(live, 0, NoChange())

    def save(
        self,
        step: int,
        write: Callable[[str], Any],
        *,
        data: Mapping[str, Any] | None = None,
        sharded: bool = False,
        together: bool = False,
    ) -> None:
        """Save a checkpoint; call it on all ranks with the same step.

        `write(path)` makes a file or folder at the path; it may return a future, then training continues
        and the checkpoint is complete when the future ends. Rank 0 alone writes, unless the state is
        `sharded`: then each rank writes its part. `together`: all ranks write into one folder at the path, as
        torch.distributed.checkpoint does. `data`: the position, `order.state()`."""
        while True:
            world = self._current_world()
            parts = world.size if sharded or together else 1
            if world.rank >= parts:
                return
            # Others wait for this rank at their next step; workers of tasks do not.
            if self._record is not None:
                self._record.within_s = None if self._follows else self.save_within_s
            try:
                with self.busy():
                    if together:
                        self.checkpoints.save_together(
                            step, world.generation, write, ranks=self._ranks(world), data=data
                        )
                    else:
                        alone = self._record is not None or parts == 1
                        self.checkpoints.save(
                            step,
                            world.generation,
                            write,
                            rank=world.rank,
                            parts=parts,
                            data=data,
                            ranks=Ranks() if alone else process_ranks(),
                        )
            except Stale:
                if not self._follows:
                    raise
                time.sleep(_AGAIN_S)  # a newer generation becomes live
            else:
                return

    @staticmethod
    def _ranks(world: World) -> Ranks:
        ranks = process_ranks()
        if ranks.size != world.size:
            raise RuntimeError(
                "save(together=True) is called after init_process_group, on all ranks"
            )
        return ranks

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A context in which no steps are intended, such as a long evaluation. save() has its own."""
        membership = self.membership
        with self._steps.busy(), nullcontext() if membership is None else membership.lease.busy():
            yield

    def _tell_standstill(self, found: dict[str, Any]) -> None:
        membership, world = self.membership, self.world
        if membership is not None and world is not None:
            entered, waits_in = collectives.entered()
            found |= {**membership.place.identity(), "generation": world.generation}
            found |= {"rank": world.rank, "size": world.size}
            with suppress(CoordinatorError):  # it is told again
                membership.client.post(
                    "/v1/standstill", {**found, "entered": entered, "waits_in": waits_in}, _TELL_S
                )

    def latest(self, *, together: bool = False) -> Saved | None:
        """The newest complete checkpoint whose files are what was written, which is said where that is not the newest;
        None: there is none. together: it is called on all ranks of a process group, each of which reads its share of
        the files; all get the same one."""
        return self.checkpoints.latest(process_ranks() if together else None)

    def leave_at_exit(self) -> None:
        """A worker that follow() made has done all its work: when the process ends without an error the
        coordinator learns that no replacement is needed."""
        if self._follows and not self._leaves:
            self._leaves = True
            atexit.register(self._leave)

    def _leave(self) -> None:
        if self.membership is not None and getattr(sys, "last_value", None) is None:
            self.membership.leave(0)

    def _current_world(self) -> World:
        if self._follows:
            return self.follow()
        if self.world is None:
            raise RuntimeError("save() is called inside of a turn of worlds(), or after follow()")
        return self.world

    def _turn(self, world: World) -> Iterator[World]:
        self.world = world
        yield world
        world.settle()
        try:
            with self.busy():
                self.checkpoints.wait()
        except RuntimeError as error:
            if not (world.ended and world.survives(error)):
                raise

    def _watched_turn(
        self, membership: Membership, world: World, found: Generation
    ) -> Iterator[World]:
        """Runs _turn(). Ends the process if it is cut off from the coordinator and from the other members, or replaced,
        and its collectives if another member is lost without which no step is taken."""
        undo.begin_turn()
        collectives.forget_meshes()
        self.checkpoints.give_up()
        before = self._before = frozenset(collectives.sockets().values())
        lease = membership.lease
        lease.begin()
        if standstill.VARIABLE not in os.environ:
            self._steps.least_s = lease.hang_s

        def look() -> None:
            lost = found.lost(membership.newest)
            if lost and lease.stalled():
                collectives.abort(before, found.leader_port)
            if not lost and lease.doubtful():
                membership.ask(found)
            if lease.expired():
                end_process(CutOff(lease.span_s))
            if membership.replaced:
                end_process(_OTHERS_CONTINUE)

        yield from self._looked_after(world, look)

    def _looked_after(self, world: World, *looks: Callable[[], object]) -> Iterator[World]:
        self._hangs = self._hangs or HangWatch()
        self._steps.begin()
        with self._hangs.turn(self._steps.look, *looks):
            yield from self._turn(world)

    def _survives(self, found: Generation, error: BaseException) -> bool:
        """Returns whether this process goes on after an error, because a member of the generation is lost. Its state is
        that of a whole step then. Waits until the coordinator has noticed the loss."""
        assert self.membership is not None
        if not isinstance(error, RuntimeError):
            return False
        newer, place = self.membership.wait_loss(found), self.membership.place
        if newer is None:
            return False
        waits = place.member in newer.waiting
        if newer.find(place.member, place.incarnation) is None and not waits:
            raise _taken_for_lost(_OTHERS_CONTINUE) from None
        if self.checkpoints.give_up():  # it may wait for ranks that wait for the lost one
            collectives.abort(self._before, found.leader_port)
        collectives.leave()
        if not undo.restore():
            return False
        lost = ", ".join(map(str, found.lost(newer)))
        goes_on = (
            "waits until its replica is whole" if waits else "goes on after its last whole step"
        )
        _log.warning("member %s is lost: this process %s", lost, goes_on)
        return True

    def _generations(self, membership: Membership) -> Iterator[World]:
        stop_signal.install()
        source = CoordinatorSource(membership)
        number = size = 0
        while True:
            try:
                found = membership.next_live(number, source.step if number else None)
            except CutOff as error:
                raise _taken_for_lost(str(error)) from None
            if found is None:
                if not membership.left_by_plan:
                    raise _taken_for_lost(_OTHERS_CONTINUE)
                return
            world = self._world(found, size, source)
            yield from self._watched_turn(membership, world, found)
            if not world.ended:
                membership.leave(0)
            if not world.ended or source.leaves:
                return
            number, size = found.number, found.size

    def _world(self, found: Generation, previous: int, source: Source) -> World:
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
            replica=found.replica,
            survives=lambda error: self._survives(found, error),
            watch=self._steps,
        )

    def _launched_as(self, launched: LaunchedRank, source: Source) -> World:
        stop_signal.install()
        return World(
            source,
            rank=launched.rank,
            size=launched.size,
            local_rank=launched.local_rank,
            local_size=launched.local_size,
            generation=launched.generation,
            restarts=True,
            watch=self._steps,
        )

    def _launched_world(self, launched: LaunchedRank) -> Iterator[World]:
        source = SignalSource()
        world = self._launched_as(launched, source)
        yield from self._looked_after(world)
        source.turned()
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
    made = Job(membership, launched, folder)
    _present[:] = [made]
    return made


def present_job() -> Job:
    """Returns the result of the last join(); joins if there is none yet."""
    return _present[-1] if _present else join()


def stopping() -> bool:
    """SIGTERM came to this process or, without a coordinator, its member's files say that it leaves. Ranks learn of it
    at different times: `world.over(step)` gives all of them the same answer."""
    stop_signal.install()
    return stop_signal.came() or member_files.leaves()


def _taken_for_lost(sentence: str) -> TakenForLost:
    sys.stderr.write(f"lockstep_train: {sentence}\n")
    return TakenForLost(sentence)


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])
