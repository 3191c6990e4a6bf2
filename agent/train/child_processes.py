"""The processes of one member in one generation: started together, ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from .warm_spares import WarmSpares

LAST_LINES = 20
_LOOK_S = 0.05
# Waits at a pipe that ends with this process, whatever ends it, and then kills the groups. Python, since some images
# for training have no shell.
_GUARD = """import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
sys.stdin.read()
for group in sys.argv[1:]:
    try:
        os.killpg(int(group), signal.SIGKILL)
    except OSError:
        pass
"""


class ChildProcesses:
    """Processes in groups of their own, so that what they start ends with them. They end with this process, too, also
    if it is killed: else they would train beside the generation that continues without them. Their output passes
    through; the last lines of stderr are kept for the report of a failure."""

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        spares: WarmSpares | None = None,
    ) -> None:
        self._spares = spares
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._children: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._guard: subprocess.Popen[bytes] | None = None
        try:
            for environment in environments:
                self._start(command, environment)
            self._guard = _guard([child.pid for child in self._children])
        except OSError:
            self.stop(0.0)
            raise

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        whole = {**os.environ, **environment}
        child = self._spares.take(whole) if self._spares is not None else None
        if child is None:
            child = subprocess.Popen(
                command, env=whole, stderr=subprocess.PIPE, start_new_session=True
            )
        assert child.stderr is not None
        reader = threading.Thread(target=self._copy, args=(child.stderr,), daemon=True)
        reader.start()
        self._children.append(child)
        self._readers.append(reader)

    def failed_code(self) -> int | None:
        """The exit code of the first process that failed, a shell's for signals (128 + number); None: none."""
        for child in self._children:
            code = child.poll()
            if code:
                return code if code > 0 else 128 - code
        return None

    def all_done(self) -> bool:
        return all(child.poll() == 0 for child in self._children)

    def running(self) -> bool:
        return any(child.poll() is None for child in self._children)

    def stop(
        self, within_s: float, saves: Callable[[], bool] = lambda: False, most_s: float = 0.0
    ) -> None:
        """SIGTERM, then after `within_s` SIGKILL, to all and what they started. While saves() is true, the time has not
        begun, for at most `most_s`. Returns when all ended."""
        self._signal(signal.SIGTERM)
        began_s = time.monotonic()
        end_s = began_s + within_s
        while self.running() and (now_s := time.monotonic()) < end_s:
            if saves():
                end_s = max(began_s + within_s, min(began_s + most_s, now_s) + within_s)
            time.sleep(_LOOK_S)
        self._signal(signal.SIGKILL)
        for child in self._children:
            child.wait()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        for reader in self._readers:
            reader.join(1.0)

    def last_lines(self) -> str:
        for reader in self._readers:
            reader.join(0.2)
        return "\n".join(self._last)

    def _signal(self, number: int) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):  # it ended, and all that it started
                os.killpg(child.pid, number)

    def _copy(self, stream: IO[bytes]) -> None:
        for line in stream:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            self._last.append(line.decode(errors="replace").rstrip("\n")[:1000])
        stream.close()


def _guard(groups: Sequence[int]) -> subprocess.Popen[bytes]:
    """Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, *map(str, groups)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
