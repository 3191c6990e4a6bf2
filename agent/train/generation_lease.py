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
from .standstill import LEAST_S

SPAN_S = 30.0  # where the coordinator does not say
CUT_OFF = 75  # exit code: EX_TEMPFAIL
_SLOWER = 3.0  # a step may take this many times as long as the longest before
_DOUBT_S, _STALL_S, _STALLED = 1.0, 2.0, 1.5  # at least; times the longest step
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
        self.span_s, self.hang_s = SPAN_S, LEAST_S
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

    def doubtful(self) -> bool:
        """Returns whether a step takes so long that the others are to be asked whether they run."""
        if self._busy or self._first:
            return False
        return self._clock() - self._worked_at >= max(_DOUBT_S, _STALLED * self._longest_s)

    def unanswered(self) -> bool:
        return self._clock() - self._client.answered_at >= self.span_s

    def expired(self, *, waiting: bool = False) -> bool:
        """Returns whether the process is cut off. waiting: it takes no steps because its turn is over."""
        if self._busy or not self.unanswered():
            return False
        usual_s = 0.0 if waiting else _SLOWER * self._longest_s
        return self._clock() - self._worked_at >= max(self.span_s, usual_s)


class HangWatch:
    """Looks after a turn whose thread may hang and reach no check: calls functions twice a second."""

    def __init__(self) -> None:
        self._looks: tuple[Callable[[], object], ...] = ()
        self._in_turn, self._looking = threading.Event(), threading.Lock()
        threading.Thread(target=self._watch, name="lockstep-lease", daemon=True).start()

    @contextlib.contextmanager
    def turn(self, *looks: Callable[[], object]) -> Iterator[None]:
        self._looks = looks
        self._in_turn.set()
        try:
            yield
        finally:
            with (
                self._looking
            ):  # what ends the collectives of this turn must not meet those of the next one
                self._in_turn.clear()

    def _watch(self) -> None:
        while True:
            self._in_turn.wait()
            time.sleep(_LOOK_S)
            with self._looking:
                for look in self._looks if self._in_turn.is_set() else ():
                    look()


def end_process(why: object) -> None:
    """Ends this process at once: an exception would not be seen where the main thread hangs."""
    sys.stderr.write(f"lockstep_train: {why}\n")
    sys.stderr.flush()
    os._exit(CUT_OFF)
