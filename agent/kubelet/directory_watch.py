"""Tells when names in a directory come and go, as the kernel does (inotify), so that nobody has to look
again and again. Where the kernel has no watches left, it says so, and others look more often."""

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
AGAIN_S = 30.0  # between tries, where there is nothing to watch


class DirectoryWatch:
    """changed() is called from the thread of run()."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self.path, self._changed = path, changed
        self._log = StateLogger(log)
        self._waker: socket.socket | None = None
        self.watching = False
        self.moves = 0  # how often something came or went

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(first_s=0.5, most_s=AGAIN_S)
        ear, self._waker = socket.socketpair()
        with ear, self._waker:
            while not stop.is_set():
                try:
                    self._watch(stop, ear, backoff)
                except OSError as error:
                    self._log.failed(
                        f"{self.path} can't be watched ({error.strerror}): it is looked at instead"
                    )
                self.watching = False
                self._tell()
                select.select([ear], [], [], backoff.pause_s())

    def stop(self) -> None:
        """After the event that run() was given was set."""
        if waker := self._waker:
            with contextlib.suppress(OSError):
                waker.send(b"x")

    def _watch(self, stop: threading.Event, ear: socket.socket, backoff: Backoff) -> None:
        """Until stop, or the directory is another one."""
        handle = _begin(self.path)
        try:
            self.watching = True
            self._log.ok(f"{self.path} is watched")
            self._tell()  # what came before the watch
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.register(ear, select.POLLIN)
            while True:
                poll.poll()
                if stop.is_set():
                    return
                gone = _gone(os.read(handle, 65536))
                backoff.reset()
                self._tell()
                if gone:
                    return
        finally:
            os.close(handle)

    def _tell(self) -> None:
        self.moves += 1
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
    """Whether the directory itself went."""
    place = 0
    while place < len(data):
        _, mask, _, length = EVENT.unpack_from(data, place)
        if mask & (IGNORED | DELETE_SELF | MOVE_SELF):
            return True
        place += EVENT.size + length
    return False
