"""Renews the lease of the task that a process works on, and tells how far it is, in the background."""

from __future__ import annotations

import logging
import threading
import time

from .client import CoordinatorError
from .task_lease import TaskLease, TaskQueue

TELL_EVERY_S = 0.2  # progress is sent at most this often
_RETRY_S = 1.0
_log = logging.getLogger("lockstep_train")


class LeaseRenewal:
    """Renews the lease of one task: as long as the process lives, or for at most `timeout_s` seconds, so that a stuck
    process loses it."""

    def __init__(self, queue: TaskQueue, lease: TaskLease, timeout_s: float | None) -> None:
        self._queue, self._lease = queue, lease
        self._upto, self._sent = lease.resume, lease.resume
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._lost = self._closed = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._keep, name="lockstep-lease", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """The lease ended: another process may have the task."""
        return self._lost

    @property
    def upto(self) -> int:
        return self._upto

    def note(self, upto: int) -> None:
        with self._news:
            self._upto = max(self._upto, upto)
            self._news.notify()

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()

    def _keep(self) -> None:
        due_s = time.monotonic() + self._lease.lease_s / 3
        while True:
            with self._news:
                wait_s = max(0.0, due_s - time.monotonic())
                self._news.wait_for(lambda: self._closed or self._upto > self._sent, wait_s)
                if self._closed:
                    return
                upto = self._upto
            if self._end_s is not None and time.monotonic() > self._end_s:
                _log.warning(
                    "task %s takes longer than its timeout: its lease is not renewed",
                    self._lease.name,
                )
                self._lost = True
                return
            lease_s = self._renewed(upto)
            if lease_s is None:
                return
            due_s = time.monotonic() + lease_s / 3
            time.sleep(TELL_EVERY_S)

    def _renewed(self, upto: int) -> float | None:
        """Seconds of the lease; None: it is lost."""
        try:
            lease_s = self._queue.renew(self._lease, upto)
        except CoordinatorError as error:
            _log.info("task %s: its lease was not renewed: %s", self._lease.name, error)
            time.sleep(_RETRY_S)
            return 3 * _RETRY_S
        if lease_s is None:
            self._lost = True
            return None
        self._sent = upto
        return lease_s
