"""The time for which a process trusts its generation while the coordinator does not answer.

The coordinator removes a process that has been silent for a while, and the other members continue without it. A
process that got no answer for as long cannot know whether that happened. While steps are taken, the other members are
present and only the coordinator is away. When no step is taken either, the process is cut off and ends: its further
work would not count.

Design: docs/design/members.md"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from .client import CoordinatorClient, CoordinatorError

SPAN_S = 30.0  # where the coordinator does not say
CUT_OFF = 75  # exit code: EX_TEMPFAIL
_SLOWER = 3.0  # a step may take this many times as long as the longest before
_STALL_S, _STALLED = 2.0, 1.5  # at least; times the longest step
_LOOK_S = 0.5


class CutOff(CoordinatorError):
    """Neither the coordinator nor the other members were reached for too long."""

    def __init__(self, span_s: float) -> None:
        super().__init__(
            f"no answer of the coordinator for {span_s:.0f} s, and no step with the other members: "
            "this process is cut off; start it again"
        )


class GenerationLease:
    """The lease of one process. All methods may be called from any thread. Times by the process's own steady clock."""

    def __init__(
        self, client: CoordinatorClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._clock = client, clock
        self.span_s = SPAN_S
        self._longest_s = 0.0  # between two steps
        self._worked_at = clock()
        self._first = True  # no step of this generation was taken yet
        self._busy = 0

    def worked(self) -> None:
        """A step was taken, so collectives work."""
        now = self._clock()
        if not self._first:
            self._longest_s = max(self._longest_s, now - self._worked_at)
        self._first, self._worked_at = False, now

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Suspends the limit while no step can be taken, for example while a checkpoint is written."""
        self._busy += 1
        try:
            yield
        finally:
            self._worked_at = self._clock()
            self._first = True  # what it took is not a measure of a step
            self._busy -= 1

    def begin(self) -> None:
        """A new generation: its first step may take long."""
        self._worked_at, self._first = self._clock(), True

    def stalled(self) -> bool:
        """Returns whether a step takes clearly longer than any before."""
        return self._clock() - self._worked_at >= max(_STALL_S, _STALLED * self._longest_s)

    def unanswered(self) -> bool:
        return self._clock() - self._client.answered_at >= self.span_s

    def expired(self, *, waiting: bool = False) -> bool:
        """Returns whether the process is cut off. waiting: it takes no steps because its turn is over."""
        if self._busy or not self.unanswered():
            return False
        usual_s = 0.0 if waiting else _SLOWER * self._longest_s
        return self._clock() - self._worked_at >= max(self.span_s, usual_s)


class HangWatch:
    """Looks after a turn whose thread may hang in a collective and reach no check: ends the process when it is cut off, and the
    collectives when a member is lost without which no step is taken."""

    def __init__(self, lease: GenerationLease) -> None:
        self._lease = lease
        self._member_lost: Callable[[], bool] = bool
        self._abort: Callable[[], object] = bool
        self._in_turn = threading.Event()
        threading.Thread(target=self._watch, name="lockstep-lease", daemon=True).start()

    @contextlib.contextmanager
    def turn(self, member_lost: Callable[[], bool], abort: Callable[[], object]) -> Iterator[None]:
        self._lease.begin()
        self._member_lost, self._abort = member_lost, abort
        self._in_turn.set()
        try:
            yield
        finally:
            self._in_turn.clear()

    def _watch(self) -> None:
        while True:
            self._in_turn.wait()
            time.sleep(_LOOK_S)
            if not self._in_turn.is_set():
                continue
            if self._member_lost() and self._lease.stalled():
                self._abort()
            if self._lease.expired():
                sys.stderr.write(f"lockstep_train: {CutOff(self._lease.span_s)}\n")
                sys.stderr.flush()
                os._exit(CUT_OFF)  # an exception would not be seen: the main thread hangs
