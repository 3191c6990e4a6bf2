"""Sources of the request to stop a world: the coordinator, SIGTERM, or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from . import member_files, stop_signal
from .membership import Membership
from .step_file import IN_TURN, Progress, asked_to_stop, mark, write_step
from .step_reports import REPORT_EVERY_S, ReportSender
from .world import NO_STEP

_NEXT_GENERATION = 2**62
TERMINATED = 143  # as a shell says it: 128 + SIGTERM


class NoChange:
    """One process without a coordinator. It ends if its member's files say so."""

    def newest(self) -> tuple[int, int]:
        return (_NEXT_GENERATION if member_files.leaves() else 0), NO_STEP

    def report(
        self, generation: int, step: int, samples: int, left: int | None, own_s: float
    ) -> None:
        """Does nothing: there is no coordinator."""


class SignalSource:
    """A process that its launcher ends by SIGTERM when the size changes."""

    def __init__(self) -> None:
        self._turned: Callable[[], None] | None = None

    def newest(self) -> tuple[int, int]:
        self._turned = self._turned or mark(IN_TURN)
        return (_NEXT_GENERATION if stop_signal.came() or asked_to_stop() else 0), NO_STEP

    def report(
        self, generation: int, step: int, samples: int, left: int | None, own_s: float
    ) -> None:
        """The launcher speaks with the coordinator."""
        write_step(step, samples, left, own_s)

    def turned(self) -> None:
        """The turn has ended, and all that it saves is written."""
        if self._turned is not None:
            self._turned()


class CoordinatorSource:
    """A process that is a member itself. Reports go out in a thread, at most two in a second; each
    has the newest step."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.leaves = False  # SIGTERM came
        self._latest: tuple[int, Progress] | None = None  # generation
        self._news = threading.Event()
        self._sender = ReportSender(membership)
        thread = threading.Thread(target=self._send_all, name="lockstep-report", daemon=True)
        thread.start()

    @property
    def step(self) -> int | None:
        """Steps taken, as reported to over()."""
        return None if self._latest is None else self._latest[1].step

    def newest(self) -> tuple[int, int]:
        """SIGTERM without a plan: the coordinator is told, and this rank continues until the others, who hear of
        it, agree on the step. A rank that is alone stops at once."""
        if stop_signal.came():
            self._say_leaving()
            if self._membership.newest.size <= 1:
                return _NEXT_GENERATION, NO_STEP
        found = self._membership.newest
        stop = found.stop_after_step
        return found.number, NO_STEP if stop is None else stop

    def _say_leaving(self) -> None:
        if not self.leaves:
            self.leaves = True
            if not self._membership.left_by_plan:
                leave = self._membership.leave
                threading.Thread(target=leave, args=(TERMINATED, "SIGTERM"), daemon=True).start()

    def report(
        self, generation: int, step: int, samples: int, left: int | None, own_s: float
    ) -> None:
        self._latest = generation, Progress(step, samples, left, own_s)
        self._membership.lease.worked()
        self._news.set()

    def _send_all(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._latest is not None:
                self._sender.send(*self._latest)
            time.sleep(REPORT_EVERY_S)
