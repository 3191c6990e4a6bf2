"""NVIDIA's programs: where they lie, and what they say. They come into a container with NVIDIA's runtime
(NVIDIA_DRIVER_CAPABILITIES=compute,utility), else they are looked for below the driver's root."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agent.nvml.library import FOLDERS

CONTROL, SMI = "nvidia-cuda-mps-control", "nvidia-smi"
BINARIES = (
    "usr/bin",
    "run/nvidia/driver/usr/bin",
    "home/kubernetes/bin/nvidia/bin",
    "usr/local/nvidia/bin",
)
ANSWER_S = 5.0


class ToolError(Exception):
    """A sentence."""


class ToolTimeout(ToolError):
    """No answer in time: it may be there."""


@dataclass(frozen=True, slots=True)
class Tool:
    path: Path
    env: tuple[tuple[str, str], ...] = ()  # that it needs beside ours
    answer_s: float = ANSWER_S

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, **dict(self.env), **more}

    def run(self, *arguments: str, say: str = "", **env: str) -> str:
        """What it prints. Raises ToolError."""
        try:
            done = subprocess.run(
                [self.path, *arguments],
                check=False,
                input=say,
                capture_output=True,
                text=True,
                timeout=self.answer_s,
                env=self.environment(**env),
            )
        except subprocess.TimeoutExpired:
            raise ToolTimeout(
                f"{self.path.name} has not answered for {self.answer_s:g} s"
            ) from None
        except OSError as error:
            raise ToolError(f"{self.path} can't be run: {error.strerror}") from None
        if done.returncode:
            said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
            what = say.strip() or " ".join(arguments)
            raise ToolError(
                f"{self.path.name} refused `{what}`: {said[:200] or 'it does not say why'}"
            )
        return done.stdout


def find(name: str, driver_root: Path | None) -> Tool:
    """Raises ToolError."""
    if found := shutil.which(name):
        return Tool(Path(found))
    for place in BINARIES if driver_root else ():
        assert driver_root is not None
        path = driver_root / place / name
        if os.access(path, os.X_OK):
            libraries = [driver_root / each for each in FOLDERS if (driver_root / each).is_dir()]
            env = (
                ("PATH", f"{path.parent}:{os.environ.get('PATH', '')}"),
                ("LD_LIBRARY_PATH", ":".join(map(str, libraries))),
            )
            return Tool(path, env)
    where = f" or below {driver_root}" if driver_root else ""
    raise ToolError(
        f"{name} is not on the path{where}: run this with NVIDIA's runtime and "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility, or name the driver's root"
    )
