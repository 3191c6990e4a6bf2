"""The control file of the fake NVML library, written line by line: what happens to a machine while it
runs. control.h says what a line may be."""

import os
from pathlib import Path


class Control:
    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines: list[str] = []

    def set(self, key: str, gpu: int, *values: int) -> None:
        """From now on; the last word on a key and a GPU counts."""
        self._append(" ".join(map(str, (key, gpu, *values))))

    def xid(self, gpu: int, code: int, *instance: int) -> None:
        """instance: the GPU instance, and the compute instance in it, where it is told."""
        self._append(" ".join(map(str, ("xid", gpu, code, *instance))))

    def hang(self, call: str, seconds: float) -> None:
        self._append(f"hang {call} {int(seconds * 1000)}")

    def fail(self, call: str, error: int) -> None:
        """0: it works again."""
        self._append(f"fail {call} {error}")

    def _append(self, line: str) -> None:
        self._lines.append(line)
        fresh = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        fresh.write_text("\n".join(self._lines) + "\n")
        fresh.replace(self.file)  # whole, or not yet
