"""Where worlds learn that they are to stop: the coordinator, SIGTERM, or nothing."""

from __future__ import annotations

import threading
import time

from . import member_files, stop_signal
from .client import CoordinatorError
from .generation_lease import touch_step_file
from .membership import Membership
from .world import NO_STEP

_REPORT_EVERY_S = 0.5
_NEXT_GENERATION = 2**62
TERMINATED = 143  # as a shell says it: 128 + SIGTERM


class NoChange:
    """One process without a coordinator. It ends if its member's files say so."""

    def newest(self) -> tuple[int, int]:
        return (_NEXT_GENERATION if member_files.leaves() else 0), NO_STEP

    def report(self, generation: int, step: int, samples: int, left: int | None) -> None:
        """There is nobody to report to."""


class SignalSource:
    """A process that its launcher ends by SIGTERM when the size changes."""

    def newest(self) -> tuple[int, int]:
        return (_NEXT_GENERATION if stop_signal.came() else 0), NO_STEP

    def report(self, generation: int, step: int, samples: int, left: int | None) -> None:
        """The launcher speaks with the coordinator, and sees that a step was taken."""
        touch_step_file()


class CoordinatorSource:
    """A process that is a member itself. Reports go out in a thread, at most two in a second; each
    has the newest step."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.leaves = False  # SIGTERM came
        self._latest: tuple[int, int, int, int | None] | None = None
        self._news = threading.Event()
        self._sent = (0, 0, time.monotonic())  # generation, samples, when
        thread = threading.Thread(target=self._send_all, name="lockstep-report", daemon=True)
        thread.start()

    @property
    def step(self) -> int | None:
        """Steps taken, as reported to over()."""
        return None if self._latest is None else self._latest[1]

    def newest(self) -> tuple[int, int]:
        """SIGTERM without a plan: the coordinator is told, and this rank goes on until the others, who hear of
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

    def report(self, generation: int, step: int, samples: int, left: int | None) -> None:
        self._latest = (generation, step, samples, left)
        self._membership.lease.worked()
        self._news.set()

    def _send_all(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            self._send()
            time.sleep(_REPORT_EVERY_S)

    def _send(self) -> None:
        if self._latest is None:
            return
        generation, step, samples, left = self._latest
        before_generation, before_samples, before_s = self._sent
        now_s = time.monotonic()
        same = generation == before_generation
        body = {
            **self._membership.place.identity(),
            "generation": generation,
            "step": step,
            "samples": samples - before_samples if same else 0,
            "seconds": now_s - before_s if same else 0.0,
        }
        if left is not None:
            body["epoch_left"] = left
        try:
            self._membership.client.post("/v1/report", body)
        except CoordinatorError:
            return  # reports are not needed; the watch says what is wrong
        self._sent = (generation, samples, now_s)
