"""Watches a directory with inotify for names that come and go. If the kernel has no watches left,
`watching` is False and callers poll more often.

Design: docs/design/kubelet.md
"""

import contextlib
import ctypes
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from agent.backoff import Backoff, StateLogger

log = logging.getLogger(__name__)

CREATE, DELETE, MOVED, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0xC0, 0x400, 0x800
NAMES = CREATE | DELETE | MOVED | DELETE_SELF | MOVE_SELF
ONLY_DIRECTORY, IGNORED = 0x01000000, 0x8000
EVENT = struct.Struct("iIII")
RETRY_S = 30.0  # longest pause between attempts


class DirectoryWatch:
    """Calls changed() from the thread of run()."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self.path, self._changed = path, changed
        self._log = StateLogger(log)
        self._waker: socket.socket | None = None
        self.watching = False
        self.changes = 0  # names that came or went so far

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(first_s=0.5, most_s=RETRY_S)
        receiver, self._waker = socket.socketpair()
        with receiver, self._waker:
            while not stop.is_set():
                try:
                    self._watch(stop, receiver, backoff)
                except OSError as error:
                    self._log.failed(
                        f"cannot watch {self.path} ({error.strerror}); polling it instead"
                    )
                self.watching = False
                self._notify()
                select.select([receiver], [], [], backoff.pause_s())

    def stop(self) -> None:
        """Call after setting the event that run() was given."""
        if waker := self._waker:
            with contextlib.suppress(OSError):
                waker.send(b"x")

    def _watch(self, stop: threading.Event, receiver: socket.socket, backoff: Backoff) -> None:
        """Runs until stop, or until the directory itself is replaced."""
        handle = _begin(self.path)
        try:
            self.watching = True
            self._log.ok(f"watching {self.path}")
            self._notify()  # changes before the watch
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.register(receiver, select.POLLIN)
            while True:
                poll.poll()
                if stop.is_set():
                    return
                gone = _gone(os.read(handle, 65536))
                backoff.reset()
                self._notify()
                if gone:
                    return
        finally:
            os.close(handle)

    def _notify(self) -> None:
        self.changes += 1
        self._changed()


def _begin(path: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = int(libc.inotify_init1(os.O_CLOEXEC))
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if libc.inotify_add_watch(handle, os.fsencode(path), NAMES | ONLY_DIRECTORY) < 0:
        number = ctypes.get_errno()
        os.close(handle)
        raise OSError(number, os.strerror(number))
    return handle


def _gone(data: bytes) -> bool:
    """Returns whether the directory itself was removed or moved."""
    offset = 0
    while offset < len(data):
        _, mask, _, length = EVENT.unpack_from(data, offset)
        if mask & (IGNORED | DELETE_SELF | MOVE_SELF):
            return True
        offset += EVENT.size + length
    return False
