"""Worker processes of a test, which are killed and started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WITHIN_S = 120.0
_MARK = "LOCKSTEP_TEST_WORKERS"


class Workers:
    """Runs one script for several members. Each line that a process prints is JSON."""

    def __init__(self, folder: Path, script: str, python: str = sys.executable) -> None:
        self.folder, self.python = folder, python
        self.launcher: list[str] = []  # arguments before the script
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._mark = f"{os.getpid()}:{folder}"  # of all their descendants
        folder.mkdir(exist_ok=True)
        (folder / "script.py").write_text(script)

    def start(self, name: str, environment: dict[str, str], *arguments: str) -> None:
        command = [self.python, *self.launcher, str(self.folder / "script.py"), *arguments]
        with (
            (self.folder / f"{name}.out").open("ab") as out,
            (self.folder / f"{name}.err").open("ab") as errors,
        ):
            self.running[name] = subprocess.Popen(
                command, env={**environment, _MARK: self._mark}, stdout=out, stderr=errors
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.running[name].send_signal(number)
        if number == signal.SIGKILL:
            self.running[name].wait(WITHIN_S)

    @staticmethod
    def end_process(pid: int) -> None:
        """One that a process of this test started, and that outlived it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def said(self, *names: str) -> list[Any]:
        """What the processes of these names printed, whole lines only."""
        found = []
        for name in names or sorted(self.running):
            file = self.folder / f"{name}.out"
            lines = file.read_text().splitlines(keepends=True) if file.exists() else []
            found += [json.loads(line) for line in lines if line.endswith("\n")]
        return found

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()

    def ended(self, name: str) -> int:
        """The exit code; waits for it."""
        try:
            return self.running[name].wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} goes on: {self.errors(name)[-3000:]}") from None

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait(WITHIN_S)
        wait_for(lambda: not self._end_descendants(), "processes of killed launchers end")

    def _end_descendants(self) -> list[int]:
        """Kills what is left. A launcher's children have sessions of their own and outlive it, so neither its group nor
        their parent tells whose they are: the environment does."""
        left = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and self._is_ours(entry):
                left.append(int(entry.name))
                self.end_process(left[-1])
        return left

    def _is_ours(self, process: Path) -> bool:
        try:
            return f"{_MARK}={self._mark}".encode() in (process / "environ").read_bytes().split(
                b"\0"
            )
        except OSError:  # it has ended, or is another user's
            return False


@contextmanager
def workers(folder: Path, script: str, python: str = sys.executable) -> Iterator[Workers]:
    made = Workers(folder, script, python)
    try:
        yield made
    finally:
        made.stop()


def wait_for(
    is_so: Callable[[], bool], what: Callable[[], str] | str, within_s: float = WITHIN_S
) -> None:
    end = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(
                f"not within {within_s:.0f} s: {what() if callable(what) else what}"
            )
        time.sleep(0.03)
