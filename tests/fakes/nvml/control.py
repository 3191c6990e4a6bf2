"""Writes the control file of the fake NVML library, line by line: events of a running machine.
control.h has the format."""

import os
from pathlib import Path


class Control:
    """Goes on after the lines that the file has: the library counts the XIDs that it has told, so that a file begun
    anew would keep its first XID from being told."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines = file.read_text().splitlines() if file.exists() else []

    def set(self, key: str, gpu: int, *values: int) -> None:
        """Sets a value from now on; the last line of a key and GPU counts."""
        self._append(" ".join(map(str, (key, gpu, *values))))

    def xid(self, gpu: int, code: int, *instance: int) -> None:
        """instance: the GPU instance and the compute instance, if the driver reports them."""
        self._append(" ".join(map(str, ("xid", gpu, code, *instance))))

    def passing_xid(self, gpu: int) -> None:
        """An error that is over at once, from a driver that reports recovery actions and asks for none."""
        self.set("recovery", gpu, 0)
        self.xid(gpu, 94)

    def hang(self, call: str, seconds: float) -> None:
        self._append(f"hang {call} {int(seconds * 1000)}")

    def fail(self, call: str, error: int, gpu: int | None = None) -> None:
        """Makes a call fail, on one GPU or on all. 0: the call works again."""
        self._append(f"fail {call} {error}" + ("" if gpu is None else f" {gpu}"))

    def forget(self, key: str) -> None:
        self._lines = [line for line in self._lines if line.split(" ", 1)[0] != key]
        self._write()

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._write()

    def _write(self) -> None:
        fresh = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        fresh.write_text("\n".join(self._lines) + "\n")
        fresh.replace(self.file)  # atomically
