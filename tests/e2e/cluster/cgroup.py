"""One cgroup, in every hierarchy (version 1) or in the only one (version 2)."""

import contextlib
import os
import time
from pathlib import Path, PurePath

TOP = Path("/sys/fs/cgroup")


class Cgroup:
    def __init__(self, path: str) -> None:
        self.path = path
        self.v2 = (TOP / "cgroup.controllers").exists()

    def hierarchies(self) -> list[Path]:
        if self.v2:
            return [TOP]
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        return [
            Path(mount[1])
            for mount in mounts
            if mount[2] in {"cgroup", "cgroup2"} and mount[1].startswith(str(TOP))
        ]

    def create(self) -> None:
        for top in self.hierarchies():
            at = top
            for part in PurePath(self.path).parts:
                if self.v2:  # a child has the controllers that its parent hands down
                    for controller in (at / "cgroup.controllers").read_text().split():
                        (at / "cgroup.subtree_control").write_text(f"+{controller}")
                at /= part
                at.mkdir(exist_ok=True)
                for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty at first
                    here = at / setting
                    if not self.v2 and here.exists() and not here.read_text().strip():
                        here.write_text((at.parent / setting).read_text())

    def join(self) -> None:
        for top in self.hierarchies():
            (top / self.path / "cgroup.procs").write_text("0")

    def remove(self) -> None:
        for top in self.hierarchies():
            for directory, _, _ in os.walk(top / self.path, topdown=False):
                _remove(Path(directory))


def _remove(directory: Path) -> None:
    for _ in range(50):
        with contextlib.suppress(FileNotFoundError):
            try:
                directory.rmdir()
            except OSError:
                time.sleep(0.1)  # the last process is just leaving
                continue
        return
