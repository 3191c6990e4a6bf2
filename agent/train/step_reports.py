"""Reports of steps to the coordinator, at most two in a second."""

from __future__ import annotations

import threading
import time

from .client import CoordinatorError
from .membership import Membership
from .step_file import Progress, StepFile

REPORT_EVERY_S = 0.5


class ReportSender:
    """Sends the reports of one member."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._sent = (0, Progress(0), time.monotonic())

    def send(self, generation: int, progress: Progress) -> None:
        before_generation, before, before_s = self._sent
        now_s = time.monotonic()
        same = generation == before_generation
        body = {
            **self._membership.place.identity(),
            "generation": generation,
            "step": progress.step,
            "samples": max(0, progress.records - (before.records if same else 0)),
            "seconds": now_s - before_s if same else 0.0,
            "own": max(0.0, progress.own_s - before.own_s) if same else 0.0,
        }
        if progress.left is not None:
            body["epoch_left"] = progress.left
        try:
            self._membership.client.post("/v1/report", body)
        except CoordinatorError:
            return  # reports are not needed; the watch says what is wrong
        self._sent = (generation, progress, now_s)


class LauncherReports:
    """Sends the steps that the processes of a launcher wrote into their files."""

    def __init__(self, membership: Membership) -> None:
        self._sender = ReportSender(membership)
        self._steps: StepFile | None = None
        self._told: tuple[int, Progress] | None = None
        self._thread: threading.Thread | None = None

    def follow(self, steps: StepFile) -> None:
        """Follows the files of a generation that starts now."""
        self._steps = steps
        if self._thread is None or not self._thread.is_alive():
            # A thread that a failure ended is replaced: without reports training goes on.
            send = threading.Thread(target=self._send_all, name="lockstep-report", daemon=True)
            self._thread = send
            send.start()

    def _send_all(self) -> None:
        while True:
            time.sleep(REPORT_EVERY_S)
            self._send()

    def _send(self) -> None:
        steps = self._steps
        progress = None if steps is None else steps.progress()
        if steps is None or progress is None or self._told == (steps.generation, progress):
            return
        self._told = steps.generation, progress
        self._sender.send(steps.generation, progress)
